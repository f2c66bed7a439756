// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions with arguments on the stack, recorded with their return address on a shadow stack, while signals come whose handler
// calls them too. Some never return: others jump past them. stdout is the same whether they are traced or not; stderr has what
// the buffer says.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/time.h>

#include "site.h"

void many_tramp(void);
void text_tramp(void);
void mixed_tramp(void);
void climb_tramp(void);
void deep_tramp(void);
void last_tramp(void);
void whole_tramp(void);

// What docs/trampolines.md says of a thread, of a record, and of an entry of the shadow stack.
#ifdef __x86_64__
static __thread struct { uint64_t shadow, shadow_limit, cursor, limit, count; } words;
#else
static __thread struct { uint64_t cursor, limit, count, shadow, shadow_limit; } words;
#endif
struct record { uint64_t time, what; };
struct entry { uint64_t parent_ip, sp; };
enum { FUNCTIONS = 7, ENTRIES = 4096, FEW = 64, ROOM = 1 << 30 };
static struct entry entries[ENTRIES + 1];
static volatile long entered[FUNCTIONS], returned[FUNCTIONS], signals;

// A signal may come in the middle.
static void count(volatile long *of) { __atomic_fetch_add(of, 1, __ATOMIC_RELAXED); }

SITE long many(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l) {
    count(&entered[0]);
    __asm__ volatile("" ::: "memory");
    count(&returned[0]);
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l;
}

SITE int text(char *out, unsigned long size, const char *format, ...) {
    count(&entered[1]);
    va_list all;
    va_start(all, format);
    int n = vsnprintf(out, size, format, all);
    va_end(all);
    count(&returned[1]);
    return n;
}

struct big { long all[7]; };
SITE struct big mixed(struct big x, double y, long z, struct big u) {
    count(&entered[2]);
    for (int n = 0; n < 7; n++) x.all[n] += (long)(y * z) + u.all[6 - n];
    count(&returned[2]);
    return x;
}

// Comes back by a jump past all that called it, and past itself.
SITE void climb(int levels, jmp_buf to, long a, long b, long c, long d, long e, long f, long g) {
    count(&entered[3]);
    if (levels == 0) longjmp(to, a + b + c + d + e + f + g);
    climb(levels - 1, to, a, b, c, d, e, f, g + 1);
    __asm__ volatile("" ::: "memory");
    count(&returned[3]);
}

// Deeper than the shadow stack has room for.
SITE long deep(int levels, long a, long b, long c, long d, long e, long f, long g, long h) {
    count(&entered[4]);
    long below = levels ? deep(levels - 1, b, c, d, e, f, g, h, a) : a + 10 * h;
    count(&returned[4]);
    return below + g;
}

// Ends with a jump to another.
SITE long last(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l) {
    count(&entered[5]);
    count(&returned[5]);
    return many(l, k, j, i, h, g, f, e, d, c, b, a);
}

static long all(long n) {
    char line[128];
    long sum = many(n, 2, 3, 4, 5, 6, 7, 8, 9, n, 11, 12) + last(1, n, 3, 4, 5, 6, 7, 8, 9, 10, n, 12);
    sum += text(line, sizeof line, "%ld %g %d %s %g %ld %ld %g", n, n / 2.0, 3, "four", 5.5, n + 6, n + 7, 8.25);
    for (char *c = line; *c; c++) sum = 31 * sum + *c;
    struct big x = {{n, 1, 2, 3, 4, 5, 6}}, got = mixed(x, 2.5, n, x);
    for (int i = 0; i < 7; i++) sum = 7 * sum + got.all[i];
    return sum;
}

static long jumps(long n) {
    jmp_buf here;
    volatile long sum = n;
    int got = setjmp(here);
    if (!got) climb(n % 5, here, 1, 2, 3, 4, 5, 6, 7);
    sum += 1000 * got;
    // As deep as those that are gone.
    return sum + all(n);
}

// Where it returns, what jumped past others is gone from the shadow stack.
SITE long whole(long n) {
    count(&entered[6]);
    long sum = all(n) + jumps(n);
    count(&returned[6]);
    return sum;
}

static void on_signal(int signal) {
    (void)signal;
    signals++;
    if (whole(1) != whole(1) || whole(3) == whole(4)) exit(6);
}

int main(int argc, char **argv) {
    char *pointer = __builtin_thread_pointer();
    (void)argc;
    if (!strcmp(argv[1], "offsets")) {
        printf("%ld %ld %ld %ld\n", (long)((char *)&words.cursor - pointer), (long)((char *)&words.limit - pointer),
               (long)((char *)&words.shadow - pointer), (long)((char *)&words.shadow_limit - pointer));
        return 0;
    }
    long times = atol(argv[1]);
    char *buffer = mmap(0, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    words.cursor = (uintptr_t)buffer;
    words.limit = (uintptr_t)buffer + ROOM - 64;
    // The entry below all others is 0.
    words.shadow = (uintptr_t)(entries + 1);
    words.shadow_limit = (uintptr_t)(entries + ENTRIES);
    if (!strcmp(argv[2], "traced")) {
        patch_site((uint8_t *)many, many_tramp, 1);
        patch_site((uint8_t *)text, text_tramp, 1);
        patch_site((uint8_t *)mixed, mixed_tramp, 1);
        patch_site((uint8_t *)climb, climb_tramp, 1);
        patch_site((uint8_t *)deep, deep_tramp, 1);
        patch_site((uint8_t *)last, last_tramp, 1);
        patch_site((uint8_t *)whole, whole_tramp, 1);
    }
    struct sigaction action = {.sa_handler = on_signal};
    // The handler must have an end before the next one comes, under an emulator too.
    long pause = atol(argv[3]);
    struct itimerval often = {{0, pause}, {0, pause}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    long sum = 0;
    for (long n = 0; n < times; n++) sum = 3 * sum + whole(n % 1000);
    setitimer(ITIMER_REAL, &never, 0);
    words.shadow_limit = (uintptr_t)(entries + FEW);
    for (long n = 0; n < 10; n++) sum += deep(100, 1, 2, 3, 4, 5, 6, 7, n);
    printf("sum %ld\n", sum);
    long seen[FUNCTIONS][3] = {0}, strange = 0;
    if (words.cursor > words.limit) strange++;
    for (struct record *r = (struct record *)buffer; (uintptr_t)r < words.cursor; r++) {
        unsigned id = r->what >> 8, kind = r->what & 255;
        if (id >= FUNCTIONS || kind < 1 || kind > 2) strange++;
        else seen[id][kind]++;
    }
    fprintf(stderr, "strange %ld, signals %ld, left %ld\n", strange, signals, (long)(words.shadow - (uintptr_t)(entries + 1)) / 16);
    for (int id = 0; id < FUNCTIONS; id++)
        fprintf(stderr, "%ld %ld %ld %ld\n", entered[id], returned[id], seen[id][1], seen[id][2]);
    return 0;
}
