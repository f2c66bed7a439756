/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Registers as the call, the handlers and the probes have them: x86_64. Layout: struct state of harness.h. */
#define V 256
/* The upper halves of YMM registers. */
#define UPPER 512
#define FLAGS 768
#define CONTROL 776
#define X87 784
#define STACK 800

.macro GENERALS do, base
    \do \base, rax, 0
    \do \base, rcx, 1
    \do \base, rdx, 2
    \do \base, rbx, 3
    \do \base, rbp, 5
    \do \base, rsi, 6
    \do \base, rdi, 7
    .irp n, 8, 9, 10, 11, 12, 13, 14, 15
    \do \base, r\n, \n
    .endr
.endm
.macro SCRATCHES do, base
    \do \base, rax, 0
    \do \base, rcx, 1
    \do \base, rdx, 2
    \do \base, rsi, 6
    \do \base, rdi, 7
    .irp n, 8, 9, 10, 11
    \do \base, r\n, \n
    .endr
.endm
.macro STORE base, reg, n
    mov %\reg, \base + 8 * \n(%rip)
.endm
.macro LOAD base, reg, n
    mov \base + 8 * \n(%rip), %\reg
.endm
/* Everything as it is here. Nothing changes but the words below SP, and the flags once they were told. */
.macro TELL base
    GENERALS STORE, \base
    mov %rsp, \base + 32(%rip)
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups %xmm\n, \base + V + 16 * \n(%rip)
    .endr
    pushfq
    popq \base + FLAGS(%rip)
    stmxcsr \base + CONTROL(%rip)
    fnstcw \base + X87(%rip)
    cmpl $0, has_upper(%rip)
    je 1f
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vextractf128 $1, %ymm\n, \base + UPPER + 16 * \n(%rip)
    .endr
1:
.endm
.macro FLAGS_FROM base
    pushq \base + FLAGS(%rip)
    popfq
.endm
.macro VECTORS_FROM base
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups \base + V + 16 * \n(%rip), %xmm\n
    .endr
    cmpl $0, has_upper(%rip)
    je 1f
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vinsertf128 $1, \base + UPPER + 16 * \n(%rip), %ymm\n, %ymm\n
    .endr
1:
.endm

    .text
    .globl measured_call, measured_return
    .type measured_call, @function
measured_call:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    sub $8, %rsp
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    mov %rsp, kept_sp(%rip)
    ldmxcsr call_in + CONTROL(%rip)
    fldcw call_in + X87(%rip)
    VECTORS_FROM call_in
    mov call_in + 32(%rip), %rsp
    FLAGS_FROM call_in
    GENERALS LOAD, call_in
    call *call_target(%rip)
measured_return:
    TELL call_out
    cld
    mov kept_sp(%rip), %rsp
    ldmxcsr (%rsp)
    fldcw 4(%rsp)
    add $8, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
    .size measured_call, . - measured_call

/* A handler tells what it finds, does what handled() does, and leaves garbage wherever it may. */
.macro HANDLER name, slot, vectors
    .globl \name
    .type \name, @function
\name:
    endbr64
    TELL handler_state
    push %rbp
    mov %rsp, %rbp
    and $-16, %rsp
    cld
    mov $\slot, %edi
    call handled
    mov %rbp, %rsp
    pop %rbp
    mov %rax, result(%rip)
    .if \vectors
    VECTORS_FROM trash_state
    .endif
    FLAGS_FROM trash_state
    SCRATCHES LOAD, trash_state
    mov result(%rip), %rax
    ret
    .size \name, . - \name
.endm
#include "handlers.S"

/* The body of a traced function that tells what it finds, and leaves garbage around its result. */
probe_body:
    TELL probe_state
    lea 8(%rsp), %rax
    n = 0
    .rept 24
    mov 8 * n(%rax), %rcx
    mov %rcx, probe_state + STACK + 8 * n(%rip)
    n = n + 1
    .endr
    incl probe_calls(%rip)
    VECTORS_FROM give_state
    FLAGS_FROM give_state
    SCRATCHES LOAD, give_state
    ret

.macro PROBE name, pad
    .globl \name
    .type \name, @function
    .balign 16
\name:
    .if \pad
    endbr64
    .endif
    .byte 0x0f, 0x1f, 0x44, 0, 0
    jmp probe_body
    .size \name, . - \name
.endm
    PROBE redirected, 0
#include "probes.S"

/* CONFIG_MITIGATION_RETHUNK's name for a return. */
    .globl __x86_return_thunk, __fentry__
    .type __x86_return_thunk, @function
    .type __fentry__, @function
__x86_return_thunk:
__fentry__:
    ret

    .bss
    .balign 16
    .globl call_in, call_out, handler_state, probe_state, give_state, trash_state, call_target, probe_calls
    .irp one, call_in, call_out, handler_state, probe_state, give_state, trash_state
\one:
    .skip 1024
    .endr
call_target: .skip 8
kept_sp: .skip 8
result: .skip 8
probe_calls: .skip 8
    .section .note.GNU-stack, "", @progbits
