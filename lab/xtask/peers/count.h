/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What all programs share. A program lists its functions in FUNCTIONS, and each of them counts its own calls, in memory that children
   of fork share. end() prints the result and the counts: alone, a program prints the same each time. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DECLARED(name) __attribute__((noinline)) long name(long);
#define INDEX(name) name##_index,
#define NAME(name) #name,

#ifdef __cplusplus
extern "C" {
#endif
FUNCTIONS(DECLARED)
extern long *counts;
#ifdef __cplusplus
}
#endif

enum { FUNCTIONS(INDEX) how_many };

#define COUNTED(name) __atomic_fetch_add(&counts[name##_index], 1, __ATOMIC_RELAXED)
/* In two steps, so that a name may be a macro. */
#define CALLED(name) COUNTED(name)

#ifndef PLUGIN
long *counts;

static void begin(void)
{
	counts = (long *)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static int end(long result)
{
	static const char *const names[] = {FUNCTIONS(NAME)};

	printf("result %ld\n", result);
	for (int i = 0; i < how_many; i++)
		printf("%s %ld\n", names[i], counts[i]);
	return 0;
}
#endif
