# The same with another frame, order of saves, temporaries and way to restore.
	.text
	.globl	t
	.type	t, @function
t:
	addi	sp, sp, -64
	sd	ra, 48(sp)
	sd	t0, 40(sp)
	sd	a1, 24(sp)
	mv	t3, a0
	sd	t3, 16(sp)
	addi	t4, sp, 16
	mv	a0, t4
	call	handler
	ld	t0, 40(sp)
	ld	ra, 48(sp)
	ld	a1, 24(sp)
	ld	t5, 16(sp)
	mv	a0, t5
	addi	sp, sp, 64
	jr	t0
	.size	t, . - t
