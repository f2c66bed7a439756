// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The kernel's half of a program that has a kernel's ftrace.c and alternative.c write sites: compiled as these are, with the kernel's own
 * headers.
 */
#include <linux/ftrace.h>

#include "poke_kernel.h"
#include "sites_x86.h"

static struct written_site *all;
static unsigned int count, at;
static struct dyn_ftrace rec;

struct ftrace_rec_iter *ftrace_rec_iter_start(void)
{
	at = 0;
	return count ? (void *)&at : NULL;
}

struct ftrace_rec_iter *ftrace_rec_iter_next(struct ftrace_rec_iter *iter)
{
	return ++at < count ? iter : NULL;
}

struct dyn_ftrace *ftrace_rec_iter_record(struct ftrace_rec_iter *iter)
{
	rec.ip = all[at].ip;
	return &rec;
}

int ftrace_test_record(struct dyn_ftrace *rec, bool enable)
{
	struct written_site *site = &all[at];

	if (site->from == site->to)
		return FTRACE_UPDATE_IGNORE;
	return !site->from ? FTRACE_UPDATE_MAKE_CALL : site->to ? FTRACE_UPDATE_MODIFY_CALL : FTRACE_UPDATE_MAKE_NOP;
}

int ftrace_update_record(struct dyn_ftrace *rec, bool enable) { return 0; }
unsigned long ftrace_get_addr_curr(struct dyn_ftrace *rec) { return all[at].from; }
unsigned long ftrace_get_addr_new(struct dyn_ftrace *rec) { return all[at].to; }

int written_jumps(void) { return IS_ENABLED(CONFIG_DYNAMIC_FTRACE_WITH_JMP); }

int written_boot(unsigned long ip)
{
	struct dyn_ftrace site = { .ip = ip };

	return ftrace_make_nop(NULL, &site, MCOUNT_ADDR);
}

void written_step(struct written_site *sites, unsigned int n)
{
	all = sites;
	count = n;
	ftrace_replace_code(1);
}

struct written_trap written_trapped(unsigned long ip, unsigned long sp, unsigned long flags)
{
	struct pt_regs regs = { .ip = ip + 1, .sp = sp, .flags = flags };
	struct written_trap trap = { .handled = smp_text_poke_int3_handler(&regs) };

	trap.ip = regs.ip;
	trap.sp = regs.sp;
	return trap;
}

void written_single(unsigned long ip, const unsigned char *bytes, unsigned int size)
{
	smp_text_poke_single((void *)ip, bytes, size, NULL);
}

void written_queue(unsigned long ip, const unsigned char *bytes, unsigned int size)
{
	smp_text_poke_batch_add((void *)ip, bytes, size, NULL);
}

void written_queued(void) { smp_text_poke_batch_finish(); }
