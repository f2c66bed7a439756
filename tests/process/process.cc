// SPDX-License-Identifier: MIT OR Apache-2.0
// What a tracer's user does from a handler at the entry or the return, or from the traced body itself, through a patched site:
// unwind, throw, end the thread, stop for a debugger.
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "site.h"
#ifdef LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

// Where the stack is not realigned for handlers of C, they do it themselves.
#ifdef __x86_64__
#define REALIGNED __attribute__((force_align_arg_pointer))
#else
#define REALIGNED
#endif

#ifdef __x86_64__
#define RECORD 0
#define FREGS_SP 19
#elif defined(__aarch64__)
#define RECORD 0
#define FREGS_SP 12
#define MV "mov"
#else
#define RECORD -2
#define FREGS_SP 2
#define MV "mv"
#endif

#ifdef LIBRARY
// The entry trampolines refer to a variable, for which a shared object wants another way.
#define ENTRY __attribute__((weak))
#else
#define ENTRY
#endif

extern "C" {
ENTRY void ftrace_caller(void);
ENTRY void ftrace_regs_caller(void);
ENTRY void return_to_handler(void);
void direct_tramp(void);
void called_tramp(void);
void jumped_tramp(void);
void entered_tramp(void);
void around_tramp(void);
void fregs_tramp(void);
void shadow_tramp(void);
void *function_trace_op;
long traced(long a);
long caller(long a);
void *thread(void *);
long hooked(long a);
void hooker(void);
}

static const char *what, *where;
static void *frames[64];
static int frame_count;
static uintptr_t kept_parent, sp_then, sp_told;

static void unwind_here() { frame_count = backtrace(frames, 64); }

// For a debugger.
extern "C" __attribute__((noinline)) void stop_here() { asm volatile("" ::: "memory"); }

static void by_libunwind() {
#ifdef LIBUNWIND
    unw_context_t context;
    unw_cursor_t cursor;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    do {
        unw_word_t ip;
        unw_get_reg(&cursor, UNW_REG_IP, &ip);
        // Of the first it is where it is, of the others where they return to.
        frames[frame_count++] = (void *)(ip + (frame_count == 0));
    } while (unw_step(&cursor) > 0 && frame_count < 64);
#endif
}

// A return address without its signature, if it has one.
static uintptr_t plain(void *address) {
#ifdef __aarch64__
    register void *x30 asm("x30") = address;
    // XPACLRI.
    asm volatile("hint #7" : "+r"(x30));
    address = x30;
#endif
    return (uintptr_t)address;
}

// What an unwinder that follows frame pointers does, Linux's included: it only goes up.
static __attribute__((noinline)) void walk(uintptr_t fp) {
    frame_count = 0;
    for (uintptr_t last = 0; fp > last && frame_count < 16; last = fp, fp = ((uintptr_t *)fp)[RECORD])
        frames[frame_count++] = (void *)plain(((void **)fp)[RECORD + 1]);
}

static __attribute__((noinline)) void act(const char *here) {
    if (strcmp(where, here))
        return;
    if (!strcmp(what, "trace"))
        unwind_here();
    else if (!strcmp(what, "libunwind"))
        by_libunwind();
    else if (!strcmp(what, "stop"))
        stop_here();
    else if (!strcmp(what, "records"))
        walk((uintptr_t)__builtin_frame_address(0));
    else if (!strcmp(what, "throw"))
        throw 42;
    else if (!strcmp(what, "exit"))
        pthread_exit(nullptr);
    // Nothing above was a tail call.
    asm volatile("" ::: "memory");
}

extern "C" void handler() {
    act("entry");
    asm volatile("" ::: "memory");
}
extern "C" void ftrace_stub() { handler(); asm volatile("" ::: "memory"); }
extern "C" __attribute__((noinline)) void nothing() {
    // A word that nobody writes has this.
    volatile uintptr_t stack[512];
    for (int i = 0; i < 512; i++) stack[i] = 0x5a5a5a5a;
}
extern "C" void leaving() {
    nothing();
    act("exit");
    asm volatile("" ::: "memory");
}
extern "C" uint64_t program(uint64_t *, uint64_t *) { handler(); asm volatile("" ::: "memory"); return 0; }
extern "C" uint64_t silent(uint64_t *, uint64_t *) { leaving(); asm volatile("" ::: "memory"); return 0; }

