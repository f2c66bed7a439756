// SPDX-License-Identifier: MIT OR Apache-2.0
// A trampoline in the form in which Linux 7.3 writes them for programs: the site jumps here, and the function is called. Addresses are
// a kernel's. Below rbp: result, two words, their number, rbx, and the run context.
.set base, 0xffffffffc0200000
.set at.traced, 0xffffffff81200000
.set at.__bpf_tramp_enter, 0xffffffff81300000
.set at.__bpf_tramp_exit, 0xffffffff81300100
.set at.__bpf_prog_enter, 0xffffffff81300200
.set at.__bpf_prog_exit, 0xffffffff81300300
.set at.__bpf_prog_enter_sleepable, 0xffffffff81300400
.set at.__bpf_prog_exit_sleepable, 0xffffffff81300500
.set at.bpf_prog_1, 0xffffffffc0300000
.set at.bpf_prog_2, 0xffffffffc0300100
.set image_of, 0xffff888012340000
.set first, 0xffffc90000123000
.set second, 0xffffc90000456000
.globl base, image_of, first, second, skip_0, skipped_0, skip_1, skipped_1, bpf_trampoline_6442450947

.text
bpf_trampoline_6442450947:
        push    %rbp
        mov     %rsp, %rbp
        sub     $0x38, %rsp
        mov     %rbx, -0x28(%rbp)
        movq    $2, -0x20(%rbp)
        mov     %rdi, -0x18(%rbp)
        mov     %rsi, -0x10(%rbp)
        movabs  $image_of, %rdi
        call    __bpf_tramp_enter
skip_0: .byte   0x0f, 0x1f, 0x44, 0x00, 0x00
        movabs  $0x123456789abcdef0, %rdi
        mov     %rdi, -0x38(%rbp)
        movabs  $first, %rdi
        lea     -0x38(%rbp), %rsi
        call    __bpf_prog_enter
        mov     %rax, %rbx
        test    %rax, %rax
        jz      1f
        lea     -0x18(%rbp), %rdi
        call    bpf_prog_1
1:      movabs  $first, %rdi
        mov     %rbx, %rsi
        lea     -0x38(%rbp), %rdx
        call    __bpf_prog_exit
skipped_0:
        mov     -0x18(%rbp), %rdi
        mov     -0x10(%rbp), %rsi
        call    traced + 5
        mov     %rax, -8(%rbp)
skip_1: .byte   0x0f, 0x1f, 0x44, 0x00, 0x00
        movq    $7, -0x38(%rbp)
        movabs  $second, %rdi
        lea     -0x38(%rbp), %rsi
        call    __bpf_prog_enter_sleepable
        mov     %rax, %rbx
        test    %rax, %rax
        jz      2f
        lea     -0x18(%rbp), %rdi
        call    bpf_prog_2
2:      movabs  $second, %rdi
        mov     %rbx, %rsi
        lea     -0x38(%rbp), %rdx
        call    __bpf_prog_exit_sleepable
skipped_1:
        movabs  $image_of, %rdi
        call    __bpf_tramp_exit
        mov     -8(%rbp), %rax
        mov     -0x28(%rbp), %rbx
        leave
        ret
