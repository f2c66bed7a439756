// SPDX-License-Identifier: MIT OR Apache-2.0
// A function that signs its return address first, hooked at its second instruction. Its caller knows that it leaves x1 to x15 alone, and
// has values there. stdout is the same whether it is traced or not; stderr has what the buffer says.
#include <stdio.h>

#include "site.h"

void f_tramp(void);
long f_site(long);
long caller(long);
long signs(void);

// What docs/trampolines.md says of a thread and of a record.
static __thread struct { uint64_t cursor, limit, count, shadow, shadow_limit; } words;
struct record { uint64_t time, what; };
static uint64_t entries[2 * 64];
static struct record buffer[1 << 16];

#define EACH(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define PUT(n) "mov x" #n ", #" #n "\n"
#define ADD(n) "add x0, x0, x0, lsl #1\n add x0, x0, x" #n "\n"

__asm__(".text\n.balign 8\n"
        // hint #25 is PACIASP, hint #29 is AUTIASP.
        "f: hint #25\n"
        ".globl f_site\nf_site: stp x29, x30, [sp, #-16]!\n"
        "f_rest: mov x29, sp\n add x0, x0, #1\n ldp x29, x30, [sp], #16\n hint #29\n ret\n"
        ".globl f_copy\nf_copy: hint #25\n stp x29, x30, [sp, #-16]!\n b f_rest\n"
        ".globl caller\ncaller: stp x29, x30, [sp, #-16]!\n mov x29, sp\n" EACH(PUT) "bl f\n" EACH(ADD)
        "ldp x29, x30, [sp], #16\n ret\n"
        ".globl signs\nsigns: mov x1, x30\n hint #25\n eor x0, x30, x1\n mov x30, x1\n ret\n");

static void hook(void) {
    intptr_t distance = (intptr_t)f_tramp - (intptr_t)f_site;
    uint32_t branch = 0x14000000u | ((uint32_t)(distance >> 2) & 0x3ffffff);
    if (mprotect((void *)((uintptr_t)f_site & -4096ul), 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) exit(3);
    memcpy((void *)f_site, &branch, 4);
    __builtin___clear_cache((char *)f_site, (char *)f_site + 4);
}

int main(int argc, char **argv) {
    char *pointer = __builtin_thread_pointer();
    (void)argc;
    if (!strcmp(argv[1], "offsets")) {
        printf("%ld %ld %ld %ld\n", (long)((char *)&words.cursor - pointer), (long)((char *)&words.limit - pointer),
               (long)((char *)&words.shadow - pointer), (long)((char *)&words.shadow_limit - pointer));
        return 0;
    }
    words.cursor = (uintptr_t)buffer;
    words.limit = (uintptr_t)(buffer + (1 << 16) - 4);
    // The entry below all others is 0.
    words.shadow = (uintptr_t)(entries + 2);
    words.shadow_limit = (uintptr_t)(entries + 2 * 63);
    long sum = 0, times = atol(argv[1]), seen[3] = {0};
    if (!strcmp(argv[2], "traced")) hook();
    for (long n = 0; n < times; n++) sum = 3 * sum + caller(n);
    printf("sum %ld\n", sum);
    for (struct record *r = buffer; (uintptr_t)r < words.cursor; r++) seen[(r->what & 255) % 3]++;
    fprintf(stderr, "%d %ld %ld %ld\n", signs() != 0, seen[0], seen[1], seen[2]);
    return 0;
}
