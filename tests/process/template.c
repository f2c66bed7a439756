// SPDX-License-Identifier: MIT OR Apache-2.0
// Trampolines that are made at run time from templates. All that is known of them is in their tables of fix-ups, and in the
// psABI's formulas for the types of relocation that those name.
#include <elf.h>
#include <stdio.h>
#include <unistd.h>

#include "site.h"
#include "templates.h"

// What docs/trampolines.md says of a thread and of a record.
static __thread struct { uint64_t cursor, limit, count; } words;
uint64_t trace_clock = 0x1234567;
static uint64_t buffer[1 << 20];

static void bits(uint32_t *insn, uint32_t mask, uint32_t value) { *insn = (*insn & ~mask) | (value & mask); }

// Put what belongs there into a field. 0 if it does not fit.
static int put(uint8_t *field, uint32_t type, int64_t value, int64_t p) {
    uint32_t insn[2];
    int64_t distance = value - p, pages __attribute__((unused)) = (value >> 12) - (p >> 12);
    int wide = 0;
    memcpy(insn, field, 4);
    switch (type) {
#ifdef __x86_64__
    case R_X86_64_32S: insn[0] = value; if (value != (int32_t)value) return 0; break;
    case R_X86_64_PC32: insn[0] = distance; if (distance != (int32_t)distance) return 0; break;
#elif defined(__aarch64__)
    case R_AARCH64_MOVW_UABS_G0_NC: bits(insn, 0xffffu << 5, value << 5); break;
    case R_AARCH64_MOVW_UABS_G1: bits(insn, 0xffffu << 5, value >> 16 << 5); if (value >> 32) return 0; break;
    case R_AARCH64_JUMP26:
    case R_AARCH64_CALL26: bits(insn, 0x3ffffff, distance >> 2); if (distance >> 27 != distance >> 63) return 0; break;
    case R_AARCH64_ADR_PREL_PG_HI21: bits(insn, 3u << 29 | 0x7ffffu << 5, pages << 29 | (pages >> 2 & 0x7ffff) << 5); break;
    case R_AARCH64_LDST64_ABS_LO12_NC: bits(insn, 0xfffu << 10, (value & 0xfff) >> 3 << 10); break;
#else
    case R_RISCV_HI20: bits(insn, ~0xfffu, value + 0x800); break;
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

// A copy for one function, for this address.
static int make(uint8_t *to, uintptr_t address, const struct tramptool_template *t, uint32_t id, void *function) {
    memcpy(to, t->bytes, t->size);
    for (uint32_t i = 0; i < t->fixup_count; i++) {
        const struct tramptool_fixup *f = t->fixups + i;
        int64_t s = f->symbol == TRAMPTOOL_ID         ? (int64_t)id << 8
                    : f->symbol == TRAMPTOOL_FUNCTION ? (int64_t)(intptr_t)function
                                                      : (int64_t)(intptr_t)&trace_clock;
        if (!put(to + f->offset, f->type, s + f->addend, address + f->place)) return 0;
    }
    return 1;
}

// Call all of them: their results, and what is in the buffer, is what the template is for.
static long record(const struct kind *kind, long *wrong) {
    long written = 0;
    words.cursor = (uint64_t)buffer;
    words.limit = (uint64_t)(buffer + sizeof buffer / 8 - 8);
    words.count = 0;
    for (long i = 0; i < FUNCTIONS; i++)
        if (functions[i](i * 7, i + 3) != i * 7 - (i + 3) + i) ++*wrong;
    if (kind->records == 0 && words.count != FUNCTIONS) ++*wrong;
    uint64_t *at = buffer, before = 0;
    for (long i = 0; i < FUNCTIONS; i++)
        for (int event = 1; event <= kind->records; event++, written++) {
            uint64_t more = event == 1 ? kind->args : kind->result;
            uint64_t what = (uint64_t)ids[i] << 8 | more << 4 | event;
            int timed = kind->clock == 'n' ? at[0] == 0 : kind->clock == 'w' ? at[0] == trace_clock : at[0] > before;
            if (kind->clock == 't') before = at[0] - 1;
            if (at[1] != what || !timed) ++*wrong;
            if (event == 1 && more > 0 && at[2] != (uint64_t)i * 7) ++*wrong;
            if (event == 1 && more > 1 && at[3] != (uint64_t)i + 3) ++*wrong;
            if (event == 2 && more > 0 && at[2] != (uint64_t)(i * 7 - (i + 3) + i)) ++*wrong;
            at += 2 + more;
        }
    if (words.cursor != (uint64_t)at) ++*wrong;
    return written;
}

static int failed(const char *what, long n) {
    fprintf(stderr, "%s: %ld\n", what, n);
    return 2;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        char *pointer = (char *)__builtin_thread_pointer();
        printf("%ld %ld %ld\n", (long)((char *)&words.cursor - pointer), (long)((char *)&words.limit - pointer),
               (long)((char *)&words.count - pointer));
        return 0;
    }
    // Behind the program, within reach of it.
    uint8_t *code = (uint8_t *)(((uintptr_t)buffer + sizeof buffer + (1 << 22)) & -65536ul);
    for (const struct kind *kind = kinds; kind < kinds + KINDS; kind++, code += 1 << 20) {
        const struct tramptool_template *t = kind->template;
        size_t size = (t->size + t->align - 1) / t->align * t->align, all = size * FUNCTIONS;
        uint8_t one[4096];
        long equal = 0, wrong = 0;
        if (t->size > sizeof one || all > 1 << 20) return failed("bytes", t->size);
        // As the linker made the trampolines that were generated one by one: the same bytes, at the same places.
        for (long i = 0; i < FUNCTIONS; i++)
            equal += make(one, (uintptr_t)kind->linked[i], t, ids[i], (void *)functions[i]) &&
                     !memcmp(one, (void *)kind->linked[i], t->size);
        // And at others, where they run.
        if (mmap(code, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != code)
            return failed("no room at", (long)code);
        for (long i = 0; i < FUNCTIONS; i++)
            wrong += !make(code + i * size, (uintptr_t)(code + i * size), t, ids[i], (void *)functions[i]);
        if (wrong || mprotect(code, all, PROT_READ | PROT_EXEC)) return failed("not made", wrong);
        __builtin___clear_cache((char *)code, (char *)code + all);
        for (long i = 0; i < FUNCTIONS; i++)
            patch_site((uint8_t *)functions[i], (void (*)(void))(code + i * size + t->entry), 1);
        long written = record(kind, &wrong);
        printf("%s: %ld equal, %ld records, %ld wrong\n", kind->name, equal, written, wrong);
    }
    return 0;
}
