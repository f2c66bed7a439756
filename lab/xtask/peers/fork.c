/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 40 children and as many grandchildren make calls, forked within calls while another thread makes calls. Half of them end by exit,
   half by _exit. */
#define FUNCTIONS(F) F(family) F(work) F(leaf)
#include "count.h"
#include <pthread.h>
#include <sys/wait.h>

long leaf(long n)
{
	CALLED(leaf);
	return n % 3;
}

long work(long n)
{
	long sum = 0;

	CALLED(work);
	for (long i = 0; i < 100; i++)
		sum += leaf(n + i);
	return sum;
}

/* Fork this many generations; how many of them did not end as they must. */
long family(long generations)
{
	int status = 0;
	pid_t child;

	CALLED(family);
	if (!generations)
		return 0;
	child = fork();
	if (!child) {
		long code = work(generations) % 100 + family(generations - 1);

		if (generations % 2)
			_exit(code);
		exit(code);
	}
	waitpid(child, &status, 0);
	return !WIFEXITED(status) || WEXITSTATUS(status) != generations - 1;
}

static void *caller(void *ignored)
{
	for (long i = 0; i < 2000; i++)
		work(i);
	return ignored;
}

int main(void)
{
	pthread_t thread;
	long sum = 0;

	begin();
	pthread_create(&thread, 0, caller, 0);
	for (long i = 0; i < 40; i++)
		sum += family(2) + work(i);
	pthread_join(thread, 0);
	return end(sum);
}
