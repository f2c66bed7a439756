# Functions that keep what the note at the end promises, and functions that each break it in one way. The names are those of
# tests/marks.rs. Zicfiss and LPAD are words, which assemblers without these extensions take too.
	.option	norelax
	.macro	function name, pad=1
	.globl	\name
	.type	\name, @function
	.balign	4
\name:
	.if	\pad
	.4byte	0x00000017	# lpad 0
	.endif
	.endm
	.macro	end name
	.size	\name, . - \name
	.endm
	.macro	sspush_ra
	.4byte	0xce104073
	.endm
	.macro	sspopchk_ra
	.4byte	0xcdc0c073
	.endm

	.text
	function plain
	sspush_ra
	addi	sp, sp, -16
	sd	ra, 8(sp)
	call	elsewhere
	ld	ra, 8(sp)
	addi	sp, sp, 16
	sspopchk_ra
	ret
	end	plain

	function short
	.2byte	0x6081		# c.sspush ra
	addi	sp, sp, -16
	sd	ra, 8(sp)
	call	elsewhere
	ld	ra, 8(sp)
	addi	sp, sp, 16
	sspopchk_ra
	ret
	end	short

	function tail
	tail	elsewhere
	end	tail

	function tail_by_register
	jr	a0
	end	tail_by_register

	function not_checked
	sspush_ra
	addi	sp, sp, -16
	sd	ra, 8(sp)
	call	elsewhere
	ld	ra, 8(sp)
	addi	sp, sp, 16
	ret
	end	not_checked

	// In the register, nobody has changed it yet.
	function pushes_late
	addi	sp, sp, -16
	sd	ra, 8(sp)
	sspush_ra
	jal	elsewhere
	ld	ra, 8(sp)
	sspopchk_ra
	addi	sp, sp, 16
	ret
	end	pushes_late

	function checks_unsigned
	sspopchk_ra
	ret
	end	checks_unsigned

	function without_pad, pad=0
	ret
	end	without_pad

	.type	taken, @function
taken:	ret
	end	taken

	.type	inner, @function
inner:	ret
	end	inner

	function jumps_inside
	addi	sp, sp, -16
	la	a1, .Lhere
	add	a1, a1, a0
	jr	a1
.Lhere:	addi	sp, sp, 16
	ret
	end	jumps_inside

	function calls_inner
	mv	t0, ra
	jal	inner
	mv	ra, t0
	ret
	end	calls_inner

	.data
	.quad	taken

	.section .note.gnu.property, "a"
	.balign	8
	.long	4, 16, 5
	.asciz	"GNU"
	.long	0xc0000000, 4, 3, 0
	.section .note.GNU-stack, "", @progbits
