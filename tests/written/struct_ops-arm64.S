// SPDX-License-Identifier: MIT OR Apache-2.0
// A trampoline in the form in which Linux 7.3 writes them for struct_ops, but for the result, which is 0 until the program makes one.
// From sp: the run context, the number of words, two words, the result, x19 and x20.
.set base, 0xffff800080000000
.set at.__bpf_prog_enter, 0xffff800080300200
.set at.__bpf_prog_exit, 0xffff800080300300
.set at.bpf_prog_1, 0xffff800080400000
.set first, 0xffff800090123000
.globl base, first, bpf_trampoline_6442450947

.text
bpf_trampoline_6442450947:
        bti     c
        stp     x29, x30, [sp, #-16]!
        mov     x29, sp
        sub     sp, sp, #64
        mov     x10, #2
        str     x10, [sp, #16]
        str     x0, [sp, #24]
        str     x1, [sp, #32]
        str     x19, [sp, #48]
        str     x20, [sp, #56]
        str     xzr, [sp, #40]
        mov     x10, #7
        str     x10, [sp]
        movz    x19, #(first & 0xffff)
        movk    x19, #(first >> 16 & 0xffff), lsl #16
        movk    x19, #(first >> 32 & 0xffff), lsl #32
        movk    x19, #(first >> 48 & 0xffff), lsl #48
        mov     x0, x19
        add     x1, sp, #0
        bl      __bpf_prog_enter
        mov     x20, x0
        cbz     x0, 1f
        add     x0, sp, #24
        bl      bpf_prog_1
        str     x0, [sp, #40]
1:      mov     x0, x19
        mov     x1, x20
        add     x2, sp, #0
        bl      __bpf_prog_exit
        ldr     x19, [sp, #48]
        ldr     x20, [sp, #56]
        ldr     x0, [sp, #40]
        mov     sp, x29
        ldp     x29, x30, [sp], #16
        ret
