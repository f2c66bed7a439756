// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a traced call costs, with each variant on functions of its own and all of them in this process, in turn.
 *
 * variants.h has a line VARIANT(name) for each, or LOOPS(name) where its functions are elsewhere; variants_table.h what
 * their sites go to. With COUNT defined the handlers count, and nothing is measured: that every handler runs and nothing is
 * lost is seen before.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

#include "graph.h"
#include "traced.h"

enum { CALLS = 1500, ROUNDS = 100, DEPTH = 8, STORES = 32, WORK = 10 };

static volatile uint64_t buffer[STORES];
uint64_t entries, exits;

#ifdef COUNT
#define COUNTED(n) ((n)++)
#else
#define COUNTED(n) ((void)0)
#endif

/* Handlers. */
UNTRACED void on_entry(void) { COUNTED(entries); __asm__ volatile(""); }
UNTRACED void on_exit_(void) { COUNTED(exits); __asm__ volatile(""); }
void *function_trace_op;

/* What a tracer that redirects returns has to keep: the return address, and no more. */
static uint64_t shadow[64], *top = shadow;
void return_to_handler(void);

/* func(ip, parent_ip, op, fregs); 152: pt_regs.sp, the address of parent_ip. */
UNTRACED void graph_entry(uint64_t ip, uint64_t parent, void *op, char *fregs)
{
	uint64_t *slot = *(uint64_t **)(fregs + 152);
	(void)ip, (void)op;
	COUNTED(entries);
	*top++ = parent;
	*slot = (uint64_t)return_to_handler;
}

UNTRACED uint64_t ftrace_return_to_handler(void *fregs)
{
	(void)fregs;
	COUNTED(exits);
	return *--top;
}

/* 120: pt_regs.orig_ax, where a callback chooses a direct trampoline. */
void direct_of_kernel(void), direct_of_ours(void);
UNTRACED void ops_of_kernel(uint64_t ip, uint64_t parent, void *op, char *fregs)
{
	(void)ip, (void)parent, (void)op;
	*(void **)(fregs + 120) = (void *)direct_of_kernel;
}

UNTRACED void ops_of_ours(uint64_t ip, uint64_t parent, void *op, char *fregs)
{
	(void)ip, (void)parent, (void)op;
	*(void **)(fregs + 120) = (void *)direct_of_ours;
}

/* The thread's words and its buffer, for what records. */
__thread uint64_t recording[3], shadow_of_thread[65];
enum { RECORDS = 1 << 20 };
static uint64_t records[RECORDS / 8 + 8];
UNTRACED static void empty(void)
{
	recording[0] = (uint64_t)records;
	recording[1] = (uint64_t)records + RECORDS;
	shadow_of_thread[0] = (uint64_t)(shadow_of_thread + 1);
}

/* What brings its own way to patch. */
int xray_start(void);
void *detour(void *target, void *hook);
static long (*original_f)(long), (*original_g)(long);
UNTRACED long hook_f(long x) { on_entry(); return original_f(x); }
UNTRACED long hook_g(long x) { on_entry(); return original_g(x); }

/* Each variant: a leaf, a recursion, the leaf under eight untraced frames, and the loops that call them. */
#define FRAME(name, level, below)                                                                                      \
	UNTRACED static long n##level##_##name(long x)                                                                 \
	{                                                                                                              \
		long r = below##_##name(x);                                                                            \
		KEEP(r);                                                                                               \
		return r;                                                                                              \
	}
#define LOOP(kind, name, before, call)                                                                                 \
	UNTRACED static long kind##_##name(void)                                                                       \
	{                                                                                                              \
		long x = 0;                                                                                            \
		for (int i = 0; i < CALLS; i++) {                                                                      \
			before;                                                                                        \
			x = call;                                                                                      \
			KEEP(x);                                                                                       \
		}                                                                                                      \
		return x;                                                                                              \
	}
#define DO_WORK                                                                                                        \
	for (int k = 0; k < WORK; k++)                                                                                 \
		__asm__ volatile("imul $1, %0, %0" : "+r"(x))
#define DO_STORES                                                                                                      \
	for (int k = 0; k < STORES; k++)                                                                               \
		buffer[k] = x
