/* SPDX-License-Identifier: GPL-2.0-only */
/* Two users of the function graph, through the runtime core (native/core) and through C of the kernel's shape (graph.c). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most functions that either can trace. */
enum { FUNCTIONS = 64 * 257 };

/* Trace them for two users; nothing of it is in progress. */
bool core_start(const uint64_t *functions, size_t count), kernel_start(const uint64_t *functions, size_t count);
bool core_balanced(void), kernel_balanced(void);

/* What the kernel's ftrace_caller calls for it. */
void kernel_graph_entry(uint64_t ip, uint64_t parent, void *op, char *fregs);

/* How often users ran, and words that were not those of their calls: counted with COUNT only. */
extern uint64_t entries, exits, wrong;
