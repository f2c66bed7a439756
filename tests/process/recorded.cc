// SPDX-License-Identifier: MIT OR Apache-2.0
// Ways out of three nested functions that are recorded: they return, throw, are left by longjmp, by another context, by the end
// of their thread; signals interrupt them, whose handler calls them too; a child of fork goes on in them. stdout is the same
// whether they are traced or not. stderr has what the buffers say.
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "site.h"

extern "C" {
void outer_tramp(void);
void middle_tramp(void);
void inner_tramp(void);
long outer(long a);
long middle(long a);
long inner(long a);
}

// What docs/trampolines.md says of a thread and of a record.
static __thread struct { uint64_t cursor, limit, count; } words;
struct record { uint64_t time, what; };
static const size_t ROOM = 32 << 20;
static __thread char *buffer;
static bool traced;

static long entered[3], returned[3], destroyed, thrown;
static void count(long &what) { __atomic_fetch_add(&what, 1, __ATOMIC_RELAXED); }

struct Guard { ~Guard() { count(destroyed); } };
static long guarded(long (*f)(long), long a) {
    Guard guard;
    long r = f(a);
    asm volatile("" : "+r"(r) :: "memory");
    return r;
}
static long plainly(long (*f)(long), long a) { return f(a); }

// A compiler that sees the calls takes them for ones that cannot throw.
static long (*volatile via)(long (*)(long), long) = plainly;
static long (*volatile first)(long) = outer;
static void (*volatile inside)(long);

extern "C" SITE long outer(long a) {
    count(entered[0]);
    long r;
    if (a % 4 == 2) {
        try {
            r = via(middle, a);
        } catch (int n) {
            r = n;
        }
    } else {
        r = via(middle, a);
    }
    count(returned[0]);
    return r + 1;
}
extern "C" SITE long middle(long a) {
    count(entered[1]);
    long r = via(inner, a);
    if (a % 4 == 3) {
        count(thrown);
        throw (int)(a % 100);
    }
    count(returned[1]);
    return r + 1;
}
extern "C" SITE long inner(long a) {
    count(entered[2]);
    inside(a);
    count(returned[2]);
    return a + 1;
}

