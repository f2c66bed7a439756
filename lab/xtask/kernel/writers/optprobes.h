/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two halves of a program share that has a kernel's kprobes/opt.c put jumps in the place of instructions. */
#ifndef OPTPROBES_H
#define OPTPROBES_H

/* A probe: where its code is, how many bytes it takes the place of; or the kernel's error. */
struct prepared {
	int error;
	unsigned long code;
	unsigned int size;
};

/* Registers as a probe's function sees them, in the order of their numbers in instructions, then flags and ip. */
struct seen {
	unsigned long reg[16], flags, ip;
};

/* There are two probes, 0 and 1. Prepare one at an address; put its jump there, or take it away; take the probe away. */
struct prepared probe_at(int n, unsigned long at);
void probe_jump(int n);
void probe_unjump(int n);
void probe_gone(int n);
/* The other one is disabled and its breakpoint is in the text; or the jump of this one is about to go. */
void probe_disabled(int n);
void probe_going(int n);
/* May the jump be put there, with the other probe as it is? The kernel's error, or 0. */
int probe_free(int n);
/* An ordinary probe at an address: the kernel's error, or 0. */
int probe_plain(unsigned long at);
/* Indirect jumps in the function do not matter. */
int probe_beside_jumps(void);

/* The program's: what it does when a probe is hit. */
void hit(struct seen *seen);

#endif
