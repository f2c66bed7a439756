/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two signals, 2,000 of each, at any instruction of a thread that makes calls. Their handlers make calls on a stack of their own, and
   each can interrupt the other. */
#define FUNCTIONS(F) F(handler) F(outer) F(inner)
#include "count.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#define SIGNALS 4000
#define CALLS 200000

static long seen, sent, done;

long inner(long n)
{
	CALLED(inner);
	return n ^ 5;
}

long outer(long n)
{
	CALLED(outer);
	return inner(n) + inner(n + 1);
}

long handler(long signal)
{
	CALLED(handler);
	outer(signal);
	return __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED);
}

static void *sender(void *to)
{
	for (long i = 0; i < SIGNALS; i++) {
		while (__atomic_load_n(&done, __ATOMIC_RELAXED) < i * CALLS / SIGNALS)
			sched_yield();
		while (pthread_sigqueue(*(pthread_t *)to, SIGRTMIN + i % 2, (union sigval){0}))
			sched_yield();
		__atomic_store_n(&sent, i + 1, __ATOMIC_RELAXED);
	}
	return 0;
}

int main(void)
{
	static char stack[1 << 18];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action = {.sa_handler = (void (*)(int))handler, .sa_flags = SA_ONSTACK | SA_RESTART};
	pthread_t self = pthread_self(), thread;
	long sum = 0;

	begin();
	sigaltstack(&other, 0);
	sigaction(SIGRTMIN, &action, 0);
	sigaction(SIGRTMIN + 1, &action, 0);
	pthread_create(&thread, 0, sender, &self);
	for (long i = 0; i < CALLS; i++) {
		sum += outer(i);
		__atomic_store_n(&done, i, __ATOMIC_RELAXED);
		/* The sender is not far behind. */
		while (__atomic_load_n(&sent, __ATOMIC_RELAXED) < i * SIGNALS / CALLS - 200)
			sched_yield();
	}
	pthread_join(thread, 0);
	while (__atomic_load_n(&seen, __ATOMIC_RELAXED) < SIGNALS)
		usleep(100);
	return end(sum);
}
