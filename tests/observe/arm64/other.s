// The same with another frame, order of saves, temporaries and way to restore.
	.text
	.globl	t
	.type	t, %function
t:
	sub	sp, sp, #64
	stp	x9, x30, [sp, #48]
	str	x1, [sp, #24]
	mov	x12, x0
	str	x12, [sp, #16]
	add	x13, sp, #16
	mov	x0, x13
	bl	handler
	ldr	x17, [sp, #56]
	ldr	x30, [sp, #48]
	ldr	x1, [sp, #24]
	ldr	x0, [sp, #16]
	add	sp, sp, #64
	ret	x17
	.size	t, . - t
