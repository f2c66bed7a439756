// SPDX-License-Identifier: MIT OR Apache-2.0
// The least that a call with two times can cost: a function that reads the clock twice, or not at all.
#include <stdlib.h>
#include <x86intrin.h>

static volatile unsigned long last;
__attribute__((noinline)) static void twice(void) {
    last = __rdtsc();
    last = __rdtsc();
}
__attribute__((noinline)) static void none(void) {
    last = 1;
    last = 2;
}

int main(int argc, char **argv) {
    long calls = argc > 1 ? atol(argv[1]) : 1;
    void (*volatile f)(void) = argc > 2 ? none : twice;
    while (calls--) f();
    return 0;
}
