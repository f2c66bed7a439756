// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has a kernel's kprobes/opt.c put jumps in the place of instructions, and runs on this machine what is then there: a probe's function
 * must see the state in which the instructions would be executed, and behind the jump back all must be as they leave it. A line on
 * stdout is a kind of probe for which that is not so.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#define AFTER_WRITE (void)0
#define ON_ALL_CPUS(told) (void)(told)
#include "poke.h"

#include "optprobes.h"

typedef unsigned long addr;

/* The function that is probed, what it reads and writes, stacks, and where the kernel may put a probe's code. */
#define FUNCTION 0x20001000ul
#define DATA 0x20100000ul
#define STACK 0x20200000ul
#define SLOTS 0x30000000ul
static unsigned char *const function = (unsigned char *)FUNCTION, *const data = (unsigned char *)DATA, *const stack = (unsigned char *)STACK;
#define ROOM 4096

/* What the kernel's files call. */
static addr slot, function_size;
void *__get_insn_slot(void *cache) { (void)cache; return (void *)slot; }
STUB void __free_insn_slot(void *cache, void *slot, int dirty) { (void)cache, (void)slot, (void)dirty; }
STUB const char *kallsyms_lookup_size_offset(addr at, addr *size, addr *offset)
{
	if (size)
		*size = function_size;
	*offset = at - FUNCTION;
	return "function";
}
STUB void *search_exception_tables(addr at) { (void)at; return NULL; }
STUB int ftrace_text_reserved(const void *from, const void *to) { (void)from, (void)to; return 0; }
STUB int jump_label_text_reserved(const void *from, const void *to) { (void)from, (void)to; return 0; }
STUB int static_call_text_reserved(const void *from, const void *to) { (void)from, (void)to; return 0; }
STUB addr ftrace_location(addr at) { (void)at; return 0; }
STUB long copy_from_kernel_nofault(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
STUB void *allocated(void) { static char memory[ROOM]; memset(memory, 0, ROOM); return memory; }
STUB void *__kmalloc_noprof(size_t size, unsigned int gfp) { (void)size, (void)gfp; return allocated(); }
STUB void *__kmalloc_cache_noprof(void *cache, unsigned int gfp, size_t size) { (void)cache, (void)gfp, (void)size; return allocated(); }
STUB void kfree(const void *at) { (void)at; }

/* Registers, by their numbers in instructions, and flags. */
#define RSP 4
struct state {
	addr reg[16], flags;
};
struct state in, out;
addr target, own_stack, flags_stack[8];

/* Go to `target` with the registers of `in`; what comes to `landed` is in `out`. */
void go(void);
void landed(void);
asm(".text\n.globl go, landed\n"
    "go: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "mov %rsp, own_stack; mov in+32, %rsp; push in+128; popf\n"
    "mov in, %rax; mov in+8, %rcx; mov in+16, %rdx; mov in+24, %rbx; mov in+40, %rbp; mov in+48, %rsi; mov in+56, %rdi\n"
    "mov in+64, %r8; mov in+72, %r9; mov in+80, %r10; mov in+88, %r11; mov in+96, %r12; mov in+104, %r13; mov in+112, %r14\n"
    "mov in+120, %r15; jmp *target\n"
    "landed: mov %rsp, out+32; mov $flags_stack+64, %rsp; pushf; pop out+128; cld; mov own_stack, %rsp\n"
    "mov %rax, out; mov %rcx, out+8; mov %rdx, out+16; mov %rbx, out+24; mov %rbp, out+40; mov %rsi, out+48; mov %rdi, out+56\n"
    "mov %r8, out+64; mov %r9, out+72; mov %r10, out+80; mov %r11, out+88; mov %r12, out+96; mov %r13, out+104; mov %r14, out+112\n"
    "mov %r15, out+120\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n");

static unsigned long runs, hits;
static addr seed = 1;
static addr drawn(void)
{
	seed = seed * 6364136223846793005ul + 1442695040888963407ul;
	return seed >> 11 ^ seed << 21;
}

/* The state in which the probe's function is called; it changes two registers if it is asked to. */
static struct state expected;
static addr probed_at;
static bool changes;

void hit(struct seen *seen)
{
	hits++;
	if (memcmp(seen->reg, expected.reg, sizeof(seen->reg)) || (seen->flags ^ expected.flags) & 0xcd5)
		wrong("a probe's function sees other registers");
	if (seen->ip != probed_at + 1)
		wrong("a probe's function sees another ip");
	if (changes) {
		seen->reg[3] ^= 0x5555;
		seen->reg[14] += 7;
	}
}

/* Instructions: what moves, counts, compares, pushes, shifts; relative to RIP with the offset to DATA as 0xd1 0xd1 0xd1 0xd1. */
static const struct insn {
	unsigned char size;
	const char *bytes;
} insns[] = {
	{ 3, "\x48\x89\xc8" }, { 3, "\x48\x01\xd8" }, { 4, "\x48\x83\xc4\x08" }, { 1, "\x55" }, { 2, "\x41\x57" }, { 3, "\x48\x31\xf6" },
	{ 3, "\x4c\x11\xc9" }, { 5, "\x48\x8d\x54\x8a\x10" }, { 3, "\x48\x85\xdb" }, { 3, "\x0f\xaf\xc1" }, { 3, "\x0f\x94\xc1" },
	{ 4, "\x48\x0f\x42\xd1" }, { 4, "\x49\xc1\xe3\x05" }, { 3, "\x48\xd3\xc8" }, { 3, "\x48\x8b\x17" }, { 4, "\x48\x89\x47\x08" },
	{ 3, "\x48\x01\x0f" }, { 7, "\x48\x8b\x05\xd1\xd1\xd1\xd1" }, { 7, "\x48\x89\x0d\xd1\xd1\xd1\xd1" }, { 7, "\x48\x8d\x1d\xd1\xd1\xd1\xd1" },
	{ 7, "\x83\x05\xd1\xd1\xd1\xd1\x11" }, { 10, "\xc7\x05\xd1\xd1\xd1\xd1\x78\x56\x34\x12" }, { 5, "\xb8\x44\x33\x22\x11" },
	{ 3, "\x48\xf7\xd8" }, { 3, "\x48\xff\xc3" }, { 4, "\x0f\xb6\x47\x03" }, { 2, "\x87\xd1" }, { 1, "\xf9" }, { 1, "\x9c" },
	{ 5, "\x48\x8b\x6c\x24\x08" }, { 5, "\x48\x89\x4c\x24\x10" }, { 3, "\xf0\x01\x0f" }, { 2, "\xeb\x00" }, { 5, "\xe8\x00\x00\x00\x00" }, { 2, "\x74\x00" },
	{ 2, "\xcd\x80" }, { 2, "\x0f\x0b" },
};
#define INSNS (sizeof(insns) / sizeof(*insns))
/* From here on the kernel leaves them where they are. */
#define STAYS (INSNS - 5)

static unsigned int put(unsigned int at, const struct insn *insn)
{
	memcpy(function + at, insn->bytes, insn->size);
	for (unsigned int i = 0; i + 4 <= insn->size; i++)
		if (!memcmp(function + at + i, "\xd1\xd1\xd1\xd1", 4)) {
			int offset = DATA + 0x80 - (FUNCTION + at + insn->size);

			memcpy(function + at + i, &offset, 4);
		}
	return at + insn->size;
}

static void fresh(const struct state *with)
{
	in = *with;
	for (int i = 0; i < ROOM; i++) {
		data[i] = i * 7;
		stack[i] = i * 13;
	}
}

/* Run from FUNCTION on. */
static void run(const struct state *with)
{
	fresh(with);
	target = FUNCTION;
	runs++;
	go();
}

/* Where the instructions of a function begin: those that the kernel may move, then a jump to `landed`. */
static unsigned int starts[16];
static unsigned int count;

static void function_of(const unsigned char *which, unsigned int n)
{
	unsigned int at = 0;

	memset(function, 0x90, ROOM);
	count = n;
	for (unsigned int i = 0; i < n; i++) {
		starts[i] = at;
		at = put(at, &insns[which[i]]);
	}
	starts[n] = at;
	function_size = at + 16;
	function[at + 8] = 0xe9;
	*(int *)(function + at + 9) = (addr)landed - (FUNCTION + at + 13);
}

static struct state drawn_state(void)
{
	struct state state;

	for (int i = 0; i < 16; i++)
		state.reg[i] = drawn();
	state.reg[7] = DATA + 0x100;
	state.reg[RSP] = STACK + 2048;
	state.flags = 2 | (drawn() & 0xcd5);
	/* Not DF: kernel C has it clear. */
	state.flags &= ~0x400ul;
	return state;
}

static bool same(const struct state *a, const struct state *b)
{
	return !memcmp(a->reg, b->reg, sizeof(a->reg)) && !((a->flags ^ b->flags) & 0xcd5);
}

/* The same as the function without a probe, where the probe is before its first instruction. */
static void compared(const char *what)
{
	static unsigned char old_data[ROOM], old_stack[ROOM], text[64];
	struct state begin = drawn_state(), old, with = begin;

	memcpy(text, function, sizeof(text));
	if (changes) {
		with.reg[3] ^= 0x5555;
		with.reg[14] += 7;
	}
	run(&with);
	old = out;
	memcpy(old_data, data, ROOM);
	memcpy(old_stack, stack, ROOM);
	expected = begin;
	probed_at = FUNCTION;
	hits = 0;
	probe_jump(0);
	if (function[0] != 0xe9)
		wrong("%s: no jump", what);
	run(&begin);
	if (hits != 1)
		wrong("%s: its function is called %lu times", what, hits);
	if (!same(&out, &old))
		wrong("%s: registers are others behind it", what);
	if (memcmp(data, old_data, ROOM) || memcmp(stack + (out.reg[RSP] - STACK), old_stack + (out.reg[RSP] - STACK), ROOM - (out.reg[RSP] - STACK)))
		wrong("%s: memory is other behind it", what);
	probe_unjump(0);
	/* Its breakpoint stays. */
	if (function[0] != 0xcc || memcmp(function + 1, text + 1, sizeof(text) - 1))
		wrong("%s: without the jump, text is not as it was", what);
	function[0] = text[0];
}

static void probes(const unsigned char *which, unsigned int n, addr where)
{
	struct prepared probe;
	bool moves = true;
	unsigned int covered = 0;

	/* What is not moved is run where it is. */
	if (insns[which[0]].size >= 5 && which[1] >= STAYS)
		return;
	told = false;
	function_of(which, n);
	for (unsigned int i = 0; i < n && covered < 5; covered += insns[which[i++]].size)
		moves &= which[i] < STAYS;
	sprintf(told_as, "instructions %u %u %u, code at %#lx", which[0], which[1], which[2], where);
	slot = where;
	probe = probe_at(0, FUNCTION);
	if (moves && probe.error)
		wrong("refused with error %d", probe.error);
	else if (!moves && !probe.error)
		wrong("taken, with an instruction that does not move");
	if (!moves || probe.error)
		return;
	/* Whole instructions are taken, and no more than needed. */
	covered = 0;
	for (unsigned int i = 0; covered < 5; i++)
		covered = starts[i + 1];
	if (probe.size != covered)
		wrong("%u bytes are taken, of %u", probe.size, covered);
	for (int i = 0; i < 2; i++) {
		changes = i;
		compared(i ? "a function that changes registers" : "a function that changes nothing");
	}
	probe_gone(0);
}

/* A second probe behind the first: in its bytes, and where a jump of the first is about to go. */
static void neighbours(void)
{
	static const unsigned char which[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	unsigned char text[64];
	struct prepared second;

	told = false;
	sprintf(told_as, "two probes, the second at the second instruction");
	function_of(which, 8);
	memcpy(text, function, sizeof(text));
	slot = SLOTS;
	probe_at(0, FUNCTION);
	slot = SLOTS + 0x400;
	probe_at(1, FUNCTION + starts[1]);
	if (!probe_free(0))
		wrong("a jump may cover another probe");
	probe_disabled(1);
	if (!probe_free(0))
		wrong("a jump may cover another probe that is disabled and has its breakpoint");
	probe_gone(1);
	if (probe_free(0))
		wrong("a jump may not be put where no other probe is");
	probe_jump(0);
	probe_going(0);
	slot = SLOTS + 0x800;
	second = probe_at(1, FUNCTION + starts[1]);
	if (second.error)
		wrong("a probe where another's jump is going: refused with error %d", second.error);
	else if (!memmem((void *)second.code, 1024, text + starts[1], second.size))
		wrong("a probe where another's jump is going moves other instructions");
	probe_gone(0);
	probe_gone(1);
}

/* Where no probe may be, and what else in the function matters. */
static void refusals(void)
{
	static const unsigned char int_80[] = { INSNS - 2, 0 }, ud2[] = { INSNS - 1, 0 }, moves[] = { 0, 1, 2, 3 };

	slot = SLOTS;
	told = false;
	sprintf(told_as, "INT 0x80 and UD2");
	function_of(int_80, 2);
	if (!probe_plain(FUNCTION))
		wrong("a probe may be at INT");
	function_of(ud2, 2);
	if (!probe_plain(FUNCTION))
		wrong("a probe may be at UD2");
	function_of(moves, 4);
	if (probe_plain(FUNCTION))
		wrong("a probe may not be at MOV");
	if (!probe_plain(FUNCTION + 1))
		wrong("a probe may be within an instruction");
	told = false;
	sprintf(told_as, "a jump in the function");
	/* JMP RAX behind the instructions; then a JMP into the bytes of the jump. */
	memcpy(function + starts[4], "\xff\xe0", 2);
	if ((probe_at(0, FUNCTION).error == 0) != probe_beside_jumps())
		wrong("an indirect jump in the function is not taken for what it is");
	memcpy(function + starts[4], "\xeb", 1);
	function[starts[4] + 1] = 3 - (starts[4] + 2);
	if (!probe_at(0, FUNCTION).error)
		wrong("taken, with a jump of the function into the instructions");
	probe_gone(0);
}

static void *mapped(addr at, size_t size)
{
	return mmap((void *)at, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

int main(void)
{
	static const addr places[] = { SLOTS, SLOTS + 0xfc0, 0x70000123, 0x10000010 };

	as_kernel();
	mapped(FUNCTION & ~0xffful, 2 * ROOM);
	mapped(DATA, ROOM);
	/* Below it is room for signals. */
	mapped(STACK - 16 * ROOM, 17 * ROOM);
	for (int i = 0; i < 4; i++)
		mapped(places[i] & ~0xffful, 2 * ROOM);
	for (unsigned char i = 0; i < INSNS; i++)
		for (unsigned char j = 0; j < INSNS; j++)
			for (int place = 0; place < 4; place++) {
				unsigned char which[8] = { i, j };

				for (int k = 2; k < 8; k++)
					which[k] = drawn() % STAYS;
				probes(which, 8, places[place]);
			}
	neighbours();
	refusals();
	return told_all(runs, "runs");
}
