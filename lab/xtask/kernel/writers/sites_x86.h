/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two halves of a program share that has a kernel's ftrace.c and alternative.c write sites of x86_64. */
#ifndef SITES_X86_H
#define SITES_X86_H

/* A site, and whom it calls before and after a step; 0 is nobody. Of 7.3, bit 0 says that it jumps. */
struct written_site {
	unsigned long ip, from, to;
};

/* What the kernel's handler makes of a breakpoint. */
struct written_trap {
	int handled;
	unsigned long ip, sp;
};

/* The compiler's call becomes an instruction without effect, as at boot. The kernel's error, or 0. */
int written_boot(unsigned long ip);
/* All of these at once, as while the kernel runs. */
void written_step(struct written_site *sites, unsigned int count);
struct written_trap written_trapped(unsigned long ip, unsigned long sp, unsigned long flags);
/* An instruction in the place of another at once; or when `written_queued` is called, with others. */
void written_single(unsigned long ip, const unsigned char *bytes, unsigned int size);
void written_queue(unsigned long ip, const unsigned char *bytes, unsigned int size);
void written_queued(void);
int written_jumps(void);

#endif
