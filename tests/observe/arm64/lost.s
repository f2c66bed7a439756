// expect: x1 is lost now: it holds x1 of call 1
	.text
	.globl	t
	.type	t, %function
t:
	sub	sp, sp, #32
	stp	x0, x1, [sp]
	stp	x9, x30, [sp, #16]
	mov	x0, sp
	bl	handler
	ldr	x0, [sp]
	ldp	x30, x9, [sp, #16]
	add	sp, sp, #32
	ret	x9
	.size	t, . - t
