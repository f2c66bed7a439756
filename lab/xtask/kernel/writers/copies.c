// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has a kernel's ftrace.c make copies of ftrace_caller and ftrace_regs_caller for an ftrace_ops, here and there, and change what they
 * call. It prints symbols and memory as a kernel has them: the copies are judged elsewhere.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#define AFTER_WRITE (void)0
#define ON_ALL_CPUS(told) (void)(told)
#include "poke.h"

#include "copies.h"

STUB long copy_from_kernel_nofault(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
int set_memory_rox(unsigned long at, int pages) { (void)at, (void)pages; return 0; }

/* Where the next copy is to be. */
static unsigned long next;
void *execmem_alloc_rw(int type, size_t size) { (void)type, (void)size; return (void *)next; }
void *execmem_alloc(int type, size_t size) { (void)type, (void)size; return (void *)next; }

void ftrace_caller(void), ftrace_regs_caller(void), ftrace_stub(void), __x86_return_thunk(void);

static void memory(unsigned long at, size_t size)
{
	printf("memory: %lx ", at);
	for (size_t i = 0; i < size; i++)
		printf("%02x", ((unsigned char *)at)[i]);
	printf("\n");
}

static void symbol(unsigned long at, const char *name, const char *module) { printf("symbol: %lx t %s %s\n", at, name, module); }

static void *mapped(unsigned long at, size_t size)
{
	return mmap((void *)at, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Does the copy call this function with this ftrace_ops, as far as its bytes say it? MOV of a word relative to RIP to RDX; CALL. */
static bool is_for(unsigned long at, unsigned long ops, unsigned long calls)
{
	bool has_ops = false, has_call = false;

	for (unsigned long i = at; i < at + 0x180; i++) {
		int offset;

		memcpy(&offset, (char *)i + 3, 4);
		if (!memcmp((void *)i, "\x48\x8b\x15", 3) && i + 7 + offset - at < 0x200)
			has_ops |= *(unsigned long *)(i + 7 + offset) == ops;
		memcpy(&offset, (char *)i + 1, 4);
		has_call |= *(unsigned char *)i == 0xe8 && i + 5 + offset == calls;
	}
	return has_ops && has_call;
}

int main(void)
{
	static const unsigned long places[] = { 0x30000000, 0x50000fa8, 0x7f000010 }, calls[] = { 0x31000000, 0x7e000040 },
				   ops[] = { 0x35000040, 0x7f1234560080 };
	int copies = 0;

	as_kernel();
	symbol((unsigned long)ftrace_caller, "ftrace_caller", "");
	symbol((unsigned long)ftrace_regs_caller, "ftrace_regs_caller", "");
	symbol((unsigned long)ftrace_stub, "ftrace_stub", "");
	symbol((unsigned long)__x86_return_thunk, "__x86_return_thunk", "");
	symbol(calls[0], "one", "");
	symbol(calls[1], "two", "");
	memory((unsigned long)ftrace_caller & ~0xffful, 0x2000);
	for (int i = 0; i < 3; i++)
		mapped(places[i] & ~0xffful, 0x20000);
	for (int i = 0; i < 2; i++)
		mapped(ops[i] & ~0xffful, 0x1000);
	for (int regs = 0; regs < 2; regs++)
		for (int place = 0; place < 3; place++)
			for (int whose = 0; whose < 2; whose++)
				for (int called = 0; called < 2; called++)
					for (int changed = 0; changed < 2; changed++, copies++) {
						unsigned long at;

						next = places[place] + 0x1000 * (copies % 16);
						sprintf(told_as, "copy %d", copies);
						at = copy_for((void *)ops[whose], regs, calls[called]);
						if (!at) {
							printf("wrong: copy %d: refused\n", copies);
							continue;
						}
						if (!is_for(at, ops[whose], calls[called]))
							printf("wrong: copy %d: it is for others\n", copies);
						if (changed)
							copy_calls((void *)ops[whose], calls[!called]);
						if (changed && !is_for(at, ops[whose], calls[!called]))
							printf("wrong: copy %d: it still calls another\n", copies);
						symbol(at, "ftrace_trampoline", "[__builtin__ftrace]");
						memory(at, 0x400);
					}
	printf("%d copies\n", copies);
	return 0;
}
