// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that has the kernel's arch_static_call_transform() rewrite static calls, and runs what it wrote: each kind of site, from
 * each state to each. It stands in for what that function calls. A line on stdout is a site that does something else than asked for.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The kernel's (arch/x86/kernel/static_call.c). */
void arch_static_call_transform(void *site, void *tramp, void *func, bool tail);
bool __static_call_fixup(void *tramp, unsigned char op, void *dest) __attribute__((weak));

#define STUB __attribute__((force_align_arg_pointer, noinline, used))

/* Kernel include/linux/kernel.h, SYSTEM_RUNNING: not booting. */
int system_state = 4;
static int through_thunk;

/* What they call. The kernel's objects return through the first of the thunks; what they write must go through the second. */
asm(".text\n"
    ".globl __x86_return_thunk, return_thunk, one, two, __static_call_return0, __WARN_trap\n"
    "__x86_return_thunk: ret\n"
    "return_thunk: incl through_thunk; ret\n"
    "one: mov $1, %eax; ret\n"
    "two: mov $2, %eax; ret\n"
    "__static_call_return0: xor %eax, %eax; ret\n"
    "__WARN_trap: ud2\n");
void return_thunk(void);
long one(void), two(void), __static_call_return0(void);
void *x86_return_thunk = return_thunk;

STUB void *text_poke_early(void *at, const void *from, size_t size) { return memcpy(at, from, size); }
STUB void smp_text_poke_single(void *at, const void *from, size_t size, const void *emulate)
{
	(void)emulate;
	memcpy(at, from, size);
}
STUB void text_poke_bp(void *at, const void *from, size_t size, const void *emulate)
{
	(void)emulate;
	memcpy(at, from, size);
}
void mutex_lock(void *lock) { (void)lock; }
void mutex_unlock(void *lock) { (void)lock; }
void *callthunks_translate_call_dest(void *dest) { return dest; }
int cpu_wants_rethunk(void) { return RETHUNK; }
int cpu_wants_rethunk_at(void *at) { (void)at; return RETHUNK; }
STUB int _printk(const char *format, ...)
{
	fprintf(stderr, "static_calls: %s\n", format + 2);
	return 0;
}

static const unsigned char nops[][5] = {
	{ 0 }, { 0x90 }, { 0x66, 0x90 }, { 0x0f, 0x1f, 0x00 }, { 0x0f, 0x1f, 0x40, 0x00 }, { 0x0f, 0x1f, 0x44, 0x00, 0x00 },
};
const unsigned char *const x86_nops[] = { NULL, nops[1], nops[2], nops[3], nops[4], nops[5] };

/* Text of the kernel is one page at PLACE; nothing is behind it. */
#define PLACE 0x30000000ul
STUB int kernel_text_address(unsigned long at) { return at >> 12 == PLACE >> 12; }

/* What a function without a result leaves in rax here. */
#define NOTHING 0x55
/* What comes behind a branch that is not taken. */
#define BEHIND 7

static unsigned char *const code = (unsigned char *)PLACE;
static int wrong, runs;

static long run(unsigned long flags)
{
	long result;

	asm volatile("push %2; popfq; mov %3, %%eax; call *%1"
		     : "=&a"(result)
		     : "r"(code), "r"(flags), "i"(NOTHING)
		     : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
	runs++;
	return result;
}

static void put(unsigned char *at, int opcode, void *target)
{
	int bytes = opcode > 0xff ? 2 : 1;
	int offset = (unsigned char *)target - at - bytes - 4;

	if (bytes == 2)
		*at++ = opcode >> 8;
	*at++ = opcode;
	memcpy(at, &offset, 4);
}

struct state {
	const char *name;
	void *func;
	long result;
};

static const struct state states[] = {
	{ "one", one, 1 },
	{ "two", two, 2 },
	{ "NULL", NULL, NOTHING },
	{ "__static_call_return0", __static_call_return0, 0 },
};
#define STATES (sizeof(states) / sizeof(*states))

static void check(const char *what, const char *from, const char *to, long wanted, long found)
{
	if (wanted == found)
		return;
	wrong++;
	printf("%s, from %s to %s: %ld in place of %ld\n", what, from, to, found, wanted);
}

/* A site at `at`, in each state after each; `flags` decide whether it is taken. */
static void sites(const char *what, unsigned char *at, bool tail, bool tramp, unsigned long flags, bool taken)
{
	for (unsigned int i = 0; i < STATES; i++)
		for (unsigned int j = 0; j < STATES; j++) {
			const struct state *last = &states[i], *next = &states[j];

			arch_static_call_transform(tramp ? NULL : at, tramp ? at : NULL, last->func, tail);
			arch_static_call_transform(tramp ? NULL : at, tramp ? at : NULL, next->func, tail);
			through_thunk = 0;
			check(what, last->name, next->name, taken ? next->result : BEHIND, run(flags));
			if (RETHUNK && taken && tail && !next->func)
				check("return thunk", last->name, next->name, 1, through_thunk);
		}
}

static void clear(void) { memset(code, 0xcc, 4096); }

int main(void)
{
	/* Bits of EFLAGS, by the condition's number without its lowest bit, with which it is true (SDM vol. 1, table B-1). */
	static const unsigned long flags[] = { 1 << 11, 1, 1 << 6, 1, 1 << 7, 1 << 2, 1 << 7, 1 << 6 };

	if (mmap(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return 3;
	clear();
	memcpy(code, "\x48\x83\xec\x08", 4);
	put(code + 4, 0xe8, one);
	memcpy(code + 9, "\x48\x83\xc4\x08\xc3", 5);
	sites("call", code + 4, false, false, 0x202, true);
	clear();
	put(code, 0xe9, one);
	sites("tail call", code, true, false, 0x202, true);
	for (int condition = 0; condition < 16; condition++)
		for (int taken = 0; taken < 2; taken++) {
			char what[40];

			snprintf(what, sizeof(what), "conditional tail call 0f %x, %staken", 0x80 + condition, taken ? "" : "not ");
			clear();
			put(code, 0x0f80 + condition, one);
			memcpy(code + 6, "\xb8\x07\0\0\0\xc3", 6);
			sites(what, code, true, false, (condition ^ taken) & 1 ? flags[condition / 2] | 0x202 : 0x202, taken);
		}
	clear();
	put(code, 0xe9, one);
	memcpy(code + 5, "\x0f\xb9\xcc", 3);
	sites("trampoline", code, true, true, 0x202, true);
	if (__static_call_fixup) {
		/* A trampoline that returns before it is known how; a return at the end of the text is none. */
		memcpy(code, "\xc3\xcc\xcc\xcc\xcc", 5);
		check("fixup", "ret", "known", true, __static_call_fixup(code, 0xc3, NULL));
		through_thunk = 0;
		check("fixup", "ret", "run", NOTHING, run(0x202));
		check("fixup", "ret", "return thunk", RETHUNK, through_thunk);
		code[4095] = 0xc3;
		check("fixup", "ret", "end of text", false, __static_call_fixup(code + 4095, 0xc3, NULL));
	}
	printf("%d runs\n", runs);
	return wrong ? 1 : 0;
}
