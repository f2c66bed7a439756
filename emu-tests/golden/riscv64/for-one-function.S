/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
# tramptool 0.1.0: riscv64, 5 trampolines, profile linux-6.12, fp-test=off rvc=on abi=lp64 frame-records=off
# Assemble with: riscv64-linux-gnu-as riscv64.S -o riscv64.o
	.attribute arch, "rv64i2p0_c2p0"
	.option rvc
	.option norelax

	.set	ARG0, 0
	.set	RESULT0, 0
	.set	RESULT1, 8
	.set	RECORD_RA, 32
	.set	RECORD_PC, 16
	.set	FRAME_SIZE, 48

# void around_frame_1(void)
#
# The site jumps here: the return address of the traced function is where its caller put it.
# Calls direct_func with the first argument register, then traced_function behind its site, then
#   ftrace_return_to_handler with the result registers.
# The handlers must use general registers only; what they return is ignored.
# Every return has its call: the return-address stack stays whole.
# The function finds the caller's stack a frame higher: not for functions with arguments there.
# Kept until the function begins: a0, and what C keeps but s0; behind it: its results (a0 a1), and all
#   that C keeps.
# Frame: 48 bytes; sp is 16-byte aligned at the calls.
	.text
	.balign	4
	.globl	around_frame_1
	.type	around_frame_1, @function
around_frame_1:
	.cfi_startproc
	addi	sp, sp, -FRAME_SIZE
	.cfi_def_cfa_offset 48

	# the function's state at the site
	sd	a0, ARG0(sp)
.Laround_frame_1_pc:
	auipc	t0, %pcrel_hi(traced_function+8)
	addi	t0, t0, %pcrel_lo(.Laround_frame_1_pc)	# pc

	# frame records: the function's caller, then the function
	sd	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_offset ra, -8
	sd	s0, RECORD_RA(sp)
	.cfi_offset s0, -16
	addi	s0, sp, RECORD_RA + 16
	sd	t0, RECORD_PC + 8(sp)	# pc
	sd	s0, RECORD_PC(sp)
	addi	s0, sp, RECORD_PC + 16

	call	direct_func

	ld	a0, ARG0(sp)

	# the traced function, which returns here
	call	traced_function+8

	# the function's results
	sd	a0, RESULT0(sp)
	sd	a1, RESULT1(sp)

	# exit(results)

	call	ftrace_return_to_handler

	ld	a0, RESULT0(sp)
	ld	a1, RESULT1(sp)

	ld	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_restore ra
	ld	s0, RECORD_RA(sp)
	.cfi_restore s0
	addi	sp, sp, FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	around_frame_1, . - around_frame_1

	.set	FREGS_EPC, 0		# struct ftrace_regs, 104 bytes
	.set	FREGS_RA, 8
	.set	FREGS_SP, 16
	.set	FREGS_A0, 40
	.set	FREGS_A1, 48
	.set	FREGS_A2, 56
	.set	FREGS_A3, 64
	.set	FREGS_A4, 72
	.set	FREGS_A5, 80
	.set	FREGS_A6, 88
	.set	FREGS_A7, 96
	.set	RECORD_RA, 128
	.set	RECORD_PC, 112
	.set	FREGS_FRAME, 144	# with what lies above it

# void around_fregs(void)
#
# The site jumps here: the return address of the traced function is where its caller put it.
# Calls callback(ip, parent_ip, op, fregs), then traced_function behind its site, then
#   ftrace_return_to_handler(fregs).
# The handlers must use general registers only; what they return is ignored.
# What they store to the slots of argument and result registers takes effect.
# The function finds the caller's stack a frame higher: not for functions with arguments there.
# Kept until the function begins: a0-a7, and what C keeps but s0; behind it: its results (a0 a1), and
#   all that C keeps.
# Frame: 144 bytes; sp is 16-byte aligned at the calls.
	.text
	.balign	4
	.globl	around_fregs
	.type	around_fregs, @function
around_fregs:
	.cfi_startproc
	addi	sp, sp, -FREGS_FRAME
	.cfi_def_cfa_offset 144

	# the function's state at the site
