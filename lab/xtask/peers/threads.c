/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 400 threads, eight at a time. A quarter of them end in the middle of their calls. */
#define FUNCTIONS(F) F(body) F(outer) F(inner) F(leaf)
#include "count.h"
#include <pthread.h>

long leaf(long n)
{
	CALLED(leaf);
	return n % 7;
}

long inner(long n)
{
	CALLED(inner);
	if (n < 0)
		pthread_exit((void *)leaf(-n));
	return leaf(n) + leaf(n + 1);
}

long outer(long n)
{
	CALLED(outer);
	return inner(n) + 1;
}

long body(long n)
{
	long sum = 0;

	CALLED(body);
	for (long i = 0; i < 500; i++)
		sum += outer(n + i);
	return n % 4 ? sum : outer(-sum) + 1;
}

int main(void)
{
	long sum = 0;

	begin();
	for (long round = 0; round < 50; round++) {
		pthread_t threads[8];
		void *result;

		for (long i = 0; i < 8; i++)
			pthread_create(&threads[i], 0, (void *(*)(void *))body, (void *)(round * 8 + i));
		for (long i = 0; i < 8; i++) {
			pthread_join(threads[i], &result);
			sum += (long)result;
		}
	}
	return end(sum);
}
