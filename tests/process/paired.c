// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions whose two records have one slot, while signals come whose handler calls them too. Some never return. stdout is the same
// whether they are traced or not; stderr has what the buffer says.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

#include "site.h"

void leaf_tramp(void);
void sum_tramp(void);
void jump_tramp(void);
void whole_tramp(void);

// What docs/trampolines.md says of a thread and of a slot.
static __thread struct { uint64_t cursor, limit, count; } words;
struct slot { uint64_t entered, entry, left, leave; };
enum { FUNCTIONS = 4, JUMP = 2, ROOM = 1 << 28 };
static volatile long entered[FUNCTIONS], returned[FUNCTIONS], signals;

// A signal may come in the middle.
static void count(volatile long *of) { __atomic_fetch_add(of, 1, __ATOMIC_RELAXED); }

SITE long leaf(long a, long b) {
    count(&entered[0]);
    __asm__ volatile("" : "+r"(a), "+r"(b));
    count(&returned[0]);
    return a * 3 + b;
}

SITE long sum(long levels) {
    count(&entered[1]);
    long below = levels ? sum(levels - 1) + leaf(levels, 1) : leaf(2, 3);
    count(&returned[1]);
    return below + levels;
}

SITE long jump(jmp_buf to, long levels) {
    count(&entered[JUMP]);
    if (!levels) longjmp(to, 5);
    long below = jump(to, levels - 1);
    __asm__ volatile("" ::: "memory");
    count(&returned[JUMP]);
    return below;
}

SITE long whole(long n) {
    count(&entered[3]);
    jmp_buf here;
    volatile long got = setjmp(here);
    if (!got) jump(here, n % 3);
    long result = got + sum(n % 5) + leaf(n, got);
    count(&returned[3]);
    return result;
}

static void on_signal(int signal) {
    (void)signal;
    signals++;
    if (whole(1) != whole(1)) exit(6);
}

int main(int argc, char **argv) {
    char *pointer = __builtin_thread_pointer();
    (void)argc;
    if (!strcmp(argv[1], "offsets")) {
        printf("%ld %ld\n", (long)((char *)&words.cursor - pointer), (long)((char *)&words.limit - pointer));
        return 0;
    }
    long times = atol(argv[1]);
    char *buffer = mmap(0, ROOM + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    words.cursor = (uintptr_t)buffer;
    words.limit = (uintptr_t)buffer + ROOM;
    if (!strcmp(argv[2], "traced")) {
        patch_site((uint8_t *)leaf, leaf_tramp, 1);
        patch_site((uint8_t *)sum, sum_tramp, 1);
        patch_site((uint8_t *)jump, jump_tramp, 1);
        patch_site((uint8_t *)whole, whole_tramp, 1);
    }
    long pause = atol(argv[3]);
    struct sigaction action = {.sa_handler = on_signal};
    struct itimerval often = {{0, pause}, {0, pause}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    long total = 0;
    for (long n = 0; n < times; n++) total = 3 * total + whole(n % 1000);
    setitimer(ITIMER_REAL, &never, 0);
    // Without room, calls are as they were, and nothing is written.
    uint64_t end = words.cursor;
    words.limit = end;
    total += whole(7);
    printf("total %ld\n", total);
    long seen[FUNCTIONS][2] = {0}, strange = 0;
    for (char *at = (char *)end; at < (char *)end + 4096; at++) strange += *at != 0;
    // Calls lie in each other: what began in a call has ended before it.
    static uint64_t ends[1 << 20];
    long open = 0;
    for (struct slot *s = (struct slot *)buffer; (uintptr_t)s < end; s++) {
        unsigned id = s->entry >> 8;
        if (id >= FUNCTIONS || (s->entry & 255) != 1 || s->entered) { strange++; continue; }
        seen[id][0]++;
        while (open && (uintptr_t)s >= ends[open - 1]) open--;
        if (!s->leave) {
            strange += id != JUMP || s->left;
            continue;
        }
        strange += s->leave != (s->entry & ~255ul) + 2 || s->left <= (uintptr_t)s || s->left > end;
        strange += open && s->left > ends[open - 1];
        seen[id][1]++;
        ends[open++] = s->left;
    }
    fprintf(stderr, "strange %ld, signals %ld\n", strange, signals);
    for (int id = 0; id < FUNCTIONS; id++)
        fprintf(stderr, "%ld %ld %ld %ld\n", entered[id], returned[id], seen[id][0], seen[id][1]);
    return 0;
}
