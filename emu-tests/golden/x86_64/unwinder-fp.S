/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
# tramptool 0.1.0: x86_64, 7 trampolines, profile linux-6.12, unwinder=fp endbr=on stack-align=8 restore-flags=on direct-way=ret return=ret call-padding=off
# Assemble with: x86_64-linux-gnu-as x86_64.S -o x86_64.o

# void ftrace_stub(void)
#
# A C function that does nothing: what a call slot calls until a callback is attached.
	.text
	.balign	16, 0xcc
	.globl	ftrace_stub
	.type	ftrace_stub, @function
ftrace_stub:
	.cfi_startproc
	endbr64
	ret
	.cfi_endproc
	.size	ftrace_stub, . - ftrace_stub

# void ftrace_stub_graph(void)
#
# A C function that does nothing: what a call slot calls until a callback is attached.
	.text
	.balign	16, 0xcc
	.globl	ftrace_stub_graph
	.type	ftrace_stub_graph, @function
ftrace_stub_graph:
	.cfi_startproc
	endbr64
	ret
	.cfi_endproc
	.size	ftrace_stub_graph, . - ftrace_stub_graph

# void ftrace_stub_direct_tramp(void)
#
# Reached from a patched function entry, which executed CALL: (%rsp) = pc, the address after the site;
#   8(%rsp) = parent_ip, the return address of the traced function.
# Goes straight back into the traced function. Everything live is kept.
	.text
	.balign	16, 0xcc
	.globl	ftrace_stub_direct_tramp
	.type	ftrace_stub_direct_tramp, @function
ftrace_stub_direct_tramp:
	.cfi_startproc
	endbr64
	ret
	.cfi_endproc
	.size	ftrace_stub_direct_tramp, . - ftrace_stub_direct_tramp

	.set	PT_BP, 32		# struct pt_regs, 168 bytes
	.set	PT_R9, 64
	.set	PT_R8, 72
	.set	PT_AX, 80
	.set	PT_CX, 88
	.set	PT_DX, 96
	.set	PT_SI, 104
	.set	PT_DI, 112
	.set	PT_ORIG_AX, 120
	.set	PT_IP, 128
	.set	PT_CS, 136
	.set	PT_SP, 152
	.set	SITE_BP, 200
	.set	RECORD_PARENT, 184
	.set	RECORD_PC, 168
	.set	FRAME_SIZE, 208		# with what lies above it

# void ftrace_caller(void)
#
# Reached from a patched function entry, which executed CALL: (%rsp) = pc, the address after the site;
#   8(%rsp) = parent_ip, the return address of the traced function.
# Calls func(ip, parent_ip, op, fregs), which must use general registers only.
# What func stores to ip and to the slots of rax rcx rdx rbp rsi rdi r8 r9 takes effect.
# A store to orig_ax has no effect here.
# Kept: rax rcx rdx rsi rdi r8 r9, and what C keeps (rbx rbp r12-r15).
# Clobbered: r10 r11. rflags not kept.
# Frame: 208 bytes; sp is 8-byte aligned at the call, if the site's was.
	.text
	.balign	16, 0xcc
	.globl	ftrace_caller
	.type	ftrace_caller, @function
ftrace_caller:
	.cfi_startproc
	endbr64

	sub	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 216

	# the function's state at the site -> fregs
	mov	%rbp, PT_BP(%rsp)
	.cfi_offset %rbp, -184
	mov	%r9, PT_R9(%rsp)
	mov	%r8, PT_R8(%rsp)
	mov	%rax, PT_AX(%rsp)
	mov	%rcx, PT_CX(%rsp)
	mov	%rdx, PT_DX(%rsp)
	mov	%rsi, PT_SI(%rsp)
	mov	%rdi, PT_DI(%rsp)
	mov	%rbp, SITE_BP(%rsp)
	movq	$0, PT_ORIG_AX(%rsp)	# no direct trampoline yet
	mov	FRAME_SIZE(%rsp), %rdi	# pc
	mov	%rdi, PT_IP(%rsp)
	movq	$0, PT_CS(%rsp)
	lea	FRAME_SIZE + 8(%rsp), %rcx	# sp at the site: address of parent_ip
	mov	%rcx, PT_SP(%rsp)

	# frame records: the function's caller, then the function
	mov	FRAME_SIZE + 8(%rsp), %rsi	# parent_ip
	mov	%rbp, RECORD_PARENT(%rsp)
	mov	%rsi, RECORD_PARENT + 8(%rsp)	# parent_ip
	lea	RECORD_PARENT(%rsp), %rbp
	mov	%rbp, RECORD_PC(%rsp)
	mov	%rdi, RECORD_PC + 8(%rsp)	# pc
	lea	RECORD_PC(%rsp), %rbp

	# func(ip, parent_ip, op, fregs)
	sub	$5, %rdi		# ip: first byte of the site
	.globl	ftrace_caller_op_ptr
