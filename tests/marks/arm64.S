// Functions that keep what the note at the end promises, and functions that each break it in one way. The names are those of
// tests/marks.rs.
	.arch	armv8.3-a
	.macro	function name, pad=1
	.globl	\name
	.type	\name, %function
\name:
	.if	\pad
	bti	c
	.endif
	.endm
	.macro	end name
	.size	\name, . - \name
	.endm

	.text
	function plain
	paciasp
	stp	x29, x30, [sp, #-32]!
	mov	x29, sp
	str	x19, [sp, #16]
	bl	elsewhere
	ldr	x19, [sp, #16]
	ldp	x29, x30, [sp], #32
	autiasp
	ret
	end	plain

	function aligned
	paciasp
	stp	x29, x30, [sp, #-16]!
	mov	x29, sp
	sub	sp, sp, x0
	bl	elsewhere
	mov	sp, x29
	ldp	x29, x30, [sp], #16
	retaa
	end	aligned

	function tail
	b	elsewhere
	end	tail

	function tail_by_register
	mov	x16, x0
	br	x16
	end	tail_by_register

	function switched
	stp	x19, x20, [sp, #-16]!
	adr	x1, 1f
	add	x1, x1, x0
	br	x1
1:	hint	#36
	mov	x0, #1
	ldp	x19, x20, [sp], #16
	ret
	hint	#36
	mov	x0, #2
	ldp	x19, x20, [sp], #16
	ret
	end	switched

	function keeps_its_return
	mov	x9, x30
	ret	x9
	end	keeps_its_return

	function overwrites
	mov	x30, x0
	ret
	end	overwrites

	function jumps_back
	br	x30
	end	jumps_back

	function learns_its_place
	mov	x9, x30
	bl	1f
1:	mov	x30, x9
	ret
	end	learns_its_place

	function moves_shadow
	sys	#3, c7, c7, #0, x0
	ret
	end	moves_shadow

	function unsigned
	stp	x29, x30, [sp, #-16]!
	bl	elsewhere
	ldp	x29, x30, [sp], #16
	ret
	end	unsigned

	function not_checked
	paciasp
	stp	x29, x30, [sp, #-16]!
	bl	elsewhere
	ldp	x29, x30, [sp], #16
	ret
	end	not_checked

	function other_key
	paciasp
	stp	x29, x30, [sp, #-16]!
	bl	elsewhere
	ldp	x29, x30, [sp], #16
	autibsp
	ret
	end	other_key

	function other_sp
	paciasp
	stp	x29, x30, [sp, #-16]!
	bl	elsewhere
	ldp	x29, x30, [sp]
	autiasp
	add	sp, sp, #16
	ret
	end	other_sp

	function signs_late
	stp	x29, x30, [sp, #-16]!
	paciasp
	bl	elsewhere
	ldp	x29, x30, [sp]
	autiasp
	add	sp, sp, #16
	ret
	end	signs_late

	// A copy that nobody returns to does no harm.
	function shows_plain
	mov	x9, x30
	paciasp
	stp	x29, x30, [sp, #-32]!
	str	x9, [sp, #16]
	bl	elsewhere
	ldp	x29, x30, [sp], #32
	autiasp
	ret
	end	shows_plain

	function checks_unsigned
	autiasp
	ret
	end	checks_unsigned

	function without_pad, pad=0
	ret
	end	without_pad

	.type	taken, %function
taken:	ret
	end	taken

	.type	inner, %function
inner:	ret
	end	inner

	function jumps_inside
	stp	x19, x20, [sp, #-16]!
	adr	x1, 1f
	add	x1, x1, x0
	br	x1
1:	ldp	x19, x20, [sp], #16
	ret
	end	jumps_inside

	function calls_inner
	paciasp
	stp	x29, x30, [sp, #-16]!
	bl	inner
	ldp	x29, x30, [sp], #16
	autiasp
	ret
	end	calls_inner

	.data
	.quad	taken

	.section .note.gnu.property, "a"
	.balign	8
	.long	4, 16, 5
	.asciz	"GNU"
	.long	0xc0000000, 4, 7, 0
	.section .note.GNU-stack, "", %progbits
