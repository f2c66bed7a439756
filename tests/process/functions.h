/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What traced functions need. They are compiled with the batch's options, and know no more of the harness than this. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef int64_t s64;
enum e { NEGATIVE = -1, POSITIVE };
struct list_head;

/* No clone of it, and no copy in itself. Patched as Linux with call operations has it, it is aligned for the literal. */
#ifdef __clang__
#define TRACED __attribute__((noinline, aligned(16)))
#else
#define TRACED __attribute__((noipa, aligned(16)))
#endif

extern uint8_t seen[12][16], give_result[64];
extern unsigned seen_calls, again;
void helper(void);
