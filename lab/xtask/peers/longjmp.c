/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 5,000 jumps out of up to 30 calls, and as many out of a signal's handler, which was called within calls. */
#define FUNCTIONS(F) F(catcher) F(deep) F(handler) F(leaf)
#include "count.h"
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf out;

long leaf(long n)
{
	CALLED(leaf);
	return n + 1;
}

long handler(long signal)
{
	CALLED(handler);
	siglongjmp(out, leaf(signal));
}

long deep(long n)
{
	CALLED(deep);
	if (n > 1)
		return deep(n - 2) + leaf(n);
	if (n == 1)
		raise(SIGUSR1);
	siglongjmp(out, 1);
}

long catcher(long n)
{
	int jumped;

	CALLED(catcher);
	jumped = sigsetjmp(out, 1);
	return jumped ? jumped : deep(n % 60) + leaf(n);
}

int main(void)
{
	long sum = 0;

	begin();
	signal(SIGUSR1, (void (*)(int))handler);
	for (long i = 0; i < 10000; i++)
		sum += catcher(i) + leaf(i);
	return end(sum);
}
