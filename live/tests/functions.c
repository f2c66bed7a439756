/* Functions that the tests attach to. Each counts how often its body runs. */

unsigned long bodies[4];

__attribute__((noinline)) long add(long a, long b)
{
	__atomic_fetch_add(&bodies[0], 1, __ATOMIC_RELAXED);
	return a + b;
}

/* Arguments on the stack. */
__attribute__((noinline)) long many(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
	__atomic_fetch_add(&bodies[1], 1, __ATOMIC_RELAXED);
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}

__attribute__((noinline)) double halves(double x, long n)
{
	__atomic_fetch_add(&bodies[2], 1, __ATOMIC_RELAXED);
	return n == 0 ? x : halves(x / 2, n - 1) + n;
}

/* Almost nothing but its entry, with room or without: who is interrupted here is in the middle of it. */
__attribute__((noinline)) long same(long a)
{
#ifndef ROOM
	__asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop");
#endif
	return a;
}
