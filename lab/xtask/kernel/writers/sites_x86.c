// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has a kernel's ftrace.c and alternative.c write sites of x86_64 into a page of this process, and looks at them after each write: a CPU
 * that executes one finds the old instruction, the new one, or a breakpoint, which the kernel's handler takes for one of the two; and what
 * is behind a breakpoint changes only when all CPUs know of it. A line on stdout is a kind of site for which that is not so.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "sites_x86.h"
#include "told.h"

typedef unsigned long addr;

/* A site each 16 bytes, and more of them than the kernel writes at once. */
#define PLACE 0x30000000ul
#define SITES 600
#define SIZE (SITES * 16ul)

static unsigned char *const text = (unsigned char *)PLACE, seen[SIZE];
static struct written_site sites[SITES];
static unsigned int count;
static unsigned long steps;

/* What CPUs know of a site: a breakpoint was written, and since the last write all have been told. */
static struct known {
	bool trap, all;
} known[SITES];

/* Sites are calls, or Jcc of 6 bytes with this opcode: 0x80 and a condition. */
static unsigned char condition;
static unsigned int length(void) { return condition ? 6 : 5; }

/* The instruction of a site that calls or jumps to `to`, or goes on (SDM vol. 2: CALL, JMP, Jcc, NOP). */
static void instruction(unsigned char *bytes, addr ip, addr to)
{
	int offset = (to & ~1ul) - ip - length();

	if (condition) {
		bytes[0] = 0x0f;
		bytes[1] = condition;
		memcpy(bytes + 2, &offset, 4);
		return;
	}

	memcpy(bytes, "\x0f\x1f\x44\0\0", 5);
	if (!to)
		return;
	bytes[0] = to & 1 && written_jumps() ? 0xe9 : 0xe8;
	memcpy(bytes + 1, &offset, 4);
}

/* Does the handler do what the instruction does? Of conditions, JE and JNE are asked for. */
static bool does(const struct written_trap *trap, addr ip, addr sp, addr to, bool zero)
{
	if (condition)
		return trap->ip == (zero == !(condition & 1) ? to : ip + 6) && trap->sp == sp;
	if (!to)
		return trap->ip == ip + 5 && trap->sp == sp;
	if (to & 1 && written_jumps())
		return trap->ip == (to & ~1ul) && trap->sp == sp;
	return trap->ip == to && trap->sp == sp - 8 && *(addr *)trap->sp == ip + 5;
}

STUB static void trapped(const struct written_site *site)
{
	static addr stack[8];
	addr sp = (addr)&stack[6];

	for (int zero = 0; zero < 2; zero++) {
		/* ZF is bit 6 of EFLAGS. */
		struct written_trap trap = written_trapped(site->ip, sp, zero ? 1 << 6 : 0);

		if (!trap.handled)
			wrong("a breakpoint is not the kernel's");
		else if (!does(&trap, site->ip, sp, site->from, zero) && !does(&trap, site->ip, sp, site->to, zero))
			wrong("a breakpoint leads elsewhere");
	}
}

/* All that has changed since the last time. */
STUB static void look(void)
{
	for (unsigned int i = 0; i < count; i++) {
		addr offset = sites[i].ip - PLACE;
		unsigned char *was = seen + offset, *is = text + offset;
		struct known *cpus = &known[i];
		bool rest = memcmp(was + 1, is + 1, length() - 1);

		if (is[0] == 0xcc)
			trapped(&sites[i]);
		if (was[0] == is[0] && !rest)
			continue;
		if (was[0] == 0xcc && !(cpus->trap && cpus->all))
			wrong("written before all CPUs know of the last write");
		if (was[0] != 0xcc && (rest || is[0] != 0xcc))
			wrong("written with no breakpoint in front");
		if (was[0] == 0xcc && is[0] != 0xcc && rest)
			wrong("all is written at once");
		*cpus = (struct known){ .trap = is[0] == 0xcc };
		memcpy(was, is, length());
	}
	if (memcmp(seen, text, SIZE)) {
		wrong("a write outside of sites");
		memcpy(seen, text, SIZE);
	}
}

static void all_know(bool heard)
{
	if (!heard)
		wrong("not all CPUs are told, or nobody waits for them");
	for (unsigned int i = 0; i < count; i++)
		known[i].all = true;
}

#define AFTER_WRITE look()
#define ON_ALL_CPUS(told) all_know(told)
#include "poke.h"

