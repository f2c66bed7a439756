# Functions that keep C's convention, and functions that each break it in one way.
	.option	pic
	.text
	.macro	begin name
	.globl	\name
	.type	\name, @function
\name:	.cfi_startproc
	.endm
	.macro	end name
	.cfi_endproc
	.size	\name, . - \name
	.endm
	.macro	save
	addi	sp, sp, -32
	.cfi_def_cfa_offset 32
	sd	ra, 24(sp)
	.cfi_offset ra, -8
	.endm
	.macro	restore
	ld	ra, 24(sp)
	.cfi_restore ra
	addi	sp, sp, 32
	.cfi_def_cfa_offset 0
	.endm

begin good
	save
	sd	s1, 16(sp)
	.cfi_rel_offset s1, 16
	mv	s1, a0
	call	helper
	sd	a0, 0(s1)
	call	private
	ld	s1, 16(sp)
	.cfi_restore s1
	restore
	ret
end good

# No C calls it, and good saves s1 for it.
begin private
	li	s1, 0
	ret
end private

# The global offset table has the address that is reached directly too.
begin got
	la	t0, memory
	lla	t1, memory
	beq	t0, t1, 1f
	li	s1, 0
1:	ret
end got

begin lost
	li	s1, 0
	ret
end lost

begin lost_vector
	fmv.d.x	fs0, zero
	ret
end lost_vector

begin misaligned
	addi	sp, sp, -24
	.cfi_def_cfa_offset 24
	sd	ra, 16(sp)
	.cfi_offset ra, -8
	call	helper
	ld	ra, 16(sp)
	.cfi_restore ra
	addi	sp, sp, 24
	.cfi_def_cfa_offset 0
	ret
end misaligned

begin depends
	save
	li	t3, 7
	call	helper
	la	t4, memory
	sd	t3, 0(t4)
	restore
	ret
end depends

begin row_at_call
	addi	sp, sp, -16
	sd	ra, 8(sp)
	call	helper
	ld	ra, 8(sp)
	addi	sp, sp, 16
	ret
end row_at_call

begin row
	addi	sp, sp, -16
	addi	a0, a0, 1
	addi	a0, a0, 1
	addi	sp, sp, 16
	ret
end row

	.globl	no_row
	.type	no_row, @function
no_row:	addi	sp, sp, -16
	sd	ra, 8(sp)
	call	helper
	ld	ra, 8(sp)
	addi	sp, sp, 16
	ret
	.size	no_row, . - no_row

begin below
	sd	a0, -16(sp)
	li	a0, 0
	ld	a0, -16(sp)
	ret
end below

begin above
	ld	a0, 0(sp)
	sd	a0, 8(sp)
	ret
end above

begin control
	fsrmi	1
	ret
end control

	.bss
	.globl	memory
	.type	memory, @object
	.balign	8
memory:	.skip	8
	.size	memory, 8
	.section .note.GNU-stack, "", @progbits
