/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 100,000 calls that have not returned, three times, on a stack with room for them; and a tree of calls. */
#define FUNCTIONS(F) F(even) F(odd) F(tree) F(twig)
#include "count.h"
#include <pthread.h>

long even(long n)
{
	CALLED(even);
	return n ? odd(n - 1) * 2 % 1009 + 1 : 0;
}

long odd(long n)
{
	CALLED(odd);
	return n ? even(n - 1) * 3 % 1013 + 1 : 0;
}

long tree(long n)
{
	CALLED(tree);
	return n < 2 ? n : twig(n - 1) + twig(n - 2);
}

long twig(long n)
{
	CALLED(twig);
	return n < 2 ? n : tree(n - 1) + tree(n - 2);
}

static void *body(void *ignored)
{
	(void)ignored;
	return (void *)(even(99999) + even(99999) + even(99999) + tree(24));
}

int main(void)
{
	pthread_attr_t with;
	pthread_t thread;
	void *result;

	begin();
	pthread_attr_init(&with);
	pthread_attr_setstacksize(&with, 1 << 28);
	pthread_create(&thread, &with, body, 0);
	pthread_join(thread, &result);
	return end((long)result);
}
