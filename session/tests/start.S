// SPDX-License-Identifier: MIT OR Apache-2.0
// Where programs of arm64 begin that have landing pads throughout: the files of toolchains may have none.
        .globl  _start
        .type   _start, %function
_start: bti     jc
        mov     x29, #0
        mov     x30, #0
        mov     x5, x0
        ldr     x1, [sp]
        add     x2, sp, #8
        mov     x6, sp
        adrp    x0, main
        add     x0, x0, :lo12:main
        mov     x3, #0
        mov     x4, #0
        bl      __libc_start_main
        .size   _start, . - _start
        // GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI and PAC.
        .section .note.gnu.property, "a", %note
        .balign 8
        .word   4, 16, 5
        .asciz  "GNU"
        .word   0xc0000000, 4, 3, 0
        .section .note.GNU-stack, "", %progbits
