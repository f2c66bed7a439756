/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One call of a case's function, with other values each time: what the function, its caller and the handlers find is compared
   with what the psABI and the contracts say. */
#include "harness.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CANARY 256

/* What the contracts and the psABI keep, by the numbers of registers. */
#ifdef __x86_64__
#define SAVED 0xf028u
#define SAVED_VECTORS 0u
#define VECTOR_ARGS 0xffu
#define LIVE_ARGS 0x3c7u
#define LIVE_ALL 0xfc7u
#define FRAME_POINTER 5
#define CHAIN 0x400u
#define FLAGS 0x8d5u
#elif defined(__aarch64__)
#define SAVED 0x3ffc0000u
#define SAVED_VECTORS 0xff00u
#define VECTOR_ARGS 0xffu
#define LIVE_ARGS 0x1ffu
#define LIVE_ALL 0x3fdffu
#define FRAME_POINTER 29
#define CHAIN 0x48000u
#define FLAGS 0xf0000000u
#else
#define SAVED 0xffc0318u
#define SAVED_VECTORS 0xffc0300u
#define VECTOR_ARGS 0x3fc00u
#define LIVE_ARGS 0x3fc00u
#define LIVE_ALL 0xf003fc80u
#define FRAME_POINTER 8
#define CHAIN 0x80u
#define FLAGS 0u
#endif

/* What a traced body saw and gives. */
uint8_t seen[MOST_ARGS][16], give_result[64];
unsigned seen_calls, again;

struct state image;
uint8_t values[MOST_ARGS][16], *stack;
int failures, told;
/* The machine has YMM registers. */
int has_upper;
#ifdef __aarch64__
uint32_t x18_is_scratch;
#endif
const char *phase;
uint64_t chance;
static uint8_t memory[64];

