/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two libraries are loaded and unloaded 100 times each, the one where the other was, while a thread makes calls. */
#define FUNCTIONS(F) F(outer) F(leaf) F(one_outer) F(one_leaf) F(two_outer) F(two_leaf)
#ifndef PLUGIN
#include "count.h"
#include <dlfcn.h>
#include <pthread.h>

long leaf(long n)
{
	CALLED(leaf);
	return n % 3;
}

long outer(long n)
{
	CALLED(outer);
	return leaf(n) + 1;
}

static void *caller(void *ignored)
{
	long sum = 0;

	for (long i = 0; i < 200000; i++)
		sum += outer(i);
	(void)ignored;
	return (void *)sum;
}

int main(int words, char **word)
{
	/* A library that hooks functions of the process learns of new ones by this. */
	void (*loaded)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "peers_loaded");
	void (*leaving)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "peers_leaving");
	pthread_t thread;
	void *result;
	long sum = 0;

	begin();
	pthread_create(&thread, 0, caller, 0);
	for (long round = 0; round < 200; round++) {
		char name[4096];
		void *plugin;
		long (*call)(long);

		snprintf(name, sizeof(name), "%s-%s.so", word[words - 1], round % 2 ? "two" : "one");
		plugin = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
		if (!plugin)
			return fprintf(stderr, "%s\n", dlerror()), 1;
		if (loaded)
			loaded();
		call = (long (*)(long))dlsym(plugin, round % 2 ? "two_outer" : "one_outer");
		for (long i = 0; i < 50; i++)
			sum += call(i);
		if (leaving)
			leaving();
		dlclose(plugin);
	}
	pthread_join(thread, &result);
	return end(sum + (long)result);
}
#else
#include "count.h"
#define JOINED(a, b) a##_##b
#define OF(plugin, name) JOINED(plugin, name)

long OF(PLUGIN, leaf)(long n)
{
	CALLED(OF(PLUGIN, leaf));
	return n * sizeof(OF(PLUGIN, leaf));
}

long OF(PLUGIN, outer)(long n)
{
	CALLED(OF(PLUGIN, outer));
	return OF(PLUGIN, leaf)(n) + 2;
}
#endif
