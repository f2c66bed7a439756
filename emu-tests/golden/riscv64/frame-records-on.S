/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
# tramptool 0.1.0: riscv64, 7 trampolines, profile linux-6.12, fp-test=off rvc=on abi=lp64 frame-records=on
# Assemble with: riscv64-linux-gnu-as riscv64.S -o riscv64.o
	.attribute arch, "rv64i2p0_c2p0"
	.option rvc
	.option norelax

# void ftrace_stub(void)
#
# A C function that does nothing: what a call slot calls until a callback is attached.
	.text
	.balign	4
	.globl	ftrace_stub
	.type	ftrace_stub, @function
ftrace_stub:
	.cfi_startproc
	ret
	.cfi_endproc
	.size	ftrace_stub, . - ftrace_stub

# void ftrace_stub_graph(void)
#
# A C function that does nothing: what a call slot calls until a callback is attached.
	.text
	.balign	4
	.globl	ftrace_stub_graph
	.type	ftrace_stub_graph, @function
ftrace_stub_graph:
	.cfi_startproc
	ret
	.cfi_endproc
	.size	ftrace_stub_graph, . - ftrace_stub_graph

# void ftrace_stub_direct_tramp(void)
#
# Reached from a patched function entry, which executed AUIPC t0 and JALR t0: t0 = pc, the address
#   after the site; ra = parent_ip, the return address of the traced function.
# Goes straight back into the traced function. Everything live is kept.
	.text
	.balign	4
	.globl	ftrace_stub_direct_tramp
	.type	ftrace_stub_direct_tramp, @function
ftrace_stub_direct_tramp:
	.cfi_startproc
	.cfi_return_column 5
	jr	t0			# into the traced function
	.cfi_endproc
	.size	ftrace_stub_direct_tramp, . - ftrace_stub_direct_tramp

	.set	FREGS_EPC, 0		# struct ftrace_regs, 104 bytes
	.set	FREGS_RA, 8
	.set	FREGS_SP, 16
	.set	FREGS_T1, 32
	.set	FREGS_A0, 40
	.set	FREGS_A1, 48
	.set	FREGS_A2, 56
	.set	FREGS_A3, 64
	.set	FREGS_A4, 72
	.set	FREGS_A5, 80
	.set	FREGS_A6, 88
	.set	FREGS_A7, 96
	.set	FREGS_FRAME, 112	# with what lies above it

# void ftrace_caller(void)
#
# Reached from a patched function entry, which executed AUIPC t0 and JALR t0: t0 = pc, the address
#   after the site; ra = parent_ip, the return address of the traced function.
# Calls func(ip, parent_ip, op, fregs), which must use general registers only.
# What func stores to epc, ra and to the slots of a0-a7 takes effect.
# An address stored to t1 sends us to that direct trampoline, as if the site had called it.
# Kept: a0-a7, and what C keeps (s0-s11).
# Clobbered: t1-t6.
# Frame: 112 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	4
	.globl	ftrace_caller
	.type	ftrace_caller, @function
ftrace_caller:
	.cfi_startproc
	.cfi_return_column 5
	addi	sp, sp, -FREGS_FRAME
	.cfi_def_cfa_offset 112

	# the function's state at the site -> fregs
	sd	t0, FREGS_EPC(sp)	# pc
	.cfi_offset t0, -112
	sd	ra, FREGS_RA(sp)	# parent_ip
	.cfi_offset ra, -104
	addi	t1, sp, FREGS_FRAME
	sd	t1, FREGS_SP(sp)	# sp at the site
	sd	zero, FREGS_T1(sp)	# no direct trampoline yet
	sd	a0, FREGS_A0(sp)
	sd	a1, FREGS_A1(sp)
	sd	a2, FREGS_A2(sp)
	sd	a3, FREGS_A3(sp)
	sd	a4, FREGS_A4(sp)
	sd	a5, FREGS_A5(sp)
	sd	a6, FREGS_A6(sp)
	sd	a7, FREGS_A7(sp)

	# func(ip, parent_ip, op, fregs)
	addi	a0, t0, -8		# ip: first word of the site
	mv	a1, ra			# parent_ip
