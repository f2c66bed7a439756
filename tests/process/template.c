// SPDX-License-Identifier: MIT OR Apache-2.0
// Trampolines that are made at run time from templates.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "site.h"
#include "templates.h"
#include "fixups.h"

// What docs/trampolines.md says of a thread and of a record.
// Where immediates reach: with what is initialised, so before the far ones on arm64 and riscv64.
static __thread struct words { uint64_t cursor, limit, count; } words __attribute__((section(".tdata")));
// The same where --tls has them, far from the thread pointer on either side of which a psABI puts variables.
// Compilers choose the order of variables, so this is said in assembly.
asm(".pushsection .tbss, \"awT\", %nobits\n.balign 16\n.skip 40000\n.globl far_words\n.type far_words, %object\n"
    "far_words: .skip 24\n.size far_words, 24\n.skip 40000\n.popsection");
extern __thread struct words far_words;
uint64_t trace_clock = 0x1234567;
static uint64_t buffer[1 << 20];

// A copy for one function, for this address.
static int make(uint8_t *to, uintptr_t address, const struct tramptool_template *t, uint32_t id, void *function) {
    int64_t symbols[TRAMPTOOL_SYMBOLS] = {0};
    symbols[TRAMPTOOL_ID] = (int64_t)id << 8;
    symbols[TRAMPTOOL_FUNCTION] = (intptr_t)function;
    symbols[TRAMPTOOL_CLOCK] = (intptr_t)&trace_clock;
    symbols[TRAMPTOOL_TLS] = (char *)&far_words - (char *)__builtin_thread_pointer();
    memcpy(to, t->bytes, t->size);
    return fill(to, address, t->fixups, t->fixup_count, symbols);
}

// Call all of them: their results, and what is in the buffer, is what the template is for.
static long record(const struct kind *kind, long *wrong) {
    long written = 0;
    struct words *mine = kind->tls ? &far_words : &words;
    mine->cursor = (uint64_t)buffer;
    mine->limit = (uint64_t)(buffer + sizeof buffer / 8 - 8);
    mine->count = 0;
    for (long i = 0; i < FUNCTIONS; i++)
        if (functions[i](i * 7, i + 3) != i * 7 - (i + 3) + i) ++*wrong;
    if (kind->records == 0 && mine->count != FUNCTIONS) ++*wrong;
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
    if (mine->cursor != (uint64_t)at) ++*wrong;
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
    if (labs((char *)&far_words - (char *)__builtin_thread_pointer()) < 10000) return failed("near", 0);
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
