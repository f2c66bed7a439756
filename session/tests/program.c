// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that counts its own calls. It writes them to the file that it is given: each function's name, how often it was entered,
// and how often it returned.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_TRACED __attribute__((patchable_function_entry(0, 0)))
#define TRACED __attribute__((noinline, noclone))
#define FUNCTIONS(X) X(leaf) X(recurse) X(ninth) X(variadic) X(jumps) X(worker) X(handler) X(tail) X(in_child) X(few)

#define NUMBER(f) N_##f,
#define NAME(f) #f,
enum { FUNCTIONS(NUMBER) COUNT };
static const char *const names[] = {FUNCTIONS(NAME)};
// Shared with children.
static struct { _Atomic long entered, returned; } *counts;

#define ENTER(f) counts[N_##f].entered++
#define LEAVE(f) counts[N_##f].returned++

// Behind this, or before it, is what trampolines know of a thread: far from the thread pointer.
__thread char room[40000] __attribute__((used));

TRACED long leaf(long a) {
    ENTER(leaf);
    LEAVE(leaf);
    return a + 1;
}
TRACED long recurse(long n) {
    ENTER(recurse);
    long result = n ? recurse(n - 1) + 1 : leaf(0);
    LEAVE(recurse);
    return result;
}
TRACED long ninth(long a, long b, long c, long d, long e, long f, long g, long h, long i, double x, long k) {
    ENTER(ninth);
    long result = a + b + c + d + e + f + g + h + 100 * i + (long)x + 1000 * k;
    LEAVE(ninth);
    return result;
}
TRACED double variadic(int count, ...) {
    ENTER(variadic);
    double sum = 0;
    __builtin_va_list list;
    __builtin_va_start(list, count);
    while (count--) sum += __builtin_va_arg(list, double);
    __builtin_va_end(list);
    LEAVE(variadic);
    return sum;
}
static jmp_buf back;
TRACED void jumps(int how) {
    ENTER(jumps);
    if (how) longjmp(back, 1);
    LEAVE(jumps);
}
TRACED long tail(long a) {
    ENTER(tail);
    LEAVE(tail);
    return leaf(a);
}
TRACED void in_child(void) {
    ENTER(in_child);
    leaf(1);
    LEAVE(in_child);
}
TRACED void handler(int signal) {
    (void)signal;
    ENTER(handler);
    recurse(3);
    LEAVE(handler);
}
TRACED void *worker(void *turns) {
    ENTER(worker);
    long sum = 0;
    for (long i = 0; i < (long)turns; i++) sum += recurse(i % 7);
    LEAVE(worker);
    return (void *)sum;
}

// Of a local function, GCC knows which registers it leaves alone, and keeps values of the caller there.
TRACED static long few(long a) {
    ENTER(few);
    LEAVE(few);
    return a + 1;
}
#define MANY(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22)
#define LOAD(n) long v##n = from[n];
#define ADD(n) +v##n * (2 * n + 1)
NOT_TRACED __attribute__((noinline, noclone)) static long crowded(const volatile long *from) {
    MANY(LOAD)
    long first = few(v0);
    return first MANY(ADD);
}

// No indirect call may come here where the processor looks for landing pads.
void no_pad(void);
__asm__(".pushsection .text\nno_pad: ret\n.popsection");
static void (*volatile wrong)(void) = no_pad;
// Others come to functions whatever they begin with.
static long (*volatile tails)(long) = tail, (*volatile recurses)(long) = recurse;

NOT_TRACED static void check(int fine, const char *what) {
    if (fine) return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(9);
}

// One thread after many others. It is not recorded itself.
NOT_TRACED static void *last(void *turns) {
    for (long i = 0; i < (long)turns; i++) check(variadic(1, 1.5) == 1.5, "variadic");
    return 0;
}
NOT_TRACED static void many_threads(void) {
    pthread_t threads[50];
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 50; i++) pthread_create(threads + i, 0, worker, (void *)20);
        for (int i = 0; i < 50; i++) pthread_join(threads[i], 0);
    }
    pthread_create(threads, 0, last, (void *)2000);
    pthread_join(threads[0], 0);
}

// Children of all kinds, while this process goes on with a buffer that has records.
NOT_TRACED static void ends(pid_t child, const char *kind) {
    int status = 9;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, kind);
}
static pid_t seventh;
NOT_TRACED static int cloned(void *argument) {
    in_child();
    _exit(argument != &names || seventh != getpid());
}
NOT_TRACED static int lives(void *argument) {
    (void)argument;
    return 0;
}
NOT_TRACED static void children(void) {
    static char stack[1 << 16];
    pid_t child;
    for (int i = 0; i < 3; i++) {
        leaf(1);
        ends(clone(cloned, stack + sizeof stack - 8 * i, SIGCHLD | CLONE_CHILD_SETTID, (void *)&names, 0, 0, &seventh), "clone");
        check(clone(lives, 0, SIGCHLD, 0) == -1 && clone(0, stack, SIGCHLD, 0) == -1, "clone without a stack or a function");
        if ((child = _Fork()) == 0) {
            in_child();
            _exit(0);
        }
        ends(child, "_Fork");
        leaf(1);
// qemu's user mode does not share memory with such children.
#ifdef __x86_64__
        if ((child = vfork()) == 0) {
            in_child();
            // More than a buffer has room for.
            for (int n = 0; n < 3000; n++) leaf(1);
            _exit(0);
        }
        ends(child, "vfork");
        for (int n = 0; n < 3000; n++) leaf(1);
        char *args[] = {"true", 0}, *none[] = {0};
        check(posix_spawnp(&child, args[0], 0, 0, args, none) == 0, "posix_spawnp");
        ends(child, "posix_spawn");
        leaf(1);
#endif
    }
}

NOT_TRACED int main(int argc, char **argv) {
    long turns = argc > 2 ? atol(argv[2]) : 1000;
    size_t size = sizeof *counts * COUNT;
    counts = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (long round = 0; round < 3; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, worker, (void *)turns);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    }
    children();
    check(ninth(1, 2, 3, 4, 5, 6, 7, 8, 9, 2.5, 4) == 36 + 900 + 2 + 4000, "ninth");
    check(variadic(9, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.5) == 45.5, "variadic");
    check(tail(4) == 5, "tail");
    check(tails(4) == 5 && recurses(4) == 5, "calls by pointers");
    long many[23], wanted = 8;
    for (int i = 0; i < 23; i++) many[i] = 7 + 1000 * i, wanted += many[i] * (2 * i + 1);
    check(crowded(many) == wanted, "crowded");
    jumps(0);
    for (volatile int i = 0; i < 100; i++)
        if (!setjmp(back)) jumps(1);
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, 0);
    for (int i = 0; i < 50; i++) raise(SIGUSR1);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            in_child();
            _exit(0);
        }
        waitpid(child, 0, 0);
    }
    if (argc > 3 && !strcmp(argv[3], "raw")) {
        pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            for (int n = 0; n < 3000; n++) leaf(1);
            for (int n = 0; n < 3000; n++) in_child();
            _exit(0);
        }
        ends(child, "a system call");
    }
    if (argc > 3 && !strcmp(argv[3], "many")) many_threads();
    if (argc > 3 && !strcmp(argv[3], "wrong")) wrong();
    FILE *out = fopen(argv[1], "w");
    for (int i = 0; i < COUNT; i++) fprintf(out, "%s %ld %ld\n", names[i], counts[i].entered, counts[i].returned);
    fclose(out);
    if (argc > 3 && !strcmp(argv[3], "killed")) kill(getpid(), SIGKILL);
    return argc > 3 ? atoi(argv[3]) : 0;
}
