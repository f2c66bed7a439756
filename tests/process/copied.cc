// SPDX-License-Identifier: MIT OR Apache-2.0
// Exceptions and the end of a thread, through copies of a template with a landing pad. The unwinder knows the copies by a table
// that grows while the program runs.
#include <pthread.h>
#include <stdio.h>
#include <unwind.h>

#include "site.h"
#include "both.template.h"
#include "fixups.h"

extern "C" {
void __register_frame(void *table);
void *__deregister_frame(void *table);
int __gcc_personality_v0();
__thread struct { uint64_t cursor, limit, count; } words;
}

enum { FUNCTIONS = 3, ROOM = 1 << 18 };
static uint64_t buffer[ROOM / 8 + 8];
static volatile long cleanups, threads;

struct cleanup {
    ~cleanup() { cleanups = cleanups + 1; }
};

SITE long inner(long a) {
    if (a == 7) pthread_exit(0);
    if (a % 3 == 0) throw (int)a;
    return a;
}

SITE long middle(long a) {
    cleanup one;
    return inner(a) + 1;
}

SITE long outer(long a) {
    cleanup one;
    return middle(a) + 1;
}

static long (*const functions[FUNCTIONS])(long) = {outer, middle, inner};

// The copies, and behind them their unwind table, at the end of which stands a word of 0.
static uint8_t *code, *table, *end;

// A branch to the unwinder: it may be further away than a copy reaches.
static void resume(_Unwind_Exception *e) { _Unwind_Resume(e); }

static int make(int n) {
    const tramptool_template *t = &both_template;
    uint8_t *copy = code + (t->size + t->align - 1) / t->align * t->align * n;
    int64_t symbols[TRAMPTOOL_SYMBOLS] = {};
    symbols[TRAMPTOOL_ID] = (int64_t)(n + 1) << 8;
    symbols[TRAMPTOOL_FUNCTION] = (intptr_t)functions[n];
    symbols[TRAMPTOOL_TLS] = (char *)&words - (char *)__builtin_thread_pointer();
    symbols[TRAMPTOOL_COPY] = (intptr_t)copy;
    symbols[TRAMPTOOL_PERSONALITY] = (intptr_t)&__gcc_personality_v0;
    symbols[TRAMPTOOL_RESUME] = (intptr_t)&resume;
    memcpy(copy, t->bytes, t->size);
    memcpy(end, t->unwind, t->unwind_size);
    if (!fill(copy, (uintptr_t)copy, t->fixups, t->fixup_count, symbols)) return 0;
    if (!fill(end, (uintptr_t)end, t->unwind_fixups, t->unwind_fixup_count, symbols)) return 0;
    end += t->unwind_size;
    memset(end, 0, 4);
    __builtin___clear_cache((char *)copy, (char *)copy + t->size);
    patch_site((uint8_t *)functions[n], (void (*)(void))(copy + t->entry), 1);
    return 1;
}

// Call them, and say how many exceptions were caught, and what was recorded of each.
static long call(long times) {
    long caught = 0;
    for (long a = 0; a < times; a++) try {
            if (outer(a == 7 ? 8 : a) < 0) return -1;
        } catch (int thrown) {
            caught += thrown == a;
        }
    return caught;
}

static void *start(void *) {
    words.cursor = (uint64_t)buffer + ROOM / 2;
    words.limit = (uint64_t)buffer + ROOM;
    threads = threads + 1;
    outer(7);
    threads = threads + 100;
    return 0;
}

static void print(const char *what, long caught) {
    long seen[FUNCTIONS][4] = {};
    for (const uint64_t *r = buffer; r < buffer + ROOM / 8; r += 2)
        if (r[1] >> 8 && r[1] >> 8 <= FUNCTIONS) seen[(r[1] >> 8) - 1][r[1] & 3]++;
    printf("%s: %ld caught, %ld cleanups, %ld threads", what, caught, cleanups, threads);
    for (auto &of : seen) printf("; %ld = %ld + %ld", of[1], of[2], of[3]);
    printf("\n");
    memset(buffer, 0, sizeof buffer);
    words.cursor = (uint64_t)buffer;
    cleanups = 0;
}

int main() {
    // Behind the program, within reach of it.
    code = (uint8_t *)(((uintptr_t)buffer + sizeof buffer + (1 << 22)) & -65536ul);
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    if (mmap(code, 1 << 17, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != code) return 2;
    end = table = code + (1 << 16);
    words.cursor = (uint64_t)buffer;
    words.limit = (uint64_t)buffer + ROOM / 2;
    if (!make(0) || !make(1)) return 3;
    __register_frame(table);
    print("two", call(300));
    // It has read the table.
    __deregister_frame(table);
    if (!make(2)) return 3;
    __register_frame(table);
    print("three", call(300));
    pthread_t thread;
    if (pthread_create(&thread, 0, start, 0) || pthread_join(thread, 0)) return 4;
    print("thread", 0);
    return 0;
}
