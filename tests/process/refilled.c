// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions whose records fill one small buffer after the other, while signals come whose handler calls them too. The routine
// that makes room overwrites all that a C function may. stdout is the same whether they are traced or not; stderr has what the
// buffers say.
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "site.h"

void add_tramp(void);
void scale_tramp(void);
void pair_tramp(void);
void quad_tramp(void);

// What docs/trampolines.md says of a thread, of a record, and of an address in a buffer.
static __thread struct { uint64_t cursor, limit, count; } words;
struct record { uint64_t time, what, word; };
enum { FULL = 12, ROOM = 1 << FULL, BLOCKS = 1 << 15 };
static char *blocks;
static volatile long used, entered[4], returned[4], signals;

// A signal may come in the middle.
static void count(volatile long *of) { __atomic_fetch_add(of, 1, __ATOMIC_RELAXED); }

typedef double pair_of __attribute__((vector_size(16)));

SITE long add(long a, long b) {
    count(&entered[0]);
    __asm__ volatile("" : "+r"(a), "+r"(b));
    count(&returned[0]);
    return a + b;
}
SITE double scale(double x, double by) {
    count(&entered[1]);
    __asm__ volatile("" ::: "memory");
    count(&returned[1]);
    return x * by + 1;
}
SITE pair_of pair(pair_of a, pair_of b) {
    count(&entered[2]);
    return a * b + a;
}
#ifdef __x86_64__
SITE __attribute__((target("avx"))) __m256d quad(__m256d a, __m256d b) {
    count(&entered[3]);
    return _mm256_sub_pd(_mm256_add_pd(a, b), _mm256_set1_pd(0.5));
}

__attribute__((target("avx"))) static double quads(double n) {
    __m256d v = quad(_mm256_set_pd(n, 2 * n, 3 * n, 4 * n), _mm256_set_pd(4, 3, 2, 1));
    double all[4];
    _mm256_storeu_pd(all, v);
    return all[0] + 10 * all[1] + 100 * all[2] + 1000 * all[3];
}

static void overwrite(void) {
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm1, %%xmm1; pcmpeqd %%xmm2, %%xmm2" ::: "xmm0", "xmm1", "xmm2");
    if (__builtin_cpu_supports("avx")) __asm__ volatile("vzeroall" ::: "memory");
    if (__builtin_cpu_supports("avx512f"))
        __asm__ volatile("vpternlogd $255, %%zmm0, %%zmm0, %%zmm0; vpternlogd $255, %%zmm31, %%zmm31, %%zmm31; kxnorw %%k1, %%k1, %%k1"
                         ::: "memory");
}
#else
SITE void quad(void) { count(&entered[3]); }
#endif

#ifdef __aarch64__
static void overwrite(void) {
    __asm__ volatile("movi v0.2d, #0; movi v1.2d, #0; movi v2.2d, #0; movi v31.2d, #0" ::: "v0", "v1", "v2", "v31");
}
#elif defined(__riscv)
static void overwrite(void) {
    __asm__ volatile("fmv.d.x fa0, zero; fmv.d.x fa1, zero; fmv.d.x ft0, zero" ::: "fa0", "fa1", "ft0");
}
#endif

static uint64_t next_block(void) {
    long block = __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
    if (block >= BLOCKS) exit(5);
    return (uint64_t)blocks + block * 2l * ROOM;
}

// Somebody may have made room since it was called.
void new_buffer(void) {
    if (words.cursor & ROOM) __atomic_store_n(&words.cursor, next_block(), __ATOMIC_SEQ_CST);
    overwrite();
}

static double all(long n) {
    double sum = add(n, 3 * n) + scale(n, 1.5);
    pair_of p = pair((pair_of){n, 2.0 * n}, (pair_of){3, 4});
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx")) sum += quads(n);
#endif
    return sum + p[0] + 10 * p[1];
}

static void on_signal(int signal) {
    (void)signal;
    signals++;
    if (all(1) != all(1)) exit(6);
}

int main(int argc, char **argv) {
    char *pointer = __builtin_thread_pointer();
    (void)argc;
    if (!strcmp(argv[1], "offsets")) {
        printf("%ld %ld\n", (long)((char *)&words.cursor - pointer), (long)((char *)&words.count - pointer));
        return 0;
    }
    long times = atol(argv[1]);
    blocks = mmap(0, (BLOCKS + 1) * 2l * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    blocks = (char *)(((uintptr_t)blocks + 2 * ROOM - 1) & -(2l * ROOM));
    words.cursor = next_block();
    if (!strcmp(argv[2], "traced")) {
        patch_site((uint8_t *)add, add_tramp, 1);
        patch_site((uint8_t *)scale, scale_tramp, 1);
        patch_site((uint8_t *)pair, pair_tramp, 1);
        patch_site((uint8_t *)quad, quad_tramp, 1);
    }
    struct sigaction action = {.sa_handler = on_signal};
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    double sum = 0;
    for (long n = 0; n < times; n++) sum += all(n % 1000);
    setitimer(ITIMER_REAL, &never, 0);
    printf("sum %.17g\n", sum);
    long seen[4][3] = {0}, strange = 0;
    for (long block = 0; block < used; block++) {
        char *begin = blocks + block * 2l * ROOM, *end = begin + ROOM;
        char *r = begin;
        while (r < end && ((struct record *)r)->what) {
            struct record *record = (struct record *)r;
            unsigned id = record->what >> 8, kind = record->what & 15, more = record->what >> 4 & 15;
            if (id > 3 || kind < 1 || kind > 2 || more != (id == 0 && kind == 2)) strange++;
            else seen[id][kind]++;
            r += 16 + 8 * more;
        }
        // Behind the last record, nobody stored anything.
        for (; r < end + ROOM; r++) strange += *r != 0;
    }
    fprintf(stderr, "strange %ld, blocks %ld, signals %ld\n", strange, used, signals);
    for (int id = 0; id < 4; id++)
        fprintf(stderr, "%ld %ld %ld %ld\n", entered[id], returned[id], seen[id][1], seen[id][2]);
    return 0;
}
