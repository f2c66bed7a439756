// SPDX-License-Identifier: MIT OR Apache-2.0
// A trampoline in the form in which Linux 7.3 writes them for programs: the site calls with its return address in t0. From sp: the
// run context, the number of words, two words, the result, s1.
.option norvc
.option norelax
.set base, 0xffffffff80200000
.set at.traced, 0xffffffff80400000
.set at.__bpf_tramp_enter, 0xffffffff80500000
.set at.__bpf_tramp_exit, 0xffffffff80500100
.set at.__bpf_prog_enter, 0xffffffff80500200
.set at.__bpf_prog_exit, 0xffffffff80500300
.set at.__bpf_prog_enter_sleepable, 0xffffffff80500400
.set at.__bpf_prog_exit_sleepable, 0xffffffff80500500
.set at.bpf_prog_1, 0xffffffff80600000
.set at.bpf_prog_2, 0xffffffff80600100
.set image_of, 0xffffffd812340000
.set first, 0xffffffc800123000
.set second, 0xffffffc800456000
.globl base, image_of, first, second, skip_0, skipped_0, skip_1, skipped_1, bpf_trampoline_6442450947

.text
bpf_trampoline_6442450947:
        addi    sp, sp, -16
        sd      ra, 8(sp)
        sd      s0, 0(sp)
        addi    s0, sp, 16
        addi    sp, sp, -80
        sd      t0, 72(sp)
        sd      s0, 64(sp)
        addi    s0, sp, 80
        li      t1, 2
        sd      t1, 16(sp)
        sd      a0, 24(sp)
        sd      a1, 32(sp)
        sd      s1, 48(sp)
        li      a0, image_of
        call    __bpf_tramp_enter
skip_0: nop
        li      t1, 0x123456789abcdef0
        sd      t1, 0(sp)
        li      a0, first
        addi    a1, sp, 0
        call    __bpf_prog_enter
        mv      s1, a0
        beqz    a0, 1f
        addi    a0, sp, 24
        call    bpf_prog_1
1:      li      a0, first
        mv      a1, s1
        addi    a2, sp, 0
        call    __bpf_prog_exit
skipped_0:
        ld      a0, 24(sp)
        ld      a1, 32(sp)
        call    traced + 8
        sd      a0, 40(sp)
skip_1: nop
        li      t1, 7
        sd      t1, 0(sp)
        li      a0, second
        addi    a1, sp, 0
        call    __bpf_prog_enter_sleepable
        mv      s1, a0
        beqz    a0, 2f
        addi    a0, sp, 24
        call    bpf_prog_2
2:      li      a0, second
        mv      a1, s1
        addi    a2, sp, 0
        call    __bpf_prog_exit_sleepable
skipped_1:
        li      a0, image_of
        call    __bpf_tramp_exit
        ld      a0, 40(sp)
        ld      s1, 48(sp)
        ld      s0, 64(sp)
        addi    sp, sp, 80
        ld      s0, 0(sp)
        ld      ra, 8(sp)
        addi    sp, sp, 16
        ret
