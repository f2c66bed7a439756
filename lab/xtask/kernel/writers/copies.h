/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two halves of a program share that has a kernel's ftrace.c make copies of ftrace_caller. */
#ifndef COPIES_H
#define COPIES_H

/* Make a copy for the ftrace_ops in this memory, of ftrace_regs_caller or ftrace_caller; its address, or 0. */
unsigned long copy_for(void *memory, int regs, unsigned long calls);
/* The same copy calls another function. */
void copy_calls(void *memory, unsigned long calls);

#endif
