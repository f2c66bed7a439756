/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 16 coroutines take turns in the middle of their calls, by swapcontext or by instructions of the program. They never end. */
#define FUNCTIONS(F) F(body) F(step) F(leaf) F(resume)
#include "count.h"
#include <ucontext.h>

#define HOW_MANY 16

#ifdef OWN
/* Keep what C keeps on the stack, and go to another one. */
__asm__(".globl change\n.type change, @function\n"
	"change: push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
	"mov %rsp, (%rdi)\n mov (%rsi), %rsp\n"
	"pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"
	".size change, . - change\n");
typedef void *context;
void change(context *from, context *to);
#else
typedef ucontext_t context;
#define change swapcontext
#endif

static context all[HOW_MANY], back;
static char stacks[HOW_MANY][1 << 16] __attribute__((aligned(16)));
static long current, sum;

long leaf(long n)
{
	CALLED(leaf);
	return n % 5;
}

long step(long n)
{
	CALLED(step);
	if (n % 3)
		sum += step(n - n % 3) + leaf(n);
	else
		change(&all[current], &back);
	return leaf(n) + 1;
}

long body(long n)
{
	CALLED(body);
	for (;; n++)
		sum += step(n);
}

static void start(void)
{
	body(current);
}

long resume(long n)
{
	CALLED(resume);
	current = n;
	change(&back, &all[n]);
	return leaf(n);
}

int main(void)
{
	begin();
	for (long i = 0; i < HOW_MANY; i++) {
#ifdef OWN
		void **top = (void **)(stacks[i] + sizeof(stacks[i])) - 2;

		*top = start;
		all[i] = top - 6;
#else
		getcontext(&all[i]);
		all[i].uc_stack.ss_sp = stacks[i];
		all[i].uc_stack.ss_size = sizeof(stacks[i]);
		makecontext(&all[i], start, 0);
#endif
	}
	for (long i = 0; i < 1000 * HOW_MANY; i++)
		sum += resume(i % HOW_MANY);
	return end(sum);
}
