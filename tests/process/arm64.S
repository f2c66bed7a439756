/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Registers as the call, the handlers and the probes have them: arm64. Layout: struct state of harness.h. */
#define V 256
#define FLAGS 768
#define CONTROL 776
#define STACK 800

/* Everything as it is here. Nothing but the words below SP changes. */
.macro TELL base
    stp x16, x17, [sp, #-16]!
    adrp x16, \base
    add x16, x16, :lo12:\base
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
    str x\n, [x16, #8 * \n]
    .endr
    ldp x17, x15, [sp], #16
    str x17, [x16, #8 * 16]
    str x15, [x16, #8 * 17]
    mov x17, sp
    str x17, [x16, #8 * 31]
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    str q\n, [x16, #V + 16 * \n]
    .endr
    mrs x17, nzcv
    str x17, [x16, #FLAGS]
    mrs x17, fpcr
    str x17, [x16, #CONTROL]
.endm
.macro VECTORS_FROM list:vararg
    .irp n, \list
    ldr q\n, [x16, #V + 16 * \n]
    .endr
.endm
.macro GENERALS_FROM list:vararg
    .irp n, \list
    ldr x\n, [x16, #8 * \n]
    .endr
.endm
.macro AT base
    adrp x16, \base
    add x16, x16, :lo12:\base
.endm

    .text
    .globl measured_call, measured_return
    .type measured_call, %function
measured_call:
    stp x29, x30, [sp, #-176]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mrs x0, fpcr
    str x0, [sp, #160]
    mov x0, sp
    adrp x16, kept_sp
    str x0, [x16, :lo12:kept_sp]
    AT call_in
    ldr x0, [x16, #FLAGS]
    msr nzcv, x0
    ldr x0, [x16, #CONTROL]
    msr fpcr, x0
    VECTORS_FROM 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    ldr x0, [x16, #8 * 31]
    mov sp, x0
    GENERALS_FROM 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
    ldr x16, [x16, #8 * 16]
    blr x16
measured_return:
    TELL call_out
    adrp x16, kept_sp
    ldr x0, [x16, :lo12:kept_sp]
    mov sp, x0
    ldr x0, [sp, #160]
    msr fpcr, x0
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp x29, x30, [sp], #176
    ret
    .size measured_call, . - measured_call

/* x18 is the platform's under Linux's profiles, and scratch in user space. x16 points to the state. */
.macro PLATFORM_FROM
    adrp x17, x18_is_scratch
    ldr w17, [x17, :lo12:x18_is_scratch]
    cbz w17, 1f
    GENERALS_FROM 18
1:
.endm
/* Of v8 to v15 the lower half is kept. */
.macro UPPER n
    mov v\n\().d[1], x0
.endm
/* A handler tells what it finds, does what handled() does, and leaves garbage wherever it may. */
.macro HANDLER name, slot, vectors
    .globl \name
    .type \name, %function
\name:
    hint #34
    TELL handler_state
    stp x29, x30, [sp, #-16]!
    mov x29, sp
    mov w0, #\slot
    bl handled
    ldp x29, x30, [sp], #16
    AT trash_state
    .if \vectors
    VECTORS_FROM 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    .irp n, 8, 9, 10, 11, 12, 13, 14, 15
    UPPER \n
    .endr
    .endif
    ldr x1, [x16, #FLAGS]
    msr nzcv, x1
    PLATFORM_FROM
    GENERALS_FROM 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 16
    ret
    .size \name, . - \name
.endm
#include "handlers.S"

/* The body of a traced function that tells what it finds, and leaves garbage around its result. */
probe_body:
    TELL probe_state
    .set n, 0
    .rept 24
    ldr x17, [sp, #8 * n]
    str x17, [x16, #STACK + 8 * n]
    .set n, n + 1
    .endr
    AT probe_calls
    ldr w17, [x16]
    add w17, w17, #1
    str w17, [x16]
    AT give_state
    ldr x0, [x16, #FLAGS]
    msr nzcv, x0
    PLATFORM_FROM
    VECTORS_FROM 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    GENERALS_FROM 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 16
    ret

.macro PROBE name, pad
    .globl \name
    .type \name, %function
    .balign 16
    nop
    nop
    .balign 8
\name:
    .if \pad
    hint #34
    .endif
    nop
    nop
    b probe_body
    .size \name, . - \name
.endm
    PROBE redirected, 1
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
