// Functions that keep C's convention, and functions that each break it in one way.
	.text
	.macro	begin name
	.globl	\name
	.type	\name, %function
\name:	.cfi_startproc
	.endm
	.macro	end name
	.cfi_endproc
	.size	\name, . - \name
	.endm
	.macro	save
	stp	x29, x30, [sp, #-32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x29, -32
	.cfi_offset x30, -24
	.endm
	.macro	restore
	ldp	x29, x30, [sp], #32
	.cfi_restore x29
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	.endm

begin good
	save
	str	x19, [sp, #16]
	.cfi_rel_offset x19, 16
	mov	x19, x0
	bl	helper
	str	x0, [x19]
	bl	private
	ldr	x19, [sp, #16]
	.cfi_restore x19
	restore
	ret
end good

// No C calls it, and good saves x19 for it.
begin private
	mov	x19, #0
	ret
end private

// The global offset table has the address that is reached directly too.
begin got
	adrp	x0, :got:memory
	ldr	x0, [x0, :got_lo12:memory]
	adrp	x1, memory
	add	x1, x1, :lo12:memory
	cmp	x0, x1
	b.eq	1f
	mov	x19, #0
1:	ret
end got

begin lost
	mov	x19, #0
	ret
end lost

begin lost_vector
	fmov	d8, #2.0
	ret
end lost_vector

begin depends
	save
	mov	x10, #7
	bl	helper
	adrp	x9, :got:memory
	ldr	x9, [x9, :got_lo12:memory]
	str	x10, [x9]
	restore
	ret
end depends

begin row_at_call
	stp	x29, x30, [sp, #-16]!
	bl	helper
	ldp	x29, x30, [sp], #16
	ret
end row_at_call

begin row_through
	str	x30, [sp, #-16]!
	.cfi_adjust_cfa_offset	16
	bl	helper
	ldr	x30, [sp], #16
	.cfi_adjust_cfa_offset	-16
	ret
end row_through

begin above_wide
	stp	x0, x1, [sp, #32]
	ret
end above_wide

begin row
	sub	sp, sp, #16
	add	x0, x0, #1
	add	x0, x0, #1
	add	sp, sp, #16
	ret
end row

	.globl	no_row
	.type	no_row, %function
no_row:	stp	x29, x30, [sp, #-16]!
	bl	helper
	ldp	x29, x30, [sp], #16
	ret
	.size	no_row, . - no_row

begin below
	str	x0, [sp, #-16]
	mov	x0, #0
	ldr	x0, [sp, #-16]
	ret
end below

begin above
	ldr	x0, [sp]
	str	x0, [sp, #8]
	ret
end above

begin control
	msr	fpcr, xzr
	ret
end control

begin misaligned
	save
	sub	sp, sp, #8
	.cfi_adjust_cfa_offset 8
	bl	helper
	add	sp, sp, #8
	.cfi_adjust_cfa_offset -8
	restore
	ret
end misaligned

// d8 is in its slot, and no row says so.
begin row_vector
	save
	str	d8, [sp, #16]
	fmov	d8, #2.0
	bl	helper
	ldr	d8, [sp, #16]
	restore
	ret
end row_vector

// Where it reads follows from what its callee returns.
begin led_astray
	save
	str	xzr, [sp, #16]
	bl	helper
	add	x9, sp, #16
	ldrb	w0, [x9, x0]
	restore
	ret
end led_astray

// What its callee returns decides whether it reads there, not where.
begin freed_early
	save
	str	xzr, [sp, #16]
	bl	helper
	cbz	w0, 1f
	ldr	x0, [sp, #16]
	restore
	ret
1:	.cfi_def_cfa_offset 32
	.cfi_offset x29, -32
	.cfi_offset x30, -24
	restore
	ldr	x0, [sp, #-16]
	ret
end freed_early

// With a callee that keeps x10, it stores to other memory.
begin elsewhere
	save
	mov	x10, x0
	bl	helper
	str	x0, [x10]
	restore
	ret
end elsewhere

	.macro	save_4
	stp	x29, x30, [sp, #-64]!
	.cfi_def_cfa_offset 64
	.cfi_offset x29, -64
	.cfi_offset x30, -56
	stp	x9, x10, [sp, #16]
	stp	x11, x12, [sp, #32]
	.endm
	.macro	restore_4
	ldp	x9, x10, [sp, #16]
	ldp	x29, x30, [sp], #64
	.cfi_restore x29
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	.endm

begin dropped
	save_4
	bl	helper
	ldr	x11, [sp, #32]
	restore_4
	ret
end dropped

// A family with a convention of its own, and one that changes x13.
	.irp	name, kept_1, kept_2
begin \name
	save_4
	str	x13, [sp, #48]
	bl	helper
	ldp	x11, x12, [sp, #32]
	ldr	x13, [sp, #48]
	restore_4
	ret
end \name
	.endr
begin kept_less
	save_4
	bl	helper
	ldp	x11, x12, [sp, #32]
	restore_4
	ret
end kept_less

// It comes to its wrong row if its callee returns a pointer.
begin shown_late
	save
	bl	helper
	str	wzr, [x0]
	ldp	x29, x30, [sp], #32
	.cfi_restore x29
	.cfi_restore x30
	nop
	ret
end shown_late

// Its second callee is given what the first may have left.
begin passes
	save
	mov	x10, #7
	bl	helper
	mov	x1, x10
	bl	helper
	restore
	ret
end passes

// It needs x9 once, and then has the same value there for itself.
begin reloads
	save
	str	x19, [sp, #16]
	.cfi_rel_offset x19, 16
	adrp	x19, :got:memory
	ldr	x19, [x19, :got_lo12:memory]
	mov	x9, x19
	bl	helper
	str	x0, [x9]
	mov	x9, x19
	str	x0, [x9]
	nop
	ldr	x19, [sp, #16]
	.cfi_restore x19
	restore
	ret
end reloads

// What its callee has left in x3 goes through it to the next one, which nobody gives an argument there.
begin restores
	save
	bl	helper
	str	x3, [sp, #16]
	mov	x3, #7
	add	x0, x0, x3
	ldr	x3, [sp, #16]
	bl	helper
	restore
	ret
end restores

// It needs x10 behind two calls.
begin needed_late
	save
	str	x19, [sp, #16]
	.cfi_rel_offset x19, 16
	mov	x19, x0
	mov	x10, #7
	bl	helper
	nop
	bl	helper
	str	x10, [x19]
	ldr	x19, [sp, #16]
	.cfi_restore x19
	restore
	ret
end needed_late

	.bss
	.globl	memory
	.type	memory, %object
	.balign	8
memory:	.skip	8
	.size	memory, 8
	.section .note.GNU-stack, "", %progbits
