/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
# tramptool 0.1.0: x86_64, 5 trampolines, profile linux-6.12, unwinder=orc endbr=on stack-align=8 restore-flags=on direct-way=ret return=ret call-padding=off
# Assemble with: x86_64-linux-gnu-as x86_64.S -o x86_64.o

	.set	ARG0, 0
	.set	RESULT0, 0
	.set	RESULT1, 8
	.set	RECORD_PARENT, 32
	.set	RECORD_PC, 16
	.set	FRAME_SIZE, 40

# void around_frame_1(void)
#
# The site jumps here: the return address of the traced function is where its caller put it.
# Calls direct_func with the first argument register, then traced_function behind its site, then
#   ftrace_return_to_handler with the result registers.
# The handlers must use general registers only; what they return is ignored.
# Every return has its call: the return-address stack stays whole.
# The function finds the caller's stack a frame higher: not for functions with arguments there.
# Kept until the function begins: rdi, and what C keeps but rbp; behind it: its results (rax rdx), and
#   all that C keeps.
# Frame: 40 bytes; sp is 8-byte aligned at the calls.
	.text
	.balign	16, 0xcc
	.globl	around_frame_1
	.type	around_frame_1, @function
around_frame_1:
	.cfi_startproc
	endbr64

	sub	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 48

	# the function's state at the site
	mov	%rdi, ARG0(%rsp)
	lea	traced_function+8(%rip), %r11	# pc

	# frame records: the function's caller, then the function
	mov	%rbp, RECORD_PARENT(%rsp)
	.cfi_offset %rbp, -16
	lea	RECORD_PARENT(%rsp), %rbp
	mov	%rbp, RECORD_PC(%rsp)
	mov	%r11, RECORD_PC + 8(%rsp)	# pc
	lea	RECORD_PC(%rsp), %rbp

	call	direct_func

	mov	ARG0(%rsp), %rdi

	# the traced function, which returns here
	call	traced_function+8

	# the function's results
	mov	%rax, RESULT0(%rsp)
	mov	%rdx, RESULT1(%rsp)

	# exit(results)
	mov	%rax, %rdi
	mov	%rdx, %rsi

	call	ftrace_return_to_handler

	mov	RESULT0(%rsp), %rax
	mov	RESULT1(%rsp), %rdx

	mov	RECORD_PARENT(%rsp), %rbp
	.cfi_restore %rbp
	add	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	around_frame_1, . - around_frame_1

	.set	PT_BP, 32		# struct pt_regs, 168 bytes
	.set	PT_R9, 64
	.set	PT_R8, 72
	.set	PT_AX, 80
	.set	PT_CX, 88
	.set	PT_DX, 96
	.set	PT_SI, 104
	.set	PT_DI, 112
	.set	PT_IP, 128
	.set	PT_CS, 136
	.set	PT_SP, 152
	.set	RECORD_PARENT, 192
	.set	RECORD_PC, 176
	.set	FRAME_SIZE, 200		# with what lies above it

# void around_fregs(void)
#
# The site jumps here: the return address of the traced function is where its caller put it.
# Calls callback(ip, parent_ip, op, fregs), then traced_function behind its site, then
#   ftrace_return_to_handler(fregs).
# The handlers must use general registers only; what they return is ignored.
# What they store to the slots of argument and result registers takes effect.
# The function finds the caller's stack a frame higher: not for functions with arguments there.
# Kept until the function begins: rax rcx rdx rsi rdi r8 r9, and what C keeps but rbp; behind it: its
#   results (rax rdx), and all that C keeps.
# Frame: 200 bytes; sp is 8-byte aligned at the calls.
	.text
	.balign	16, 0xcc
	.globl	around_fregs
	.type	around_fregs, @function
