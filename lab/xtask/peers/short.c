/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions of one to six bytes side by side, one that is a jump alone, and one that goes back to its second
   instruction. Whoever calls one counts the call. */
#define FUNCTIONS(F) F(nothing) F(zero) F(same) F(next) F(jump) F(loop)
#include "count.h"

/* Without instructions, but it may have an effect, so that each call is made. */
#define KEPT __asm__ volatile("")
#define CALL(name, n) (CALLED(name), name(n))

long nothing(long n) { KEPT; }
long zero(long n) { KEPT; return 0; }
long same(long n) { KEPT; return n; }
long next(long n) { KEPT; return n + 1; }
long jump(long n) { return next(n); }

long loop(long n)
{
	long turns;

	__asm__ volatile("xor %%eax, %%eax\n1: inc %%rax\n dec %%rdi\n jg 1b" : "=a"(turns), "+D"(n));
	return turns;
}

int main(void)
{
	long sum = 0;

	begin();
	for (long i = 0; i < 20000; i++) {
		CALL(nothing, i);
		CALL(zero, i);
		CALLED(next);
		sum += CALL(same, i) + CALL(next, i) + CALL(jump, i) + CALL(loop, i % 10);
	}
	return end(sum);
}
