/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Attaches to functions of the running process, while all its threads run. docs/live.md says what must hold. */
#ifndef TRAMPTOOL_LIVE_H
#define TRAMPTOOL_LIVE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function, a hook: valid for ever. A call: valid until the handler returns. */
struct tl_function;
struct tl_hook;
struct tl_call;

/* Called in the thread that calls the function, any of them at any time. It returns; it throws nothing. */
typedef void (*tl_handler)(struct tl_call *call, void *data);

/* Prepare the process, before it forbids itself anything. 0, or -1. */
int tl_open(void);

/* Why the last function of this thread that returned -1 or NULL did so. Valid until the next one does. */
const char *tl_last_error(void);

/* The function of this name, or `OBJECT:NAME`; the one at this address. NULL if nothing can be attached to it. */
struct tl_function *tl_function(const char *name);
struct tl_function *tl_function_at(const void *address);

/* Call handlers around a function, either of which may be NULL; let another one be called instead. Not before it is enabled. */
struct tl_hook *tl_around(struct tl_function *function, tl_handler entry, tl_handler exit, void *data);
struct tl_hook *tl_replace(struct tl_function *function, const void *with);

/* 0, or -1. */
int tl_enable(struct tl_hook *hook);
int tl_disable(struct tl_hook *hook);

/* Calls the function without its hooks. */
const void *tl_original(struct tl_hook *hook);

/* At the entry: the register of argument n, from 0 on. At the return: that of the result. Integers and pointers. */
uint64_t tl_argument(const struct tl_call *call, unsigned n);
void tl_set_argument(struct tl_call *call, unsigned n, uint64_t value);
uint64_t tl_result(const struct tl_call *call);
void tl_set_result(struct tl_call *call, uint64_t value);

#ifdef __cplusplus
}
#endif

#endif