.Lftrace_caller_op:
	auipc	a2, %pcrel_hi(function_trace_op)
	ld	a2, %pcrel_lo(.Lftrace_caller_op)(a2)	# op
	mv	a3, sp			# fregs

	.globl	ftrace_call
ftrace_call:
	call	ftrace_stub		# func: these 8 bytes are patched at run time

	# fregs -> the function's state, as func left it
	ld	t0, FREGS_EPC(sp)	# pc
	.cfi_restore t0
	ld	ra, FREGS_RA(sp)	# parent_ip
	.cfi_restore ra
	ld	t1, FREGS_T1(sp)	# direct trampoline, 0 = none
	ld	a0, FREGS_A0(sp)
	ld	a1, FREGS_A1(sp)
	ld	a2, FREGS_A2(sp)
	ld	a3, FREGS_A3(sp)
	ld	a4, FREGS_A4(sp)
	ld	a5, FREGS_A5(sp)
	ld	a6, FREGS_A6(sp)
	ld	a7, FREGS_A7(sp)

	addi	sp, sp, FREGS_FRAME
	.cfi_def_cfa_offset 0
	bnez	t1, .Lftrace_caller_direct
	jr	t0			# into the traced function

	# to the direct trampoline, with everything as the site left it
.Lftrace_caller_direct:
	jr	t1			# to the direct trampoline; it returns through t0
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

	.set	PT_EPC, 0		# struct pt_regs, 288 bytes
	.set	PT_RA, 8
	.set	PT_SP, 16
	.set	PT_GP, 24
	.set	PT_TP, 32
	.set	PT_T0, 40
	.set	PT_T1, 48
	.set	PT_T2, 56
	.set	PT_S0, 64
	.set	PT_S1, 72
	.set	PT_A0, 80
	.set	PT_A1, 88
	.set	PT_A2, 96
	.set	PT_A3, 104
	.set	PT_A4, 112
	.set	PT_A5, 120
	.set	PT_A6, 128
	.set	PT_A7, 136
	.set	PT_S2, 144
	.set	PT_S3, 152
	.set	PT_S4, 160
	.set	PT_S5, 168
	.set	PT_S6, 176
	.set	PT_S7, 184
	.set	PT_S8, 192
	.set	PT_S9, 200
	.set	PT_S10, 208
	.set	PT_S11, 216
	.set	PT_T3, 224
	.set	PT_T4, 232
	.set	PT_T5, 240
	.set	PT_T6, 248
	.set	PT_SIZE, 288		# with what lies above it

