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

/* A function that reads the clock twice, and a recursion of the same: what two times cost, and nothing else. */
	.balign 16
	.globl	f_clock_twice
f_clock_twice:
	nopl	0(%rax, %rax)
	rdtsc
	rdtsc
	lea	1(%rdi), %rax
	ret

	.balign 16
	.globl	g_clock_twice
g_clock_twice:
	nopl	0(%rax, %rax)
	rdtsc
	rdtsc
	xor	%eax, %eax
	test	%rdi, %rdi
	jz	1f
	sub	$8, %rsp
	dec	%rdi
	call	g_clock_twice
	inc	%rax
	add	$8, %rsp
1:	ret

/*
 * One trampoline for all functions, as tracers have it that replace the return address: the site calls it, it writes the record
 * of the entry, keeps the parent on a stack of the thread, and lets the function return to the second half, which writes
 * the record of the return. The records and the way to take a slot are those of the trampolines that it is compared with;
 * the number is the address.
 */
	.macro	TIME tsc
	.if	\tsc
	push	%rax
	push	%rdx
	rdtsc
	mov	%eax, (%r11)
	mov	%edx, 4(%r11)
	pop	%rdx
	pop	%rax
	.else
	movq	$0, (%r11)
	.endif
	.endm

	.macro	REPLACED name, tsc, jmp
	.balign 16
	.globl	\name
\name:	mov	$16, %r11d
	xadd	%r11, %fs:recording@tpoff
	cmp	%fs:recording@tpoff + 8, %r11
	jae	1f
	TIME	\tsc
	mov	(%rsp), %r10
	shl	$8, %r10
	or	$1, %r10
	mov	%r10, 8(%r11)
1:	mov	%fs:shadow_of_thread@tpoff, %r11
	mov	8(%rsp), %r10
	mov	%r10, (%r11)
	mov	(%rsp), %r10
	mov	%r10, 8(%r11)
	addq	$16, %fs:shadow_of_thread@tpoff
	lea	2f(%rip), %r10
	mov	%r10, 8(%rsp)
	ret
2:	mov	$16, %r11d
	xadd	%r11, %fs:recording@tpoff
	mov	%fs:shadow_of_thread@tpoff, %rcx
	cmp	%fs:recording@tpoff + 8, %r11
	jae	3f
	TIME	\tsc
	mov	-8(%rcx), %r10
	shl	$8, %r10
	or	$2, %r10
	mov	%r10, 8(%r11)
3:	sub	$16, %rcx
	mov	%rcx, %fs:shadow_of_thread@tpoff
	.if	\jmp
	jmp	*(%rcx)
	.else
	push	(%rcx)
	ret
	.endif
	.endm

	REPLACED replaced, 0, 0
	REPLACED replaced_tsc, 1, 0
	REPLACED replaced_jmp, 0, 1
	REPLACED replaced_jmp_tsc, 1, 1
