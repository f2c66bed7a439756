// SPDX-License-Identifier: MIT OR Apache-2.0
// Coroutines that yield in the middle of functions, and go on in other threads. The program writes what it has counted to the file that
// it is given, as program.c does.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOT_TRACED __attribute__((patchable_function_entry(0, 0)))
#define TRACED __attribute__((noinline, noclone))
#define FUNCTIONS(X) X(leaf) X(body) X(yields) X(resumes) X(worker)

#define NUMBER(f) N_##f,
#define NAME(f) #f,
enum { FUNCTIONS(NUMBER) COUNT };
static const char *const names[] = {FUNCTIONS(NAME)};
static long counts[COUNT][2];

#define ENTER(f) counts[N_##f][0]++
#define LEAVE(f) counts[N_##f][1]++

enum { COROUTINES = 100, STACK = 1 << 16, ROUNDS = 50 };
static ucontext_t back, coroutines[COROUTINES];
static long sums[COROUTINES];

TRACED long leaf(long a) {
    ENTER(leaf);
    LEAVE(leaf);
    return a + 1;
}
TRACED long yields(int who, long n) {
    ENTER(yields);
    long result = n > 3 ? leaf(n) : yields(who, n + 1) - 1;
    if (n > 2) swapcontext(coroutines + who, &back);
    LEAVE(yields);
    return result;
}
// Each goes on for as many rounds as its number says, and ends by its return.
TRACED void body(int who) {
    ENTER(body);
    for (int i = 0; i < who; i++) sums[who] += yields(who, i % 5);
    LEAVE(body);
}
TRACED void resumes(int who) {
    ENTER(resumes);
    swapcontext(&back, coroutines + who);
    LEAVE(resumes);
}
TRACED void *worker(void *rounds) {
    ENTER(worker);
    for (long i = 0; i < (long)rounds; i++)
        for (int who = 0; who < COROUTINES; who++)
            if (coroutines[who].uc_link) resumes(who);
    LEAVE(worker);
    return 0;
}

// The last thing that a coroutine does: nobody resumes it once more.
NOT_TRACED static void begins(int who) {
    body(who);
    coroutines[who].uc_link = 0;
    setcontext(&back);
}

NOT_TRACED int main(int argc, char **argv) {
    if (argc < 4) return 8;
    for (int who = 0; who < COROUTINES; who++) {
        ucontext_t *one = coroutines + who;
        getcontext(one);
        one->uc_stack.ss_sp = malloc(STACK), one->uc_stack.ss_size = STACK, one->uc_link = &back;
        makecontext(one, (void (*)(void))begins, 1, who);
    }
    // Some have not ended when their thread does, and some never end.
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, worker, (void *)(long)ROUNDS);
        pthread_join(thread, 0);
    }
    worker((void *)1);
    for (int who = 0; who < COROUTINES; who++) {
        long wanted = 0;
        for (int i = 0; i < who; i++) wanted += i % 5 + 1;
        if (!coroutines[who].uc_link && sums[who] != wanted) {
            fprintf(stderr, "wrong: coroutine %d has %ld, not %ld\n", who, sums[who], wanted);
            return 9;
        }
    }
    FILE *out = fopen(argv[1], "w");
    for (int i = 0; i < COUNT; i++) fprintf(out, "%s %ld %ld\n", names[i], counts[i][0], counts[i][1]);
    fclose(out);
    return atoi(argv[3]);
}