.Laround_fregs_pc:
	auipc	t0, %pcrel_hi(traced_function+8)
	addi	t0, t0, %pcrel_lo(.Laround_fregs_pc)	# pc
	sd	t0, FREGS_EPC(sp)	# pc
	sd	ra, FREGS_RA(sp)	# parent_ip
	.cfi_offset ra, -136
	addi	t1, sp, FREGS_FRAME
	sd	t1, FREGS_SP(sp)	# sp at the site
	sd	a0, FREGS_A0(sp)
	sd	a1, FREGS_A1(sp)
	sd	a2, FREGS_A2(sp)
	sd	a3, FREGS_A3(sp)
	sd	a4, FREGS_A4(sp)
	sd	a5, FREGS_A5(sp)
	sd	a6, FREGS_A6(sp)
	sd	a7, FREGS_A7(sp)

	# frame records: the function's caller, then the function
	sd	ra, RECORD_RA + 8(sp)	# parent_ip
	sd	s0, RECORD_RA(sp)
	.cfi_offset s0, -16
	addi	s0, sp, RECORD_RA + 16
	sd	t0, RECORD_PC + 8(sp)	# pc
	sd	s0, RECORD_PC(sp)
	addi	s0, sp, RECORD_PC + 16

	# entry(ip, parent_ip, op, fregs)
	addi	a0, t0, -8		# ip: first word of the site
	mv	a1, ra			# parent_ip
.Laround_fregs_op:
	auipc	a2, %pcrel_hi(function_trace_op)
	ld	a2, %pcrel_lo(.Laround_fregs_op)(a2)	# op
	mv	a3, sp			# fregs

	call	callback

	ld	a0, FREGS_A0(sp)
	ld	a1, FREGS_A1(sp)
	ld	a2, FREGS_A2(sp)
	ld	a3, FREGS_A3(sp)
	ld	a4, FREGS_A4(sp)
	ld	a5, FREGS_A5(sp)
	ld	a6, FREGS_A6(sp)
	ld	a7, FREGS_A7(sp)

	# the traced function, which returns here
	call	traced_function+8

	# the function's results
	sd	a0, FREGS_A0(sp)
	sd	a1, FREGS_A1(sp)

	# exit(fregs)
	mv	a0, sp			# fregs

	call	ftrace_return_to_handler

	ld	a0, FREGS_A0(sp)
	ld	a1, FREGS_A1(sp)

	ld	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_restore ra
	ld	s0, RECORD_RA(sp)
	.cfi_restore s0
	addi	sp, sp, FREGS_FRAME
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	around_fregs, . - around_fregs

	.set	ARG0, 0
	.set	SITE_T0, 8
	.set	SITE_RA, 16
	.set	FRAME_SIZE, 32

# void direct_kfree_skb(void)
#
# Reached from a patched function entry, which executed AUIPC t0 and JALR t0: t0 = pc, the address
#   after the site; ra = parent_ip, the return address of the traced function.
# Calls direct_func as the traced function was called.
# Its result is ignored.
# Kept: a0, and what C keeps (s0-s11).
# Clobbered: t1 t2 a1-a7 t3-t6.
# Frame: 32 bytes; sp is 16-byte aligned at the call, if the site's was.
	.text
	.balign	4
	.globl	direct_kfree_skb
	.type	direct_kfree_skb, @function
direct_kfree_skb:
	.cfi_startproc
	.cfi_return_column 5
	addi	sp, sp, -FRAME_SIZE
	.cfi_def_cfa_offset 32

	sd	a0, ARG0(sp)
	sd	t0, SITE_T0(sp)		# pc
	.cfi_offset t0, -24
	sd	ra, SITE_RA(sp)		# parent_ip
	.cfi_offset ra, -16

	call	direct_func

	ld	a0, ARG0(sp)

	ld	t0, SITE_T0(sp)		# pc
	.cfi_restore t0
	ld	ra, SITE_RA(sp)		# parent_ip
	.cfi_restore ra
	addi	sp, sp, FRAME_SIZE
	.cfi_def_cfa_offset 0
	jr	t0			# into the traced function
	.cfi_endproc
	.size	direct_kfree_skb, . - direct_kfree_skb

	.set	RUN_CTX, 0
	.set	CTX_COUNT, 16
	.set	CTX_0, 24
	.set	CTX_1, 32
	.set	CTX_2, 40
	.set	CTX_RESULT, 48
	.set	RECORD_RA, 80
	.set	RECORD_PC, 64
	.set	FRAME_SIZE, 96

