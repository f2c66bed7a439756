// SPDX-License-Identifier: MIT OR Apache-2.0
/* The kernel's half of a program that has a kernel's ftrace.c make copies of ftrace_caller: compiled as that is. */
#include <linux/ftrace.h>

#include "copies.h"
#include "poke_kernel.h"

static unsigned long wanted;

ftrace_func_t ftrace_ops_get_func(struct ftrace_ops *ops) { return (ftrace_func_t)wanted; }

unsigned long copy_for(void *memory, int regs, unsigned long calls)
{
	struct ftrace_ops *ops = memory;

	memset(ops, 0, sizeof(*ops));
	ops->flags = regs ? FTRACE_OPS_FL_SAVE_REGS : 0;
	copy_calls(memory, calls);
	return ops->trampoline;
}

void copy_calls(void *memory, unsigned long calls)
{
	wanted = calls;
	arch_ftrace_update_trampoline(memory);
}