# void ftrace_regs_caller(void)
#
# Reached from a patched function entry, which executed AUIPC t0 and JALR t0: t0 = pc, the address
#   after the site; ra = parent_ip, the return address of the traced function.
# Calls func(ip, parent_ip, op, fregs), which must use general registers only.
# What func stores to epc, ra and to the slots of t2 s0 s1 a0-a7 s2-s11 t3-t6 takes effect.
# An address stored to t1 sends us to that direct trampoline, as if the site had called it.
# Kept: t2 a0-a7 t3-t6, and what C keeps (s0-s11).
# Clobbered: t1.
# Frame: 288 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	4
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, @function
ftrace_regs_caller:
	.cfi_startproc
	.cfi_return_column 5
	addi	sp, sp, -PT_SIZE
	.cfi_def_cfa_offset 288

	# the function's state at the site -> fregs
	sd	t0, PT_EPC(sp)		# pc
	.cfi_offset t0, -288
	sd	ra, PT_RA(sp)		# parent_ip
	.cfi_offset ra, -280
	addi	t1, sp, PT_SIZE
	sd	t1, PT_SP(sp)		# sp at the site
	sd	gp, PT_GP(sp)
	sd	tp, PT_TP(sp)
	sd	t0, PT_T0(sp)		# pc
	sd	zero, PT_T1(sp)		# no direct trampoline yet
	sd	t2, PT_T2(sp)
	sd	s0, PT_S0(sp)
	.cfi_offset s0, -224
	sd	s1, PT_S1(sp)
	.cfi_offset s1, -216
	sd	a0, PT_A0(sp)
	sd	a1, PT_A1(sp)
	sd	a2, PT_A2(sp)
	sd	a3, PT_A3(sp)
	sd	a4, PT_A4(sp)
	sd	a5, PT_A5(sp)
	sd	a6, PT_A6(sp)
	sd	a7, PT_A7(sp)
	sd	s2, PT_S2(sp)
	.cfi_offset s2, -144
	sd	s3, PT_S3(sp)
	.cfi_offset s3, -136
	sd	s4, PT_S4(sp)
	.cfi_offset s4, -128
	sd	s5, PT_S5(sp)
	.cfi_offset s5, -120
	sd	s6, PT_S6(sp)
	.cfi_offset s6, -112
	sd	s7, PT_S7(sp)
	.cfi_offset s7, -104
	sd	s8, PT_S8(sp)
	.cfi_offset s8, -96
	sd	s9, PT_S9(sp)
	.cfi_offset s9, -88
	sd	s10, PT_S10(sp)
	.cfi_offset s10, -80
	sd	s11, PT_S11(sp)
	.cfi_offset s11, -72
	sd	t3, PT_T3(sp)
	sd	t4, PT_T4(sp)
	sd	t5, PT_T5(sp)
	sd	t6, PT_T6(sp)

	# func(ip, parent_ip, op, fregs)
	addi	a0, t0, -8		# ip: first word of the site
	mv	a1, ra			# parent_ip
.Lftrace_regs_caller_op:
	auipc	a2, %pcrel_hi(function_trace_op)
	ld	a2, %pcrel_lo(.Lftrace_regs_caller_op)(a2)	# op
	mv	a3, sp			# fregs

	.globl	ftrace_regs_call
ftrace_regs_call:
	call	ftrace_stub		# func: these 8 bytes are patched at run time

	# fregs -> the function's state, as func left it
	ld	t0, PT_EPC(sp)		# pc
	.cfi_restore t0
	ld	ra, PT_RA(sp)		# parent_ip
	.cfi_restore ra
	ld	t1, PT_T1(sp)		# direct trampoline, 0 = none
	ld	t2, PT_T2(sp)
	ld	s0, PT_S0(sp)
	.cfi_restore s0
	ld	s1, PT_S1(sp)
	.cfi_restore s1
	ld	a0, PT_A0(sp)
	ld	a1, PT_A1(sp)
	ld	a2, PT_A2(sp)
	ld	a3, PT_A3(sp)
	ld	a4, PT_A4(sp)
	ld	a5, PT_A5(sp)
	ld	a6, PT_A6(sp)
	ld	a7, PT_A7(sp)
	ld	s2, PT_S2(sp)
	.cfi_restore s2
	ld	s3, PT_S3(sp)
	.cfi_restore s3
	ld	s4, PT_S4(sp)
	.cfi_restore s4
	ld	s5, PT_S5(sp)
	.cfi_restore s5
	ld	s6, PT_S6(sp)
	.cfi_restore s6
	ld	s7, PT_S7(sp)
	.cfi_restore s7
	ld	s8, PT_S8(sp)
	.cfi_restore s8
	ld	s9, PT_S9(sp)
	.cfi_restore s9
	ld	s10, PT_S10(sp)
	.cfi_restore s10
	ld	s11, PT_S11(sp)
	.cfi_restore s11
	ld	t3, PT_T3(sp)
	ld	t4, PT_T4(sp)
	ld	t5, PT_T5(sp)
	ld	t6, PT_T6(sp)

	addi	sp, sp, PT_SIZE
	.cfi_def_cfa_offset 0
	bnez	t1, .Lftrace_regs_caller_direct
	jr	t0			# into the traced function

	# to the direct trampoline, with everything as the site left it
