/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What handlers and programs saw. Of a function that calls itself, the outermost call is looked at. */
#include "harness.h"

static uint64_t pc(const struct test *t) { return (uint64_t)t->function + t->behind; }

/* Everything C may rely on when it is called. */
static void called(const struct test *t, struct event *e) {
    same((e->s.g[SP_REG] + STACK_ARGS) % t->align, 0, "in a handler, alignment", t->align);
#ifdef __x86_64__
    same(e->s.flags & 0x400, 0, "in a handler, DF", 0);
    same(e->s.control & ~0x3ful, image.control & ~0x3ful, "in a handler, MXCSR", 0);
#endif
}

static void where(const struct test *t, struct event *e) {
    same(e->s.g[ARG_REG(0)], pc(t) - IP_BEFORE, "in a handler, ip", 0);
    same(e->s.g[ARG_REG(1)], (uint64_t)measured_return, "in a handler, parent_ip", 0);
    void *op = t->literal ? operation : function_trace_op;
    if (t->op) same(e->s.g[ARG_REG(2)], (uint64_t)op, "in a handler, op", 0);
}

static void entered(const struct test *t, struct event *e) {
    where(t, e);
    for (const struct slot *s = layout(t, 0); s->reg != END_SLOT; s++) {
        if (s->reg == DIRECT_SLOT) {
            if (t->act == NEXT) same(e->fregs[s->offset / 8], 0, "in a handler, the direct trampoline", 0);
            continue;
        }
        uint64_t wanted = s->reg == PC_SLOT ? pc(t)
            : s->reg == SP_SLOT ? image.g[SP_REG] - STACK_ARGS
            : s->reg == PARENT_SLOT ? (uint64_t)measured_return : image.g[s->reg];
        same(e->fregs[s->offset / 8], wanted, "in a handler's registers, number", s->reg);
    }
}

/* The result, from where `from` says its registers are. */
static void result(const struct test *t, const uint64_t *(*from)(const struct test *, struct event *, int), struct event *e) {
    for (const struct piece *p = t->result_at; p->place; p++) {
        const uint64_t *word = p->place == 'g' ? from(t, e, p->index) : 0;
        if (word && differs((const uint8_t *)word, give_result + p->offset, t->result.valid >> p->offset, 0, p->size))
            fail("in a handler, register %d of the result is %#lx, not %#lx", p->index, (long)*word,
                (long)give_state.g[p->index]);
    }
}

static const uint64_t *in_fregs(const struct test *t, struct event *e, int reg) {
    const struct slot *s = layout(t, 1);
    while (s->reg != END_SLOT && s->reg != reg) s++;
    return s->reg == reg ? &e->fregs[s->offset / 8] : 0;
}

/* The results are the exit handler's arguments. */
static const uint64_t *in_args(const struct test *t, struct event *e, int reg) {
    (void)t;
#ifdef __x86_64__
    return &e->s.g[ARG_REG(reg == 2)];
#else
    return &e->s.g[reg];
#endif
}

static void left(const struct test *t, struct event *e) {
    if (t->kind == FRAME) return result(t, in_args, e);
    for (const struct slot *s = layout(t, 1); s->reg != END_SLOT; s++)
        if (s->reg == SP_SLOT) same(e->fregs[s->offset / 8], image.g[SP_REG], "at the return, sp", 0);
    result(t, in_fregs, e);
}

/* A handler that is called like the function. */
static void arguments(const struct test *t, struct event *e, const struct piece *p) {
    for (; p->place; p++) {
        /* Handlers of the function's frame get general registers. */
        if (t->kind == FRAME && p->place == 'v') continue;
        if (differs(at(&e->s, p), values[p->of] + p->offset, t->arg[p->of].valid >> p->offset, 0, p->size))
            fail("in a handler, argument %d, %c%d is %#lx, not %#lx", p->of, p->place, p->index, *(long *)at(&e->s, p),
                *(long *)(values[p->of] + p->offset));
    }
    if ((t->kind == DIRECT || t->act == NEXT || t->act == EARLY) && t->sret >= 0) same(e->s.g[t->sret], image.g[t->sret], "in a handler, register", t->sret);
}

static void words(const struct test *t, struct event *e, int exit, int changed_already) {
    const uint64_t *word = e->context;
    if (t->ip_arg) same(*word++, pc(t) - IP_BEFORE, "in a program, ip", 0);
    same(*word++, t->words, "in a program, the number of words", 0);
    same(e->cookie, t->cookies[e->slot - FIRST_PROGRAM], "in a program, the cookie", e->slot - FIRST_PROGRAM);
    for (const struct piece *p = t->at; p->place; p++) {
        if (p->place == 'v') continue;
        int skip = changed_already && p->place == 'g' && changeable(t, t->at, t->arg, p->index);
        if (!skip && differs((const uint8_t *)word, values[p->of] + p->offset, t->arg[p->of].valid >> p->offset, 0, p->size))
            fail("in program %d, argument %d is %#lx, not %#lx", e->slot - FIRST_PROGRAM, p->of, (long)*word,
                *(long *)(values[p->of] + p->offset));
        word += p->place == 'g' ? 1 : (p->size + 7) / 8;
    }
    const struct piece *p = t->result_at;
    if (!exit || !p->place) return;
    if (t->act == SKIP) return same(*word, t->result.boolean ? 1 : changed(t, 99), "in a program, what another decided", 0);
    for (; p->place; p++) {
        if (p->place == 'v') continue;
        if (differs((const uint8_t *)word, give_result + p->offset, t->result.valid >> p->offset, 0, p->size))
            fail("in program %d, the result is %#lx, not %#lx", e->slot - FIRST_PROGRAM, (long)*word,
                *(long *)(give_result + p->offset));
        word++;
    }
}

static void programs(const struct test *t) {
    int before = t->fentry + t->fmod_ret, all = before + t->fexit, calls = t->act == SKIP ? 1 : t->again + 1;
    same(event_count, calls * all, "calls of programs", 0);
    for (int n = 0; n < all && event_count == calls * all; n++) {
        int exit = n >= before;
        /* Recursion nests: those before the first call come first, those behind it last. */
        struct event *e = &events[exit ? event_count - all + n : n];
        same(e->slot, FIRST_PROGRAM + n, "the program called is number", n);
        called(t, e);
        words(t, e, exit, t->act == MODIFY && n > 0 && t->fentry > 0);
    }
}

void compare_events(const struct test *t) {
    if (t->kind == PROGRAMS) return programs(t);
    int early = t->act == EARLY, both = t->kind == GRAPH || t->act == NEXT || paired(t);
    int count = (t->again + 1) * (1 + both);
    same(event_count, count, "calls of handlers", 0);
    if (event_count != count) return;
    struct event *entry = events, *exit = &events[event_count - 1];
    called(t, entry);
    same(entry->slot, early ? EXIT_SLOT : ENTRY_SLOT, "the first handler is number", 0);
    /* The direct trampoline is gone to at once, and its handler is the only one. */
    if (early) return arguments(t, entry, t->handler_at);
    if (t->kind == FRAME) arguments(t, entry, t->at);
    else if (t->kind != DIRECT) entered(t, entry);
    else {
        if (t->ip) same(entry->s.g[ARG_REG(0)], pc(t) - IP_BEFORE, "in a handler, ip", 0);
        arguments(t, entry, t->handler_at);
    }
    if (!both) return;
    called(t, exit);
    same(exit->slot, EXIT_SLOT, "the last handler is number", 1);
    if (t->act == NEXT) arguments(t, exit, t->handler_at);
    else left(t, exit);
}
