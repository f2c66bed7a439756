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

begin row_through
	addi	sp, sp, -16
	.cfi_adjust_cfa_offset	16
	sd	ra, 8(sp)
	call	helper
	ld	ra, 8(sp)
	addi	sp, sp, 16
	.cfi_adjust_cfa_offset	-16
	ret
end row_through

begin above_wide
	sd	a0, 32(sp)
	ret
end above_wide

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

# fs0 is in its slot, and no row says so.
begin row_vector
	save
	fsd	fs0, 16(sp)
	fcvt.d.l	fs0, zero
	call	helper
	fld	fs0, 16(sp)
	restore
	ret
end row_vector

# Where it reads follows from what its callee returns.
begin led_astray
	save
	sd	zero, 16(sp)
	call	helper
	add	t1, sp, a0
	lbu	a0, 16(t1)
	restore
	ret
end led_astray

# What its callee returns decides whether it reads there, not where.
begin freed_early
	save
	sd	zero, 16(sp)
	call	helper
	sext.w	t1, a0
	beqz	t1, 1f
	ld	a0, 16(sp)
	restore
	ret
1:	.cfi_def_cfa_offset 32
	.cfi_offset ra, -8
	restore
	ld	a0, -16(sp)
	ret
end freed_early

# With a callee that keeps t1, it stores to other memory.
begin elsewhere
	save
	mv	t1, a0
	call	helper
	sd	a0, 0(t1)
	restore
	ret
end elsewhere

	.macro	save_4
	addi	sp, sp, -48
	.cfi_def_cfa_offset 48
	sd	ra, 40(sp)
	.cfi_offset ra, -8
	sd	t3, 32(sp)
	sd	t4, 24(sp)
	sd	t5, 16(sp)
	sd	t6, 8(sp)
	.endm
	.macro	restore_4
	ld	t3, 32(sp)
	ld	t4, 24(sp)
	ld	t5, 16(sp)
	ld	ra, 40(sp)
	.cfi_restore ra
	addi	sp, sp, 48
	.cfi_def_cfa_offset 0
	.endm

begin dropped
	save_4
	call	helper
	restore_4
	ret
end dropped

# A family with a convention of its own, and one that changes t2.
	.irp	name, kept_1, kept_2
begin \name
	save_4
	sd	t2, 0(sp)
	call	helper
	ld	t2, 0(sp)
	ld	t6, 8(sp)
	restore_4
	ret
end \name
	.endr
begin kept_less
	save_4
	call	helper
	ld	t6, 8(sp)
	restore_4
	ret
end kept_less

# It comes to its wrong row if its callee returns a pointer.
begin shown_late
	save
	call	helper
	sw	zero, 0(a0)
	ld	ra, 24(sp)
	.cfi_restore ra
	addi	sp, sp, 32
	nop
	ret
end shown_late

# Its second callee is given what the first may have left.
begin passes
	save
	li	t1, 7
	call	helper
	mv	a1, t1
	call	helper
	restore
	ret
end passes

# It needs t1 once, and then has the same value there for itself.
begin reloads
	save
	sd	s1, 16(sp)
	.cfi_rel_offset s1, 16
	la	s1, memory
	mv	t1, s1
	call	helper
	sd	a0, 0(t1)
	mv	t1, s1
	sd	a0, 0(t1)
	nop
	ld	s1, 16(sp)
	.cfi_restore s1
	restore
	ret
end reloads

# What its callee has left in a3 goes through it to the next one, which nobody gives an argument there.
begin restores
	save
	call	helper
	sd	a3, 16(sp)
	li	a3, 7
	add	a0, a0, a3
	ld	a3, 16(sp)
	call	helper
	restore
	ret
end restores

# It needs t1 behind two calls.
begin needed_late
	save
	sd	s1, 16(sp)
	.cfi_rel_offset s1, 16
	mv	s1, a0
	li	t1, 7
	call	helper
	nop
	call	helper
	sd	t1, 0(s1)
	ld	s1, 16(sp)
	.cfi_restore s1
	restore
	ret
end needed_late

	.bss
	.globl	memory
	.type	memory, @object
	.balign	8
memory:	.skip	8
	.size	memory, 8
	.section .note.GNU-stack, "", @progbits
