# expect: rsi is lost now: it holds rsi as call 1 left it
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
	add	$8, %rsp
	ret
	.size	t, . - t
	.section .note.GNU-stack,"",@progbits
