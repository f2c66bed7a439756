// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has a kernel's ftrace.c write sites of arm64 and riscv64 into a window of text, and says where each leads, at every moment: also of a
 * CPU that has executed the first of its two instructions before a write, and executes the second after it. A line on stdout is a kind
 * of site that leads elsewhere.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

#include "sites.h"
#include "told.h"

typedef unsigned long addr;

/* The window has the compiler's instructions in its middle. */
static unsigned int text[8];
static addr window, first, function;

#ifdef __aarch64__
#define NOP 0xd503201fu
#else
#define NOP 0x00000013u
#endif

/* Where a site leads: the function goes on, or somewhere is called; no site leads to NOWHERE. */
#define GOES_ON 0ul
#define NOWHERE 1ul

/* The two instructions and the ftrace_ops, as they were at one moment. */
struct moment {
	unsigned int word[2];
	addr ops;
};
static struct moment moments[64];
static int count;

static unsigned long sequences;
/* How often the kernel has warned. */
static int warnings;

static unsigned int *word_at(addr at, size_t size)
{
	if (at - window > sizeof(text) - size || at % 4) {
		wrong("a write outside of the site");
		return NULL;
	}
	return &text[(at - window) / 4];
}

static addr ops_now(void)
{
	addr ops = 0;

	if (sites_before())
		memcpy(&ops, &text[(first - window) / 4], sizeof(ops));
	return ops;
}

static void remember(void)
{
	unsigned int *word = &text[(function - window) / 4];

	if (count == 64)
		wrong("more is written than there is room for here");
	else
		moments[count++] = (struct moment){ { word[0], word[1] }, ops_now() };
}

/*
 * What is written at once is at a multiple of its size. Only a kernel without ftrace_ops in front writes both instructions by one call: it
 * has stopped all CPUs.
 */
static int wrote(addr at, const void *from, size_t size)
{
	unsigned int *to = word_at(at, size);

	if (!to)
		return -1;
	memcpy(to, from, size);
	if (size == 8 && sites_before() && at % 8)
		wrong("8 bytes written at once that are at no multiple of 8");
	remember();
	return 0;
}

static int was_read(void *to, addr at, size_t size)
{
	unsigned int *from = word_at(at, size);

	if (!from)
		return -1;
	memcpy(to, from, size);
	return 0;
}

/* What the kernel's file calls. */
int patch_insn_write(void *at, const void *insn, size_t size) { return wrote((addr)at, insn, size); }
int patch_text_nosync(void *at, const void *insn, size_t size) { return wrote((addr)at, insn, size); }
long copy_from_kernel_nofault(void *to, const void *from, size_t size) { return was_read(to, (addr)from, size); }
int aarch64_insn_read(void *at, unsigned int *insn) { return was_read(insn, (addr)at, 4); }
int aarch64_insn_patch_text_nosync(void *at, unsigned int insn) { return wrote((addr)at, &insn, 4); }
int aarch64_insn_write_literal_u64(void *at, unsigned long long value) { return wrote((addr)at, &value, 8); }
void mutex_lock(void *lock) { (void)lock; }
void mutex_unlock(void *lock) { (void)lock; }
void flush_icache_all(void) { }
void preempt_schedule(void) { }
/* The limits are tried too: what is refused is said there. */
int _printk(const char *format, ...) { (void)format; return 0; }
int ___ratelimit(void *state, const char *function) { (void)state, (void)function; return 0; }

/* Where two instructions lead, by the architecture's manuals. */
static addr leads(unsigned int one, unsigned int two)
{
#ifdef __aarch64__
	/* BL: Arm ARM, C6.2; what stands before keeps LR in X9: MOV X9, X30. */
	long offset = (long)((int)(two << 6)) >> 4;

	if (two == NOP)
		return one == NOP || one == 0xaa1e03e9 ? GOES_ON : NOWHERE;
	return two >> 26 == 0x25 && one == 0xaa1e03e9 ? function + 4 + offset : NOWHERE;
#else
	/* AUIPC t0 and JALR t0, t0: RISC-V unprivileged specification, 2.4 and 2.5. */
	long upper = (int)(one & 0xfffff000), lower = (int)two >> 20;

	if (one != NOP && (one & 0xfff) != 0x297)
		return NOWHERE;
	if (two == NOP)
		return GOES_ON;
	return one != NOP && (two & 0xfffff) == 0x282e7 ? function + upper + lower : NOWHERE;
#endif
}

