/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Attaches to functions of the running process, while all its threads run. docs/live.md says what must hold. */
#ifndef TRAMPTOOL_LIVE_H
#define TRAMPTOOL_LIVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function: valid for ever. A hook, a recorder: until it is detached. A call: until the handler returns. */
struct tl_function;
struct tl_hook;
struct tl_recorder;
struct tl_call;

/* Called in the thread that calls the function, any of them at any time. It returns; it throws nothing. */
typedef void (*tl_handler)(struct tl_call *call, void *data);

/* Prepare the process, before it forbids itself anything. 0, or -1. */
int tl_open(void);

/* Why the last function of this thread that returned -1 or NULL did so. Valid until the next one does. */
const char *tl_last_error(void);

/* How many calls no handler was called for, because a handler of the same thread was running: by itself, or by a signal's handler. */
uint64_t tl_missed(void);

/* The function of this name, or `OBJECT:NAME`; the one at this address. NULL if nothing can be attached to it. */
struct tl_function *tl_function(const char *name);
struct tl_function *tl_function_at(const void *address);

/* Another handle, of the same function with its prototype in C, which has no arguments on the stack: for functions in which threads switch
   stacks, since return addresses stay on the stack then. If the prototype is wrong, tl_around fails. */
struct tl_function *tl_with_prototype(const struct tl_function *function, const char *prototype);

/* Call handlers around a function, either of which may be NULL; let another one be called instead. Not before it is enabled. A function
   may have any number of both: handlers are called in the order in which they were attached, and at the return in the opposite one, around
   what replaces it. Of that, the last one attached is called. */
struct tl_hook *tl_around(struct tl_function *function, tl_handler entry, tl_handler exit, void *data);
struct tl_hook *tl_replace(struct tl_function *function, const void *with);

/* 0, or -1. */
int tl_enable(struct tl_hook *hook);
int tl_disable(struct tl_hook *hook);
/* All of n hooks at once, so that threads are interrupted once: disabled if `enable` is 0, else enabled. 0, or -1. */
int tl_batch(struct tl_hook *const *hooks, size_t n, int enable);

/* Disable a hook for good. Calls that have begun end as they would have. */
void tl_detach(struct tl_hook *hook);

/* Calls the function without its hooks; of one that replaces it, with those that were attached before and replace it too. Valid for ever. */
const void *tl_original(struct tl_hook *hook);

/* At the entry: the register of argument n, from 0 on. At the return: that of the result. Integers and pointers. */
uint64_t tl_argument(const struct tl_call *call, unsigned n);
void tl_set_argument(struct tl_call *call, unsigned n, uint64_t value);
uint64_t tl_result(const struct tl_call *call);
void tl_set_result(struct tl_call *call, uint64_t value);

/* What a thread did: CLOCK_MONOTONIC in nanoseconds, the thread as the kernel counts them, the function's number in the array. */
struct tl_recorded {
	uint64_t time;
	uint32_t thread;
	uint32_t function;
	int returns;
};

/* Record the calls of n functions, with room for so many records in each thread, once it is enabled. */
struct tl_recorder *tl_record(struct tl_function *const *functions, size_t n, size_t room);
int tl_recorder_enable(struct tl_recorder *recorder);
int tl_recorder_disable(struct tl_recorder *recorder);

/* Take the records that there are, at most so many; those of a thread are in their order. How many they are. */
size_t tl_recorder_take(struct tl_recorder *recorder, struct tl_recorded *to, size_t most);

/* How many records found no room. */
uint64_t tl_recorder_dropped(struct tl_recorder *recorder);

/* Disable a recorder for good. */
void tl_recorder_detach(struct tl_recorder *recorder);

#ifdef __cplusplus
}
#endif

#endif
