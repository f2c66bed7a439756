// SPDX-License-Identifier: MIT OR Apache-2.0
// A nested function, whose site calls a trampoline.
#include <stdio.h>

#include "site.h"

void tramp(void);

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

__attribute__((noinline)) static long outer(long b) {
    volatile long kept = b;
    SITE long inner(long a) {
        asm volatile("");
        return a + kept;
    }
    // Its address in C would be that of code on the stack.
    extern uint8_t site[] asm("inner.0");
    patch_site(site, tramp, 0);
    return inner(40);
}

int main(void) {
    printf("%ld\n", outer(2));
    return 0;
}
