// SPDX-License-Identifier: MIT OR Apache-2.0
// A trampoline in the form in which Linux 7.3 writes them for struct_ops, but for the result, which is 0 until the program makes one:
// a5 has all of it, a0 what the psABI makes of an int. From sp: the run context, the number of words, two words, the result, s1.
.option norvc
.option norelax
.set base, 0xffffffff80200000
.set at.__bpf_prog_enter, 0xffffffff80500200
.set at.__bpf_prog_exit, 0xffffffff80500300
.set at.bpf_prog_1, 0xffffffff80600000
.set first, 0xffffffc800123000
.globl base, first, bpf_trampoline_6442450947

.text
bpf_trampoline_6442450947:
        addi    sp, sp, -80
        sd      ra, 72(sp)
        sd      s0, 64(sp)
        addi    s0, sp, 80
        li      t1, 2
        sd      t1, 16(sp)
        sd      a0, 24(sp)
        sd      a1, 32(sp)
        sd      s1, 48(sp)
        sd      zero, 40(sp)
        li      t1, 7
        sd      t1, 0(sp)
        li      a0, first
        addi    a1, sp, 0
        call    __bpf_prog_enter
        mv      s1, a0
        beqz    a0, 1f
        addi    a0, sp, 24
        call    bpf_prog_1
        sd      a5, 40(sp)
1:      li      a0, first
        mv      a1, s1
        addi    a2, sp, 0
        call    __bpf_prog_exit
        ld      a0, 40(sp)
        sext.w  a0, a0
        ld      s1, 48(sp)
        ld      ra, 72(sp)
        ld      s0, 64(sp)
        addi    sp, sp, 80
        ret
