// SPDX-License-Identifier: MIT OR Apache-2.0
// A nested function, whose site calls a trampoline.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void tramp(void);

#ifdef __x86_64__
#define SITE __attribute__((noinline, patchable_function_entry(5, 0)))
#elif defined(__aarch64__)
#define SITE __attribute__((noinline, patchable_function_entry(2, 0)))
#else
#define SITE __attribute__((noinline, patchable_function_entry(4, 0)))
#endif

__attribute__((noinline)) void handler(long a) {
    asm volatile("" ::: "memory");
#ifdef __x86_64__
    asm volatile("mov $0, %%CHAIN" ::: "CHAIN");
#elif defined(__aarch64__)
    asm volatile("mov CHAIN, #0" ::: "CHAIN");
#else
    asm volatile("li CHAIN, 0" ::: "CHAIN");
#endif
}

__attribute__((noinline)) static void patch(uint8_t *site) {
    if (mprotect((void *)((uintptr_t)site & -4096ul), 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) exit(3);
    intptr_t to = (intptr_t)tramp - (intptr_t)site;
#ifdef __x86_64__
    int32_t distance = to - 5;
    site[0] = 0xe8;
    memcpy(site + 1, &distance, 4);
#elif defined(__aarch64__)
    uint32_t words[2] = {0xaa1e03e9u, 0x94000000u | ((uint32_t)(to - 4) >> 2 & 0x3ffffff)};
    memcpy(site, words, 8);
#else
    uint32_t high = (uint32_t)((to + 0x800) >> 12) << 12, low = (uint32_t)(to & 0xfff) << 20;
    uint32_t words[2] = {high | 0x297, low | 0x282e7};
    memcpy(site, words, 8);
#endif
    __builtin___clear_cache((char *)site, (char *)site + 8);
}

__attribute__((noinline)) static long outer(long b) {
    volatile long kept = b;
    SITE long inner(long a) {
        asm volatile("");
        return a + kept;
    }
    // Its address in C would be that of code on the stack.
    extern uint8_t site[] asm("inner.0");
    patch(site);
    return inner(40);
}

int main(void) {
    printf("%ld\n", outer(2));
    return 0;
}
