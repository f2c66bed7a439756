# Calls handler(words): a0 and a1, which it may change.
	.text
	.globl	t
	.type	t, @function
t:
	addi	sp, sp, -32
	sd	a0, 0(sp)
	sd	a1, 8(sp)
	sd	t0, 16(sp)
	sd	ra, 24(sp)
	mv	a0, sp
	call	handler
	ld	a0, 0(sp)
	ld	a1, 8(sp)
	ld	t0, 16(sp)
	ld	ra, 24(sp)
	addi	sp, sp, 32
	jr	t0
	.size	t, . - t