ftrace_caller_op_ptr:
	mov	function_trace_op(%rip), %rdx	# op
	mov	%rsp, %rcx		# fregs

	.globl	ftrace_call
ftrace_call:
	call	ftrace_stub		# func: these 5 bytes are patched at run time

	# fregs -> the function's state, as func left it
	mov	PT_IP(%rsp), %rax	# pc, as func left it
	mov	%rax, FRAME_SIZE(%rsp)
	mov	PT_BP(%rsp), %rbp
	.cfi_restore %rbp
	mov	PT_R9(%rsp), %r9
	mov	PT_R8(%rsp), %r8
	mov	PT_AX(%rsp), %rax
	mov	PT_CX(%rsp), %rcx
	mov	PT_DX(%rsp), %rdx
	mov	PT_SI(%rsp), %rsi
	mov	PT_DI(%rsp), %rdi

	add	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 8
	.globl	ftrace_caller_end
ftrace_caller_end:
	ret				# into the traced function
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

	.set	PT_R15, 0		# struct pt_regs, 168 bytes
	.set	PT_R14, 8
	.set	PT_R13, 16
	.set	PT_R12, 24
	.set	PT_BP, 32
	.set	PT_BX, 40
	.set	PT_R11, 48
	.set	PT_R10, 56
	.set	PT_R9, 64
	.set	PT_R8, 72
	.set	PT_AX, 80
	.set	PT_CX, 88
	.set	PT_DX, 96
	.set	PT_SI, 104
	.set	PT_DI, 112
	.set	PT_ORIG_AX, 120
	.set	PT_IP, 128
	.set	PT_CS, 136
	.set	PT_FLAGS, 144
	.set	PT_SP, 152
	.set	PT_SS, 160
	.set	SITE_BP, 200
	.set	RECORD_PARENT, 184
	.set	RECORD_PC, 168
	.set	FRAME_SIZE, 208		# with what lies above it

# void ftrace_regs_caller(void)
#
# Reached from a patched function entry, which executed CALL: (%rsp) = pc, the address after the site;
#   8(%rsp) = parent_ip, the return address of the traced function.
# Calls func(ip, parent_ip, op, fregs), which must use general registers only.
# What func stores to ip, flags and to the slots of rax rcx rdx rbx rbp rsi rdi r8-r15 takes effect.
# An address stored to orig_ax sends us to that direct trampoline, as if the site had called it.
# Kept: rax rcx rdx rsi rdi r8-r11, and what C keeps (rbx rbp r12-r15).
# Clobbered: nothing. rflags kept.
# Frame: 216 bytes; sp is 8-byte aligned at the call, if the site's was.
	.text
	.balign	16, 0xcc
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, @function
ftrace_regs_caller:
	.cfi_startproc
	endbr64

	pushfq
	.cfi_def_cfa_offset 16
	sub	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 224

	# the function's state at the site -> fregs
	mov	%r15, PT_R15(%rsp)
	.cfi_offset %r15, -224
	mov	%r14, PT_R14(%rsp)
	.cfi_offset %r14, -216
	mov	%r13, PT_R13(%rsp)
	.cfi_offset %r13, -208
	mov	%r12, PT_R12(%rsp)
	.cfi_offset %r12, -200
	mov	%rbp, PT_BP(%rsp)
	.cfi_offset %rbp, -192
	mov	%rbx, PT_BX(%rsp)
	.cfi_offset %rbx, -184
	mov	%r11, PT_R11(%rsp)
	mov	%r10, PT_R10(%rsp)
	mov	%r9, PT_R9(%rsp)
	mov	%r8, PT_R8(%rsp)
	mov	%rax, PT_AX(%rsp)
	mov	%rcx, PT_CX(%rsp)
	mov	%rdx, PT_DX(%rsp)
	mov	%rsi, PT_SI(%rsp)
	mov	%rdi, PT_DI(%rsp)
	mov	%rbp, SITE_BP(%rsp)
	movq	$0, PT_ORIG_AX(%rsp)	# no direct trampoline yet
	mov	FRAME_SIZE + 8(%rsp), %rdi	# pc
	mov	%rdi, PT_IP(%rsp)
	movq	$16, PT_CS(%rsp)
	mov	FRAME_SIZE(%rsp), %rcx
	mov	%rcx, PT_FLAGS(%rsp)
	lea	FRAME_SIZE + 16(%rsp), %rcx	# sp at the site: address of parent_ip
	mov	%rcx, PT_SP(%rsp)
	movq	$24, PT_SS(%rsp)

	# frame records: the function's caller, then the function
	mov	FRAME_SIZE + 16(%rsp), %rsi	# parent_ip
	mov	%rbp, RECORD_PARENT(%rsp)
	mov	%rsi, RECORD_PARENT + 8(%rsp)	# parent_ip
	lea	RECORD_PARENT(%rsp), %rbp
	mov	%rbp, RECORD_PC(%rsp)
	mov	%rdi, RECORD_PC + 8(%rsp)	# pc
	lea	RECORD_PC(%rsp), %rbp

	# func(ip, parent_ip, op, fregs)
	sub	$5, %rdi		# ip: first byte of the site
	.globl	ftrace_regs_caller_op_ptr