.Lftrace_regs_caller_direct:
	jr	t1			# to the direct trampoline; it returns through t0
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller

	.set	FREGS_RA, 8		# struct ftrace_regs, 104 bytes
	.set	FREGS_S0, 24
	.set	FREGS_A0, 40
	.set	FREGS_A1, 48
	.set	FREGS_FRAME, 112	# with what lies above it

# void return_to_handler(void)
#
# Reached by the RET of a traced function whose ra was replaced; its result is in a0, a1.
# Calls ftrace_return_to_handler(fregs), which returns the address to go on at.
# What a handler stores to the result registers' slots takes effect.
# Kept: a0 a1, and what C keeps (s0-s11).
# Clobbered: t1 t2 a2-a7 t3-t6.
# Frame: 112 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	4
	.globl	return_to_handler
	.type	return_to_handler, @function
return_to_handler:
	.cfi_startproc
	.cfi_undefined ra
	addi	sp, sp, -FREGS_FRAME
	.cfi_def_cfa_offset 112

	# the function's results -> fregs
	sd	ra, FREGS_RA(sp)
	sd	s0, FREGS_S0(sp)
	.cfi_offset s0, -88
	sd	a0, FREGS_A0(sp)
	sd	a1, FREGS_A1(sp)

	mv	a0, sp			# fregs

	call	ftrace_return_to_handler

	mv	t2, a0			# where the function returns to
	mv	ra, a0			# as after an ordinary return

	# fregs -> the function's results, as the handlers left them
	ld	a0, FREGS_A0(sp)
	ld	a1, FREGS_A1(sp)

	addi	sp, sp, FREGS_FRAME
	.cfi_def_cfa_offset 0
	.cfi_restore s0
	jr	t2			# to the parent
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler

	.set	ARG0, 0
	.set	ARG1, 8
	.set	ARG2, 16
	.set	RECORD_RA, 48
	.set	RECORD_PC, 32
	.set	FRAME_SIZE, 64

# void my_tramp(void)
#
# Reached from a patched function entry, which executed AUIPC t0 and JALR t0: t0 = pc, the address
#   after the site; ra = parent_ip, the return address of the traced function.
# Calls my_direct_func with the traced function's first 3 argument registers.
# It must use general registers only; its result is ignored.
# Kept: a0-a2, and what C keeps (s0-s11).
# Clobbered: t1 t2 a3-a7 t3-t6.
# Frame: 64 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	4
	.globl	my_tramp
	.type	my_tramp, @function
my_tramp:
	.cfi_startproc
	.cfi_return_column 5
	addi	sp, sp, -FRAME_SIZE
	.cfi_def_cfa_offset 64
	sd	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_offset ra, -8
	sd	s0, RECORD_RA(sp)
	.cfi_offset s0, -16
	addi	s0, sp, RECORD_RA + 16
	sd	t0, RECORD_PC + 8(sp)	# pc
	.cfi_offset t0, -24
	sd	s0, RECORD_PC(sp)
	addi	s0, sp, RECORD_PC + 16

	sd	a0, ARG0(sp)
	sd	a1, ARG1(sp)
	sd	a2, ARG2(sp)

	call	my_direct_func

	ld	a0, ARG0(sp)
	ld	a1, ARG1(sp)
	ld	a2, ARG2(sp)

	ld	t0, RECORD_PC + 8(sp)	# pc
	.cfi_restore t0
	ld	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_restore ra
	ld	s0, RECORD_RA(sp)
	.cfi_restore s0
	addi	sp, sp, FRAME_SIZE
	.cfi_def_cfa_offset 0
	jr	t0			# into the traced function
	.cfi_endproc
	.size	my_tramp, . - my_tramp

	.section .note.GNU-stack, "", @progbits
