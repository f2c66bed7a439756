# Calls handler(words): rdi and rsi, which it may change.
	.text
	.globl	t
	.type	t, @function
t:
	push	%rsi
	push	%rdi
	sub	$8, %rsp
	lea	8(%rsp), %rdi
	call	handler
	add	$8, %rsp
	pop	%rdi
	pop	%rsi
	ret
	.size	t, . - t
	.section .note.GNU-stack,"",@progbits
