# expect: a1 is lost now: it holds a1 of call 1
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
	ld	t0, 16(sp)
	ld	ra, 24(sp)
	addi	sp, sp, 32
	jr	t0
	.size	t, . - t
