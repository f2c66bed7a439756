# SPDX-License-Identifier: MIT OR Apache-2.0
# The trampoline of a kretprobe: every register is saved, and given back as my_c left it. Unwinders find its own address
# where the return address was.
    .section .rodata
    .balign 8
my_self:
    .quad   my_rethook
    .text
    .type   my_rethook, @function
my_rethook:
    push    my_self(%rip)
    pushf
    .irp    reg, rdi, rsi, rdx, rcx, rax, r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15
    push    %\reg
    .endr
    mov     %rsp, %rdi
    call    my_c
    .irp    reg, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
    pop     %\reg
    .endr
    popf
    ret
    .size   my_rethook, . - my_rethook
