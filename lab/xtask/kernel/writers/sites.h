/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the two halves of a program share that has a kernel's ftrace.c write sites of arm64 and riscv64. `ip` is what the kernel calls a
 * site's: what sites_ip() says of the first instruction that the compiler left for it.
 */
#ifndef SITES_H
#define SITES_H

unsigned long sites_ip(unsigned long first);
/* Bytes in front of the function that are the compiler's too, for the address of an ftrace_ops; 0 where calls take none. */
unsigned int sites_before(void);
unsigned long sites_caller(void);
/* The ftrace_ops of sites that are off, of those with several users, of those with one. */
unsigned long sites_ops(unsigned int users);

/* The kernel's error, or 0. `one` says that the site has a single user. */
int sites_init(unsigned long ip);
int sites_call(unsigned long ip, unsigned long to, int one);
int sites_modify(unsigned long ip, unsigned long from, unsigned long to, int one);
int sites_off(unsigned long ip, unsigned long from);

/*
 * The module that has the site, in its text or, with `init`, in that which is freed when it has begun; and the one branch beside that text
 * which reaches ftrace_caller.
 */
void sites_module(unsigned long text, unsigned long size, unsigned long plt, int init);
/* Bytes from ftrace_caller to which a call goes straight, where the first instruction stays as it is; 0 where it goes anywhere. */
unsigned long sites_near(void);
/* A breakpoint of a probe may stand in the place of the first instruction while the second is written. */
int sites_have_probes(void);

#endif
