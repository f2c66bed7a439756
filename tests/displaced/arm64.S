// SPDX-License-Identifier: MIT OR Apache-2.0
// A detour: a branch in the middle of a function leads here. It tells a C function of every register, does what stood in the branch's
// place, and goes on behind that. Addresses are a kernel's.
.set base, 0xffff800081200000
.set at.site, 0xffff800080012340
.set at.handler, 0xffff800080300000
.set at.counter, 0xffff800082000010
.set op, 0xffff000012345678
.globl base, op, detour, copies

.section .site, "ax"
        adrp    x1, counter
        ldr     w2, [x1, #:lo12:counter]
        stp     x29, x30, [sp, #-16]!
        adcs    x0, x0, x2
        str     x0, [x3, #8]!
.set length, . - .site

.text
detour: sub     sp, sp, #256
        .irp reg, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
        str     x\reg, [sp, #8 * \reg]
        .endr
        mrs     x2, nzcv
        str     x2, [sp, #248]
        movz    x0, #0x5678
        movk    x0, #0x1234, lsl #16
        movk    x0, #0xffff, lsl #48
        mov     x1, sp
        bl      handler
        ldr     x2, [sp, #248]
        msr     nzcv, x2
        // x18 is the platform's, and stays as the function left it.
        .irp reg, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
        ldr     x\reg, [sp, #8 * \reg]
        .endr
        add     sp, sp, #256
copies: adrp    x1, counter
        ldr     w2, [x1, #:lo12:counter]
        stp     x29, x30, [sp, #-16]!
        adcs    x0, x0, x2
        str     x0, [x3, #8]!
        b       site + length