static bool reached_by_call(addr to)
{
#ifdef __aarch64__
	long offset = to - (function + 4);

	return offset >= -(128l << 20) && offset < 128l << 20;
#else
	long offset = to - function;

	return offset + 2048 >= -(1l << 31) && offset + 2048 < 1l << 31;
#endif
}

/* Where a site may lead besides: to ftrace_caller, or what reaches it, and to a target. */
static addr may[2];

static bool allowed(addr to) { return to == GOES_ON || to == may[0] || to == may[1]; }

/* A site at `at`, as the compiler leaves it and as the kernel finds it. */
static addr begun(addr at)
{
	function = at;
	first = at - sites_before();
	window = at - 16;
	for (int i = 0; i < 8; i++)
		text[i] = NOP;
	told = false;
	return sites_ip(first);
}

static addr here(void)
{
	unsigned int *word = &text[(function - window) / 4];

	return leads(word[0], word[1]);
}

/* After a step: where the site leads, and by whose ftrace_ops. */
static void stands(const char *step, int error, addr wanted, unsigned int users)
{
	addr to = here();

	if (error)
		wrong("%s: refused with error %d", step, error);
	else if (to != wanted)
		wrong("%s: leads elsewhere", step);
	else if (sites_before() && ops_now() != sites_ops(users))
		wrong("%s: the ftrace_ops are others", step);
}

/* Where the site has led at each moment; then, where it leads who executes the first instruction at one moment and the second later. */
static void moments_lead(void)
{
	for (int i = 0; i < count; i++) {
		if (!allowed(leads(moments[i].word[0], moments[i].word[1])))
			wrong("at one moment: leads elsewhere");
		if (sites_before() && leads(moments[i].word[0], moments[i].word[1]) == may[0] && moments[i].ops != sites_ops(0) &&
		    moments[i].ops != sites_ops(1) && moments[i].ops != sites_ops(2))
			wrong("at one moment: ftrace_caller finds no ftrace_ops");
	}
	for (int i = 0; i < count; i++)
		for (int j = i + 1; j < count; j++)
			if (!allowed(leads(moments[i].word[0], moments[j].word[1])))
				wrong("interrupted between two instructions: leads elsewhere");
}

/* Another ftrace_ops comes to a site that is on, and has a probe's EBREAK in the place of its first instruction. */
static void probed(addr ip, int one)
{
	unsigned int *word = &text[(function - window) / 4], auipc = word[0];
	int before = count;

	word[0] = 0x00100073;
	if (sites_modify(ip, sites_caller(), sites_caller(), one))
		wrong("modify of a site with a probe: refused");
	else if (word[0] != 0x00100073)
		wrong("modify of a site with a probe: the breakpoint is lost");
	word[0] = auipc;
	count = before;
}

/* Off, on, to a target and back, another way round, off: with ftrace_caller reached by `caller`. */
static void sequence(addr at, addr caller, addr to, int one)
{
	addr ip = begun(at), from = sites_caller();
	unsigned int users = one ? 1 : 2;
	/* What the site does not reach, it reaches through ftrace_caller. */
	addr wanted = reached_by_call(to) ? to : caller, modified = sites_near() ? caller : wanted;
	const char *call = "call of a target";

	sprintf(told_as, "the function %#lx, ftrace_caller %+ld bytes from it, the target %+ld from that", at, (long)(from - at),
		(long)(to - from));
	may[0] = caller, may[1] = to;
	sequences++;
	warnings = 0;
	if (sites_near() && to - caller + sites_near() > 2 * sites_near())
		wanted = caller;
	else if (sites_near() && ((to - at + 2048) ^ (caller - at + 2048)) >> 12) {
		/* The first instruction is that for ftrace_caller. */
		wanted = caller;
		call = "call of a target near ftrace_caller and behind another AUIPC";
	}
	if (sites_init(ip)) {
		wrong("init: refused");
		return;
	}
	if (here() != GOES_ON)
		wrong("init: leads elsewhere");
	if (sites_before() && ops_now() != sites_ops(0))
		wrong("init: the ftrace_ops are others");
	count = 0;
	remember();
	stands("call", sites_call(ip, from, one), caller, users);
	if (sites_have_probes())
		probed(ip, one);
	stands("modify", sites_modify(ip, from, to, one), modified, users);
	stands("modify back", sites_modify(ip, to, from, one), caller, users);
	stands("off", sites_off(ip, from), GOES_ON, 0);
	stands(call, sites_call(ip, to, one), wanted, users);
	stands("off from a target", sites_off(ip, to), GOES_ON, 0);
	moments_lead();
	if (warnings)
		wrong("the kernel warns");
}

