/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Registers as the call, the handlers and the probes have them: riscv64. Layout: struct state of harness.h. */
#define V 256
#define CONTROL 776
#define STACK 800

/* Everything as it is here. Nothing but the words below SP changes. */
.macro TELL base
    addi sp, sp, -16
    sd x31, 0(sp)
    la x31, \base
    .irp n, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
    sd x\n, 8 * \n(x31)
    .endr
    ld x30, 0(sp)
    sd x30, 8 * 31(x31)
    addi sp, sp, 16
    sd sp, 8 * 2(x31)
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    fsd f\n, V + 16 * \n(x31)
    .endr
    frcsr x30
    sd x30, CONTROL(x31)
.endm
.macro VECTORS_FROM list:vararg
    .irp n, \list
    fld f\n, V + 16 * \n(x31)
    .endr
.endm
.macro GENERALS_FROM list:vararg
    .irp n, \list
    ld x\n, 8 * \n(x31)
    .endr
.endm

    .text
    .globl measured_call, measured_return
    .type measured_call, %function
measured_call:
    addi sp, sp, -224
    sd ra, 0(sp)
    .irp n, 8, 9
    sd x\n, 8 * (\n - 7)(sp)
    fsd f\n, 104 + 8 * (\n - 8)(sp)
    .endr
    .irp n, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27
    sd x\n, 8 * (\n - 15)(sp)
    fsd f\n, 104 + 8 * (\n - 16)(sp)
    .endr
    frcsr t0
    sd t0, 208(sp)
    la t0, kept_sp
    sd sp, 0(t0)
    la x31, call_in
    ld t0, CONTROL(x31)
    fscsr t0
    VECTORS_FROM 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    GENERALS_FROM 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
    ld x31, 8 * 31(x31)
    jalr x31
measured_return:
    TELL call_out
    la t0, kept_sp
    ld sp, 0(t0)
    ld t0, 208(sp)
    fscsr t0
    .irp n, 8, 9
    ld x\n, 8 * (\n - 7)(sp)
    fld f\n, 104 + 8 * (\n - 8)(sp)
    .endr
    .irp n, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27
    ld x\n, 8 * (\n - 15)(sp)
    fld f\n, 104 + 8 * (\n - 16)(sp)
    .endr
    ld ra, 0(sp)
    addi sp, sp, 224
    ret
    .size measured_call, . - measured_call

/* A handler tells what it finds, does what handled() does, and leaves garbage wherever it may. */
.macro HANDLER name, slot, vectors
    .globl \name
    .type \name, %function
\name:
    TELL handler_state
    addi sp, sp, -16
    sd ra, 0(sp)
    li a0, \slot
    call handled
    ld ra, 0(sp)
    addi sp, sp, 16
    la x31, trash_state
    .if \vectors
    VECTORS_FROM 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
    .endif
    GENERALS_FROM 5, 6, 7, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
    ret
    .size \name, . - \name
.endm
#include "handlers.S"

/* The body of a traced function that tells what it finds, and leaves garbage around its result. */
probe_body:
    TELL probe_state
    .set n, 0
    .rept 24
    ld x30, 8 * n(sp)
    sd x30, STACK + 8 * n(x31)
    .set n, n + 1
    .endr
    la x31, probe_calls
    lw x30, 0(x31)
    addi x30, x30, 1
    sw x30, 0(x31)
    la x31, give_state
    VECTORS_FROM 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
    GENERALS_FROM 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
    ret

.macro PROBE name, pad
    .globl \name
    .type \name, %function
    .balign 8
\name:
    .option push
    .option norvc
    nop
    nop
    .option pop
    j probe_body
    .size \name, . - \name
.endm
    PROBE redirected, 0
#include "probes.S"

    .bss
    .balign 16
    .globl call_in, call_out, handler_state, probe_state, give_state, trash_state, call_target, probe_calls
    .irp one, call_in, call_out, handler_state, probe_state, give_state, trash_state
\one:
    .skip 1024
    .endr
call_target: .skip 8
kept_sp: .skip 8
probe_calls: .skip 8
    .section .note.GNU-stack, "", %progbits
