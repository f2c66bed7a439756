/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a kernel's alternative.c needs to write text in a process: AFTER_WRITE is done after each write, ON_ALL_CPUS(told) where CPUs are
 * told; `told` says that all are, and have heard of it.
 */
#ifndef POKE_H
#define POKE_H

#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

#include "told.h"

/* Where text is written: the page of the text itself. */
void written_at(unsigned long text);

/* What the kernel's files call, or have in memory; some kernels have these themselves. */
#define OR_THEIRS __attribute__((weak))
int after_bootmem = 1;
static const unsigned char nops[][11] = {
	{ 0 }, { 0x90 }, { 0x66, 0x90 }, { 0x0f, 0x1f, 0x00 }, { 0x0f, 0x1f, 0x40, 0x00 }, { 0x0f, 0x1f, 0x44, 0x00, 0x00 },
};
OR_THEIRS const unsigned char *const x86_nops[] = { NULL, nops[1], nops[2], nops[3], nops[4], nops[5] };
static char page[64], entries[4096];
/* Where 6.12 looks a page's number up. */
static unsigned long section[512], *sections[] = { section };
unsigned long **mem_section = sections;
/* The kernel writes at another address of the same page: here at the same. It asks for one page, or for two that follow one another. */
static bool asked;
void *vmalloc_to_page(const void *at)
{
	if (!asked)
		written_at((unsigned long)at & ~0xffful);
	asked = true;
	return page;
}
int core_kernel_text(unsigned long at) { (void)at; return 0; }
int is_module_text_address(unsigned long at) { (void)at; return 0; }
void *get_locked_pte(void *mm, unsigned long at, void **lock) { (void)mm, (void)at; *lock = page; return entries; }
void *__get_locked_pte(void *mm, unsigned long at, void **lock) { return get_locked_pte(mm, at, lock); }
void _raw_spin_unlock(void *lock) { (void)lock; }
void *use_temporary_mm(void *mm) { return mm; }
void unuse_temporary_mm(void *mm) { (void)mm; }
void switch_mm_irqs_off(void *from, void *to, void *task) { (void)from, (void)to, (void)task; }
void perf_event_text_poke(const void *at, const void *old, size_t size, const void *new, size_t bytes)
{
	(void)at, (void)old, (void)size, (void)new, (void)bytes;
}
void mutex_lock(void *lock) { (void)lock; }
void down_read(void *lock) { (void)lock; }
void up_read(void *lock) { (void)lock; }
void mutex_unlock(void *lock) { (void)lock; }
void preempt_schedule_thunk(void) { }
int __cond_resched(void) { return 0; }
STUB int _printk(const char *format, ...) { fprintf(stderr, "the kernel: %s\n", format + 2); return 0; }
/* Objects with mitigations return and branch through these. */
#define THUNK(reg) ".globl __x86_indirect_thunk_" #reg "\n__x86_indirect_thunk_" #reg ": jmp *%" #reg "\n"
asm(".globl __x86_return_thunk\n__x86_return_thunk: ret\n" THUNK(rax) THUNK(rbx) THUNK(rcx) THUNK(rdx) THUNK(rsi) THUNK(rdi) THUNK(rbp)
    THUNK(r8) THUNK(r9) THUNK(r10) THUNK(r11) THUNK(r12) THUNK(r13) THUNK(r14) THUNK(r15));
void __fentry__(void);
OR_THEIRS void *x86_return_thunk;
OR_THEIRS int cpu_wants_rethunk(void) { return 0; }
OR_THEIRS int cpu_wants_rethunk_at(void *at) { (void)at; return 0; }
void *callthunks_translate_call_dest(void *dest) { return dest; }

/* The kernel has written. */
STUB void flush_tlb_mm_range(void *mm, unsigned long from, unsigned long to, unsigned int shift, bool freed)
{
	(void)mm, (void)from, (void)to, (void)shift, (void)freed;
	asked = false;
	AFTER_WRITE;
}

/* All CPUs do something, and it is waited for. */
extern char __cpu_online_mask[];
STUB void on_each_cpu_cond_mask(void *cond, void *function, void *info, bool wait, const void *mask)
{
	(void)info;
	ON_ALL_CPUS(wait && function && !cond && mask == __cpu_online_mask);
}

/* CLI and STI are not a process's; where the kernel says that something cannot be, the program ends. */
static void trap_or_end(int signal, siginfo_t *info, void *context)
{
	greg_t *ip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	unsigned char insn = *(unsigned char *)*ip;

	(void)info;
	if (signal == SIGSEGV && (insn == 0xfa || insn == 0xfb)) {
		++*ip;
		return;
	}
	printf("the kernel's code ends with signal %d at %#llx, as of %s\nnothing\n", signal, *ip, told_as);
	fflush(stdout);
	_Exit(1);
}

static void as_kernel(void)
{
	struct sigaction action = { .sa_sigaction = trap_or_end, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGILL, &action, NULL);
}

#endif
