/* Functions that the tests attach to. Each counts how often its body runs. */

#include <setjmp.h>

unsigned long bodies[4];

__attribute__((noinline)) long add(long a, long b)
{
	__atomic_fetch_add(&bodies[0], 1, __ATOMIC_RELAXED);
	return a + b;
}

/* Keeps its return address while another function runs. */
__attribute__((noinline)) long calls_add(long a, long b)
{
	return 10 * add(a, b);
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
#if defined(__x86_64__)
#define SLOW_ENTRY "pause; pause; pause; mov %1, %0"
#elif defined(__aarch64__)
#define SLOW_ENTRY "nop; mov %0, %1"
#else
#define SLOW_ENTRY "nop; nop; nop; nop; mv %0, %1"
#endif
__attribute__((noinline)) long same(long a)
{
	long result = a;
#ifndef ROOM
	__asm__ volatile(SLOW_ENTRY : "=r"(result) : "r"(a));
#endif
	return result;
}

/* Too short for a branch, with another function right behind it, or begins with what must stay where it is, before what is branched to. */
#if defined(__x86_64__)
#define TINY "mov %rdi, %rax; ret"
#define TURNS "1: dec %rdi; jnz 1b; ret"
#elif defined(__aarch64__)
#define TINY "hint #25; 1: hint #29; ret; b 1b" /* paciasp, autiasp */
#define TURNS "1: subs x0, x0, #1; b.ne 1b; ret"
#else
#define TINY ".option arch, +c; ret"
#define TURNS "1: addi a0, a0, -1; bnez a0, 1b; ret"
#endif
#define FUNCTION(name, code) ".globl " #name "; .type " #name ", %function; " #name ": " code "; .size " #name ", . - " #name ";"
__asm__(".pushsection .text; .balign 16;" FUNCTION(tiny, TINY) FUNCTION(turns, TURNS) FUNCTION(no_pad, "ret") ".popsection");

/* So is the name of a function in twin.c. */
__attribute__((noinline, used)) static long twin(long a)
{
	return a + 1;
}

static jmp_buf back;

/* Calls itself, and comes back from the innermost call at once. */
__attribute__((noinline)) long deep(long n)
{
	if (n == 0)
		longjmp(back, 1);
	n += deep(n - 1);
	__asm__ volatile("" : "+r"(n));
	return n;
}

/* Leaves calls of `deep` by a jump. */
__attribute__((noinline)) long jumps(long n)
{
	return setjmp(back) ? n : deep(n);
}
