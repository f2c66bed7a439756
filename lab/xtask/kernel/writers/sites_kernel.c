// SPDX-License-Identifier: MIT OR Apache-2.0
/* The kernel's half of a program that has a kernel's ftrace.c write sites: compiled as that is, with the kernel's own headers. */
#include <linux/version.h>
#include <linux/ftrace.h>
#include <linux/module.h>

#include "sites.h"

static struct module module;
static struct ftrace_ops single;

/* Stand-ins for what the kernel has elsewhere (kernel/trace/ftrace.c, kernel/module/main.c). */
const struct ftrace_ops ftrace_list_ops, ftrace_nop_ops;
struct ftrace_ops *ftrace_find_unique_ops(struct dyn_ftrace *rec) { return &single; }
struct module *__module_text_address(unsigned long at)
{
	return within_module_mem_type(at, &module, MOD_TEXT) || within_module_mem_type(at, &module, MOD_INIT_TEXT) ? &module : NULL;
}

unsigned long sites_ip(unsigned long first) { return ftrace_call_adjust(first); }
unsigned long sites_caller(void) { return FTRACE_ADDR; }
unsigned int sites_before(void) { return IS_ENABLED(CONFIG_DYNAMIC_FTRACE_WITH_CALL_OPS) ? 8 : 0; }

unsigned long sites_ops(unsigned int users)
{
	return (unsigned long)(users == 0 ? &ftrace_nop_ops : users == 1 ? &single : &ftrace_list_ops);
}

static struct dyn_ftrace site(unsigned long ip, int one)
{
	struct dyn_ftrace rec = { .ip = ip };

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_CALL_OPS
	rec.flags = one ? FTRACE_FL_CALL_OPS_EN : 0;
#endif
	return rec;
}

int sites_init(unsigned long ip)
{
	struct dyn_ftrace rec = site(ip, 0);

	return ftrace_init_nop(NULL, &rec);
}

int sites_call(unsigned long ip, unsigned long to, int one)
{
	struct dyn_ftrace rec = site(ip, one);

	return ftrace_make_call(&rec, to);
}

int sites_modify(unsigned long ip, unsigned long from, unsigned long to, int one)
{
	struct dyn_ftrace rec = site(ip, one);

	return ftrace_modify_call(&rec, from, to);
}

int sites_off(unsigned long ip, unsigned long from)
{
	struct dyn_ftrace rec = site(ip, 0);

	return ftrace_make_nop(NULL, &rec, from);
}

#if defined(CONFIG_RISCV) && LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
unsigned long sites_near(void) { return JALR_RANGE; }
#else
unsigned long sites_near(void) { return 0; }
#endif
int sites_have_probes(void) { return IS_ENABLED(CONFIG_RISCV) && LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0); }

void sites_module(unsigned long text, unsigned long size, unsigned long plt, int init)
{
	/* The other text of the module is far away, and so is its branch. */
	const unsigned long far = 1ul << 40;

	memset(&module, 0, sizeof(module));
	module.mem[MOD_TEXT].base = (void *)(init ? text + far : text);
	module.mem[MOD_INIT_TEXT].base = (void *)(init ? text : text + far);
	module.mem[MOD_TEXT].size = module.mem[MOD_INIT_TEXT].size = size;
#ifdef CONFIG_ARM64
	module.arch.ftrace_trampolines = (struct plt_entry *)(init ? plt + far : plt);
	module.arch.init_ftrace_trampolines = (struct plt_entry *)(init ? plt : plt + far);
#endif
}
