// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies of templates. All that is known of them is in their tables of fix-ups, and in the psABI's formulas for the types of
// relocation that those name.
#include <elf.h>
#include <stdint.h>
#include <string.h>

static void bits(uint32_t *insn, uint32_t mask, uint32_t value) { *insn = (*insn & ~mask) | (value & mask); }

// Put what belongs there into a field. 0 if it does not fit.
static int put(uint8_t *field, uint32_t type, int64_t value, int64_t p) {
    uint32_t insn[2];
    int64_t distance = value - p, pages __attribute__((unused)) = (value >> 12) - (p >> 12);
    int wide = 0;
    memcpy(insn, field, 4);
    switch (type) {
#ifdef __x86_64__
    case R_X86_64_64: memcpy(field, &value, 8); return 1;
    case R_X86_64_TPOFF32:
    case R_X86_64_32S: insn[0] = value; if (value != (int32_t)value) return 0; break;
    case R_X86_64_PLT32:
    case R_X86_64_PC32: insn[0] = distance; if (distance != (int32_t)distance) return 0; break;
#elif defined(__aarch64__)
    case R_AARCH64_ABS64: memcpy(field, &value, 8); return 1;
    case R_AARCH64_PREL32: insn[0] = distance; if (distance != (int32_t)distance) return 0; break;
    case R_AARCH64_MOVW_UABS_G0_NC: bits(insn, 0xffffu << 5, value << 5); break;
    case R_AARCH64_MOVW_UABS_G1: bits(insn, 0xffffu << 5, value >> 16 << 5); if (value >> 32) return 0; break;
    case R_AARCH64_JUMP26:
    case R_AARCH64_CALL26: bits(insn, 0x3ffffff, distance >> 2); if (distance >> 27 != distance >> 63) return 0; break;
    case R_AARCH64_ADR_PREL_PG_HI21: bits(insn, 3u << 29 | 0x7ffffu << 5, pages << 29 | (pages >> 2 & 0x7ffff) << 5); break;
    case R_AARCH64_LDST64_ABS_LO12_NC: bits(insn, 0xfffu << 10, (value & 0xfff) >> 3 << 10); break;
    case R_AARCH64_TLSLE_ADD_TPREL_HI12: bits(insn, 0xfffu << 10, value >> 12 << 10); if (value >> 24) return 0; break;
    case R_AARCH64_TLSLE_ADD_TPREL_LO12_NC: bits(insn, 0xfffu << 10, value << 10); break;
#else
    case R_RISCV_64: memcpy(field, &value, 8); return 1;
    case R_RISCV_32_PCREL: insn[0] = distance; if (distance != (int32_t)distance) return 0; break;
    case R_RISCV_TPREL_HI20:
    case R_RISCV_HI20: bits(insn, ~0xfffu, value + 0x800); break;
    case R_RISCV_TPREL_LO12_I:
    case R_RISCV_LO12_I: bits(insn, 0xfffu << 20, value << 20); break;
    case R_RISCV_PCREL_HI20: bits(insn, ~0xfffu, distance + 0x800); break;
    case R_RISCV_PCREL_LO12_I: bits(insn, 0xfffu << 20, distance << 20); break;
    case R_RISCV_CALL_PLT:
        wide = 1;
        memcpy(insn, field, 8);
        bits(insn, ~0xfffu, distance + 0x800);
        bits(insn + 1, 0xfffu << 20, distance << 20);
        break;
#endif
    default: return 0;
    }
    memcpy(field, insn, wide ? 8 : 4);
    return 1;
}

// Fill in what was copied to `to` for `address`: `s` has the value of each symbol. 0 if something does not fit.
static int fill(uint8_t *to, uintptr_t address, const struct tramptool_fixup *fixups, uint32_t count, const int64_t *s) {
    for (const struct tramptool_fixup *f = fixups; f < fixups + count; f++)
        if (!put(to + f->offset, f->type, s[f->symbol] + f->addend, address + f->place)) return 0;
    return 1;
}
