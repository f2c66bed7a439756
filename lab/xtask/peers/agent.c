/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A library that is loaded with a program, and counts calls of the functions in PEERS_FUNCTIONS in the file PEERS_COUNTS: by tramptool-live
   with LIVE, or by retour. With PEERS_HAMMERED, a thread switches all hooks off and on, all the time. With PEERS_SECOND,
   functions have a prototype. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 8

static long *counts;
static char *names[MOST];
static int how_many;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void entered(long n)
{
	__atomic_fetch_add(&counts[n], 1, __ATOMIC_RELAXED);
}

/* What another function would do with the result. */
static void left(void)
{
	__asm__ volatile("");
}

#ifdef LIVE
#include <tramptool_live.h>

static struct tl_hook *hooks[MOST];

static void on_entry(struct tl_call *call, void *n)
{
	(void)call;
	entered((long)n);
}

static void on_return(struct tl_call *call, void *n)
{
	(void)call, (void)n;
	left();
}

static void attach(long n, void *address)
{
	struct tl_function *function = tl_function_at(address);

	if (function && getenv("PEERS_SECOND"))
		function = tl_with_prototype(function, "long function(long)");
	hooks[n] = function ? tl_around(function, on_entry, on_return, (void *)n) : 0;
	if (!hooks[n])
		fprintf(stderr, "peers: refused %s: %s\n", names[n], tl_last_error());
}

static void open_library(void)
{
	if (tl_open())
		fprintf(stderr, "peers: %s\n", tl_last_error());
}

static void change(int from, int to, int on)
{
	struct tl_hook *all[MOST];
	size_t of = 0;

	for (int n = from; n < to; n++)
		if (hooks[n])
			all[of++] = hooks[n];
	if (tl_batch(all, of, on))
		fprintf(stderr, "peers: %s\n", tl_last_error());
}
#else
void *detour_new(const char *name, void *target, void *hook), *detour_original(const void *detour);
void detour_switch(const void *detour, _Bool on);

static void *hooks[MOST];
static long (*originals[MOST])(long);

#define HOOK(n)                                   \
	static long hook##n(long argument)        \
	{                                         \
		long result;                      \
                                                  \
		entered(n);                       \
		result = originals[n](argument);  \
		left();                           \
		return result;                    \
	}
HOOK(0) HOOK(1) HOOK(2) HOOK(3) HOOK(4) HOOK(5) HOOK(6) HOOK(7)

static void attach(long n, void *address)
{
	static long (*const of[MOST])(long) = {hook0, hook1, hook2, hook3, hook4, hook5, hook6, hook7};

	hooks[n] = detour_new(names[n], address, of[n]);
	if (hooks[n])
		originals[n] = (long (*)(long))detour_original(hooks[n]);
}

static void open_library(void)
{
}

static void change(int from, int to, int on)
{
	for (int n = from; n < to; n++)
		if (hooks[n])
			detour_switch(hooks[n], on);
}
#endif

/* Where the functions are that were attached to. */
static void *places[MOST];

/* Functions have come, perhaps. */
void peers_loaded(void)
{
	pthread_mutex_lock(&lock);
	for (long n = 0; n < how_many; n++) {
		void *place = places[n] ? 0 : dlsym(RTLD_DEFAULT, names[n]);

		if (place)
			attach(n, places[n] = place);
	}
	change(0, how_many, 1);
	pthread_mutex_unlock(&lock);
}

/* Functions from the third one on will go. */
void peers_leaving(void)
{
	pthread_mutex_lock(&lock);
	change(2, how_many, 0);
	for (long n = 2; n < how_many; n++)
		hooks[n] = places[n] = 0;
	pthread_mutex_unlock(&lock);
}

static void *hammer(void *ignored)
{
	for (int on = 0;; on = !on) {
		pthread_mutex_lock(&lock);
		change(0, how_many, on);
		pthread_mutex_unlock(&lock);
		sched_yield();
	}
	return ignored;
}

__attribute__((constructor)) static void begin(void)
{
	const char *file = getenv("PEERS_COUNTS"), *functions = getenv("PEERS_FUNCTIONS");
	int descriptor = file ? open(file, O_RDWR | O_CLOEXEC) : -1;
	char *name = descriptor < 0 || !functions ? 0 : strtok(strdup(functions), ":");
	pthread_t thread;

	if (!name)
		return;
	counts = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	close(descriptor);
	for (; name && how_many < MOST; name = strtok(0, ":"))
		names[how_many++] = name;
	open_library();
	peers_loaded();
	if (getenv("PEERS_HAMMERED"))
		pthread_create(&thread, 0, hammer, 0);
}