STUB long copy_from_kernel_nofault(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
STUB void ftrace_bug(int error, void *rec) { (void)rec; wrong("the kernel says that a site is not as it should be: error %d", error); }

static void write_all(void) { written_step(sites, count); }

/* All but the first are queued, in order; then the first is written alone, which is in front of them. */
static void write_mixed(void)
{
	unsigned char bytes[6];

	for (unsigned int i = 1; i < count; i++) {
		instruction(bytes, sites[i].ip, sites[i].to);
		written_queue(sites[i].ip, bytes, length());
	}
	instruction(bytes, sites[0].ip, sites[0].to);
	written_single(sites[0].ip, bytes, length());
	written_queued();
}

static void step(const char *name, void (*written)(void))
{
	told = false;
	steps++;
	sprintf(told_as, "%s of %u sites, %#lx from %#lx to %#lx", name, count, sites[0].ip, sites[0].from, sites[0].to);
	written();
	for (unsigned int i = 0; i < count; i++) {
		unsigned char bytes[6];

		instruction(bytes, sites[i].ip, sites[i].to);
		if (memcmp(bytes, (void *)sites[i].ip, length()))
			wrong("%s: leads elsewhere", name);
		if (sites[i].from != sites[i].to && !known[i].all)
			wrong("%s: not all CPUs know of it", name);
		sites[i].from = sites[i].to;
		known[i] = (struct known){ 0 };
	}
}

static void all_to(addr to, const char *name, void (*written)(void))
{
	for (unsigned int i = 0; i < count; i++)
		sites[i].to = to ? to + 16 * i : 0;
	step(name, written);
}

/* Sites as the compiler leaves them, at this byte of their 16, and as the kernel finds them. */
static void begin(unsigned int n, unsigned int first)
{
	count = n;
	memset(text, 0x90, SIZE);
	memset(known, 0, sizeof(known));
	told = false;
	sprintf(told_as, "init of %u sites", n);
	for (unsigned int i = 0; i < n; i++) {
		sites[i] = (struct written_site){ .ip = PLACE + 16 * i + first };
		instruction((unsigned char *)sites[i].ip, sites[i].ip, (addr)__fentry__);
		if (written_boot(sites[i].ip))
			wrong("init: refused");
	}
	for (unsigned int i = 0; i < n; i++) {
		unsigned char bytes[6];

		instruction(bytes, sites[i].ip, 0);
		if (memcmp((void *)sites[i].ip, bytes, length()))
			wrong("init: no instruction without effect");
	}
	memcpy(seen, text, SIZE);
}

static void sequence(addr one, addr two)
{
	all_to(one, "call", write_all);
	all_to(two, "modify", write_all);
	all_to(one, "modify back", write_all);
	all_to(0, "off", write_all);
	all_to(two, "call of another", write_all);
	all_to(0, "off again", write_all);
	all_to(one, "alone and queued", write_mixed);
	all_to(two, "alone and queued, modify", write_mixed);
}

/* Conditional tail calls, as static calls have them, by JE or JNE. */
static void conditional(unsigned char opcode, unsigned int n, unsigned int first, addr one, addr two)
{
	condition = opcode;
	count = n;
	memset(text, 0x90, SIZE);
	memset(known, 0, sizeof(known));
	for (unsigned int i = 0; i < n; i++) {
		sites[i] = (struct written_site){ .ip = PLACE + 16 * i + first, .from = one + 16 * i };
		instruction((unsigned char *)sites[i].ip, sites[i].ip, sites[i].from);
	}
	memcpy(seen, text, SIZE);
	all_to(two, "Jcc", write_mixed);
	all_to(one, "Jcc back", write_mixed);
	condition = 0;
}

int main(void)
{
	static const addr to[] = { 0x401000, 0x30100000, PLACE + 0x7fff0000, 0x80000000 + PLACE };

	as_kernel();
	if (mmap(text, 16384, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return 3;
	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int j = 0; j < 4; j++)
			for (unsigned int first = 0; first < 11; first++)
				for (unsigned int n = 1; n < SITES; n *= 8) {
					/* So many take long: once for each pair of targets is enough. */
					if (n > 64 && first)
						continue;
					begin(n, first);
					sequence(to[i], to[j]);
					if (written_jumps()) {
						begin(n, first);
						sequence(to[i], to[j] | 1);
					}
					for (int opcode = 0x84; first < 10 && opcode < 0x86; opcode++)
						conditional(opcode, n, first, to[i], to[j]);
				}
	return told_all(steps, "steps");
}
