// SPDX-License-Identifier: MIT OR Apache-2.0
// A site at the entry of a function, as a compiler leaves it, and the test's own patcher of it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __x86_64__
#define SITE __attribute__((noinline, patchable_function_entry(5, 0)))
#elif defined(__aarch64__)
#define SITE __attribute__((noinline, patchable_function_entry(2, 0)))
#else
#define SITE __attribute__((noinline, patchable_function_entry(4, 0)))
#endif

// Let the site call the trampoline, or jump to it.
static void patch_site(uint8_t *site, void (*tramp)(void), int jump) {
    if (mprotect((void *)((uintptr_t)site & -4096ul), 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) exit(3);
    intptr_t to = (intptr_t)tramp - (intptr_t)site;
#ifdef __x86_64__
    int32_t distance = to - 5;
    site[0] = jump ? 0xe9 : 0xe8;
    memcpy(site + 1, &distance, 4);
#elif defined(__aarch64__)
    uint32_t code[2] = {jump ? 0xd503201fu : 0xaa1e03e9u, (jump ? 0x14000000u : 0x94000000u) | ((uint32_t)(to - 4) >> 2 & 0x3ffffff)};
    memcpy(site, code, 8);
#else
    uint32_t high = (uint32_t)((to + 0x800) >> 12) << 12, low = (uint32_t)(to & 0xfff) << 20;
    uint32_t code[2] = {high | (jump ? 0x317u : 0x297u), low | (jump ? 0x30067u : 0x282e7u)};
    memcpy(site, code, 8);
#endif
    __builtin___clear_cache((char *)site, (char *)site + 8);
}