/* What nothing reaches is refused, and the site is as it was. */
static void refused(addr at)
{
	addr ip = begun(at);

	sprintf(told_as, "the function %#lx, ftrace_caller %+ld bytes from it", at, (long)(sites_caller() - at));
	if (sites_init(ip))
		wrong("init: refused");
	else if (!sites_call(ip, sites_caller(), 0))
		wrong("call: taken, with ftrace_caller out of reach");
	if (here() != GOES_ON)
		wrong("call: refused, and leads elsewhere");
}

#ifdef __aarch64__
static void sweep(void)
{
	static const long far[] = { 64, 4096, 1l << 20, (128l << 20) - 8, (128l << 20) - 4, 128l << 20, (128l << 20) + 4, 1l << 28, 1l << 31 };
	enum { N = sizeof(far) / sizeof(*far) };
	addr caller = sites_caller();

	for (int i = 0; i < 2 * N; i++) {
		/* Calls with an ftrace_ops in front have functions at multiples of 8. */
		addr at = caller - 4 + (i & 1 ? -far[i / 2] : far[i / 2]), plt = at + 0x10000;

		for (int bump = 0; bump < 16; bump += sites_before() ? 8 : 4) {
			addr site = (at & ~15ul) + bump;

			function = site;
			sites_module(0, 0, 0, 0);
			if (reached_by_call(caller))
				plt = 0;
			else
				refused(site);
			for (int init = 0; init < (plt ? 2 : 1); init++) {
				if (plt)
					sites_module(site & ~0xffful, 0x20000, plt, init);
				for (int j = 0; j < 2 * N; j++)
					for (int k = 0; k < 2; k++)
						sequence(site, plt ? plt : caller, site + 4 + (j & 1 ? -far[j / 2] : far[j / 2]), k);
			}
		}
	}
}
#else
static void sweep(void)
{
	static const long pages[] = { 0, 1, -1, 17, -300, 0x7fff0, -0x7fff0 };
	static const long off[] = { 4, 8, 64, 1024, 2040, 2044, 2048, 2052, 4096, 65536, 1 << 30 };
	enum { P = sizeof(pages) / sizeof(*pages), N = sizeof(off) / sizeof(*off) };
	addr caller = sites_caller();

	for (int p = 0; p < P; p++)
		for (addr low = 0; low < 4096; low += sites_before() ? 8 : 4) {
			addr site = ((caller + pages[p] * 4096) & ~0xffful) + low;

			if (site - caller + 64 < 128)
				continue;
			for (int j = 0; j < 2 * N; j++) {
				addr to = caller + (j & 1 ? -off[j / 2] : off[j / 2]);

				function = site;
				/* What 32 bits do not reach nobody asks this file for. */
				if (reached_by_call(to))
					for (int k = 0; k < 2; k++)
						sequence(site, caller, to, k);
			}
		}
	(void)refused;
}
#endif

/* Where the kernel warns it has a breakpoint, BRK or EBREAK, and goes on behind that. Any other signal is the program's end. */
static void warned(int signal, siginfo_t *info, void *context)
{
	ucontext_t *at = context;
#ifdef __aarch64__
	static char task[4096];
	unsigned int insn = *(unsigned int *)at->uc_mcontext.pc;
	/* MRS of SP_EL0, which is the kernel's current task. */
	bool current = (insn & ~31u) == 0xd5384100, warning = (insn & 0xffe0001f) == 0xd4200000;

	if (current)
		at->uc_mcontext.regs[insn & 31] = (addr)task;
	at->uc_mcontext.pc += 4;
#else
	addr *pc = (addr *)&at->uc_mcontext.__gregs[REG_PC];
	bool current = false, full = (*(unsigned short *)*pc & 3) == 3;
	bool warning = full ? *(unsigned int *)*pc == 0x00100073 : *(unsigned short *)*pc == 0x9002;

	*pc += full ? 4 : 2;
#endif
	(void)info;
	warnings += warning;
	if (warning || current)
		return;
	printf("the kernel's code ends with signal %d, as of %s\nnothing\n", signal, told_as);
	fflush(stdout);
	_Exit(1);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = warned, .sa_flags = SA_SIGINFO };

	sigaction(SIGTRAP, &action, NULL);
	sigaction(SIGILL, &action, NULL);
	sweep();
#ifdef __aarch64__
	if (sites_before() && begun(0x40000000000c))
		wrong("a function at no multiple of 8 has a place for an ftrace_ops");
#endif
	return told_all(sequences, "sequences");
}
