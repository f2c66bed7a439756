/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where handlers find registers: the structures of Linux 6.12 and of the profile `bare`, as their users write them down. */
#include "harness.h"

#ifdef __x86_64__
static const struct slot linux_args[] = {{7, 112}, {6, 104}, {2, 96}, {1, 88}, {8, 72}, {9, 64}, {0, 80}, {5, 32},
    {DIRECT_SLOT, 120}, {PC_SLOT, 128}, {SP_SLOT, 152},
    {END_SLOT, 0}};
static const struct slot linux_regs[] = {{15, 0}, {14, 8}, {13, 16}, {12, 24}, {5, 32}, {3, 40}, {11, 48}, {10, 56}, {9, 64},
    {8, 72}, {0, 80}, {1, 88}, {2, 96}, {6, 104}, {7, 112}, {DIRECT_SLOT, 120}, {PC_SLOT, 128}, {SP_SLOT, 152},
    {END_SLOT, 0}};
static const struct slot linux_exit[] = {{0, 80}, {2, 96}, {SP_SLOT, 152}, {END_SLOT, 0}};
static const struct slot bare_args[] = {{7, 0}, {6, 8}, {2, 16}, {1, 24}, {8, 32}, {9, 40}, {0, 48}, {5, 56}, {PC_SLOT, 64},
    {SP_SLOT, 72}, {END_SLOT, 0}};
static const struct slot bare_regs[] = {{0, 0}, {3, 8}, {1, 16}, {2, 24}, {6, 32}, {7, 40}, {5, 48}, {8, 56}, {9, 64},
    {10, 72}, {11, 80}, {12, 88}, {13, 96}, {14, 104}, {15, 112}, {PC_SLOT, 120}, {SP_SLOT, 128}, {END_SLOT, 0}};
static const struct slot bare_exit[] = {{0, 0}, {2, 8}, {SP_SLOT, 24}, {END_SLOT, 0}};
static const struct slot linux_around_exit[] = {{0, 80}, {2, 96}, {END_SLOT, 0}};
static const struct slot bare_around_exit[] = {{0, 48}, {2, 16}, {END_SLOT, 0}};
#elif defined(__aarch64__)
#define TO_X7 {0, 0}, {1, 8}, {2, 16}, {3, 24}, {4, 32}, {5, 40}, {6, 48}, {7, 56}
#define TO_X28 TO_X7, {8, 64}, {10, 80}, {11, 88}, {12, 96}, {13, 104}, {14, 112}, {15, 120}, {16, 128}, {17, 136}, {18, 144}, \
    {19, 152}, {20, 160}, {21, 168}, {22, 176}, {23, 184}, {24, 192}, {25, 200}, {26, 208}, {27, 216}, {28, 224}
static const struct slot linux_args[] = {TO_X7, {8, 64}, {DIRECT_SLOT, 72}, {29, 80}, {PARENT_SLOT, 88}, {SP_SLOT, 96}, {PC_SLOT, 104},
    {END_SLOT, 0}};
static const struct slot bare_args[] = {TO_X7, {8, 64}, {29, 72}, {PARENT_SLOT, 80}, {SP_SLOT, 88}, {PC_SLOT, 96},
    {END_SLOT, 0}};
static const struct slot linux_regs[] = {TO_X28, {29, 232}, {PARENT_SLOT, 240}, {SP_SLOT, 248}, {PC_SLOT, 256},
    {END_SLOT, 0}};
#define bare_regs linux_regs
static const struct slot linux_exit[] = {TO_X7, {SP_SLOT, 96}, {END_SLOT, 0}};
static const struct slot bare_exit[] = {TO_X7, {END_SLOT, 0}};
static const struct slot linux_around_exit[] = {{0, 0}, {1, 8}, {END_SLOT, 0}};
#define bare_around_exit linux_around_exit
#else
#define ARGS_FROM(at) {10, at}, {11, at + 8}, {12, at + 16}, {13, at + 24}, {14, at + 32}, {15, at + 40}, {16, at + 48}, \
    {17, at + 56}
#define SAVED_FROM(at) {18, at}, {19, at + 8}, {20, at + 16}, {21, at + 24}, {22, at + 32}, {23, at + 40}, {24, at + 48}, \
    {25, at + 56}, {26, at + 64}, {27, at + 72}
static const struct slot linux_args[] = {ARGS_FROM(40), {DIRECT_SLOT, 32}, {PC_SLOT, 0}, {PARENT_SLOT, 8}, {SP_SLOT, 16}, {END_SLOT, 0}};
static const struct slot bare_args[] = {ARGS_FROM(0), {8, 64}, {PARENT_SLOT, 72}, {SP_SLOT, 80}, {PC_SLOT, 88},
    {END_SLOT, 0}};
static const struct slot linux_regs[] = {{PC_SLOT, 0}, {PARENT_SLOT, 8}, {SP_SLOT, 16}, {3, 24}, {4, 32}, {DIRECT_SLOT, 48}, {7, 56}, {8, 64},
    {9, 72}, ARGS_FROM(80), SAVED_FROM(144), {28, 224}, {29, 232}, {30, 240}, {31, 248}, {END_SLOT, 0}};
static const struct slot bare_regs[] = {ARGS_FROM(0), {8, 64}, {9, 72}, SAVED_FROM(80), {6, 160}, {7, 168}, {28, 176},
    {29, 184}, {30, 192}, {31, 200}, {3, 208}, {4, 216}, {PARENT_SLOT, 224}, {SP_SLOT, 232}, {PC_SLOT, 240}, {END_SLOT, 0}};
static const struct slot linux_exit[] = {{10, 40}, {11, 48}, {SP_SLOT, 16}, {END_SLOT, 0}};
static const struct slot bare_exit[] = {{10, 0}, {11, 8}, {END_SLOT, 0}};
static const struct slot linux_around_exit[] = {{10, 40}, {11, 48}, {END_SLOT, 0}};
static const struct slot bare_around_exit[] = {{10, 0}, {11, 8}, {END_SLOT, 0}};
#endif

/* Callbacks of Linux get op, those of `bare` do not. */
const struct slot *layout(const struct test *t, int exit) {
    if (exit && t->kind == GRAPH) return t->op ? linux_exit : bare_exit;
    if (exit) return t->op ? linux_around_exit : bare_around_exit;
    if (t->kind == REGS) return t->op ? linux_regs : bare_regs;
    return t->op ? linux_args : bare_args;
}
