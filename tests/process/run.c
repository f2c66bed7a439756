/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Runs each case of a batch untraced, traced, and untraced again: `batch MICROSECONDS TICK`, for each case and between signals.
   The patcher is the tests' own. */
#define _GNU_SOURCE
#include "harness.h"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define FEWEST_CALLS 12

void g_entry(void);
/* struct ftrace_ops: what is called comes first. Further behind, there may be a direct trampoline. */
#define DIRECT_CALL (208 / sizeof(void *))
void *operation[64] = {g_entry};
void *function_trace_op = operation;
static volatile sig_atomic_t hits;

/* What is below SP belongs to nobody, but for the red zone. */
static void tick(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
#ifdef __x86_64__
    uintptr_t sp = m->gregs[REG_RSP];
#elif defined(__aarch64__)
    uintptr_t sp = m->sp;
#else
    uintptr_t sp = m->__gregs[REG_SP];
#endif
    uintptr_t low = (uintptr_t)stack;
    if (sp < low + 4096 || sp > low + STACK_SIZE) return;
    hits++;
    memset((void *)(sp - RED_ZONE - 2048), 0xdb, 2048);
}

/* The case is over, and the next one begins. */
static sigjmp_buf over;
static void crashed(int number, siginfo_t *info, void *context) {
    (void)context;
    fail("signal %d at %p", number, info->si_addr);
    siglongjmp(over, 1);
}

/* Bytes to behind the site, from the function's start: behind a landing pad, as the compiler was told. */
static unsigned find(const uint8_t *f) {
#ifdef __x86_64__
    unsigned pad = f[0] == 0xf3 && f[1] == 0x0f && f[2] == 0x1e ? 4 : 0;
    int one = !memcmp(f + pad, "\x0f\x1f\x44\0", 4), five = !memcmp(f + pad, "\x90\x90\x90\x90\x90", 5);
    return one || five || f[pad] == 0xe8 ? pad + 5 : 0;
#elif defined(__aarch64__)
    const uint32_t *word = (const uint32_t *)f;
    unsigned pad = word[0] == 0xd503245f;
    return word[pad] == 0xd503201f && word[pad + 1] == 0xd503201f ? 4 * pad + 8 : 0;
#else
    return !memcmp(f, "\1\0\1\0\1\0\1\0", 8) || !memcmp(f, "\x13\0\0\0\x13\0\0\0", 8) ? 8 : 0;
#endif
}

/* The site's new bytes; how many there are. */
static unsigned encode(const struct test *t, uint8_t *bytes, uint8_t *site) {
    intptr_t to = (intptr_t)t->tramp - (intptr_t)site;
#ifdef __x86_64__
    int32_t distance = to - 5;
    bytes[0] = t->jumps ? 0xe9 : 0xe8;
    memcpy(bytes + 1, &distance, 4);
    return 5;
#elif defined(__aarch64__)
    uint32_t link = t->jumps ? 0xd503201f : 0xaa1e03e9, branch = t->jumps ? 0x14000000 : 0x94000000;
    uint32_t words[2] = {link, branch | ((uint32_t)(to - 4) >> 2 & 0x3ffffff)};
    memcpy(bytes, words, 8);
    return 8;
#else
    uint32_t high = (uint32_t)(to + 0x800) & 0xfffff000, low = (uint32_t)(to & 0xfff) << 20;
    uint32_t words[2] = {t->jumps ? high | 0x317 : high | 0x297, t->jumps ? low | 0x30067 : low | 0x282e7};
    memcpy(bytes, words, 8);
    return 8;
#endif
}

static void write_text(uint8_t *to, const uint8_t *bytes, unsigned size) {
    uintptr_t page = (uintptr_t)to & -4096ul, end = ((uintptr_t)to + size + 4095) & -4096ul;
    if (mprotect((void *)page, end - page, PROT_READ | PROT_WRITE | PROT_EXEC)) exit(3);
    memcpy(to, bytes, size);
    if (mprotect((void *)page, end - page, PROT_READ | PROT_EXEC)) exit(3);
    __builtin___clear_cache((char *)to, (char *)to + size);
}

static uint64_t clock_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000ul + t.tv_nsec / 1000;
}

static void signals(int microseconds) {
    struct itimerval interval = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &interval, 0);
}

static void test(const struct test *t, uint64_t microseconds, int every) {
    now = t;
    told = 0;
    chance = t->seed;
    phase = "untraced";
    printf("case %s\n", t->name);
    uint8_t *f = (uint8_t *)t->function, was[8], bytes[8];
    unsigned behind = find(f);
    if (behind != t->behind) return fail("the site ends at byte %d, not %d", behind, t->behind);
    uint8_t *site = f + behind - (IP_BEFORE == 4 ? 8 : IP_BEFORE);
    unsigned size = encode(t, bytes, site);
    memcpy(was, site, size);
    if (!sigsetjmp(over, 1)) {
        for (int i = 0; i < 3; i++) run(t, 0);
        if (told) return;
        phase = "traced";
        void *op = operation;
        operation[DIRECT_CALL] = t->act == EARLY ? (void *)t->back : 0;
        if (t->literal) write_text(f - 8, (uint8_t *)&op, 8);
        write_text(site, bytes, size);
        signals(every);
        uint64_t end = clock_us() + microseconds;
        for (int i = 0; (i < FEWEST_CALLS || clock_us() < end) && !told; i++) run(t, 1);
    }
    signals(0);
    write_text(site, was, size);
    phase = "no longer traced";
    for (int i = 0; i < 3 && !told; i++) run(t, 0);
}

int main(int argc, char **argv) {
    if (argc != 3) return 4;
    /* Below the stack is nothing, and signals have one of their own. */
    uint8_t *low = mmap(0, 65536 + STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (low == MAP_FAILED || mprotect(low, 65536, PROT_NONE)) return 3;
    stack = low + 65536;
    static uint8_t other[65536];
    stack_t alternative = {.ss_sp = other, .ss_size = sizeof other};
    sigaltstack(&alternative, 0);
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART, .sa_sigaction = tick};
    sigaction(SIGALRM, &action, 0);
    action.sa_sigaction = crashed;
    for (const int *n = (const int[]){SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGABRT, 0}; *n; n++) sigaction(*n, &action, 0);
    setvbuf(stdout, 0, _IOLBF, 0);
    for (int i = 0; i < test_count; i++) test(&tests[i], atoi(argv[1]), atoi(argv[2]));
    printf("%d cases, %d failures, %d signals\n", test_count, failures, (int)hits);
    return failures != 0;
}
