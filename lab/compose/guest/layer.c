/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The layer between trampolines and core: what a kernel's architecture code does. It shows the core what is in a
 * trampoline's frame, and puts back what changed.
 */
#include "guest.h"

/* As in core.rs. */
struct shown {
	word ip, parent, retp, args[8], retval, direct;
};

/* Offsets in a frame; NONE is none. The emulator fills them in from the contracts. */
#define NONE (~0UL)
struct layout {
	word pc, parent, sp, direct, args[8], retval;
};

#define FILLED __attribute__((section(".data")))
struct layout args_layout FILLED, regs_layout FILLED, exit_layout FILLED, rethook_layout FILLED, paired_layout FILLED;
/* Bytes that a return pops, so that SP is behind the cell. */
word popped FILLED;
/* Of the functions: what the core knows them by; where the paired trampoline of each begins, and its bytes. */
word sites[8], paired_at[8], paired_bytes[8];
/* Where replaced return addresses lead. */
word to_return FILLED, to_rethook FILLED;
/* Where calls are made from that are no function's. */
void (*handler_calls)(void), (*outside_calls)(void);

extern word core_bytes(word which);
extern void *core_sites(void *room, word *ips);
extern void *core_new(void *room, void *sites, word to_return, word to_rethook);
extern void *core_task(void *room);
extern void core_enter(void *core, void *task, struct outside *outside, struct shown *regs);
extern word core_leave(void *core, void *task, struct outside *outside, word rethook, struct shown *regs);
extern word core_control(void *core, volatile word *user);
extern word core_target(void *core, word ip);
extern word core_context(void *task, word context);
extern word core_true_parent(void *core, void *task, word at, word cell);
extern word core_balanced(void *core, void *task);
extern void core_exit(void *core, void *task);

static char core_room[32768] __attribute__((aligned(64)));
static char site_room[1024] __attribute__((aligned(64)));
/* The third one has a stack of its own and stays in functions while the others run. */
#define THREADS 3
#define THIRD 2
static char task_room[THREADS][8192] __attribute__((aligned(64)));
static void *core, *task[THREADS];

/*
 * A function that runs within a paired trampoline: its number, SP when the trampoline called it, whom it returns to, and where to
 * by the core's word.
 */
struct paired {
	word f, sp, caller, cell;
};

/* Those of each thread, the innermost last. Who was left by a jump stays until somebody further out returns. */
#define DEEPEST 1024
static struct paired running[THREADS][DEEPEST];
static word depth[THREADS];

__asm__(".globl host\n.type host, %function\nhost: .cfi_startproc\nret\n.cfi_endproc\n.size host, . - host\n");

/*
 * Where recorders go on, eight bytes behind this: as if the site had called the trampoline that returns to the function at
 * once. They leave alone what it goes by.
 */
#if defined(__x86_64__)
#define GO_ON ".skip 8, 0x90\njmp ftrace_stub_direct_tramp\n"
#elif defined(__aarch64__)
#define GO_ON "nop\nnop\nb ftrace_stub_direct_tramp\n"
#else
#define GO_ON ".option push\n.option norvc\nnop\nnop\n.option pop\ntail ftrace_stub_direct_tramp\n"
#endif
__asm__(".globl recorded\n.type recorded, %function\nrecorded: .cfi_startproc\n" GO_ON ".cfi_endproc\n.size recorded, . - recorded\n");

static void run(void)
{
	handler_calls();
}

/*
 * Who called this, up the stack: the emulator reads the unwind tables. Where a return address is replaced, the core is asked
 * which one it is, as a kernel's unwinder does.
 */
NOIPA void unwind(void)
{
	word answer = 0;

	while (host(UNWIND, answer, 0, 0))
		answer = core_true_parent(core, task[outside.mail[CURRENT]], outside.mail[ASKED], outside.mail[ASKED + 1]);
}

/*
 * Whom a function returns to in the end whose return address is this and lies there. One that was jumped to from within a paired
 * trampoline returns into that: so to the caller of the function which jumped.
 */