static void begin() {
    buffer = (char *)mmap(nullptr, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    words.limit = (uint64_t)buffer + ROOM - 64;
    __atomic_store_n(&words.cursor, (uint64_t)buffer, __ATOMIC_SEQ_CST);
}

static long entries[4], exits[4], unwinds[4], lost, strange;

// What is in the thread's buffer. `nested`: what was called last is left first.
static void tally(bool nested) {
    static __thread int open[1024];
    int depth = 0;
    for (record *r = (record *)buffer; r < (record *)words.cursor; r++) {
        unsigned id = r->what >> 8, kind = r->what & 15;
        if (r >= (record *)words.limit || id < 1 || id > 3 || (r->what & 0xf0) || r->time) {
            strange++;
            continue;
        }
        __atomic_fetch_add(&(kind == 1 ? entries : kind == 2 ? exits : unwinds)[id], 1, __ATOMIC_RELAXED);
        if (kind < 1 || kind > 3) strange++;
        if (!nested) continue;
        if (kind == 1) {
            if (depth == 1024) abort();
            open[depth++] = id;
            continue;
        }
        // A jump leaves some without a word.
        for (; depth && open[depth - 1] != (int)id; depth--) lost++;
        if (depth) depth--;
        else strange++;
    }
    lost += nested ? depth : 0;
    words.cursor = (uint64_t)buffer;
}

static void nothing(long) { asm volatile("" ::: "memory"); }

static void throwing(long a) {
    if (a % 4 == 1 || a % 4 == 2) {
        count(thrown);
        throw (int)(a % 100);
    }
}

static long caught(long a) {
    try {
        return first(a);
    } catch (int n) {
        return -n;
    }
}

static void exceptions(long n) {
    long sum = 0;
    inside = throwing;
    via = guarded;
    for (long a = 0; thrown < n; a++) sum += caught(a);
    printf("%ld thrown, %ld destroyed, sum %ld\n", thrown, destroyed, sum);
}

static jmp_buf back;
static void jumping(long a) {
    if (a % 5 == 0) longjmp(back, 1);
}
static void jumps(long n) {
    volatile long sum = 0, jumped = 0;
    inside = jumping;
    for (volatile long a = 0; a < n; a++) {
        if (setjmp(back)) jumped = jumped + 1;
        else sum = sum + first(4 * a);
    }
    printf("%ld jumped, sum %ld\n", jumped, sum);
}

static ucontext_t home, others[2];
static int current;
static long sums[2];
static void switching(long) { swapcontext(&others[current], &home); }
static void other(int n) { sums[n] += first(4 * n); }
static void contexts(long n) {
    static char stacks[2][1 << 16];
    inside = switching;
    for (long i = 0; i < n; i++) {
        for (current = 0; current < 2; current++) {
            getcontext(&others[current]);
            others[current].uc_stack.ss_sp = stacks[current];
            others[current].uc_stack.ss_size = sizeof stacks[current];
            others[current].uc_link = &home;
            makecontext(&others[current], (void (*)())other, 1, current);
            swapcontext(&home, &others[current]);
        }
        // The first is left first: nothing is nested.
        for (current = 0; current < 2; current++) swapcontext(&home, &others[current]);
    }
    printf("sums %ld %ld\n", sums[0], sums[1]);
}

static sem_t there;
static void waiting(long) {
    sem_post(&there);
    for (;;) pause();
}
struct Tally { ~Tally() { tally(true); } };
static void *canceled(void *) {
    begin();
    Tally at_end;
    via = guarded;
    first(4);
    return nullptr;
}
static void cancel(long n) {
    inside = waiting;
    sem_init(&there, 0, 0);
    long ended = 0;
    for (long i = 0; i < n; i++) {
        pthread_t t;
        void *result;
        if (pthread_create(&t, nullptr, canceled, nullptr)) exit(3);
        sem_wait(&there);
        pthread_cancel(t);
        pthread_join(t, &result);
        ended += result == PTHREAD_CANCELED;
    }
    printf("%ld canceled, %ld destroyed\n", ended, destroyed);
}

static volatile long signals;
static void on_signal(int) {
    signals = signals + 1;
    first(0);
}
static void storm(long n) {
    long sum = 0;
    inside = throwing;
    via = guarded;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigaction(SIGALRM, &action, nullptr);
    struct itimerval often = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &often, nullptr);
    for (long a = 0; thrown < n || signals < 100; a++) {
        bool counts = thrown < n;
        long r = caught(a % 400);
        if (counts) sum += r;
    }
    struct itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
    fprintf(stderr, "signals %ld\n", signals);
    printf("sum %ld\n", sum);
}

static void forks(long n) {
    long well = 0;
    inside = throwing;
    via = guarded;
    for (long i = 0; i < n; i++) {
        caught(i);
        pid_t child = fork();
        if (child == 0) {
            for (int a = 0; a < 4; a++) caught(a);
            tally(true);
            bool all = true;
            for (int id = 0; id < 3; id++) {
                all &= !traced || (entries[id + 1] == entered[id] && exits[id + 1] == returned[id]);
                all &= !traced || entered[id] == exits[id + 1] + unwinds[id + 1];
            }
            _exit(!all);
        }
        int status;
        waitpid(child, &status, 0);
        well += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    printf("%ld children did well\n", well);
}

int main(int, char **argv) {
    static const struct { const char *name; void (*run)(long); bool nested; } all[] = {
        {"exceptions", exceptions, true}, {"longjmp", jumps, true}, {"swapcontext", contexts, false},
        {"pthread_cancel", cancel, true}, {"signals", storm, true}, {"fork", forks, true},
    };
    if (!strcmp(argv[1], "offsets")) {
        char *pointer = (char *)__builtin_thread_pointer();
        printf("%ld %ld %ld\n", (long)((char *)&words.cursor - pointer), (long)((char *)&words.limit - pointer),
               (long)((char *)&words.count - pointer));
        return 0;
    }
    traced = !strcmp(argv[3], "traced");
    inside = nothing;
    begin();
    if (traced) {
        patch_site((uint8_t *)outer, outer_tramp, 1);
        patch_site((uint8_t *)middle, middle_tramp, 1);
        patch_site((uint8_t *)inner, inner_tramp, 1);
    }
    for (auto &one : all) {
        if (strcmp(argv[1], one.name)) continue;
        one.run(atol(argv[2]));
        tally(one.nested);
        fprintf(stderr, "lost %ld, strange %ld\n", lost, strange);
        for (int id = 0; id < 3; id++)
            fprintf(stderr, "%ld %ld %ld %ld %ld\n", entered[id], returned[id], entries[id + 1], exits[id + 1],
                    unwinds[id + 1]);
        return 0;
    }
    return 4;
}
