// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that traces one of its own functions: `make run`, `make ARCH=arm64 run`, `make ARCH=riscv64 run`.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trace.h" // tramptool gen trace_caller --profile bare --emit obj,h --stem trace

#if defined(__x86_64__)
#define SITE patchable_function_entry(5)
#define ARGUMENT TRACE_CALLER_REGS_RDI
#elif defined(__aarch64__)
#define SITE patchable_function_entry(2)
#define ARGUMENT TRACE_CALLER_REGS_X0
#else
#define SITE patchable_function_entry(4) // two bytes each, with compressed instructions
#define ARGUMENT TRACE_CALLER_REGS_A0
#endif

static unsigned long calls, last;
static double mean;

__attribute__((noinline, noclone)) static double between(double a, double b)
{
	return (a + b) / 2;
}

// The handler: notes the argument of triple, and replaces it, which takes effect. It is C like any other: of the registers that
// carry doubles, the trampoline has saved what the handler overwrites.
void trace_entry(unsigned long ip, unsigned long parent_ip, void *fregs)
{
	unsigned long *argument = (void *)((char *)fregs + ARGUMENT);

	(void)ip;
	(void)parent_ip;
	calls++;
	last = *argument;
	if (last == 7)
		*argument = 100;
	mean = between(mean, (double)calls);
}

__attribute__((noinline, noclone, SITE)) unsigned long triple(unsigned long n)
{
	__asm__ volatile("" : "+r"(n));
	return 3 * n;
}

__attribute__((noinline, noclone, SITE)) double hyp(double a, double b)
{
	__asm__ volatile("" : : : "memory");
	return a * a + b * b;
}

// The instructions that call the trampoline from a site at `site`.
static size_t call(uintptr_t site, unsigned char *code)
{
	intptr_t to = (intptr_t)(uintptr_t)trace_caller - (intptr_t)site;
#if defined(__x86_64__)
	int32_t distance = (int32_t)(to - 5);
	code[0] = 0xe8; // CALL
	memcpy(code + 1, &distance, 4);
	return 5;
#elif defined(__aarch64__)
	uint32_t insns[] = { 0xaa1e03e9, // MOV x9, x30
			     0x94000000 | (((to - 4) >> 2) & 0x3ffffff) }; // BL
	memcpy(code, insns, sizeof(insns));
	return sizeof(insns);
#else
	uint32_t high = (uint32_t)((to + 0x800) >> 12), low = (uint32_t)to & 0xfff;
	uint32_t insns[] = { 0x297 | high << 12, // AUIPC t0
			     0x282e7 | low << 20 }; // JALR t0, t0
	memcpy(code, insns, sizeof(insns));
	return sizeof(insns);
#endif
}

static int trace(void *function)
{
	uintptr_t site = (uintptr_t)function, page = (uintptr_t)sysconf(_SC_PAGESIZE), start = site & -page;
	unsigned char code[16];
	size_t size = call(site, code);

	if (mprotect((void *)start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC))
		return -1;
	memcpy(function, code, size);
	__builtin___clear_cache((char *)function, (char *)function + size);
	return mprotect((void *)start, 2 * page, PROT_READ | PROT_EXEC);
}

int main(void)
{
	unsigned long before = triple(7), after;
	double sum;

	if (trace((void *)triple) || trace((void *)hyp)) {
		perror("mprotect");
		return 1;
	}
	after = triple(7);
	printf("%lu before, %lu traced; %lu call, its argument was %lu\n", before, after, calls, last);
	sum = hyp(3.0, 4.0);
	printf("%.0f traced; %lu calls\n", sum, calls);
	return !(before == 21 && after == 300 && sum == 25.0 && calls == 2);
}
