# Functions that keep what the note at the end promises, and functions that each break it in one way. The names are those of
# tests/marks.rs.
	.macro	function name, pad=1
	.globl	\name
	.type	\name, @function
\name:
	.if	\pad
	endbr64
	.endif
	.endm
	.macro	end name
	.size	\name, . - \name
	.endm

	.text
	function plain
	push	%rbp
	mov	%rsp, %rbp
	push	%rbx
	sub	$24, %rsp
	call	elsewhere
	add	$24, %rsp
	pop	%rbx
	pop	%rbp
	ret
	end	plain

	function aligned
	push	%rbp
	mov	%rsp, %rbp
	and	$-32, %rsp
	sub	%rdi, %rsp
	call	elsewhere
	leave
	ret
	end	aligned

	function tail
	sub	$8, %rsp
	call	elsewhere
	add	$8, %rsp
	jmp	elsewhere
	end	tail

	function tail_by_register
	mov	%rdi, %rax
	jmp	*%rax
	end	tail_by_register

	function switched
	push	%rbx
	lea	table(%rip), %rax
	movslq	(%rax,%rdi,4), %rdi
	add	%rdi, %rax
	notrack jmp *%rax
.Lone:	mov	$1, %eax
	pop	%rbx
	ret
.Ltwo:	mov	$2, %eax
	pop	%rbx
	ret
	end	switched

	function keeps_its_return
	pop	%rcx
	push	%rcx
	ret
	end	keeps_its_return

	function pushes_and_returns
	push	%rdi
	ret
	end	pushes_and_returns

	function overwrites
	mov	%rdi, (%rsp)
	ret
	end	overwrites

	function jumps_back
	pop	%rcx
	jmp	*%rcx
	end	jumps_back

	function learns_its_place
	call	1f
1:	pop	%rax
	ret
	end	learns_its_place

	function other_stack
	mov	%rsp, (%rdi)
	mov	%rsi, %rsp
	ret
	end	other_stack

	function moves_shadow
	mov	$1, %eax
	incsspq	%rax
	add	$8, %rsp
	ret
	end	moves_shadow

	function off_by_a_word
	sub	$16, %rsp
	test	%rdi, %rdi
	je	1f
	add	$8, %rsp
1:	add	$8, %rsp
	ret
	end	off_by_a_word

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
	push	%rbx
	lea	.Lhere(%rip), %rax
	add	%rdi, %rax
	jmp	*%rax
.Lhere:	pop	%rbx
	ret
	end	jumps_inside

	function calls_inner
	call	inner
	ret
	end	calls_inner

	.section .rodata
table:	.long	.Lone - table, .Ltwo - table
	.data
	.quad	taken

	.section .note.gnu.property, "a"
	.balign	8
	.long	4, 16, 5
	.asciz	"GNU"
	.long	0xc0000002, 4, 3, 0
	.section .note.GNU-stack, "", @progbits