static word caller(word parent, word retp)
{
	const struct paired *all = running[outside.mail[CURRENT]];
	word n;

	for (n = depth[outside.mail[CURRENT]]; n-- > 0;)
		if (all[n].sp == retp + popped && parent - paired_at[all[n].f] < paired_bytes[all[n].f])
			return all[n].caller;
	return parent;
}

struct outside outside = { .host = host, .run = run, .unwind = unwind, .caller = caller };

/* An ftrace_ops, of which trampolines read what the emulator fills in. */
word ops[64] FILLED;
void *function_trace_op = ops;

#ifdef __x86_64__
NOIPA void __fentry__(void) { }
__attribute__((used)) void __x86_return_thunk(void) { }
#endif

/* What direct trampolines call. */
NOIPA void direct_handler(void)
{
	unwind();
	host(DIRECT, 0, 0, 0);
}

#define FIELD(fregs, offset) (*(word *)((char *)(fregs) + (offset)))

static struct shown ask(word ip, word parent, word retp, void *fregs, const struct layout *layout)
{
	struct shown regs = { .ip = ip, .parent = parent, .retp = retp };
	int i;

	for (i = 0; i < 8; i++)
		if (layout->args[i] != NONE)
			regs.args[i] = FIELD(fregs, layout->args[i]);
	core_enter(core, task[outside.mail[CURRENT]], &outside, &regs);
	return regs;
}

static void enter(word ip, word parent, void *fregs, const struct layout *layout)
{
	word pc = FIELD(fregs, layout->pc), at = FIELD(fregs, layout->sp);
	struct shown regs = ask(ip, parent, at, fregs, layout);

	if (regs.ip != ip)
		pc = regs.ip;
	FIELD(fregs, layout->pc) = pc;
	if (regs.parent != parent) {
		if (layout->parent == NONE)
			*(word *)at = regs.parent;
		else
			FIELD(fregs, layout->parent) = regs.parent;
	}
	if (regs.direct && layout->direct != NONE)
		FIELD(fregs, layout->direct) = regs.direct;
}

NOIPA void callback_args(word ip, word parent, void *op, void *fregs)
{
	(void)op;
	enter(ip, parent, fregs, &args_layout);
}

NOIPA void callback_regs(word ip, word parent, void *op, void *fregs)
{
	(void)op;
	enter(ip, parent, fregs, &regs_layout);
}

/* Where the profile has it, entry trampolines find here what they call. */
void (*callee)(word, word, void *, void *) = callback_args;

static word leave(void *fregs, const struct layout *layout, word rethook)
{
	struct shown regs = { .retp = FIELD(fregs, layout->sp) - popped };

	regs.retval = FIELD(fregs, layout->retval);
	return core_leave(core, task[outside.mail[CURRENT]], &outside, rethook, &regs);
}

NOIPA word ftrace_return_to_handler(void *fregs)
{
	return leave(fregs, &exit_layout, 0);
}

NOIPA word arch_rethook_trampoline_callback(void *regs)
{
	return leave(regs, &rethook_layout, 1);
}

/*
 * A function is entered whose return address stays where it is: its trampoline calls it, and then the handler of returns. The core
 * knows the call by the trampoline's frame: the place of the return address may be that of another hook, which replaced it.
 */
NOIPA void paired_entry(word ip, word parent, void *op, void *fregs)
{
	word current = outside.mail[CURRENT], at = FIELD(fregs, paired_layout.sp);
	struct paired own = { .sp = (word)fregs };
	struct shown regs;

	(void)op;
	/* A function whose return is replaced may have jumped here: the core's answer must tell the hooks of this call from that. */
	own.caller = caller(core_true_parent(core, task[current], parent, at), at);
	regs = ask(ip, own.caller, own.sp, fregs, &paired_layout);
	while (own.f < 7 && sites[own.f] != ip)
		own.f++;
	own.cell = regs.parent;
	/* Such a trampoline cannot go elsewhere. */
	if (regs.ip != ip || regs.direct || depth[current] == DEEPEST)
		host(ASTRAY, regs.ip, 0, 0);
	else
		running[current][depth[current]++] = own;
}