around_fregs:
	.cfi_startproc
	endbr64

	sub	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 208

	# the function's state at the site
	mov	%rbp, PT_BP(%rsp)
	.cfi_offset %rbp, -176
	mov	%r9, PT_R9(%rsp)
	mov	%r8, PT_R8(%rsp)
	mov	%rax, PT_AX(%rsp)
	mov	%rcx, PT_CX(%rsp)
	mov	%rdx, PT_DX(%rsp)
	mov	%rsi, PT_SI(%rsp)
	mov	%rdi, PT_DI(%rsp)
	lea	traced_function+8(%rip), %rdi	# pc
	mov	%rdi, PT_IP(%rsp)
	movq	$0, PT_CS(%rsp)
	lea	FRAME_SIZE(%rsp), %rcx	# sp at the site: address of parent_ip
	mov	%rcx, PT_SP(%rsp)

	# frame records: the function's caller, then the function
	mov	%rbp, RECORD_PARENT(%rsp)
	lea	RECORD_PARENT(%rsp), %rbp
	mov	%rbp, RECORD_PC(%rsp)
	mov	%rdi, RECORD_PC + 8(%rsp)	# pc
	lea	RECORD_PC(%rsp), %rbp

	# entry(ip, parent_ip, op, fregs)
	sub	$5, %rdi		# ip: first byte of the site
	mov	FRAME_SIZE(%rsp), %rsi	# parent_ip
	mov	function_trace_op(%rip), %rdx	# op
	mov	%rsp, %rcx		# fregs

	call	callback

	mov	PT_R9(%rsp), %r9
	mov	PT_R8(%rsp), %r8
	mov	PT_AX(%rsp), %rax
	mov	PT_CX(%rsp), %rcx
	mov	PT_DX(%rsp), %rdx
	mov	PT_SI(%rsp), %rsi
	mov	PT_DI(%rsp), %rdi

	# the traced function, which returns here
	call	traced_function+8

	# the function's results
	mov	%rax, PT_AX(%rsp)
	mov	%rdx, PT_DX(%rsp)

	# exit(fregs)
	mov	%rsp, %rdi		# fregs

	call	ftrace_return_to_handler

	mov	PT_AX(%rsp), %rax
	mov	PT_DX(%rsp), %rdx

	mov	RECORD_PARENT(%rsp), %rbp
	.cfi_restore %rbp
	add	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	around_fregs, . - around_fregs

# void direct_kfree_skb(void)
#
# Reached from a patched function entry, which executed CALL: (%rsp) = pc, the address after the site;
#   8(%rsp) = parent_ip, the return address of the traced function.
# Calls direct_func as the traced function was called.
# Its result is ignored.
# Kept: rdi, and what C keeps (rbx rbp r12-r15).
# Clobbered: rax rcx rdx rsi r8-r11. rflags not kept.
# Frame: 16 bytes; sp is 8-byte aligned at the call, if the site's was.
	.text
	.balign	16, 0xcc
	.globl	direct_kfree_skb
	.type	direct_kfree_skb, @function
direct_kfree_skb:
	.cfi_startproc
	endbr64

	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp

	push	%rdi
	.cfi_def_cfa_offset 24

	call	direct_func

	pop	%rdi
	.cfi_def_cfa_offset 16

	pop	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	direct_kfree_skb, . - direct_kfree_skb

	.set	RUN_CTX, 0
	.set	CTX_COUNT, 16
	.set	CTX_0, 24
	.set	CTX_1, 32
	.set	CTX_2, 40
	.set	CTX_RESULT, 48
	.set	RECORD_PARENT, 80
	.set	RECORD_PC, 64
	.set	FRAME_SIZE, 88

# void programs_fexit(void)
#
# The site jumps here: the return address of the traced function is where its caller put it.
# Calls direct_func.
# Calls traced_function behind its site.
# Calls callback2, direct_func.
# Each gets (context, cookie): 3 words of arguments, the result behind, their number before.
# What they store to words that came in registers, and to the result, takes effect.
# Kept until the function begins: rdx rsi rdi, and what C keeps but rbp; behind it: its results (rax),
#   and all that C keeps.
# Frame: 88 bytes; sp is 8-byte aligned at the calls.
	.text
	.balign	16, 0xcc
	.globl	programs_fexit
	.type	programs_fexit, @function
