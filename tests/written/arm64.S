// SPDX-License-Identifier: MIT OR Apache-2.0
// A trampoline in the form in which Linux 7.3 writes them for programs: the site calls, with its parent in x9, and the function is gone
// to by RET. Addresses are a kernel's. From sp: the run context, the number of words, two words, the result, x19 and x20.
.set base, 0xffff800080000000
.set at.traced, 0xffff800080200000
.set at.__bpf_tramp_enter, 0xffff800080300000
.set at.__bpf_tramp_exit, 0xffff800080300100
.set at.__bpf_prog_enter, 0xffff800080300200
.set at.__bpf_prog_exit, 0xffff800080300300
.set at.__bpf_prog_enter_sleepable, 0xffff800080300400
.set at.__bpf_prog_exit_sleepable, 0xffff800080300500
.set at.bpf_prog_1, 0xffff800080400000
.set at.bpf_prog_2, 0xffff800080400100
.set image_of, 0xffff000012340000
.set first, 0xffff800090123000
.set second, 0xffff800090456000
.globl base, image_of, first, second, skip_0, skipped_0, skip_1, skipped_1, bpf_trampoline_6442450947

.macro number reg, value
        movz    \reg, #(\value & 0xffff)
        movk    \reg, #(\value >> 16 & 0xffff), lsl #16
        movk    \reg, #(\value >> 32 & 0xffff), lsl #32
        movk    \reg, #(\value >> 48 & 0xffff), lsl #48
.endm

.text
bpf_trampoline_6442450947:
        stp     x29, x9, [sp, #-16]!
        mov     x29, sp
        stp     x29, x30, [sp, #-16]!
        mov     x29, sp
        sub     sp, sp, #64
        mov     x10, #2
        str     x10, [sp, #16]
        str     x0, [sp, #24]
        str     x1, [sp, #32]
        str     x19, [sp, #48]
        str     x20, [sp, #56]
        number  x0, image_of
        bl      __bpf_tramp_enter
skip_0: nop
        number  x10, 0x123456789abcdef0
        str     x10, [sp]
        number  x19, first
        mov     x0, x19
        add     x1, sp, #0
        bl      __bpf_prog_enter
        mov     x20, x0
        cbz     x0, 1f
        add     x0, sp, #24
        bl      bpf_prog_1
1:      mov     x0, x19
        mov     x1, x20
        add     x2, sp, #0
        bl      __bpf_prog_exit
skipped_0:
        ldr     x0, [sp, #24]
        ldr     x1, [sp, #32]
        ldr     x10, [x29, #8]
        adr     x30, 2f
        ret     x10
2:      str     x0, [sp, #40]
skip_1: nop
        mov     x10, #7
        str     x10, [sp]
        number  x19, second
        mov     x0, x19
        add     x1, sp, #0
        bl      __bpf_prog_enter_sleepable
        mov     x20, x0
        cbz     x0, 3f
        add     x0, sp, #24
        bl      bpf_prog_2
3:      mov     x0, x19
        mov     x1, x20
        add     x2, sp, #0
        bl      __bpf_prog_exit_sleepable
skipped_1:
        number  x0, image_of
        bl      __bpf_tramp_exit
        ldr     x19, [sp, #48]
        ldr     x20, [sp, #56]
        ldr     x0, [sp, #40]
        mov     sp, x29
        ldp     x29, x30, [sp], #16
        ldp     x29, x9, [sp], #16
        mov     x30, x9
        ret     x9
