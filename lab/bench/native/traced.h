/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions that are traced, of one variant: a leaf and a recursion. */
#define UNTRACED __attribute__((noinline, noclone, no_instrument_function))
#define TRACED __attribute__((noinline, noclone, aligned(16)))
#define KEEP(x) __asm__ volatile("" : "+r"(x))

#define FUNCTIONS(name)                                                                                                \
	TRACED long f_##name(long x) { return x + 1; }                                                                 \
	TRACED long g_##name(long d)                                                                                   \
	{                                                                                                              \
		if (d == 0)                                                                                            \
			return 0;                                                                                      \
		long r = g_##name(d - 1);                                                                              \
		KEEP(r);                                                                                               \
		return r + 1;                                                                                          \
	}