programs_fexit:
	.cfi_startproc
	endbr64

	sub	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 96

	# the function's arguments -> context
	mov	%rdi, CTX_0(%rsp)
	mov	%rsi, CTX_1(%rsp)
	mov	%rdx, CTX_2(%rsp)
	movq	$3, CTX_COUNT(%rsp)
	lea	traced_function+8(%rip), %r11	# pc

	# frame records: the function's caller, then the function
	mov	%rbp, RECORD_PARENT(%rsp)
	.cfi_offset %rbp, -16
	lea	RECORD_PARENT(%rsp), %rbp
	mov	%rbp, RECORD_PC(%rsp)
	mov	%r11, RECORD_PC + 8(%rsp)	# pc
	lea	RECORD_PC(%rsp), %rbp

	# fentry(context, cookie)
	movq	$6, RUN_CTX(%rsp)	# cookie
	lea	CTX_COUNT + 8(%rsp), %rdi	# context: the first word
	lea	RUN_CTX(%rsp), %rsi	# address of the cookie

	call	direct_func

	# context -> the function's arguments
	mov	CTX_0(%rsp), %rdi
	mov	CTX_1(%rsp), %rsi
	mov	CTX_2(%rsp), %rdx

	# the traced function, which returns here
	call	traced_function+8

	# the function's results
	mov	%rax, CTX_RESULT(%rsp)
	.globl	programs_fexit_after_call
programs_fexit_after_call:
	{disp8} nopl	0(%rax, %rax)	# a jump to the epilogue when this is retired

	# fexit(context, cookie)
	movq	$2048, RUN_CTX(%rsp)	# cookie
	lea	CTX_COUNT + 8(%rsp), %rdi	# context: the first word
	lea	RUN_CTX(%rsp), %rsi	# address of the cookie

	call	callback2

	# fexit(context, cookie)
	movq	$5, RUN_CTX(%rsp)	# cookie
	lea	CTX_COUNT + 8(%rsp), %rdi	# context: the first word
	lea	RUN_CTX(%rsp), %rsi	# address of the cookie

	call	direct_func
	.globl	programs_fexit_epilogue
programs_fexit_epilogue:

	mov	CTX_RESULT(%rsp), %rax

	mov	RECORD_PARENT(%rsp), %rbp
	.cfi_restore %rbp
	add	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	programs_fexit, . - programs_fexit

	.set	RUN_CTX, 24
	.set	CTX_IP, 40
	.set	CTX_COUNT, 48
	.set	CTX_0, 56
	.set	CTX_1, 64
	.set	CTX_2, 72
	.set	CTX_3, 80
	.set	CTX_4, 88
	.set	CTX_5, 96
	.set	CTX_6, 104
	.set	CTX_7, 112
	.set	CTX_8, 120
	.set	CTX_RESULT, 128
	.set	RECORD_PARENT, 152
	.set	RECORD_PC, 168
	.set	FRAME_SIZE, 176

# void programs_fmod_ret_stack(void)
#
# The site calls: its return address is dropped, so the return from here is mispredicted once.
# Calls direct_func.
# Calls callback2: the first that does not return 0 decides the result, in traced_function's place.
# Calls traced_function behind its site.
# Calls callback2.
# Each gets (context, cookie): 9 words of arguments, the result behind, their number before, ip before
#   that.
# What they store to words that came in registers, and to the result, takes effect.
# The function gets a copy of its 3 words of stack arguments.
# Kept until the function begins: rcx rdx rsi rdi r8 r9, and what C keeps but rbp; behind it: its
#   results (rax), and all that C keeps.
# Frame: 176 bytes; sp is 8-byte aligned at the calls.
	.text
	.balign	16, 0xcc
	.globl	programs_fmod_ret_stack
	.type	programs_fmod_ret_stack, @function
