// SPDX-License-Identifier: MIT OR Apache-2.0
/* The kernel's half of a program that has a kernel's probes/kprobes.c copy instructions: compiled as that is. */
#include <linux/version.h>
#include <linux/kprobes.h>

#include "kprobes.h"

struct prepared prepare(unsigned long at)
{
	static struct kprobe probe;
	struct prepared done = { 0 };

	memset(&probe, 0, sizeof(probe));
	probe.addr = (void *)at;
	done.error = arch_prepare_kprobe(&probe);
#if defined(CONFIG_ARM64) && LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
	done.slot = (unsigned long)probe.ainsn.xol_insn;
	done.behind = probe.ainsn.xol_restore;
#else
	done.slot = (unsigned long)probe.ainsn.api.insn;
	done.behind = probe.ainsn.api.restore;
#endif
	return done;
}
