# expect: add     rdx, 2
# Goes on at `other`, which is no function of its own: the assembler knows where it is, or leaves it to the linker if FAR. BY is what
# it adds there.
	.text
	.globl	t
	.type	t, @function
t:
	sub	$8, %rsp
	call	handler
	add	$8, %rsp
	jmp	other
	.size	t, . - t
.if FAR
	.globl	other
.endif
other:
	add	$BY, %rdx
	ret
	.section .note.GNU-stack,"",@progbits