# void programs_fexit(void)
#
# The site jumps here: the return address of the traced function is where its caller put it.
# Calls direct_func.
# Calls traced_function behind its site.
# Calls callback2, direct_func.
# Each gets (context, cookie): 3 words of arguments, the result behind, their number before.
# What they store to words that came in registers, and to the result, takes effect.
# Kept until the function begins: a0-a2, and what C keeps but s0; behind it: its results (a0), and all
#   that C keeps.
# Frame: 96 bytes; sp is 16-byte aligned at the calls.
	.text
	.balign	4
	.globl	programs_fexit
	.type	programs_fexit, @function
programs_fexit:
	.cfi_startproc
	addi	sp, sp, -FRAME_SIZE
	.cfi_def_cfa_offset 96

	# the function's arguments -> context
	addi	t1, zero, 3
	sd	t1, CTX_COUNT(sp)
	sd	a0, CTX_0(sp)
	sd	a1, CTX_1(sp)
	sd	a2, CTX_2(sp)
.Lprograms_fexit_pc:
	auipc	t0, %pcrel_hi(traced_function+8)
	addi	t0, t0, %pcrel_lo(.Lprograms_fexit_pc)	# pc

	# frame records: the function's caller, then the function
	sd	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_offset ra, -8
	sd	s0, RECORD_RA(sp)
	.cfi_offset s0, -16
	addi	s0, sp, RECORD_RA + 16
	sd	t0, RECORD_PC + 8(sp)	# pc
	sd	s0, RECORD_PC(sp)
	addi	s0, sp, RECORD_PC + 16

	# fentry(context, cookie)
	addi	t1, zero, 6
	sd	t1, RUN_CTX(sp)		# cookie
	addi	a0, sp, CTX_COUNT + 8	# context: the first word
	addi	a1, sp, RUN_CTX		# address of the cookie

	call	direct_func

	# context -> the function's arguments
	ld	a0, CTX_0(sp)
	ld	a1, CTX_1(sp)
	ld	a2, CTX_2(sp)

	# the traced function, which returns here
	call	traced_function+8

	# the function's results
	sd	a0, CTX_RESULT(sp)
	.globl	programs_fexit_after_call
programs_fexit_after_call:
	nop				# a jump to the epilogue when this is retired
	nop
	nop
	nop

	# fexit(context, cookie)
	lui	t1, 0x1
	addiw	t1, t1, -2048
	sd	t1, RUN_CTX(sp)		# cookie
	addi	a0, sp, CTX_COUNT + 8	# context: the first word
	addi	a1, sp, RUN_CTX		# address of the cookie

	call	callback2

	# fexit(context, cookie)
	addi	t1, zero, 5
	sd	t1, RUN_CTX(sp)		# cookie
	addi	a0, sp, CTX_COUNT + 8	# context: the first word
	addi	a1, sp, RUN_CTX		# address of the cookie

	call	direct_func
	.globl	programs_fexit_epilogue
programs_fexit_epilogue:

	ld	a0, CTX_RESULT(sp)

	ld	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_restore ra
	ld	s0, RECORD_RA(sp)
	.cfi_restore s0
	addi	sp, sp, FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	programs_fexit, . - programs_fexit

	.set	RUN_CTX, 8
	.set	CTX_IP, 24
	.set	CTX_COUNT, 32
	.set	CTX_0, 40
	.set	CTX_1, 48
	.set	CTX_2, 56
	.set	CTX_3, 64
	.set	CTX_4, 72
	.set	CTX_5, 80
	.set	CTX_6, 88
	.set	CTX_7, 96
	.set	CTX_8, 104
	.set	CTX_RESULT, 112
	.set	RECORD_RA, 144
	.set	RECORD_PC, 128
	.set	FRAME_SIZE, 160

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
# The function gets a copy of its 1 word of stack arguments.
# Kept until the function begins: a0-a7, and what C keeps but s0; behind it: its results (a0), and all
#   that C keeps.
# Frame: 160 bytes; sp is 16-byte aligned at the calls.
	.text
	.balign	4
	.globl	programs_fmod_ret_stack
	.type	programs_fmod_ret_stack, @function
