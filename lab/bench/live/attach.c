// SPDX-License-Identifier: GPL-2.0-only
// What it takes to attach handlers to FUNCTIONS of this program, and to enable and disable all of them while THREADS call them. They are
// in `table`, which the benchmark generates. Prints a line for each: its name and a number.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tramptool_live.h"

extern void (*const table[])(void);

enum { ROUNDS = 15 };
static size_t functions;
static _Atomic int over;
static _Atomic uint64_t calls;

static void entered(struct tl_call *call, void *data) { (void)call, (void)data, calls++; }

static void *caller(void *from) {
    while (!over)
        for (size_t n = (size_t)from % functions; n < functions && !over; n += 7) table[n]();
    return 0;
}

static double ms(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

// The memory of this process that is there, in bytes.
static double memory(void) {
    unsigned long all = 0, here = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu %lu", &all, &here) != 2) exit(3);
    fclose(file);
    return (double)here * sysconf(_SC_PAGESIZE);
}

static void check(int fine) {
    if (fine) return;
    fprintf(stderr, "%s\n", tl_last_error());
    exit(2);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    functions = strtoul(argv[1], 0, 10);
    size_t threads = strtoul(argv[2], 0, 10);
    struct tl_function **found = calloc(functions, sizeof *found);
    struct tl_hook **hooks = calloc(functions, sizeof *hooks);
    pthread_t *others = calloc(threads + 1, sizeof *others);
    check(tl_open() == 0 && found && hooks && others);
    for (size_t n = 0; n < functions; n++) check(!!(found[n] = tl_function_at((const void *)table[n])));
    // What is made once is no part of a function's share.
    struct tl_hook *first = tl_around(found[0], entered, 0, 0);
    check(first != 0);
    double before = memory(), begun = ms(CLOCK_PROCESS_CPUTIME_ID);
    for (size_t n = 0; n < functions; n++) check(!!(hooks[n] = tl_around(found[n], entered, 0, 0)));
    printf("attach-us %f\n", (ms(CLOCK_PROCESS_CPUTIME_ID) - begun) * 1e3 / functions);
    printf("bytes %f\n", (memory() - before) / functions);
    for (size_t n = 0; n < threads; n++) check(pthread_create(others + n, 0, caller, (void *)(n * 7919)) == 0);
    double least[2] = {1e9, 1e9};
    for (int round = 0; round < 2 * ROUNDS; round++) {
        begun = ms(CLOCK_MONOTONIC);
        check(tl_batch(hooks, functions, round % 2 == 0) == 0);
        double took = ms(CLOCK_MONOTONIC) - begun;
        if (took < least[round % 2]) least[round % 2] = took;
    }
    over = 1;
    for (size_t n = 0; n < threads; n++) pthread_join(others[n], 0);
    printf("enable-ms %f\ndisable-ms %f\ncalls %lu\n", least[0], least[1], (unsigned long)calls);
    return 0;
}
