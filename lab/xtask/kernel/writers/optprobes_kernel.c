// SPDX-License-Identifier: MIT OR Apache-2.0
/* The kernel's half of a program that has a kernel's kprobes/opt.c write: compiled as that is, with the kernel's own headers. */
#include <linux/kprobes.h>

#include "optprobes.h"
#include "poke_kernel.h"

static struct optimized_kprobe probes[2];
static bool going[2];
static LIST_HEAD(those_that_go);

/* Stand-ins for what the kernel has in kernel/kprobes.c. */
struct kprobe *get_kprobe(void *addr)
{
	for (int n = 0; n < 2; n++)
		if (probes[n].kp.addr == addr)
			return &probes[n].kp;
	return NULL;
}

bool optprobe_queued_unopt(struct optimized_kprobe *op) { return going[op - probes]; }
bool kprobe_disarmed(struct kprobe *p) { return false; }

void opt_pre_handler(struct kprobe *p, struct pt_regs *regs)
{
	struct seen seen = { { regs->ax, regs->cx, regs->dx, regs->bx, regs->sp, regs->bp, regs->si, regs->di, regs->r8, regs->r9, regs->r10,
			       regs->r11, regs->r12, regs->r13, regs->r14, regs->r15 }, regs->flags, regs->ip };

	hit(&seen);
	regs->bx = seen.reg[3];
	regs->r14 = seen.reg[14];
}

struct prepared probe_at(int n, unsigned long at)
{
	struct optimized_kprobe *op = &probes[n];
	struct prepared done = { 0 };

	memset(op, 0, sizeof(*op));
	going[n] = false;
	INIT_LIST_HEAD(&op->list);
	op->kp.addr = (void *)at;
	op->kp.opcode = *(u8 *)at;
	done.error = arch_prepare_optimized_kprobe(op, NULL);
	done.code = (unsigned long)op->optinsn.insn;
	done.size = op->optinsn.size;
	return done;
}

void probe_jump(int n)
{
	LIST_HEAD(list);

	list_add(&probes[n].list, &list);
	arch_optimize_kprobes(&list);
	probes[n].kp.flags |= KPROBE_FLAG_OPTIMIZED;
}

void probe_unjump(int n)
{
	arch_unoptimize_kprobe(&probes[n]);
	probes[n].kp.flags &= ~KPROBE_FLAG_OPTIMIZED;
}

void probe_gone(int n) { probes[n].kp.addr = NULL; }

void probe_disabled(int n)
{
	probes[n].kp.flags |= KPROBE_FLAG_DISABLED;
}

void probe_going(int n)
{
	going[n] = true;
	INIT_LIST_HEAD(&those_that_go);
	list_add(&probes[n].list, &those_that_go);
}

int probe_free(int n) { return arch_check_optimized_kprobe(&probes[n]); }
int probe_beside_jumps(void) { return IS_ENABLED(CONFIG_MITIGATION_RETPOLINE) || IS_ENABLED(CONFIG_X86_KERNEL_IBT); }

int probe_plain(unsigned long at)
{
	static struct kprobe plain;

	memset(&plain, 0, sizeof(plain));
	plain.addr = (void *)at;
	return arch_prepare_kprobe(&plain);
}
