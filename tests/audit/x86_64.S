# Functions that keep C's convention, and functions that each break it in one way.
	.text
	.macro	begin name
	.globl	\name
	.type	\name, @function
\name:	.cfi_startproc
	.endm
	.macro	end name
	.cfi_endproc
	.size	\name, . - \name
	.endm

begin good
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	mov	%rdi, %rbx
	call	helper@PLT
	mov	%rax, (%rbx)
	call	private
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
end good

# No C calls it, and good saves rbx for it.
begin private
	xor	%ebx, %ebx
	ret
end private

# The global offset table has the address that is reached directly too.
begin got
	mov	memory@GOTPCREL(%rip), %rax
	lea	memory(%rip), %rcx
	cmp	%rax, %rcx
	je	1f
	xor	%ebx, %ebx
1:	ret
end got

begin lost
	xor	%ebx, %ebx
	ret
end lost

begin misaligned
	call	helper@PLT
	ret
end misaligned

begin depends
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	mov	memory@GOTPCREL(%rip), %rbx
	mov	$7, %r10d
	call	helper@PLT
	mov	%r10, (%rbx)
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
end depends

begin row_at_call
	push	%rbp
	call	helper@PLT
	pop	%rbp
	ret
end row_at_call

begin row_through
	mov	%rsp, %rdx
	.cfi_def_cfa_register	%rdx
	and	$-16, %rsp
	push	%rdx
	push	%rdi
	call	helper@PLT
	pop	%rdi
	pop	%rdx
	mov	%rdx, %rsp
	.cfi_def_cfa_register	%rsp
	ret
end row_through

begin above_wide
	movups	%xmm0, 32(%rsp)
	ret
end above_wide

begin row
	push	%rbp
	mov	%rdi, %rax
	add	$1, %rax
	pop	%rbp
	ret
end row

	.globl	no_row
	.type	no_row, @function
no_row:	sub	$8, %rsp
	call	helper@PLT
	add	$8, %rsp
	ret
	.size	no_row, . - no_row

begin below
	mov	%rdi, -256(%rsp)
	xor	%eax, %eax
	mov	-256(%rsp), %rax
	ret
end below

begin across
	mov	%rdi, -24(%rsp)
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	call	helper@PLT
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	mov	-24(%rsp), %rax
	ret
end across

# Where it reads follows from what its callee returns.
begin led_astray
	sub	$24, %rsp
	.cfi_adjust_cfa_offset 24
	movq	$0, (%rsp)
	call	helper@PLT
	movzbl	-2(%rsp,%rax), %eax
	add	$24, %rsp
	.cfi_adjust_cfa_offset -24
	ret
end led_astray

# What its callee returns decides whether it reads there, not where.
begin freed_early
	sub	$216, %rsp
	.cfi_adjust_cfa_offset 216
	movq	$0, 8(%rsp)
	call	helper@PLT
	test	%eax, %eax
	jz	1f
	mov	8(%rsp), %rax
	add	$216, %rsp
	.cfi_adjust_cfa_offset -216
	ret
1:	.cfi_adjust_cfa_offset 216
	add	$216, %rsp
	.cfi_adjust_cfa_offset -216
	mov	-208(%rsp), %rax
	ret
end freed_early

# With a callee that keeps r10, it stores to other memory.
begin elsewhere
	sub	$8, %rsp
	.cfi_adjust_cfa_offset 8
	mov	%rdi, %r10
	call	helper@PLT
	mov	%rax, (%r10)
	add	$8, %rsp
	.cfi_adjust_cfa_offset -8
	ret
end elsewhere

# The clock is what it was in the first run.
begin timed
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	mov	%rdi, %rbx
	mov	%rdi, %r10
	call	helper@PLT
	rdtsc
	mov	%eax, (%rbx)
	xor	%eax, %eax
	cmp	%r10, %rbx
	sete	8(%rbx)
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
end timed

begin unlike
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	mov	%rdi, %rbx
	call	helper@PLT
	rdrand	%rax
	mov	%rax, (%rbx)
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
end unlike

begin above
	mov	8(%rsp), %rax
	mov	%rax, 16(%rsp)
	ret
end above

begin control
	std
	ret
end control

	.macro	pushed registers:vararg
	.irp	register, \registers
	push	%\register
	.cfi_adjust_cfa_offset 8
	.endr
	.endm
	.macro	popped registers:vararg
	.irp	register, \registers
	pop	%\register
	.cfi_adjust_cfa_offset -8
	.endr
	.endm

begin dropped
	pushed	rcx, rsi, r10, r11
	sub	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	helper@PLT
	add	$16, %rsp
	.cfi_adjust_cfa_offset -16
	popped	r10, rsi, rcx
	ret
end dropped

# A family with a convention of its own, and one that changes r8.
	.irp	name, kept_1, kept_2
begin \name
	pushed	rcx, rsi, r8, r10, r11
	call	helper@PLT
	popped	r11, r10, r8, rsi, rcx
	ret
end \name
	.endr
begin kept_less
	pushed	rcx, rsi, r10, r11
	sub	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	helper@PLT
	add	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popped	r11, r10, rsi, rcx
	ret
end kept_less

# It comes to its wrong row if its callee returns a pointer.
begin shown_late
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	call	helper@PLT
	movl	$22, (%rax)
	pop	%rbx
	.cfi_restore rbx
	nop
	ret
end shown_late

# Its second callee is given what the first may have left.
begin passes
	sub	$8, %rsp
	.cfi_adjust_cfa_offset 8
	mov	$7, %r10d
	call	helper@PLT
	mov	%r10, %rdi
	call	helper@PLT
	add	$8, %rsp
	.cfi_adjust_cfa_offset -8
	ret
end passes

# It needs rcx once, and then has the same value there for itself.
begin reloads
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	mov	memory@GOTPCREL(%rip), %rbx
	mov	%rbx, %rcx
	call	helper@PLT
	mov	%rax, (%rcx)
	mov	%rbx, %rcx
	mov	%rax, 0(%rcx)
	nop
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
end reloads

# What its callee has left in rcx goes through it to the next one, which nobody gives an argument there.
begin restores
	sub	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	helper@PLT
	push	%rcx
	.cfi_adjust_cfa_offset 8
	mov	$7, %ecx
	add	%rcx, %rax
	pop	%rcx
	.cfi_adjust_cfa_offset -8
	call	helper@PLT
	add	$8, %rsp
	.cfi_adjust_cfa_offset -8
	ret
end restores

# It needs r10 behind two calls.
begin needed_late
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	mov	%rdi, %rbx
	mov	$7, %r10d
	call	helper@PLT
	nop
	call	helper@PLT
	mov	%r10, (%rbx)
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
end needed_late

	.bss
	.globl	memory
	.type	memory, @object
	.balign	8
memory:	.skip	8
	.size	memory, 8
	.section .note.GNU-stack, "", @progbits
