# The same with another frame, order of saves, temporaries and way to restore.
	.text
	.globl	t
	.type	t, @function
t:
	sub	$0x48, %rsp
	mov	%rdi, %r11
	mov	%r11, 0x18(%rsp)
	mov	%rsi, 0x20(%rsp)
	lea	0x18(%rsp), %r10
	mov	%r10, %rdi
	call	handler
	mov	0x20(%rsp), %rsi
	mov	0x18(%rsp), %r8
	mov	%r8, %rdi
	mov	0x48(%rsp), %r11
	lea	0x48(%rsp), %rsp
	mov	%rsp, %r10
	xor	%r8d, %r8d
	xor	%r8d, %r8d
	ret
	.size	t, . - t
	.section .note.GNU-stack,"",@progbits
