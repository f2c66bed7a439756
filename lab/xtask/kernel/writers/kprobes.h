/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two halves of a program share that has a kernel of arm64 or riscv64 prepare kprobes. */
#ifndef KPROBES_H
#define KPROBES_H

/* The kernel's error, or 0; where the instruction is copied to, 0 if the kernel does what it would do; and where control goes on. */
struct prepared {
	int error;
	unsigned long slot, behind;
};

struct prepared prepare(unsigned long at);

#endif
