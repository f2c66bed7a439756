/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the parts of a random batch share. harness.c runs the cases, handled.c is what handlers do, ARCH.S measures. */
#include <stdint.h>

#define MOST_ARGS 12
#define MOST_WORDS 24
#define MOST_EVENTS 24
#define STACK_SIZE 32768

/* All registers, by the numbers of the instruction set. x86_64 has 16, and SP is among them; arm64's SP is number 31. */
struct state {
    uint64_t g[32];
    uint8_t v[32][16];
    uint64_t flags, control, x87, spare;
    uint64_t stack[MOST_WORDS];
};

/* Bytes of a value that are in one place: 'g', 'v', or 's', so many bytes above the first stack argument. */
struct piece {
    char place, extend;
    uint8_t of, size, offset;
    uint16_t index;
};

struct value {
    uint8_t size, boolean;
    /* A bit for each byte that is not padding. */
    uint64_t valid;
};

enum kind { ARGS, REGS, GRAPH, DIRECT, FRAME, FREGS, SHADOW, PROGRAMS };
/* NEXT: the handler names a direct trampoline, `back`, which is entered as if the site had called it. EARLY: the operation names
   it, and no handler is called before. */
enum act { NOTHING, MODIFY, REDIRECT, SKIP, NEXT, EARLY };
enum { ENTRY_SLOT, EXIT_SLOT, FIRST_PROGRAM };

struct test {
    const char *name;
    uint64_t seed;
    enum kind kind;
    enum act act;
    void (*function)(void), (*tramp)(void), (*back)(void);
    /* Bytes to behind the site; whether the site jumps; whether the literal before the function names an operation. */
    uint8_t behind, jumps, literal;
    /* Whether the body is the probe, which tells all registers; how often the body calls itself. */
    uint8_t probe, again;
    /* Whether callbacks get op; whether flags are promised; what SP is aligned to at calls; whether ip comes first. */
    uint8_t op, flags, align, ip;
    /* Whether handlers lose vector registers, of which those with arguments and results are saved. */
    uint8_t vectors;
    /* Programs: how many of each, and whether ip is in the context. */
    uint8_t fentry, fmod_ret, fexit, ip_arg;
    const int *cookies;
    uint8_t args, words;
    struct value arg[MOST_ARGS], result;
    /* -1, or the register with the address of a result in memory. */
    int8_t sret;
    const struct piece *at, *handler_at, *result_at;
};

struct event {
    int slot;
    struct state s;
    uint64_t cookie;
    uint64_t fregs[48];
    uint64_t context[2 + MOST_WORDS + 4];
    uint64_t returned;
};

struct slot {
    int16_t reg;
    uint16_t offset;
};
enum { SP_SLOT = 100, PC_SLOT, PARENT_SLOT, DIRECT_SLOT, END_SLOT };

extern const struct test tests[];
extern const int test_count;
extern const struct test *now;
extern void *operation[64], *function_trace_op;
extern struct event events[MOST_EVENTS];
extern int event_count, parent_count, has_upper;
extern struct state call_in, call_out, handler_state, probe_state, give_state, trash_state;
extern void *call_target;
extern char measured_return[];
extern unsigned probe_calls;
extern uint8_t seen[MOST_ARGS][16], give_result[64];
extern unsigned seen_calls, again;
extern uint64_t changed(const struct test *, int reg);
int changeable(const struct test *, const struct piece *, const struct value *, int reg);
const struct slot *layout(const struct test *, int exit);
uint64_t handled(int slot);

/* The image of registers and stack that the case's function is called with, from `values`. */
extern struct state image;
extern uint8_t values[MOST_ARGS][16], *stack;
extern int failures, told;
extern const char *phase;
extern uint64_t chance;
__attribute__((format(printf, 1, 2))) void fail(const char *, ...);
void same(uint64_t is, uint64_t wanted, const char *what, int n);
int differs(const uint8_t *is, const uint8_t *wanted, uint64_t valid, unsigned offset, unsigned size);
uint8_t *at(struct state *, const struct piece *);
int paired(const struct test *);
void compare_events(const struct test *);
void run(const struct test *, int traced);
void measured_call(void), helper(void), redirected(void);

#ifdef __x86_64__
#define GENERAL 16
#define RED_ZONE 128
#define IP_BEFORE 5
#define SP_REG 4
#define ARG_REG(n) ((const uint8_t[]){7, 6, 2, 1, 8, 9}[n])
#define STACK_ARGS 8
#elif defined(__aarch64__)
#define GENERAL 31
#define RED_ZONE 0
#define IP_BEFORE 4
#define SP_REG 31
#define ARG_REG(n) (n)
#define STACK_ARGS 0
#else
#define GENERAL 32
#define RED_ZONE 0
#define IP_BEFORE 8
#define SP_REG 2
#define ARG_REG(n) (10 + (n))
#define STACK_ARGS 0
#endif