NOIPA void paired_return(void *fregs)
{
	word current = outside.mail[CURRENT], n = depth[current], hooks;
	struct paired own;

	while (n > 0 && running[current][n - 1].sp != (word)fregs)
		n--;
	if (n == 0) {
		host(ASTRAY, 0, 0, 0);
		return;
	}
	own = running[current][n - 1];
	depth[current] = n - 1;
	for (hooks = 0; hooks < 1000 && (own.cell == to_return || own.cell == to_rethook); hooks++) {
		struct shown regs = { .retp = own.sp, .retval = FIELD(fregs, paired_layout.retval) };

		own.cell = core_leave(core, task[current], &outside, own.cell == to_rethook, &regs);
	}
	if (own.cell != own.caller)
		host(ASTRAY, own.cell, 0, 0);
}

static void changed(void)
{
	int f;

	for (f = 0; f < 8; f++)
		outside.mail[TARGETS + f] = core_target(core, sites[f]);
	host(CHANGED, 0, 0, 0);
}

static void call_in(word current)
{
	word before = core_context(task[current], 0), was = outside.mail[CURRENT];

	core_context(task[current], before + 1 > 3 ? 3 : before + 1);
	outside.mail[CURRENT] = current;
	outside_calls();
	outside.mail[CURRENT] = was;
	core_context(task[current], before);
}

/* The other thread's stack begins here: nobody unwinds any further. */
NOIPA void switched(void)
{
	call_in(outside.mail[CURRENT] == 0);
	/* No tail call: this frame must stay on the stack. */
	__asm__ volatile("");
}

NOIPA void serve(void)
{
	int i;

	switch (outside.mail[SERVICE]) {
	case INTERRUPT:
		call_in(outside.mail[CURRENT]);
		break;
	case SWITCH:
		switched();
		break;
	case CONTROL:
		outside.mail[ANSWER] = core_control(core, outside.mail + USER);
		changed();
		break;
	case BALANCED:
		outside.mail[ANSWER] = 1;
		for (i = 0; i < THREADS; i++)
			outside.mail[ANSWER] &= core_balanced(core, task[i]);
		break;
	case EXIT:
		core_exit(core, task[THIRD]);
		depth[THIRD] = 0;
		break;
	}
}

/* A case begins. */
NOIPA word begin(void)
{
	int i;

	if (core_bytes(0) > sizeof(core_room) || core_bytes(1) > sizeof(task_room[0]) || core_bytes(2) > sizeof(site_room))
		return 1;
	core = core_new(core_room, core_sites(site_room, sites), to_return, to_rethook);
	for (i = 0; i < THREADS; i++) {
		task[i] = core_task(task_room[i]);
		depth[i] = 0;
	}
	if (!core)
		return 2;
	outside_calls();
	return 0;
}

/*
 * What compilers call of their own accord. The core of each case is made by them, so they go by four words where they can: an
 * iteration of a loop is what costs in the emulator.
 */
#define STEP (4 * sizeof(word))
#define ALIGNED(address) ((word)(address) % sizeof(word) == 0)

NOIPA void *memset(void *to, int value, word n)
{
	word all = (value & 0xff) * 0x0101010101010101UL;
	volatile char *at = to;

	for (; ALIGNED(at) && n >= STEP; at += STEP, n -= STEP) {
		volatile word *words = (volatile word *)at;

		words[0] = all;
		words[1] = all;
		words[2] = all;
		words[3] = all;
	}
	while (n--)
		*at++ = value;
	return to;
}

NOIPA void *memcpy(void *to, const void *from, word n)
{
	volatile char *at = to;
	const char *source = from;

	for (; ALIGNED(at) && ALIGNED(source) && n >= STEP; at += STEP, source += STEP, n -= STEP) {
		volatile word *words = (volatile word *)at;
		const word *others = (const word *)source;

		words[0] = others[0];
		words[1] = others[1];
		words[2] = others[2];
		words[3] = others[3];
	}
	while (n--)
		*at++ = *source++;
	return to;
}
