// SPDX-License-Identifier: MIT OR Apache-2.0
// System calls without the C library, and the processor's clock: nothing here may set errno, or pass a function that somebody has interposed.
// And the bit for PROT_* of pages that indirect branches enter at landing pads alone, where the processor looks and the system knows of it.
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCH "x86_64"
static inline long call6(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return n;
}
static inline unsigned long ticks(void) { return __builtin_ia32_rdtsc(); }
static inline unsigned long guard(void) { return 0; }
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/mman.h>
#define ARCH "arm64"
static inline long call6(long n, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
static inline unsigned long ticks(void) {
    unsigned long now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
}
static inline unsigned long guard(void) { return getauxval(AT_HWCAP2) & HWCAP2_BTI ? PROT_BTI : 0; }
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCH "riscv64"
static inline long call6(long n, long a, long b, long c, long d, long e, long f) {
    register long a7 __asm__("a7") = n, a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c;
    register long a3 __asm__("a3") = d, a4 __asm__("a4") = e, a5 __asm__("a5") = f;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5) : "memory");
    return a0;
}
static inline unsigned long ticks(void) {
    unsigned long now;
    __asm__ volatile("rdtime %0" : "=r"(now));
    return now;
}
static inline unsigned long guard(void) { return 0; }
#else
#error "no such architecture: valid are x86_64, arm64 and riscv64"
#endif

#define CALL(n, a, b, c, d, e, f) call6(SYS_##n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