ftrace_regs_caller_op_ptr:
	mov	function_trace_op(%rip), %rdx	# op
	mov	%rsp, %rcx		# fregs
	lea	1(%rsp), %rbp		# marks the frame as pt_regs

	.globl	ftrace_regs_call
ftrace_regs_call:
	call	ftrace_stub		# func: these 5 bytes are patched at run time

	# fregs -> the function's state, as func left it
	mov	PT_FLAGS(%rsp), %rax	# flags
	mov	%rax, FRAME_SIZE(%rsp)
	mov	PT_IP(%rsp), %rax	# pc, as func left it
	mov	%rax, FRAME_SIZE + 8(%rsp)
	mov	PT_ORIG_AX(%rsp), %rax	# direct trampoline, 0 = none
	test	%rax, %rax
	.globl	ftrace_regs_caller_jmp
ftrace_regs_caller_jmp:
	jnz	.Lftrace_regs_caller_direct
	mov	PT_R15(%rsp), %r15
	.cfi_restore %r15
	mov	PT_R14(%rsp), %r14
	.cfi_restore %r14
	mov	PT_R13(%rsp), %r13
	.cfi_restore %r13
	mov	PT_R12(%rsp), %r12
	.cfi_restore %r12
	mov	PT_BP(%rsp), %rbp
	.cfi_restore %rbp
	mov	PT_BX(%rsp), %rbx
	.cfi_restore %rbx
	mov	PT_R11(%rsp), %r11
	mov	PT_R10(%rsp), %r10
	mov	PT_R9(%rsp), %r9
	mov	PT_R8(%rsp), %r8
	mov	PT_AX(%rsp), %rax
	mov	PT_CX(%rsp), %rcx
	mov	PT_DX(%rsp), %rdx
	mov	PT_SI(%rsp), %rsi
	mov	PT_DI(%rsp), %rdi

	add	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 16
	popfq
	.cfi_def_cfa_offset 8
	.globl	ftrace_regs_caller_end
ftrace_regs_caller_end:
	ret				# into the traced function

	# to the direct trampoline, with everything as the site left it
