/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Handlers that touch no vector register, in one object with all that they call: `--handler` proves it. */
#include "harness.h"

#ifdef __x86_64__
#define MORE
#define MORE_ARE
#define ENTRY_SP ((uint64_t)__builtin_frame_address(0) + 8)
#define LOSE asm volatile("mov $-1, %%rcx; mov %%rcx, %%rdx; mov %%rcx, %%rsi; mov %%rcx, %%rdi; mov %%rcx, %%r8; mov %%rcx, %%r9; \
    mov %%rcx, %%r10; mov %%rcx, %%r11" ::: "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc")
#elif defined(__aarch64__)
#define MORE , uint64_t g, uint64_t h
#define MORE_ARE handler_state.g[ARG_REG(6)] = g, handler_state.g[ARG_REG(7)] = h;
#define ENTRY_SP (uint64_t)__builtin_frame_address(0)
#define LOSE asm volatile("mov x1, #-1; mov x2, x1; mov x3, x1; mov x4, x1; mov x5, x1; mov x6, x1; mov x7, x1; mov x8, x1; \
    mov x9, x1; mov x15, x1; mov x16, x1; mov x17, x1" ::: "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x15", "x16", "x17")
#else
#define MORE , uint64_t g, uint64_t h
#define MORE_ARE handler_state.g[ARG_REG(6)] = g, handler_state.g[ARG_REG(7)] = h;
#define ENTRY_SP (uint64_t)__builtin_frame_address(0)
#define LOSE asm volatile("li a1, -1; mv a2, a1; mv a3, a1; mv a4, a1; mv a5, a1; mv a6, a1; mv a7, a1; mv t0, a1; mv t1, a1; \
    mv t2, a1; mv t6, a1" ::: "a1", "a2", "a3", "a4", "a5", "a6", "a7", "t0", "t1", "t2", "t6")
#endif

#define PROVEN(name, slot) \
    uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f MORE) { \
        handler_state.g[ARG_REG(0)] = a, handler_state.g[ARG_REG(1)] = b, handler_state.g[ARG_REG(2)] = c; \
        handler_state.g[ARG_REG(3)] = d, handler_state.g[ARG_REG(4)] = e, handler_state.g[ARG_REG(5)] = f; \
        MORE_ARE \
        handler_state.g[SP_REG] = ENTRY_SP; \
        handler_state.flags = 0; \
        handler_state.control = image.control; \
        uint64_t result = handled(slot); \
        LOSE; \
        return result; \
    }

__attribute__((visibility("default"))) PROVEN(p_entry, ENTRY_SLOT)
__attribute__((visibility("default"))) PROVEN(p_exit, EXIT_SLOT)
