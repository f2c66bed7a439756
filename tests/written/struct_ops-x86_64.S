// SPDX-License-Identifier: MIT OR Apache-2.0
// A trampoline in the form in which Linux 7.3 writes them for struct_ops, but for the result, which is 0 until the program makes one.
// Below rbp: result, two words, their number, rbx, and the run context.
.set base, 0xffffffffc0200000
.set at.__bpf_prog_enter, 0xffffffff81300200
.set at.__bpf_prog_exit, 0xffffffff81300300
.set at.bpf_prog_1, 0xffffffffc0300000
.set at.__x86_return_thunk, 0xffffffff81300600
.set first, 0xffffc90000123000
.globl base, first, bpf_trampoline_6442450947

.text
bpf_trampoline_6442450947:
        endbr64
        push    %rbp
        mov     %rsp, %rbp
        sub     $0x38, %rsp
        mov     %rbx, -0x28(%rbp)
        movq    $2, -0x20(%rbp)
        mov     %rdi, -0x18(%rbp)
        mov     %rsi, -0x10(%rbp)
        movq    $0, -8(%rbp)
        movq    $7, -0x38(%rbp)
        movabs  $first, %rdi
        lea     -0x38(%rbp), %rsi
        call    __bpf_prog_enter
        mov     %rax, %rbx
        test    %rax, %rax
        jz      1f
        lea     -0x18(%rbp), %rdi
        call    bpf_prog_1
        mov     %rax, -8(%rbp)
1:      movabs  $first, %rdi
        mov     %rbx, %rsi
        lea     -0x38(%rbp), %rdx
        call    __bpf_prog_exit
        mov     -8(%rbp), %rax
        mov     -0x28(%rbp), %rbx
        leave
        jmp     __x86_return_thunk