.Lftrace_regs_caller_direct:
	.cfi_def_cfa_offset 224
	.cfi_offset %rbx, -184
	.cfi_offset %rbp, -192
	.cfi_offset %r12, -200
	.cfi_offset %r13, -208
	.cfi_offset %r14, -216
	.cfi_offset %r15, -224
	mov	%rax, FRAME_SIZE(%rsp)	# direct trampoline
	mov	PT_FLAGS(%rsp), %rax
	mov	%rax, FRAME_SIZE - 8(%rsp)	# flags
	mov	PT_R15(%rsp), %r15
	.cfi_restore %r15
	mov	PT_R14(%rsp), %r14
	.cfi_restore %r14
	mov	PT_R13(%rsp), %r13
	.cfi_restore %r13
	mov	PT_R12(%rsp), %r12
	.cfi_restore %r12
	mov	PT_BP(%rsp), %rbp
	.cfi_restore %rbp
	mov	PT_BX(%rsp), %rbx
	.cfi_restore %rbx
	mov	PT_R11(%rsp), %r11
	mov	PT_R10(%rsp), %r10
	mov	PT_R9(%rsp), %r9
	mov	PT_R8(%rsp), %r8
	mov	PT_AX(%rsp), %rax
	mov	PT_CX(%rsp), %rcx
	mov	PT_DX(%rsp), %rdx
	mov	PT_SI(%rsp), %rsi
	mov	PT_DI(%rsp), %rdi
	add	$FRAME_SIZE - 8, %rsp
	.cfi_def_cfa_offset 24
	popfq
	.cfi_def_cfa_offset 16
	call	.Lftrace_regs_caller_rebalance
	.cfi_def_cfa_offset 24
	int3
.Lftrace_regs_caller_rebalance:
	lea	8(%rsp), %rsp
	.cfi_def_cfa_offset 16
	ret				# to the direct trampoline
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller

	.set	PT_BP, 32		# struct pt_regs, 168 bytes
	.set	PT_AX, 80
	.set	PT_DX, 96
	.set	PT_CS, 136
	.set	PT_SP, 152
	.set	FRAME_SIZE, 176		# with what lies above it

# void return_to_handler(void)
#
# Reached by the RET of a traced function whose return address was replaced; its result is in rax,
#   rdx.
# Calls ftrace_return_to_handler(fregs), which returns the address to go on at.
# What a handler stores to the result registers' slots takes effect.
# Kept: rax rdx, and what C keeps (rbx rbp r12-r15).
# Clobbered: rcx rsi rdi r8-r11. rflags not kept.
# Frame: 176 bytes; sp is 8-byte aligned at the call, if the site's was.
	.text
	.balign	16, 0xcc
	.globl	return_to_handler
	.type	return_to_handler, @function
return_to_handler:
	.cfi_startproc
	.cfi_def_cfa_offset 0
	.cfi_undefined 16
	sub	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 176

	# the function's results -> fregs
	mov	%rbp, PT_BP(%rsp)
	.cfi_offset %rbp, -144
	mov	%rax, PT_AX(%rsp)
	mov	%rdx, PT_DX(%rsp)
	movq	$0, PT_CS(%rsp)
	lea	FRAME_SIZE(%rsp), %rcx
	mov	%rcx, PT_SP(%rsp)

	mov	%rsp, %rdi		# fregs

	call	ftrace_return_to_handler

	mov	%rax, %rdi		# where the function returns to

	# fregs -> the function's results, as the handlers left them
	mov	PT_AX(%rsp), %rax
	mov	PT_DX(%rsp), %rdx

	add	$FRAME_SIZE, %rsp
	.cfi_def_cfa_offset 0
	.cfi_restore %rbp
	call	.Lreturn_to_handler_rebalance
	.cfi_def_cfa_offset 8
	int3
.Lreturn_to_handler_rebalance:
	mov	%rdi, 0(%rsp)
	ret				# to the parent
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler

# void my_tramp(void)
#
# Reached from a patched function entry, which executed CALL: (%rsp) = pc, the address after the site;
#   8(%rsp) = parent_ip, the return address of the traced function.
# Calls my_direct_func with the traced function's first 3 argument registers.
# It must use general registers only; its result is ignored.
# Kept: rdx rsi rdi, and what C keeps (rbx rbp r12-r15).
# Clobbered: rax rcx r8-r11. rflags not kept.
# Frame: 32 bytes; sp is 8-byte aligned at the call, if the site's was.
	.text
	.balign	16, 0xcc
	.globl	my_tramp
	.type	my_tramp, @function
my_tramp:
	.cfi_startproc
	endbr64

	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp

	push	%rdx
	.cfi_def_cfa_offset 24
	push	%rsi
	.cfi_def_cfa_offset 32
	push	%rdi
	.cfi_def_cfa_offset 40

	call	my_direct_func

	pop	%rdi
	.cfi_def_cfa_offset 32
	pop	%rsi
	.cfi_def_cfa_offset 24
	pop	%rdx
	.cfi_def_cfa_offset 16

	pop	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	my_tramp, . - my_tramp

	.section .note.GNU-stack, "", @progbits
