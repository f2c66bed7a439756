// SPDX-License-Identifier: MIT OR Apache-2.0
// As program.c, but its functions are left by exceptions, pthread_exit and pthread_cancel.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>

#define NOT_TRACED __attribute__((patchable_function_entry(0, 0)))
#define TRACED extern "C" __attribute__((noinline, noclone))
#define FUNCTIONS(X) X(destroyed) X(deep) X(thrower) X(jumps_to_it) X(passes) X(catches) X(again) X(leaves) X(waits) X(thread) X(looks) \
    X(often) X(jumps_to_often)

#define NUMBER(f) N_##f,
#define NAME(f) #f,
enum { FUNCTIONS(NUMBER) COUNT };
static const char *const names[] = {FUNCTIONS(NAME)};
static std::atomic<long> entered[COUNT], returned[COUNT];

#define ENTER(f) entered[N_##f]++
#define LEAVE(f) returned[N_##f]++

TRACED void destroyed(bool nested);
// The destructor is no function of its own: what it calls is traced.
struct Guard {
    bool nested = false;
    NOT_TRACED __attribute__((always_inline)) ~Guard() { destroyed(nested); }
};

TRACED void thrower(long n) {
    ENTER(thrower);
    if (n >= 0) throw n;
    LEAVE(thrower);
}
TRACED void destroyed(bool nested) {
    ENTER(destroyed);
    // While one exception is on its way, another one is thrown and caught.
    try {
        if (nested) thrower(1);
    } catch (long) {
    }
    LEAVE(destroyed);
}
TRACED void deep(long n) {
    ENTER(deep);
    Guard guard{n == 2};
    if (n == 0) throw std::runtime_error("the bottom");
    deep(n - 1);
    LEAVE(deep);
}
TRACED void jumps_to_it(long n) {
    ENTER(jumps_to_it);
    return thrower(n);
}
TRACED void passes(long n) {
    ENTER(passes);
    try {
        jumps_to_it(n);
    } catch (std::exception &) {
        std::abort();
    }
    LEAVE(passes);
}
TRACED long catches(long n) {
    ENTER(catches);
    long result = 0;
    try {
        passes(n);
    } catch (long thrown) {
        result = thrown;
    }
    try {
        deep(5);
    } catch (std::runtime_error &) {
        result++;
    }
    LEAVE(catches);
    return result;
}
TRACED void again() {
    ENTER(again);
    try {
        deep(1);
    } catch (std::runtime_error &) {
        throw;
    }
    LEAVE(again);
}
TRACED void leaves(long n) {
    ENTER(leaves);
    Guard guard;
    if (n == 0) pthread_exit(reinterpret_cast<void *>(3));
    leaves(n - 1);
    LEAVE(leaves);
}
TRACED void waits() {
    ENTER(waits);
    Guard guard;
    for (;;) pause();
    LEAVE(waits);
}
TRACED void *thread(void *how) {
    ENTER(thread);
    if (how) leaves(20);
    else waits();
    LEAVE(thread);
    return how;
}
// What exceptions leave on the thread's shadow stack is more than it holds, above two entries of one frame; in an emulator, less.
#if defined(__x86_64__)
enum { OFTEN = 60000 };
#else
enum { OFTEN = 8000 };
#endif
TRACED void often(long n) {
    ENTER(often);
    while (n--) {
        try {
            deep(9);
        } catch (std::runtime_error &) {
        }
    }
    LEAVE(often);
}
TRACED void jumps_to_often(long n) {
    ENTER(jumps_to_often);
    LEAVE(jumps_to_often);
    often(n);
}
TRACED int looks(int n) {
    ENTER(looks);
    void *frames[64];
    int result = n ? looks(n - 1) : backtrace(frames, 64);
    LEAVE(looks);
    return result;
}

NOT_TRACED static void check(bool fine, const char *what) {
    if (fine) return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(9);
}

NOT_TRACED int main(int argc, char **argv) {
    long turns = argc > 2 ? atol(argv[2]) : 1000;
    for (long i = 0; i < turns; i++) {
        check(catches(i) == i + 1, "what is thrown is caught");
        try {
            again();
            check(false, "it is thrown again");
        } catch (std::runtime_error &) {
        }
    }
    for (int i = 0; i < 20; i++) {
        pthread_t made;
        void *result;
        pthread_create(&made, nullptr, thread, reinterpret_cast<void *>(i % 2));
        if (i % 2 == 0) {
            while (entered[N_waits] <= i / 2) usleep(100);
            pthread_cancel(made);
        }
        pthread_join(made, &result);
        check(result == (i % 2 ? reinterpret_cast<void *>(3) : PTHREAD_CANCELED), "threads end by unwinding");
    }
    jumps_to_often(OFTEN);
    int frames = looks(0);
    check(looks(5) >= frames + 5, "a backtrace has the frames behind trampolines");
    FILE *out = fopen(argv[1], "w");
    for (int i = 0; i < COUNT; i++) fprintf(out, "%s %ld %ld\n", names[i], entered[i].load(), returned[i].load());
    fclose(out);
    return argc > 3 ? atoi(argv[3]) : 0;
}