programs_fmod_ret_stack:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	endbr64

	sub	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 192

	# the function's arguments -> context
	mov	%rdi, CTX_0(%rsp)
	mov	%rsi, CTX_1(%rsp)
	mov	%rdx, CTX_2(%rsp)
	mov	%rcx, CTX_3(%rsp)
	mov	%r8, CTX_4(%rsp)
	mov	%r9, CTX_5(%rsp)
	mov	FRAME_SIZE(%rsp), %r11	# pc
	sub	$5, %r11		# ip: first byte of the site
	mov	%r11, CTX_IP(%rsp)
	movq	$9, CTX_COUNT(%rsp)
	mov	FRAME_SIZE + 16(%rsp), %rax
	mov	%rax, CTX_6(%rsp)
	mov	FRAME_SIZE + 24(%rsp), %rax
	mov	%rax, CTX_7(%rsp)
	mov	FRAME_SIZE + 32(%rsp), %rax
	mov	%rax, CTX_8(%rsp)

	# frame records: the function's caller, then the function
	mov	FRAME_SIZE + 8(%rsp), %r11	# parent_ip
	mov	%rbp, RECORD_PARENT(%rsp)
	.cfi_offset %rbp, -40
	mov	%r11, RECORD_PARENT + 8(%rsp)	# parent_ip
	lea	RECORD_PARENT(%rsp), %rbp
	mov	%rbp, RECORD_PC(%rsp)
	lea	RECORD_PC(%rsp), %rbp

	# fentry(context, cookie)
	movq	$4096, RUN_CTX(%rsp)	# cookie
	lea	CTX_COUNT + 8(%rsp), %rdi	# context: the first word
	lea	RUN_CTX(%rsp), %rsi	# address of the cookie

	call	direct_func

	# no result yet
	movq	$0, CTX_RESULT(%rsp)

	# fmod_ret(context, cookie)
	movq	$458752, RUN_CTX(%rsp)	# cookie
	lea	CTX_COUNT + 8(%rsp), %rdi	# context: the first word
	lea	RUN_CTX(%rsp), %rsi	# address of the cookie

	call	callback2

	# anything but 0 is the function's result, and it is not called
	mov	%rax, CTX_RESULT(%rsp)
	test	%rax, %rax
	{disp32} jnz	.Lprograms_fmod_ret_stack_skipped

	# context -> the function's arguments
	mov	CTX_0(%rsp), %rdi
	mov	CTX_1(%rsp), %rsi
	mov	CTX_2(%rsp), %rdx
	mov	CTX_3(%rsp), %rcx
	mov	CTX_4(%rsp), %r8
	mov	CTX_5(%rsp), %r9

	# the traced function, which returns here
	mov	FRAME_SIZE + 16(%rsp), %rax
	mov	%rax, 0(%rsp)
	mov	FRAME_SIZE + 24(%rsp), %rax
	mov	%rax, 8(%rsp)
	mov	FRAME_SIZE + 32(%rsp), %rax
	mov	%rax, 16(%rsp)
	call	traced_function+8

	# the function's results
	mov	%rax, CTX_RESULT(%rsp)
	.globl	programs_fmod_ret_stack_after_call
programs_fmod_ret_stack_after_call:
	{disp8} nopl	0(%rax, %rax)	# a jump to the epilogue when this is retired
.Lprograms_fmod_ret_stack_skipped:

	# fexit(context, cookie)
	movq	$74565, RUN_CTX(%rsp)	# cookie
	lea	CTX_COUNT + 8(%rsp), %rdi	# context: the first word
	lea	RUN_CTX(%rsp), %rsi	# address of the cookie

	call	callback2
	.globl	programs_fmod_ret_stack_epilogue
programs_fmod_ret_stack_epilogue:

	mov	CTX_RESULT(%rsp), %rax

	mov	RECORD_PARENT(%rsp), %rbp
	.cfi_restore %rbp
	add	$FRAME_SIZE + 8, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	programs_fmod_ret_stack, . - programs_fmod_ret_stack

	.section .note.GNU-stack, "", @progbits