// What keeps nothing on the stack leaves parent_ip to its handlers.
static uintptr_t parent_kept;
extern "C" REALIGNED void shadow_entry(uintptr_t, uintptr_t parent) {
    parent_kept = parent;
    handler();
    asm volatile("" ::: "memory");
}
extern "C" REALIGNED uintptr_t shadow_exit(void *) { leaving(); asm volatile("" ::: "memory"); return parent_kept; }

#ifdef CLEANUP
struct Cleanup { ~Cleanup() { puts("cleaned"); } };
#else
struct Cleanup {};
#endif

extern "C" SITE long traced(long a) {
    Cleanup cleanup;
    (void)cleanup;
    asm volatile("" : "+r"(a) :: "memory");
    act("body");
    asm volatile("" : "+r"(a) :: "memory");
    return a + 1;
}
// A compiler that sees the call takes it for one that cannot throw.
static long (*volatile called)(long) = traced;
extern "C" __attribute__((noinline)) long caller(long a) {
    long r = 0;
    try {
        r = called(a);
    } catch (int n) {
        printf("caught %d\n", n);
    }
    asm volatile("" ::: "memory");
    return r + 1;
}

// Its return goes to the trampoline, as the function graph tracer has it.
extern "C" __attribute__((noinline)) long hooked(long a) {
    volatile uintptr_t *slot = (uintptr_t *)__builtin_frame_address(0) + RECORD + 1;
    kept_parent = *slot;
    *slot = (uintptr_t)return_to_handler;
    nothing();
    act("body");
    asm volatile("" ::: "memory");
    return a + 1;
}
extern "C" uintptr_t ftrace_return_to_handler(uintptr_t *fregs) {
    sp_told = fregs[FREGS_SP];
    act("exit");
    return kept_parent;
}
extern "C" __attribute__((noinline)) void hooker(void) {
    long r = hooked(7);
#ifdef __x86_64__
    asm volatile("mov %%rsp, %0" : "=r"(sp_then));
#else
    asm volatile(MV " %0, sp" : "=r"(sp_then));
#endif
    printf("result %ld, sp %s\n", r, sp_then == sp_told ? "told" : "not told");
}

static void patch(void (*tramp)(void)) {
    int jump = tramp == jumped_tramp || tramp == around_tramp || tramp == fregs_tramp || tramp == shadow_tramp;
    patch_site((uint8_t *)traced, tramp, jump);
}

extern "C" void *thread(void *tramp) {
    if (tramp == (void *)return_to_handler) {
        hooker();
    } else {
        patch((void (*)(void))tramp);
        printf("result %ld\n", caller(40));
    }
    asm volatile("" ::: "memory");
    return nullptr;
}

int main(int, char **argv) {
    static const struct { const char *name; void (*tramp)(void); } all[] = {
        {"ftrace_caller", ftrace_caller}, {"ftrace_regs_caller", ftrace_regs_caller},
        {"direct_tramp", direct_tramp}, {"entered_tramp", entered_tramp}, {"called_tramp", called_tramp},
        {"jumped_tramp", jumped_tramp}, {"around_tramp", around_tramp}, {"fregs_tramp", fregs_tramp},
        {"shadow_tramp", shadow_tramp}, {"return_to_handler", return_to_handler},
    };
    what = argv[2];
    where = argv[3];
    setvbuf(stdout, nullptr, _IONBF, 0);
    void *warm[4];
    backtrace(warm, 4);
    for (auto &one : all) {
        if (strcmp(argv[1], one.name)) continue;
        pthread_t t;
        if (pthread_create(&t, nullptr, thread, (void *)one.tramp)) return 3;
        pthread_join(t, nullptr);
        for (int i = 0; i < frame_count; i++) printf("frame %lx\n", (unsigned long)frames[i]);
        puts("done");
        return 0;
    }
    return 4;
}
