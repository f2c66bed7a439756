/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
// tramptool 0.1.0: arm64, 7 trampolines, profile linux-6.12, call-ops=on frame-records=off
// Assemble with: aarch64-linux-gnu-as arm64.S -o arm64.o

// void ftrace_stub(void)
//
// A C function that does nothing: what a call slot calls until a callback is attached.
	.text
	.balign	8
	.globl	ftrace_stub
	.type	ftrace_stub, %function
ftrace_stub:
	.cfi_startproc
	hint	#34			// BTI c
	ret
	.cfi_endproc
	.size	ftrace_stub, . - ftrace_stub

// void ftrace_stub_graph(void)
//
// A C function that does nothing: what a call slot calls until a callback is attached.
	.text
	.balign	8
	.globl	ftrace_stub_graph
	.type	ftrace_stub_graph, %function
ftrace_stub_graph:
	.cfi_startproc
	hint	#34			// BTI c
	ret
	.cfi_endproc
	.size	ftrace_stub_graph, . - ftrace_stub_graph

// void ftrace_stub_direct_tramp(void)
//
// Reached from a patched function entry, which executed MOV x9, x30 and BL: x30 = pc, the address
//   after the site; x9 = parent_ip, the return address of the traced function.
// Goes straight back into the traced function. Everything live is kept.
	.text
	.balign	8
	.globl	ftrace_stub_direct_tramp
	.type	ftrace_stub_direct_tramp, %function
ftrace_stub_direct_tramp:
	.cfi_startproc
	.cfi_return_column 32
	.cfi_register 32, x30
	.cfi_register x30, x9
	hint	#34			// BTI c
	mov	x10, x30		// pc
	mov	x30, x9			// parent_ip
	.cfi_register 32, x10
	.cfi_same_value x30
	ret	x10
	.cfi_endproc
	.size	ftrace_stub_direct_tramp, . - ftrace_stub_direct_tramp

	.set	FTRACE_OPS_FUNC, 0
	.set	FTRACE_OPS_DIRECT_CALL, 208
	.set	FREGS_X0, 0		// struct ftrace_regs, 112 bytes
	.set	FREGS_X2, 16
	.set	FREGS_X4, 32
	.set	FREGS_X6, 48
	.set	FREGS_X8, 64
	.set	FREGS_DIRECT_TRAMP, 72
	.set	FREGS_FP, 80
	.set	FREGS_LR, 88
	.set	FREGS_SP, 96
	.set	FREGS_PC, 104
	.set	RECORD_LR, 128
	.set	RECORD_PC, 112
	.set	FRAME_SIZE, 144		// with what lies above it

// void ftrace_caller(void)
//
// Reached from a patched function entry, which executed MOV x9, x30 and BL: x30 = pc, the address
//   after the site; x9 = parent_ip, the return address of the traced function.
// Calls func(ip, parent_ip, op, fregs), which must use general registers only.
// What func stores to pc, lr and to the slots of x0-x8 x29 takes effect.
// An address stored to direct_tramp sends us to that direct trampoline, as if the site had called it.
// If op->direct_call is set, we go there at once with everything as at the site.
// Kept: x0-x8, and what C keeps (x19-x29).
// Clobbered: x10-x17. nzcv not kept.
// Frame: 144 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	8
	.globl	ftrace_caller
	.type	ftrace_caller, %function
