// expect: add     x1, x1, #2
// Goes on at `other`, which is no function of its own: the assembler knows where it is, or leaves it to the linker if FAR. BY is what
// it adds there.
	.text
	.globl	t
	.type	t, @function
t:
	stp	x29, x30, [sp, #-16]!
	bl	handler
	ldp	x29, x30, [sp], #16
	b	other
	.size	t, . - t
.if FAR
	.globl	other
.endif
other:
	add	x1, x1, #BY
	ret
