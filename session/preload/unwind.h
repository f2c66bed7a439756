// SPDX-License-Identifier: MIT OR Apache-2.0
// A frame of a trampoline, for libgcc's unwinder (DWARF 5, section 6.4; LSB, "Exception Frames"). It has no room on the stack: the
// caller's return address is on the thread's shadow stack, in the topmost entry with this stack pointer.
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
enum { DWARF_SP = 7, DWARF_RA = 16 };
#elif defined(__aarch64__)
enum { DWARF_SP = 31, DWARF_RA = 30 };
#else
enum { DWARF_SP = 2, DWARF_RA = 1 };
#endif

enum { DW_CFA_def_cfa = 0x0c, DW_CFA_val_offset = 0x14, DW_CFA_val_expression = 0x16 };
enum {
    DW_OP_deref = 0x06, DW_OP_const8u = 0x0e, DW_OP_dup = 0x12, DW_OP_drop = 0x13, DW_OP_pick = 0x15, DW_OP_minus = 0x1c,
    DW_OP_plus_uconst = 0x23, DW_OP_bra = 0x28, DW_OP_ne = 0x2e, DW_OP_skip = 0x2f, DW_OP_lit0 = 0x30,
};

#define EIGHT_BYTES 0, 0, 0, 0, 0, 0, 0, 0
#define TO(distance) (uint8_t)(distance), (uint8_t)((distance) >> 8)

struct frame {
    uint32_t cie_bytes, cie_id;
    uint8_t version, augmentation, code_align, data_align, ra, cie_pad[3];
    uint32_t fde_bytes, to_cie;
    uint64_t pc, range;
    uint8_t rules[64];
};

// Where `rules` has the end of the thread's shadow stack, and the first bytes of the code that trampolines return to.
enum { TOP_AT = 13, CODE_AT = 45 };

// The CFA is 8 above the stack pointer. Both frames would have the same one otherwise, and the unwinder tells frames by theirs.
static const struct frame frame = {
    .cie_bytes = 12, .version = 1, .code_align = 1, .data_align = -8 & 0x7f, .ra = DWARF_RA,
    .fde_bytes = sizeof frame - 20, .to_cie = 20, .range = 1,
    .rules = {
        DW_CFA_def_cfa, DWARF_SP, 8, DW_CFA_val_offset, DWARF_SP, 1, DW_CFA_val_expression, DWARF_RA, 52,
        // sp, and the entry above the topmost. sp twice, because libgcc's DW_OP_pick refuses the lowest value.
        DW_OP_lit0 + 8, DW_OP_minus, DW_OP_dup, DW_OP_const8u, EIGHT_BYTES,
        // The next entry. That at the bottom has 0 as its stack pointer: there the stack ends.
        DW_OP_lit0 + 16, DW_OP_minus, DW_OP_dup, DW_OP_plus_uconst, 8, DW_OP_deref,
        DW_OP_dup, DW_OP_bra, TO(3), DW_OP_skip, TO(27),
        DW_OP_pick, 2, DW_OP_ne, DW_OP_bra, TO(-19),
        // A function that ends with a jump to another one leaves it a trampoline as the place to return to. Its own caller's is below.
        DW_OP_dup, DW_OP_deref, DW_OP_dup, DW_OP_deref, DW_OP_const8u, EIGHT_BYTES, DW_OP_ne, DW_OP_bra, TO(4),
        DW_OP_drop, DW_OP_skip, TO(-40),
    },
};
_Static_assert(sizeof frame == 104, "rules have no gap behind what comes before");

// Describe the frame of the trampoline that is returned to behind `pc`. Entries of the shadow stack end at `top`.
static inline const void *describe(struct frame *at, uint64_t pc, uint64_t top) {
    *at = frame;
    at->pc = pc;
    memcpy(at->rules + TOP_AT, &top, 8);
    memcpy(at->rules + CODE_AT, (const void *)(pc + 1), 8);
    return &at->fde_bytes;
}
