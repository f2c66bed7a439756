/* SPDX-License-Identifier: GPL-2.0-only */
/* What the figures are compared with, besides the kernel's own code. */
	.section .note.GNU-stack, "", @progbits
	.text

/* The least that a site can go to, and what call slots call until they are patched. */
	.balign 16
	.globl	only_return, ftrace_stub
only_return:
ftrace_stub:
	ret

/* The least that calls something. */
	.balign 16
	.globl	only_call
only_call:
	call	on_entry
	ret

/*
 * The shape of Linux 6.12's BPF trampoline with an exit program, and an entry program if there is one
 * (arch/x86/net/bpf_jit_comp.c): the site calls it, it calls the function behind the site, and returns past the site's
 * return address. Left out are the count of arguments, the cookie, and what the kernel calls around each program.
 */
	.macro	FEXIT name, body, entry
	.balign 16
	.globl	\name
\name:	push	%rbp
	mov	%rsp, %rbp
	sub	$64, %rsp
	mov	%rdi, -64(%rbp)
	mov	%rsi, -56(%rbp)
	mov	%rdx, -48(%rbp)
	mov	%rcx, -40(%rbp)
	mov	%r8, -32(%rbp)
	mov	%r9, -24(%rbp)
	.ifnb	\entry
	lea	-64(%rbp), %rdi
	call	\entry
	.endif
	mov	-64(%rbp), %rdi
	mov	-56(%rbp), %rsi
	mov	-48(%rbp), %rdx
	mov	-40(%rbp), %rcx
	mov	-32(%rbp), %r8
	mov	-24(%rbp), %r9
	call	\body + 5
	mov	%rax, -8(%rbp)
	lea	-64(%rbp), %rdi
	call	on_exit_
	mov	-8(%rbp), %rax
	leave
	add	$8, %rsp
	ret
	.endm

	FEXIT	fexit_6_12_f, f_fexit_6_12
	FEXIT	fexit_6_12_g, g_fexit_6_12
	FEXIT	both_6_12_f, f_both_6_12, on_entry
	FEXIT	both_6_12_g, g_both_6_12, on_entry
