# expect: addi    a1, a1, 2
# Goes on at `other`, which is no function of its own: near, by JAL, or far, by AUIPC and JR. BY is what it adds there.
	.text
	.globl	t
	.type	t, @function
t:
	addi	sp, sp, -16
	sd	ra, 8(sp)
	call	handler
	ld	ra, 8(sp)
	addi	sp, sp, 16
.if FAR
	tail	other
.else
	j	other
.endif
	.size	t, . - t
	.globl	other
other:
	addi	a1, a1, BY
	ret