programs_fmod_ret_stack:
	.cfi_startproc
	addi	sp, sp, -FRAME_SIZE
	.cfi_def_cfa_offset 160

	# the function's arguments -> context
	addi	t1, t0, -8
	sd	t1, CTX_IP(sp)		# ip: first word of the site
	addi	t1, zero, 9
	sd	t1, CTX_COUNT(sp)
	sd	a0, CTX_0(sp)
	sd	a1, CTX_1(sp)
	sd	a2, CTX_2(sp)
	sd	a3, CTX_3(sp)
	sd	a4, CTX_4(sp)
	sd	a5, CTX_5(sp)
	sd	a6, CTX_6(sp)
	sd	a7, CTX_7(sp)
	ld	t1, FRAME_SIZE(sp)
	sd	t1, CTX_8(sp)

	# frame records: the function's caller, then the function
	sd	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_offset ra, -8
	sd	s0, RECORD_RA(sp)
	.cfi_offset s0, -16
	addi	s0, sp, RECORD_RA + 16
	sd	t0, RECORD_PC + 8(sp)	# pc
	sd	s0, RECORD_PC(sp)
	addi	s0, sp, RECORD_PC + 16

	# fentry(context, cookie)
	lui	t1, 0x1
	sd	t1, RUN_CTX(sp)		# cookie
	addi	a0, sp, CTX_COUNT + 8	# context: the first word
	addi	a1, sp, RUN_CTX		# address of the cookie

	call	direct_func

	# no result yet
	sd	zero, CTX_RESULT(sp)

	# fmod_ret(context, cookie)
	lui	t1, 0x70
	sd	t1, RUN_CTX(sp)		# cookie
	addi	a0, sp, CTX_COUNT + 8	# context: the first word
	addi	a1, sp, RUN_CTX		# address of the cookie

	call	callback2

	# anything but 0 is the function's result, and it is not called
	sd	a0, CTX_RESULT(sp)
	bne	zero, a0, .Lprograms_fmod_ret_stack_skipped

	# context -> the function's arguments
	ld	a0, CTX_0(sp)
	ld	a1, CTX_1(sp)
	ld	a2, CTX_2(sp)
	ld	a3, CTX_3(sp)
	ld	a4, CTX_4(sp)
	ld	a5, CTX_5(sp)
	ld	a6, CTX_6(sp)
	ld	a7, CTX_7(sp)

	# the traced function, which returns here
	ld	t1, FRAME_SIZE(sp)
	sd	t1, 0(sp)
	call	traced_function+8

	# the function's results
	sd	a0, CTX_RESULT(sp)
	.globl	programs_fmod_ret_stack_after_call
programs_fmod_ret_stack_after_call:
	nop				# a jump to the epilogue when this is retired
	nop
	nop
	nop
.Lprograms_fmod_ret_stack_skipped:

	# fexit(context, cookie)
	lui	t1, 0x12
	addiw	t1, t1, 837
	sd	t1, RUN_CTX(sp)		# cookie
	addi	a0, sp, CTX_COUNT + 8	# context: the first word
	addi	a1, sp, RUN_CTX		# address of the cookie

	call	callback2
	.globl	programs_fmod_ret_stack_epilogue
programs_fmod_ret_stack_epilogue:

	ld	a0, CTX_RESULT(sp)

	ld	ra, RECORD_RA + 8(sp)	# parent_ip
	.cfi_restore ra
	ld	s0, RECORD_RA(sp)
	.cfi_restore s0
	addi	sp, sp, FRAME_SIZE
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	programs_fmod_ret_stack, . - programs_fmod_ret_stack

	.section .note.GNU-stack, "", @progbits
