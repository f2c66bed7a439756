// SPDX-License-Identifier: MIT OR Apache-2.0
/* 4,000 exceptions pass up to 20 calls, with destructors. Every other one is caught on the way and thrown again. */
#define FUNCTIONS(F) F(catcher) F(again) F(thrower) F(leaf)
#include "count.h"

namespace {
long destroyed;

struct Guard {
	~Guard() { destroyed += leaf(1); }
};
}

long leaf(long n)
{
	CALLED(leaf);
	return n;
}

long thrower(long n)
{
	Guard guard;

	CALLED(thrower);
	if (n == 0)
		throw destroyed;
	return thrower(n - 1) + leaf(n);
}

long again(long n)
{
	CALLED(again);
	try {
		return thrower(n) + 1;
	} catch (long &value) {
		value += leaf(n);
		if (n % 2)
			throw;
		return value;
	}
}

long catcher(long n)
{
	CALLED(catcher);
	try {
		return again(n % 20) + 1;
	} catch (long value) {
		return value + leaf(2);
	}
}

int main()
{
	long sum = 0;

	begin();
	for (long i = 0; i < 4000; i++)
		sum += catcher(i);
	return end(sum);
}