#define VARIANT(name)                                                                                                  \
	__asm__(".text\n.skip (" #name "_pad), 0x90\n");                                                               \
	FUNCTIONS(name) LOOPS(name)
#define LOOPS(name)                                                                                                     \
	FRAME(name, 1, f) FRAME(name, 2, n1) FRAME(name, 3, n2) FRAME(name, 4, n3)                                     \
	FRAME(name, 5, n4) FRAME(name, 6, n5) FRAME(name, 7, n6) FRAME(name, 8, n7)                                    \
	LOOP(flat, name, (void)0, f_##name(x))                                                                         \
	LOOP(recursion, name, (void)0, g_##name(DEPTH - 1))                                                            \
	LOOP(nested, name, (void)0, n8_##name(x))                                                                      \
	LOOP(work, name, DO_WORK, f_##name(x))                                                                         \
	LOOP(stores, name, DO_STORES, f_##name(x))
#include "variants.h"
#undef VARIANT

typedef long (*loop)(void);
/* Then so many different functions, called in turn; the most once more, when other variants have had the caches. */
enum { SHAPES = 5, COLD = SHAPES + 4, KINDS };
static const char *const kinds[KINDS] = { "flat", "recursion", "nested", "work", "stores",
					  "16", "256", "4096", "16384", "cold" };
static const int counts[KINDS] = { [SHAPES] = 16, 256, 4096, 16384, 16384 };

struct variant {
	const char *name;
	long (*leaf)(long), (*recursive)(long);
	loop loops[SHAPES];
	/* Where the sites of the leaf and of the recursion go to, by which opcode; none for 0. */
	unsigned char opcode;
	void *to[2];
	/* A call slot of the trampoline, and what it is to call. */
	char *slot;
	void *callee;
	/* How often the handlers run for each traced call. */
	int entries, exits;
	enum { NOTHING, COUNTER, BOTH } recorded;
	/* Many functions of 16 bytes, where each site goes to, and the end of calls of all of them; or nothing. */
	char *many;
	void **many_to;
	char *many_end;
};

#define GOES(n, opcode, to_leaf, to_recursion, slot, callee, entries, exits, recorded, many, many_to, many_end)        \
	{ #n, f_##n, g_##n, { flat_##n, recursion_##n, nested_##n, work_##n, stores_##n }, opcode,                     \
	  { (void *)to_leaf, (void *)to_recursion }, (char *)slot, (void *)callee, entries, exits, recorded,           \
	  (char *)many, (void **)many_to, (char *)many_end },
#define DECLARE
#include "variants_table.h"
#undef DECLARE
static const struct variant variants[] = {
#include "variants_table.h"
};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

UNTRACED static void fail(const char *name, const char *what)
{
	fprintf(stderr, "%s: %s\n", name, what);
	exit(1);
}

UNTRACED static void put(const char *name, char *at, unsigned char opcode, void *to)
{
	const uint64_t page = 4096;
	char *from = (char *)((uint64_t)at & -page);
	int32_t distance = (char *)to - (at + 5);
	if (mprotect(from, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC))
		fail(name, "cannot write to code");
	at[0] = opcode;
	memcpy(at + 1, &distance, 4);
}

UNTRACED static void patch(const struct variant *v)
{
	static const unsigned char nop[5] = { 0x0f, 0x1f, 0x44, 0, 0 };
	char *sites[2] = { (char *)v->leaf, (char *)v->recursive };
	for (int i = 0; i < 2 && v->opcode; i++) {
		if (memcmp(sites[i], nop, 5))
			fail(v->name, "no patchable site");
		put(v->name, sites[i], v->opcode, v->to[i]);
	}
	for (int i = 0; v->many && v->opcode && i < counts[KINDS - 1]; i++)
		put(v->name, v->many + 16 * i, v->opcode, v->many_to[i]);
	if (v->slot)
		put(v->name, v->slot, 0xe8, v->callee);
}

/* Call the last functions of many; each adds 1. */
UNTRACED static long turn(const struct variant *v, int count)
{
	/* Each call, and the move of its result to the next one's argument, have 8 bytes. */
	long (*calls)(long) = (long (*)(long))(v->many_end - 8 * count);
	return calls(0);
}

UNTRACED static void verify(const struct variant *v)
{
	enum { TIMES = 50 };
	entries = exits = wrong = 0;
	recording[2] = 0;
	empty();
	for (long i = 0; i < TIMES; i++)
		if (v->leaf(i) != i + 1)
			fail(v->name, "lost an argument or a result");
	if (v->recursive(9) != 9)
		fail(v->name, "lost its way in a recursion");
	uint64_t traced = TIMES + 10;
	for (int k = SHAPES; v->many && k < COLD; k++, traced += counts[k - 1])
		if (turn(v, counts[k]) != counts[k])
			fail(v->name, "lost one of many");
	if (top != shadow || !core_balanced() || !kernel_balanced())
		fail(v->name, "lost a return");
	if (wrong)
		fail(v->name, "a user found another word than it kept");
	uint64_t found[3] = { 0 };
	for (uint64_t *r = records; r < (uint64_t *)recording[0]; r += 2)
		found[(r[1] & 15) > 2 ? 0 : r[1] & 15]++;
	uint64_t wanted = v->recorded == BOTH ? traced : 0;
	if (recording[2] != (v->recorded == COUNTER ? traced : 0))
		fail(v->name, "counted wrong");
	if (found[0] || found[1] != wanted || found[2] != wanted || recording[0] > recording[1])
		fail(v->name, "recorded wrong");
#ifdef COUNT
	if (entries != traced * v->entries || exits != traced * v->exits)
		fail(v->name, "a handler did not run, or ran too often");
#endif
}

/* Have two users trace the functions of a variant, if it is there. */
UNTRACED static void traced_by_two(const char *name, bool (*start)(const uint64_t *functions, size_t count))
{
	static uint64_t all[FUNCTIONS];
	for (const struct variant *v = variants; v < variants + VARIANTS; v++) {
		if (strcmp(v->name, name))
			continue;
		size_t count = 0;
		all[count++] = (uint64_t)v->leaf;
		all[count++] = (uint64_t)v->recursive;
		for (int i = 0; i < counts[KINDS - 1]; i++)
			all[count++] = (uint64_t)v->many + 16 * i;
		if (!start(all, count))
			fail(name, "cannot be traced by two users");
	}
}

UNTRACED static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

UNTRACED static long run(const struct variant *v, int kind)
{
	long x = 0;
	empty();
	if (kind < SHAPES)
		return v->loops[kind]();
	for (int done = 0; done < CALLS; done += counts[kind])
		x += turn(v, counts[kind]);
	return x;
}

UNTRACED static uint64_t ticks(const struct variant *v, int kind)
{
	unsigned cpu;
	/* What other variants left in the caches is no part of the first calls, but where that is asked. */
	if (kind != COLD)
		run(v, kind);
	_mm_lfence();
	uint64_t start = __rdtscp(&cpu);
	_mm_lfence();
	long x = run(v, kind);
	KEEP(x);
	uint64_t end = __rdtscp(&cpu);
	_mm_lfence();
	return end - start;
}

UNTRACED static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

UNTRACED int main(int arguments, char **all)
{
	static double taken[VARIANTS][KINDS][ROUNDS];
	/* Where the linker put the thread's words, for the generator. */
	if (arguments > 1) {
		printf("%d\n", (int)((char *)recording - (char *)__builtin_thread_pointer()));
		return 0;
	}
	for (int v = 0; v < VARIANTS; v++)
		patch(&variants[v]);
#ifdef XRAY
	if (!xray_start())
		fail("xray", "cannot be patched");
#endif
#ifdef RETOUR
	long f_retour(long), g_retour(long);
	original_f = detour(f_retour, hook_f);
	original_g = detour(g_retour, hook_g);
	if (!original_f || !original_g)
		fail("retour", "cannot be patched");
#endif
	traced_by_two("graph_two", core_start);
	traced_by_two("kernel_graph_two", kernel_start);
	for (int v = 0; v < VARIANTS; v++)
		verify(&variants[v]);
#ifdef COUNT
	return 0;
#endif
	double clock = now();
	uint64_t tsc = __rdtsc();
	for (int r = -2; r < ROUNDS; r++)
		for (int k = 0; k < KINDS; k++)
			for (int v = 0; v < VARIANTS; v++) {
				if (k >= SHAPES && !variants[v].many)
					continue;
				double t = ticks(&variants[v], k);
				if (r >= 0)
					taken[v][k][r] = t;
			}
	double ns = (now() - clock) / (__rdtsc() - tsc);
	for (int v = 0; v < VARIANTS; v++)
		for (int k = 0; k < KINDS; k++) {
			double *t = taken[v][k], calls = k == 1 ? CALLS * DEPTH : CALLS;
			if (k >= SHAPES && !variants[v].many)
				continue;
			/* As many turns as make up CALLS, and one at least. */
			if (k >= SHAPES)
				calls = (CALLS + counts[k] - 1) / counts[k] * counts[k];
			qsort(t, ROUNDS, sizeof(*t), ascending);
			printf("%s %s %.4f %.4f\n", variants[v].name, kinds[k], t[0] * ns / calls, t[ROUNDS / 2] * ns / calls);
		}
	return 0;
}
