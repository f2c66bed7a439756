/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
// tramptool 0.1.0: arm64, 5 trampolines, profile linux-6.12, call-ops=on frame-records=on
// Assemble with: aarch64-linux-gnu-as arm64.S -o arm64.o

	.set	ARG0, 0
	.set	SRET, 16
	.set	RESULT0, 0
	.set	RECORD_LR, 48
	.set	RECORD_PC, 32
	.set	FRAME_SIZE, 64

// void around_frame_1(void)
//
// The site jumps here: the return address of the traced function is where its caller put it.
// Calls direct_func with the first argument register, then traced_function behind its site, then
//   ftrace_return_to_handler with the result registers.
// The handlers must use general registers only; what they return is ignored.
// Every return has its call: the return-address stack stays whole.
// The function finds the caller's stack a frame higher: not for functions with arguments there.
// Kept until the function begins: x0 x8, and what C keeps but x29; behind it: its results (x0 x1), and
//   all that C keeps.
// Frame: 64 bytes; sp is 16-byte aligned at the calls.
	.text
	.balign	8
	.globl	around_frame_1
	.type	around_frame_1, %function
around_frame_1:
	.cfi_startproc
	hint	#34			// BTI c

	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 64

	// the function's state at the site
	str	x0, [sp, #ARG0]
	str	x8, [sp, #SRET]
	adrp	x9, traced_function+8
	add	x9, x9, :lo12:traced_function+8	// pc

	// frame records: the function's caller, then the function
	stp	x29, x30, [sp, #RECORD_LR]	// parent_ip
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	add	x29, sp, #RECORD_LR
	stp	x29, x9, [sp, #RECORD_PC]	// pc
	add	x29, sp, #RECORD_PC

	bl	direct_func

	ldr	x0, [sp, #ARG0]
	ldr	x8, [sp, #SRET]

	// the traced function, which returns here
	bl	traced_function+8

	// the function's results
	stp	x0, x1, [sp, #RESULT0]

	// exit(results)

	bl	ftrace_return_to_handler

	ldp	x0, x1, [sp, #RESULT0]

	ldp	x29, x30, [sp, #RECORD_LR]	// parent_ip
	.cfi_restore x29
	.cfi_restore x30
	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	around_frame_1, . - around_frame_1

	.set	FREGS_X0, 0		// struct ftrace_regs, 112 bytes
	.set	FREGS_X2, 16
	.set	FREGS_X4, 32
	.set	FREGS_X6, 48
	.set	FREGS_X8, 64
	.set	FREGS_FP, 80
	.set	FREGS_SP, 96
	.set	RECORD_LR, 128
	.set	RECORD_PC, 112
	.set	FRAME_SIZE, 144		// with what lies above it

// void around_fregs(void)
//
// The site jumps here: the return address of the traced function is where its caller put it.
// Calls callback(ip, parent_ip, op, fregs), then traced_function behind its site, then
//   ftrace_return_to_handler(fregs).
// The handlers must use general registers only; what they return is ignored.
// What they store to the slots of argument and result registers takes effect.
// The function finds the caller's stack a frame higher: not for functions with arguments there.
// Kept until the function begins: x0-x8, and what C keeps but x29; behind it: its results (x0 x1), and
//   all that C keeps.
// Frame: 144 bytes; sp is 16-byte aligned at the calls.
	.text
	.balign	8
	.globl	around_fregs
	.type	around_fregs, %function
around_fregs:
	.cfi_startproc
	hint	#34			// BTI c

	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 144

	// the function's state at the site
	add	x10, sp, #FRAME_SIZE	// sp at the site
	adrp	x9, traced_function+8
	add	x9, x9, :lo12:traced_function+8	// pc
	stp	x0, x1, [sp, #FREGS_X0]
	stp	x2, x3, [sp, #FREGS_X2]
	stp	x4, x5, [sp, #FREGS_X4]
	stp	x6, x7, [sp, #FREGS_X6]
	str	x8, [sp, #FREGS_X8]
	stp	x29, x30, [sp, #FREGS_FP]
	.cfi_offset x29, -64
	.cfi_offset x30, -56
	stp	x10, x9, [sp, #FREGS_SP]

	// frame records: the function's caller, then the function
	stp	x29, x30, [sp, #RECORD_LR]	// parent_ip
	add	x29, sp, #RECORD_LR
	stp	x29, x9, [sp, #RECORD_PC]	// pc
	add	x29, sp, #RECORD_PC

	// entry(ip, parent_ip, op, fregs)
	sub	x0, x9, #4		// ip: the site's BL
	mov	x1, x30			// parent_ip
	adrp	x2, function_trace_op
	ldr	x2, [x2, :lo12:function_trace_op]	// op
	mov	x3, sp			// fregs

	bl	callback

	ldp	x0, x1, [sp, #FREGS_X0]
	ldp	x2, x3, [sp, #FREGS_X2]
	ldp	x4, x5, [sp, #FREGS_X4]
	ldp	x6, x7, [sp, #FREGS_X6]
	ldr	x8, [sp, #FREGS_X8]

	// the traced function, which returns here
	bl	traced_function+8

	// the function's results
	stp	x0, x1, [sp, #FREGS_X0]

	// exit(fregs)
	mov	x0, sp			// fregs

	bl	ftrace_return_to_handler

	ldp	x0, x1, [sp, #FREGS_X0]

	ldp	x29, x30, [sp, #RECORD_LR]	// parent_ip
	.cfi_restore x29
	.cfi_restore x30
	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	around_fregs, . - around_fregs

	.set	ARG0, 0
	.set	SITE_PC, 24
	.set	RECORD_LR, 32
	.set	RECORD_PC, 16
	.set	FRAME_SIZE, 48

// void direct_kfree_skb(void)
//
// Reached from a patched function entry, which executed MOV x9, x30 and BL: x30 = pc, the address
//   after the site; x9 = parent_ip, the return address of the traced function.
// Calls direct_func as the traced function was called.
// Its result is ignored.
// Kept: x0, and what C keeps (x19-x29).
// Clobbered: x1-x8 x10-x17. nzcv not kept.
// Frame: 48 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	8
	.globl	direct_kfree_skb
	.type	direct_kfree_skb, %function
direct_kfree_skb:
	.cfi_startproc
	.cfi_return_column 32
	.cfi_register 32, x30
	.cfi_register x30, x9
	hint	#34			// BTI c

	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 48
	stp	x29, x9, [sp, #RECORD_LR]	// parent_ip
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	add	x29, sp, #RECORD_LR
	stp	x29, x30, [sp, #RECORD_PC]	// pc
	.cfi_offset 32, -24
	add	x29, sp, #RECORD_PC

	str	x0, [sp, #ARG0]

	bl	direct_func

	ldr	x0, [sp, #ARG0]

	ldr	x9, [sp, #SITE_PC]	// pc
	.cfi_register 32, x9
	ldp	x29, x30, [sp, #RECORD_LR]	// parent_ip
	.cfi_restore x29
	.cfi_same_value x30
	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret	x9			// into the traced function
	.cfi_endproc
	.size	direct_kfree_skb, . - direct_kfree_skb

	.set	RUN_CTX, 0
	.set	CTX_COUNT, 16
	.set	CTX_0, 24
	.set	CTX_2, 40
	.set	CTX_RESULT, 48
	.set	RECORD_LR, 80
	.set	RECORD_PC, 64
	.set	FRAME_SIZE, 96

// void programs_fexit(void)
//
// The site jumps here: the return address of the traced function is where its caller put it.
// Calls direct_func.
// Calls traced_function behind its site.
// Calls callback2, direct_func.
// Each gets (context, cookie): 3 words of arguments, the result behind, their number before.
// What they store to words that came in registers, and to the result, takes effect.
// Kept until the function begins: x0-x2, and what C keeps but x29; behind it: its results (x0), and
//   all that C keeps.
// Frame: 96 bytes; sp is 16-byte aligned at the calls.
	.text
	.balign	8
	.globl	programs_fexit
	.type	programs_fexit, %function
programs_fexit:
	.cfi_startproc
	hint	#34			// BTI c

	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 96

	// the function's arguments -> context
	stp	x0, x1, [sp, #CTX_0]
	str	x2, [sp, #CTX_2]
	movz	x10, #3
	str	x10, [sp, #CTX_COUNT]
	adrp	x9, traced_function+8
	add	x9, x9, :lo12:traced_function+8	// pc

	// frame records: the function's caller, then the function
	stp	x29, x30, [sp, #RECORD_LR]	// parent_ip
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	add	x29, sp, #RECORD_LR
	stp	x29, x9, [sp, #RECORD_PC]	// pc
	add	x29, sp, #RECORD_PC

	// fentry(context, cookie)
	movz	x10, #6
	str	x10, [sp, #RUN_CTX]	// cookie
	add	x0, sp, #CTX_COUNT + 8	// context: the first word
	add	x1, sp, #RUN_CTX	// address of the cookie

	bl	direct_func

	// context -> the function's arguments
	ldp	x0, x1, [sp, #CTX_0]
	ldr	x2, [sp, #CTX_2]

	// the traced function, which returns here
	bl	traced_function+8

	// the function's results
	str	x0, [sp, #CTX_RESULT]
	.globl	programs_fexit_after_call
programs_fexit_after_call:
	nop				// a branch to the epilogue when this is retired

	// fexit(context, cookie)
	movz	x10, #2048
	str	x10, [sp, #RUN_CTX]	// cookie
	add	x0, sp, #CTX_COUNT + 8	// context: the first word
	add	x1, sp, #RUN_CTX	// address of the cookie

	bl	callback2

	// fexit(context, cookie)
	movz	x10, #5
	str	x10, [sp, #RUN_CTX]	// cookie
	add	x0, sp, #CTX_COUNT + 8	// context: the first word
	add	x1, sp, #RUN_CTX	// address of the cookie

	bl	direct_func
	.globl	programs_fexit_epilogue
programs_fexit_epilogue:

	ldr	x0, [sp, #CTX_RESULT]

	ldp	x29, x30, [sp, #RECORD_LR]	// parent_ip
	.cfi_restore x29
	.cfi_restore x30
	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	programs_fexit, . - programs_fexit

	.set	RUN_CTX, 8
	.set	CTX_IP, 24
	.set	CTX_COUNT, 32
	.set	CTX_0, 40
	.set	CTX_2, 56
	.set	CTX_4, 72
	.set	CTX_6, 88
	.set	CTX_8, 104
	.set	CTX_RESULT, 112
	.set	RECORD_LR, 144
	.set	RECORD_PC, 128
	.set	FRAME_SIZE, 160

// void programs_fmod_ret_stack(void)
//
// The site calls: its return address is dropped, so the return from here is mispredicted once.
// Calls direct_func.
// Calls callback2: the first that does not return 0 decides the result, in traced_function's place.
// Calls traced_function behind its site.
// Calls callback2.
// Each gets (context, cookie): 9 words of arguments, the result behind, their number before, ip before
//   that.
// What they store to words that came in registers, and to the result, takes effect.
// The function gets a copy of its 1 word of stack arguments.
// Kept until the function begins: x0-x7, and what C keeps but x29; behind it: its results (x0), and
//   all that C keeps.
// Frame: 160 bytes; sp is 16-byte aligned at the calls.
	.text
	.balign	8
	.globl	programs_fmod_ret_stack
	.type	programs_fmod_ret_stack, %function
programs_fmod_ret_stack:
	.cfi_startproc
	.cfi_register x30, x9
	hint	#34			// BTI c

	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 160

	// the function's arguments -> context
	stp	x0, x1, [sp, #CTX_0]
	stp	x2, x3, [sp, #CTX_2]
	stp	x4, x5, [sp, #CTX_4]
	stp	x6, x7, [sp, #CTX_6]
	sub	x10, x30, #4
	str	x10, [sp, #CTX_IP]	// ip: the site's BL
	movz	x10, #9
	str	x10, [sp, #CTX_COUNT]
	ldr	x10, [sp, #FRAME_SIZE]
	str	x10, [sp, #CTX_8]

	// frame records: the function's caller, then the function
	stp	x29, x9, [sp, #RECORD_LR]	// parent_ip
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	add	x29, sp, #RECORD_LR
	stp	x29, x30, [sp, #RECORD_PC]	// pc
	add	x29, sp, #RECORD_PC

	// fentry(context, cookie)
	movz	x10, #4096
	str	x10, [sp, #RUN_CTX]	// cookie
	add	x0, sp, #CTX_COUNT + 8	// context: the first word
	add	x1, sp, #RUN_CTX	// address of the cookie

	bl	direct_func

	// no result yet
	str	xzr, [sp, #CTX_RESULT]

	// fmod_ret(context, cookie)
	movz	x10, #0
	movk	x10, #7, lsl #16
	str	x10, [sp, #RUN_CTX]	// cookie
	add	x0, sp, #CTX_COUNT + 8	// context: the first word
	add	x1, sp, #RUN_CTX	// address of the cookie

	bl	callback2

	// anything but 0 is the function's result, and it is not called
	str	x0, [sp, #CTX_RESULT]
	cbnz	x0, .Lprograms_fmod_ret_stack_skipped

	// context -> the function's arguments
	ldp	x0, x1, [sp, #CTX_0]
	ldp	x2, x3, [sp, #CTX_2]
	ldp	x4, x5, [sp, #CTX_4]
	ldp	x6, x7, [sp, #CTX_6]

	// the traced function, which returns here
	ldr	x10, [sp, #FRAME_SIZE]
	str	x10, [sp, #0]
	bl	traced_function+8

	// the function's results
	str	x0, [sp, #CTX_RESULT]
	.globl	programs_fmod_ret_stack_after_call
programs_fmod_ret_stack_after_call:
	nop				// a branch to the epilogue when this is retired
.Lprograms_fmod_ret_stack_skipped:

	// fexit(context, cookie)
	movz	x10, #9029
	movk	x10, #1, lsl #16
	str	x10, [sp, #RUN_CTX]	// cookie
	add	x0, sp, #CTX_COUNT + 8	// context: the first word
	add	x1, sp, #RUN_CTX	// address of the cookie

	bl	callback2
	.globl	programs_fmod_ret_stack_epilogue
programs_fmod_ret_stack_epilogue:

	ldr	x0, [sp, #CTX_RESULT]

	ldp	x29, x30, [sp, #RECORD_LR]	// parent_ip
	.cfi_restore x29
	.cfi_same_value x30
	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	programs_fmod_ret_stack, . - programs_fmod_ret_stack

	.section .note.GNU-stack, "", %progbits