ftrace_caller:
	.cfi_startproc
	.cfi_return_column 32
	.cfi_register 32, x30
	.cfi_register x30, x9
	hint	#34			// BTI c
	and	x11, x30, #-8
	ldur	x11, [x11, #-16]	// op, from before the function
	ldr	x17, [x11, #FTRACE_OPS_DIRECT_CALL]	// op->direct_call
	cbnz	x17, .Lftrace_caller_direct_early

	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 144

	// the function's state at the site -> fregs
	add	x10, sp, #FRAME_SIZE	// sp at the site
	stp	x0, x1, [sp, #FREGS_X0]
	stp	x2, x3, [sp, #FREGS_X2]
	stp	x4, x5, [sp, #FREGS_X4]
	stp	x6, x7, [sp, #FREGS_X6]
	stp	x8, xzr, [sp, #FREGS_X8]
	stp	x29, x9, [sp, #FREGS_FP]
	.cfi_offset x29, -64
	.cfi_offset x30, -56
	stp	x10, x30, [sp, #FREGS_SP]
	.cfi_offset 32, -40

	// frame records: the function's caller, then the function
	stp	x29, x9, [sp, #RECORD_LR]	// parent_ip
	add	x29, sp, #RECORD_LR
	stp	x29, x30, [sp, #RECORD_PC]	// pc
	add	x29, sp, #RECORD_PC

	// func(ip, parent_ip, op, fregs)
	sub	x0, x30, #4		// ip: the site's BL
	mov	x1, x9			// parent_ip
	mov	x2, x11			// op
	mov	x3, sp			// fregs

	ldr	x4, [x2, #FTRACE_OPS_FUNC]	// op->func
	blr	x4			// func

	// fregs -> the function's state, as func left it
	ldp	x0, x1, [sp, #FREGS_X0]
	ldp	x2, x3, [sp, #FREGS_X2]
	ldp	x4, x5, [sp, #FREGS_X4]
	ldp	x6, x7, [sp, #FREGS_X6]
	ldr	x8, [sp, #FREGS_X8]
	ldr	x29, [sp, #FREGS_FP]
	.cfi_restore x29
	ldr	x17, [sp, #FREGS_DIRECT_TRAMP]	// direct trampoline, 0 = none
	cbnz	x17, .Lftrace_caller_direct

	ldr	x9, [sp, #FREGS_PC]	// pc
	.cfi_register 32, x9
	ldr	x30, [sp, #FREGS_LR]	// parent_ip
	.cfi_same_value x30
	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret	x9			// into the traced function

	// to the direct trampoline, with everything as the site left it
.Lftrace_caller_direct:
	.cfi_def_cfa_offset 144
	.cfi_offset x30, -56
	.cfi_offset 32, -40
	ldr	x9, [sp, #FREGS_LR]	// parent_ip, as func left it
	.cfi_register x30, x9
	ldr	x30, [sp, #FREGS_PC]	// pc, as func left it
	.cfi_register 32, x30
	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	br	x17			// to the direct trampoline

	// op has a direct trampoline: there at once, nothing was touched
.Lftrace_caller_direct_early:
	br	x17			// to the direct trampoline
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

	.set	S_X0, 0			// struct pt_regs, 336 bytes
	.set	S_X2, 16
	.set	S_X4, 32
	.set	S_X6, 48
	.set	S_X8, 64
	.set	S_X10, 80
	.set	S_X12, 96
	.set	S_X14, 112
	.set	S_X16, 128
	.set	S_X18, 144
	.set	S_X19, 152
	.set	S_X20, 160
	.set	S_X21, 168
	.set	S_X22, 176
	.set	S_X23, 184
	.set	S_X24, 192
	.set	S_X25, 200
	.set	S_X26, 208
	.set	S_X27, 216
	.set	S_X28, 224
	.set	S_FP, 232
	.set	S_LR, 240
	.set	S_SP, 248
	.set	S_PC, 256
	.set	RECORD_LR, 336
	.set	RECORD_PC, 304
	.set	FRAME_SIZE, 352		// with what lies above it

// void ftrace_regs_caller(void)
//
// Reached from a patched function entry, which executed MOV x9, x30 and BL: x30 = pc, the address
//   after the site; x9 = parent_ip, the return address of the traced function.
// Calls func(ip, parent_ip, op, fregs), which must use general registers only.
// What func stores to pc, x30 and to the slots of x0-x8 x10-x17 x19-x29 takes effect.
// Kept: x0-x8 x10-x17, and what C keeps (x19-x29).
// Clobbered: nothing. nzcv not kept.
// Frame: 352 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	8
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, %function
ftrace_regs_caller:
	.cfi_startproc
	.cfi_return_column 32
	.cfi_register 32, x30
	.cfi_register x30, x9
	hint	#34			// BTI c

	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 352

	// the function's state at the site -> fregs
	stp	x0, x1, [sp, #S_X0]
	stp	x2, x3, [sp, #S_X2]
	stp	x4, x5, [sp, #S_X4]
	stp	x6, x7, [sp, #S_X6]
	stp	x8, x9, [sp, #S_X8]
	.cfi_offset x30, -280
	stp	x10, x11, [sp, #S_X10]
	stp	x12, x13, [sp, #S_X12]
	stp	x14, x15, [sp, #S_X14]
	stp	x16, x17, [sp, #S_X16]
	stp	x18, x19, [sp, #S_X18]
	.cfi_offset x19, -200
	stp	x20, x21, [sp, #S_X20]
	.cfi_offset x20, -192
	.cfi_offset x21, -184
	stp	x22, x23, [sp, #S_X22]
	.cfi_offset x22, -176
	.cfi_offset x23, -168
	stp	x24, x25, [sp, #S_X24]
	.cfi_offset x24, -160
	.cfi_offset x25, -152
	stp	x26, x27, [sp, #S_X26]
	.cfi_offset x26, -144
	.cfi_offset x27, -136
	stp	x28, x29, [sp, #S_X28]
	.cfi_offset x28, -128
	.cfi_offset x29, -120
	str	x9, [sp, #S_LR]
	str	x30, [sp, #S_PC]
	.cfi_offset 32, -96
	add	x10, sp, #FRAME_SIZE	// sp at the site
	str	x10, [sp, #S_SP]

	// frame records: the function's caller, then the function
	stp	x29, x9, [sp, #RECORD_LR]	// parent_ip
	add	x29, sp, #RECORD_LR
	stp	x29, x30, [sp, #RECORD_PC]	// pc
	add	x29, sp, #RECORD_PC

	// func(ip, parent_ip, op, fregs)
	sub	x0, x30, #4		// ip: the site's BL
	mov	x1, x9			// parent_ip
	adrp	x2, function_trace_op
	ldr	x2, [x2, :lo12:function_trace_op]	// op
	mov	x3, sp			// fregs

	.globl	ftrace_regs_call
ftrace_regs_call:
	bl	ftrace_stub		// func: this word is patched at run time

	// fregs -> the function's state, as func left it
	ldr	x9, [sp, #S_PC]		// pc
	.cfi_register 32, x9
	ldr	x30, [sp, #S_LR]	// parent_ip
	.cfi_same_value x30
	ldp	x0, x1, [sp, #S_X0]
	ldp	x2, x3, [sp, #S_X2]
	ldp	x4, x5, [sp, #S_X4]
	ldp	x6, x7, [sp, #S_X6]
	ldr	x8, [sp, #S_X8]
	ldp	x10, x11, [sp, #S_X10]
	ldp	x12, x13, [sp, #S_X12]
	ldp	x14, x15, [sp, #S_X14]
	ldp	x16, x17, [sp, #S_X16]
	ldp	x19, x20, [sp, #S_X19]
	.cfi_restore x19
	.cfi_restore x20
	ldp	x21, x22, [sp, #S_X21]
	.cfi_restore x21
	.cfi_restore x22
	ldp	x23, x24, [sp, #S_X23]
	.cfi_restore x23
	.cfi_restore x24
	ldp	x25, x26, [sp, #S_X25]
	.cfi_restore x25
	.cfi_restore x26
	ldp	x27, x28, [sp, #S_X27]
	.cfi_restore x27
	.cfi_restore x28
	ldr	x29, [sp, #S_FP]
	.cfi_restore x29

	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret	x9			// into the traced function
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller

	.set	FREGS_X0, 0		// struct ftrace_regs, 112 bytes
	.set	FREGS_X2, 16
	.set	FREGS_X4, 32
	.set	FREGS_X6, 48
	.set	FREGS_FP, 80
	.set	FRAME_SIZE, 112		// with what lies above it

// void return_to_handler(void)
//
// Reached by the RET of a traced function whose x30 was replaced; its result is in x0-x7.
// Calls ftrace_return_to_handler(fregs), which returns the address to go on at.
// What a handler stores to the result registers' slots takes effect.
// Kept: x0-x7, and what C keeps (x19-x29).
// Clobbered: x8 x10-x17. nzcv not kept.
// Frame: 112 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	8
	.globl	return_to_handler
	.type	return_to_handler, %function
return_to_handler:
	.cfi_startproc
	.cfi_undefined x30
	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 112

	// the function's results -> fregs
	stp	x0, x1, [sp, #FREGS_X0]
	stp	x2, x3, [sp, #FREGS_X2]
	stp	x4, x5, [sp, #FREGS_X4]
	stp	x6, x7, [sp, #FREGS_X6]
	str	x29, [sp, #FREGS_FP]
	.cfi_offset x29, -32

	mov	x0, sp			// fregs

	bl	ftrace_return_to_handler

	mov	x30, x0			// where the function returns to

	// fregs -> the function's results, as the handlers left them
	ldp	x0, x1, [sp, #FREGS_X0]
	ldp	x2, x3, [sp, #FREGS_X2]
	ldp	x4, x5, [sp, #FREGS_X4]
	ldp	x6, x7, [sp, #FREGS_X6]

	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	ret				// to the parent
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler

	.set	ARG0, 0
	.set	ARG2, 16
	.set	SITE_LR, 32
	.set	FRAME_SIZE, 48

// void my_tramp(void)
//
// Reached from a patched function entry, which executed MOV x9, x30 and BL: x30 = pc, the address
//   after the site; x9 = parent_ip, the return address of the traced function.
// Calls my_direct_func with the traced function's first 3 argument registers.
// It must use general registers only; its result is ignored.
// Kept: x0-x2 x8, and what C keeps (x19-x29).
// Clobbered: x3-x7 x10-x17. nzcv not kept.
// Frame: 48 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	8
	.globl	my_tramp
	.type	my_tramp, %function
my_tramp:
	.cfi_startproc
	.cfi_return_column 32
	.cfi_register 32, x30
	.cfi_register x30, x9
	hint	#34			// BTI c

	sub	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 48

	stp	x0, x1, [sp, #ARG0]
	stp	x2, x8, [sp, #ARG2]
	stp	x9, x30, [sp, #SITE_LR]
	.cfi_offset x30, -16
	.cfi_offset 32, -8

	bl	my_direct_func

	ldp	x0, x1, [sp, #ARG0]
	ldp	x2, x8, [sp, #ARG2]

	ldp	x30, x9, [sp, #SITE_LR]	// parent_ip and pc
	.cfi_same_value x30
	.cfi_register 32, x9
	add	sp, sp, #FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret	x9			// into the traced function
	.cfi_endproc
	.size	my_tramp, . - my_tramp

	.section .note.GNU-stack, "", %progbits