static uint64_t some(void) {
    chance += 0x9e3779b97f4a7c15;
    uint64_t z = (chance ^ chance >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void fail(const char *format, ...) {
    va_list list;
    failures++;
    if (told++ >= 4) return;
    printf("FAIL %s: %s: ", now->name, phase);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
}

void same(uint64_t is, uint64_t wanted, const char *what, int n) {
    if (is != wanted) fail("%s %d is %#lx, not %#lx", what, n, (long)is, (long)wanted);
}

/* A call that may be traced, with much on the stack and nothing left in registers. */
__attribute__((noinline)) void helper(void) {
    volatile uint8_t much[700];
    for (unsigned i = 0; i < sizeof much; i++) much[i] = 0xa5;
#ifdef __x86_64__
    asm volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "xmm0", "xmm7", "xmm15", "memory");
#elif defined(__aarch64__)
    asm volatile("" ::: "x19", "x20", "x28", "v0", "v8", "v15", "memory");
#else
    asm volatile("" ::: "s1", "s2", "s11", "fa0", "fs0", "fs11", "memory");
#endif
}

/* Bytes of a piece as they are in registers and on the stack of a call. */
uint8_t *at(struct state *s, const struct piece *p) {
    if (p->place == 'g') return (uint8_t *)&s->g[p->index];
    return p->place == 'v' ? s->v[p->index] : (uint8_t *)s->stack + p->index;
}

static void put(struct state *s, const struct piece *p, const uint8_t *value) {
    uint8_t *to = at(s, p);
    memcpy(to, value + p->offset, p->size);
    /* Upper bits, as compilers rely on them. */
    int sign = (p->extend == 's' || p->extend == 'S') && to[p->size - 1] >> 7;
    unsigned narrow = p->extend == 's' || p->extend == 'u' ? 4 : p->extend ? 8 : 0;
    for (unsigned i = p->size; i < narrow; i++) to[i] = sign ? 0xff : 0;
    /* riscv64: up to 32 bits by the type's sign, from there by that of the word. */
    if (p->extend == 'U' && p->size == 4) memset(to + 4, to[3] >> 7 ? 0xff : 0, 4);
    if (p->extend == 'n') memset(to + 4, 0xff, 4);
}

static void random_value(uint8_t *to, const struct value *v) {
    for (unsigned i = 0; i < v->size; i++) to[i] = v->boolean ? some() & 1 : some();
}

int differs(const uint8_t *is, const uint8_t *wanted, uint64_t valid, unsigned offset, unsigned size) {
    for (unsigned i = 0; i < size; i++)
        if (valid >> (offset + i) & 1 && is[i] != wanted[i]) return 1;
    return 0;
}

static void prepare(const struct test *t) {
    uint64_t *words = (uint64_t *)&image;
    for (unsigned i = 0; i < sizeof image / 8; i++) words[i] = some();
    for (unsigned i = 0; i < sizeof trash_state / 8; i++) ((uint64_t *)&trash_state)[i] = some();
    for (unsigned i = 0; i < sizeof give_state / 8; i++) ((uint64_t *)&give_state)[i] = some();
    for (int a = 0; a < t->args; a++) random_value(values[a], &t->arg[a]);
    for (const struct piece *p = t->at; p->place; p++) put(&image, p, values[p->of]);
    random_value(give_result, &t->result);
    for (const struct piece *p = t->result_at; p->place; p++) put(&give_state, p, give_result);
    memset(memory, 0x77, sizeof memory);
    if (t->sret >= 0) image.g[t->sret] = (uint64_t)memory;
#ifdef __x86_64__
    if (t->sret >= 0) give_state.g[0] = (uint64_t)memory;
    image.flags = (image.flags & FLAGS) | 0x202;
    trash_state.flags = (trash_state.flags & FLAGS) | 0x202;
    give_state.flags = (give_state.flags & FLAGS) | 0x202;
    has_upper = __builtin_cpu_supports("avx");
    image.control = 0x1f80 | (image.control & 0x6000);
    image.x87 = 0x37f | (image.x87 & 0xc00);
#elif defined(__aarch64__)
    image.flags &= FLAGS;
    image.control &= 0x1c00000;
    image.g[16] = (uint64_t)t->function;
    x18_is_scratch = !t->op;
#else
    image.control = (image.control >> 3) % 5 << 5;
    asm("mv %0, gp" : "=r"(image.g[3]));
    asm("mv %0, tp" : "=r"(image.g[4]));
    image.g[31] = (uint64_t)t->function;
#endif
    uint8_t *sp = stack + STACK_SIZE - 1024;
    image.g[SP_REG] = (uint64_t)sp;
    memcpy(sp, image.stack, sizeof image.stack);
    memset(sp + sizeof image.stack, 0xc3, CANARY);
    call_in = image;
    call_target = (void *)t->function;
    event_count = parent_count = 0;
    seen_calls = probe_calls = 0;
    again = t->again;
    memset(seen, 0x11, sizeof seen);
}

/* What the function finds, once handlers have changed what they change. */
static void change_image(const struct test *t) {
    int changes = t->kind != PROGRAMS ? t->kind != DIRECT && t->kind != FRAME : t->fentry > 0;
    if (t->act != MODIFY || !changes) return;
    for (int reg = 0; reg < GENERAL; reg++)
        if (changeable(t, t->at, t->arg, reg)) image.g[reg] ^= changed(t, reg);
}

static void change_result(const struct test *t) {
    int changes = t->kind == PROGRAMS ? t->fexit > 0 : t->kind == GRAPH || t->kind == FREGS || t->kind == SHADOW;
    if (t->act != MODIFY || !changes) return;
    for (int reg = 0; reg < GENERAL; reg++)
        if (changeable(t, t->result_at, &t->result, reg)) give_state.g[reg] ^= changed(t, reg);
}

int paired(const struct test *t) {
    return t->jumps || t->fmod_ret || t->fexit;
}

/* Values by their pieces: those that a function of the prototype would take. */
static void compare_pieces(struct state *is, const struct piece *p, const struct value *values, const char *what) {
    for (; p->place; p++)
        if (differs(at(is, p), at(&image, p), values[p->of].valid, p->offset, p->size))
            fail("%s: argument %d, %c%d is %#lx, not %#lx", what, p->of, p->place, p->index, *(long *)at(is, p),
                *(long *)at(&image, p));
}

static void compare_probe(const struct test *t, int traced) {
    struct state *is = &probe_state;
    uint64_t kept = SAVED;
    int direct = t->kind == DIRECT || t->act == NEXT || t->act == EARLY;
    int entry = !traced || (t->kind <= GRAPH && !direct);
    if (entry) kept |= !traced || t->kind == REGS ? LIVE_ALL : LIVE_ARGS;
    if (traced && paired(t) && t->kind != SHADOW) kept &= ~(1u << FRAME_POINTER);
    if (t->sret >= 0) kept |= 1u << t->sret;
    /* `bare` keeps what callers of nested functions pass. */
    if (!t->op) kept |= CHAIN;
#ifdef __riscv
    /* Where direct trampolines are named. */
    if (t->op) kept &= ~(1u << 6);
#endif
    for (int reg = 0; reg < GENERAL; reg++)
        if (kept >> reg & 1) same(is->g[reg], image.g[reg], "at the function's entry, register", reg);
    compare_pieces(is, t->at, t->arg, "at the function's entry");
    /* On x86_64 those from 16 on are upper halves. No general handler touches them; they are no argument, and C keeps none. */
    for (int reg = 0; reg < 32 && (reg < GENERAL || GENERAL > 16 || has_upper); reg++) {
        int whole = entry && (!traced || direct || !t->vectors || VECTOR_ARGS >> reg & 1);
        unsigned bytes = whole ? (GENERAL == 32 ? 8 : 16) : SAVED_VECTORS >> reg & 1 ? 8 : 0;
        if (memcmp(is->v[reg], image.v[reg], bytes)) fail("at the function's entry, vector register %d is changed", reg);
    }
    uint64_t sp = image.g[SP_REG] - STACK_ARGS;
    if (!paired(t) || t->kind == SHADOW || !traced) same(is->g[SP_REG], sp, "at the function's entry, sp", SP_REG);
    else same((is->g[SP_REG] + STACK_ARGS) % 16, 0, "at the function's entry, alignment", 16);
    if ((t->flags && traced && !direct) || !traced) same(is->flags & FLAGS, image.flags & FLAGS, "flags at the function's entry", 0);
}

static void compare_result(const struct test *t, int traced) {
    uint64_t sp = image.g[SP_REG];
    uint64_t saved = SAVED;
#ifdef __aarch64__
    /* The platform's register, which Linux leaves to compilers in user space. */
    if (!t->probe || !t->op) saved &= ~(1u << 18);
#endif
    for (int reg = 0; reg < GENERAL; reg++)
        if (saved >> reg & 1) same(call_out.g[reg], image.g[reg], "behind the call, register", reg);
    for (int reg = 0; reg < 32; reg++)
        if (SAVED_VECTORS >> reg & 1 && memcmp(call_out.v[reg], image.v[reg], 8))
            fail("behind the call, vector register %d is changed", reg);
    same(call_out.g[SP_REG], sp, "behind the call, sp", SP_REG);
#ifdef __x86_64__
    same(call_out.flags & 0x400, 0, "behind the call, DF", 0);
    same(call_out.control & ~0x3ful, image.control & ~0x3ful, "behind the call, MXCSR", 0);
    same(call_out.x87 & 0xffff, image.x87 & 0xffff, "behind the call, the x87 control word", 0);
#elif defined(__aarch64__)
    same(call_out.control, image.control, "behind the call, FPCR", 0);
#else
    same(call_out.control & ~0x1ful, image.control, "behind the call, fcsr", 0);
#endif
    for (unsigned i = 0; i < CANARY; i++)
        if (((uint8_t *)sp)[sizeof image.stack + i] != 0xc3) { fail("the caller's stack is changed at byte %d", i); break; }
    if (traced && t->act == SKIP) {
        const struct piece *p = t->result_at;
        uint64_t decided = t->result.boolean ? 1 : changed(t, 99);
        if (p->place) memcpy(&give_state.g[p->index], &decided, 8);
    }
    for (const struct piece *p = t->result_at; p->place; p++)
        if (differs(at(&call_out, p), at(&give_state, p), t->result.valid, p->offset, p->size))
            fail("result, %c%d is %#lx, not %#lx", p->place, p->index, *(long *)at(&call_out, p), *(long *)at(&give_state, p));
    if (t->sret >= 0 && !t->probe && !(traced && t->act == REDIRECT)) {
        if (differs(memory, give_result, t->result.valid, 0, t->result.size)) fail("the result in memory is not the function's");
    }
}

void run(const struct test *t, int traced) {
    prepare(t);
    measured_call();
    int handlers = traced ? event_count : 0;
    if (!traced && event_count) fail("%d calls of handlers", event_count);
    if (traced) compare_events(t);
    if (traced) change_image(t);
    unsigned calls = traced && t->act == SKIP ? 0 : t->again + 1;
    int redirect = traced && t->act == REDIRECT;
    if (t->probe || redirect) {
        same(probe_calls, calls, "calls of the function", handlers);
        same(seen_calls, 0, "calls of another function", handlers);
        if (calls) compare_probe(t, traced);
    } else {
        same(seen_calls, calls, "calls of the function", handlers);
        for (const struct piece *p = t->at; calls && p->place; p++)
            if (differs(seen[p->of] + p->offset, at(&image, p), t->arg[p->of].valid >> p->offset, 0, p->size))
                fail("argument %d is %#lx in the function, not %#lx", p->of, *(long *)(seen[p->of] + p->offset),
                    *(long *)at(&image, p));
    }
    if (traced) change_result(t);
    compare_result(t, traced);
}
