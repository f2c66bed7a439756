// Calls handler(words): x0 and x1, which it may change.
	.text
	.globl	t
	.type	t, %function
t:
	sub	sp, sp, #32
	stp	x0, x1, [sp]
	stp	x9, x30, [sp, #16]
	mov	x0, sp
	bl	handler
	ldp	x0, x1, [sp]
	ldp	x30, x9, [sp, #16]
	add	sp, sp, #32
	ret	x9
	.size	t, . - t
