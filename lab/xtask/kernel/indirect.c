// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls ftrace_stub through a pointer, as the kernel does where a function has several tracers and one of them does nothing: with
// CONFIG_CFI this traps where the type before ftrace_stub is not that of the pointer. Its address is in /proc/kallsyms only.

#include <linux/ftrace.h>
#include <linux/module.h>

static unsigned long stub;
module_param(stub, ulong, 0444);

static int __init indirect_init(void)
{
	ftrace_func_t call = (ftrace_func_t)stub;

	call(0, 0, NULL, NULL);
	return 0;
}

static void __exit indirect_exit(void)
{
}

module_init(indirect_init);
module_exit(indirect_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("calls ftrace_stub through a pointer");
