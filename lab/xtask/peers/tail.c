/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Three functions end in a call of the next one, which compilers make a jump: 300,000 calls take no stack. */
#define FUNCTIONS(F) F(enter) F(first) F(second) F(third)
#include "count.h"

static long sum;

long first(long n)
{
	CALLED(first);
	sum += n;
	return n ? second(n - 1) : 1;
}

long second(long n)
{
	CALLED(second);
	sum ^= n;
	return n ? third(n - 1) : 2;
}

long third(long n)
{
	CALLED(third);
	sum -= n;
	return n ? first(n - 1) : 3;
}

long enter(long n)
{
	CALLED(enter);
	return first(n) + 1;
}

int main(void)
{
	long result = 0;

	begin();
	for (long i = 0; i < 1000; i++)
		result += enter(i % 20);
	result += enter(300000);
	return end(result + sum);
}
