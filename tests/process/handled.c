/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What handlers do between telling and losing their registers. This file uses general registers only, and calls no library,
   which may use others. */
#include "harness.h"

const struct test *now;
struct event events[MOST_EVENTS];
int event_count;

static uint64_t parents[8];
int parent_count;

static void copy(volatile uint64_t *to, const volatile uint64_t *from, unsigned words) {
    while (words--) *to++ = *from++;
}

/* What a changed register is changed by: never nothing. */
uint64_t changed(const struct test *t, int reg) { return (t->seed ^ reg) * 0x9e3779b97f4a7c15 | 1; }

static uint64_t *slot(uint64_t *fregs, const struct slot *at, int reg) {
    for (; at->reg != END_SLOT; at++)
        if (at->reg == reg) return fregs + at->offset / 8;
    return 0;
}

/* Whether a handler may change this register: a value other than bool is in it, or a part of one. */
int changeable(const struct test *t, const struct piece *p, const struct value *values, int reg) {
    if (reg == t->sret && values == t->arg) return 0;
    for (; p->place; p++)
        if (p->place == 'g' && p->index == reg) return !values[p->of].boolean;
    return 0;
}

static void change(const struct test *t, uint64_t *fregs, int exit) {
    const struct piece *at = exit ? t->result_at : t->at;
    const struct value *values = exit ? &t->result : t->arg;
    for (int reg = 0; reg < GENERAL; reg++) {
        uint64_t *word = slot(fregs, layout(t, exit), reg);
        if (word && changeable(t, at, values, reg)) *word ^= changed(t, reg);
    }
}

/* The context's words, in the order of the pieces that are no vector registers. */
static void change_words(const struct test *t, uint64_t *words, const struct piece *at, const struct value *values) {
    for (; at->place; at++) {
        if (at->place == 'g' && changeable(t, at, values, at->index)) *words ^= changed(t, at->index);
        words += at->place == 'g' ? 1 : at->place == 's' ? (at->size + 7) / 8 : 0;
    }
}

static uint64_t program(const struct test *t, struct event *e, int n, uint64_t *words, uint64_t *cookie) {
    copy(e->context, words - 1 - t->ip_arg, 1 + t->ip_arg + t->words + 2);
    e->cookie = *cookie;
    *cookie = 0x5a5a5a5a5a5a5a5a;
    uint64_t garbage = changed(t, 99);
    if (t->act == MODIFY && n == 0 && t->fentry) change_words(t, words, t->at, t->arg);
    if (t->act == MODIFY && t->fexit && n == t->fentry + t->fmod_ret + t->fexit - 1)
        change_words(t, words + t->words, t->result_at, &t->result);
    int deciding = n >= t->fentry && n < t->fentry + t->fmod_ret;
    if (!deciding) return garbage;
    /* The last one decides. */
    return t->act == SKIP && n == t->fentry + t->fmod_ret - 1 ? (t->result.boolean ? 1 : garbage) : 0;
}

uint64_t handled(int which) {
    const struct test *t = now;
    struct event *e = &events[event_count < MOST_EVENTS ? event_count : MOST_EVENTS - 1];
    event_count++;
    e->slot = which;
    copy((uint64_t *)&e->s, (uint64_t *)&handler_state, sizeof handler_state / 8);
    copy(e->s.stack, (uint64_t *)(handler_state.g[SP_REG] + STACK_ARGS), MOST_WORDS);
    uint64_t *arg = handler_state.g;
    if (which >= FIRST_PROGRAM)
        return e->returned = program(t, e, which - FIRST_PROGRAM, (uint64_t *)arg[ARG_REG(0)], (uint64_t *)arg[ARG_REG(1)]);
    int exit = which == EXIT_SLOT;
    /* Of the direct trampoline. */
    if (exit && (t->act == NEXT || t->act == EARLY)) return e->returned = changed(t, 95);
    int has = t->kind == ARGS || t->kind == REGS || t->kind == GRAPH || t->kind == FREGS || t->kind == SHADOW;
    if (!has) return e->returned = changed(t, 98);
    uint64_t *fregs = (uint64_t *)(exit ? arg[ARG_REG(0)] : arg[ARG_REG(2 + t->op)]);
    copy(e->fregs, fregs, sizeof e->fregs / 8);
    if (t->act == MODIFY) change(t, fregs, exit);
    if (t->act == REDIRECT) *slot(fregs, layout(t, 0), PC_SLOT) = (uint64_t)redirected;
    if (t->act == NEXT) *slot(fregs, layout(t, 0), DIRECT_SLOT) = (uint64_t)t->back;
    if (t->kind != GRAPH && t->kind != SHADOW) return e->returned = changed(t, 97);
    if (exit) return e->returned = parents[--parent_count & 7];
    uint64_t parent = arg[ARG_REG(1)];
    if (t->kind == GRAPH) {
        /* On x86_64 it is where the caller pushed it, elsewhere in a register. */
        uint64_t *at = slot(fregs, layout(t, 0), PARENT_SLOT);
        if (!at) at = (uint64_t *)*slot(fregs, layout(t, 0), SP_SLOT);
        parent = *at;
        *at = (uint64_t)t->back;
    }
    parents[parent_count++ & 7] = parent;
    return e->returned = changed(t, 96);
}
