// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The other half: plain C. It stands in for what the JIT calls, reads requests and writes answers. Where an image is to run there need
 * be no memory: what the JIT writes there goes to a shadow of it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "writers.h"

unsigned char writers_shadow[2 * WRITERS_CODE];
unsigned long long writers_at;

/* The kernel keeps its stack at multiples of 8 on x86. */
#ifdef __x86_64__
#define STUB __attribute__((force_align_arg_pointer, noinline))
#else
#define STUB __attribute__((noinline))
#endif

/* What no code is: it is found where an image ends. */
#define HOLE 0xcc

static unsigned char heap[64 * 4096] __attribute__((aligned(4096)));
static size_t used;

static void *take(size_t size)
{
	void *at = heap + used;

	used += (size + 63) & ~63ul;
	if (used > sizeof(heap)) {
		fprintf(stderr, "writers: no room for %zu bytes\n", size);
		exit(3);
	}
	return memset(at, HOLE, size);
}

/* GFP flags: with __GFP_ZERO, memory is zeros. It is bit 8 on all of these kernels. */
static void *taken(size_t size, unsigned int gfp)
{
	void *at = take(size);

	return gfp & 0x100 ? memset(at, 0, size) : at;
}

STUB void *__kmalloc_noprof(size_t size, unsigned int gfp) { return taken(size, gfp); }
STUB void *__kvmalloc_node_noprof(size_t size, unsigned long align, unsigned int gfp, int node)
{
	/* Without buckets and alignments the flags are the second argument. */
	(void)node;
	return taken(size, gfp | (unsigned int)align);
}
STUB void *__kmalloc_cache_noprof(void *cache, unsigned int gfp, size_t size)
{
	(void)cache;
	return taken(size, gfp);
}
STUB void *execmem_alloc(int type, size_t size) { (void)type; return take(size); }
STUB void *bpf_jit_alloc_exec(unsigned long size) { return take(size); }
void kfree(const void *at) { (void)at; }
void kvfree(const void *at) { (void)at; }
void execmem_free(void *at) { (void)at; }
void bpf_jit_free_exec(void *at) { (void)at; }
void mutex_lock(void *lock) { (void)lock; }
void mutex_unlock(void *lock) { (void)lock; }
void caches_clean_inval_pou(unsigned long from, unsigned long to) { (void)from, (void)to; }
void kick_all_cpus_sync(void) { }
void flush_icache_all(void) { }
unsigned long long bpf_tramp_arena_base(const void *m, void *nodes, unsigned int flags)
{
	(void)m, (void)nodes, (void)flags;
	return 0;
}

STUB int _printk(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	/* Two bytes at the start of the kernel's messages are their level. */
	vfprintf(stderr, format + 2, list);
	va_end(list);
	return 0;
}

static void *wrote(unsigned long long to, const void *from, size_t size)
{
	unsigned long long offset = to - writers_at;

	if (offset >= sizeof(writers_shadow) || size > sizeof(writers_shadow) - offset) {
		fprintf(stderr, "writers: %zu bytes written to %#llx, which is no image\n", size, to);
		exit(3);
	}
	memcpy(writers_shadow + offset, from, size);
	return (void *)to;
}

#if defined(__x86_64__)
STUB void *text_poke_copy(void *to, const void *from, size_t size) { return wrote((unsigned long long)to, from, size); }

/* Instructions without effect of 1 to 11 bytes, as GNU as has them. */
static const unsigned char nops[][11] = {
	{ 0 },
	{ 0x90 },
	{ 0x66, 0x90 },
	{ 0x0f, 0x1f, 0x00 },
	{ 0x0f, 0x1f, 0x40, 0x00 },
	{ 0x0f, 0x1f, 0x44, 0x00, 0x00 },
	{ 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00 },
	{ 0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00 },
	{ 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00 },
	{ 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00 },
	{ 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00 },
	{ 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00 },
};
const unsigned char *const x86_nops[] = { NULL, nops[1], nops[2], nops[3], nops[4], nops[5], nops[6], nops[7], nops[8], nops[9],
					  nops[10], nops[11] };

/* Weak in the kernel's headers, so that the linker misses nothing: no CFI (arch/x86/include/asm/cfi.h). */
unsigned int cfi_mode = 1;
#elif defined(__aarch64__)
void *aarch64_insn_copy(void *to, void *from, size_t size) { return wrote((unsigned long long)to, from, size); }
#else
int patch_text_nosync(void *to, const void *from, size_t size)
{
	wrote((unsigned long long)to, from, size);
	return 0;
}
#endif

#if defined(__x86_64__)
/* Objects with mitigations return and branch through these. */
#define THUNK(reg) ".globl __x86_indirect_thunk_" #reg "\n__x86_indirect_thunk_" #reg ": jmp *%" #reg "\n"
asm(".text\n.globl __x86_return_thunk\n__x86_return_thunk: ret\n" THUNK(rax) THUNK(rbx) THUNK(rcx) THUNK(rdx) THUNK(rsi) THUNK(rdi)
    THUNK(rbp) THUNK(r8) THUNK(r9) THUNK(r10) THUNK(r11) THUNK(r12) THUNK(r13) THUNK(r14) THUNK(r15));
#endif

/* Called by the kernel's objects, if they were compiled for function tracing; and what images call around the function. */
asm(".text\n.globl __fentry__, __bpf_tramp_enter, __bpf_tramp_exit\n"
    "__fentry__: ret\n"
    /* The linker puts it to an address of its own: images are the same, whatever is linked with them. */
    ".section .around, \"ax\"\n"
    "__bpf_tramp_enter: ret\n.balign 64\n"
    "__bpf_tramp_exit: ret\n");

static void mapped(unsigned long long at, size_t size)
{
	static struct {
		unsigned long long at;
	} known[64];
	static int count;
	unsigned long long page = at & ~0xfffull;

	/* A kernel's address is none of a process: nothing looks there. */
	if (page >> 47)
		return;
	for (int i = 0; i < count; i++)
		if (known[i].at == page)
			return;
	size += at - page;
	if (count == 64 || mmap((void *)page, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		fprintf(stderr, "writers: no memory at %#llx\n", at);
		exit(3);
	}
	known[count++].at = page;
	memset((void *)page, HOLE, size);
}

int main(void)
{
	static struct writers_request request;
	static struct writers_answer answer;

	while (fread(&request, sizeof(request), 1, stdin) == 1) {
		memset(&answer, 0, sizeof(answer));
		memset(writers_shadow, HOLE, sizeof(writers_shadow));
		used = 0;
		writers_at = request.image;
		mapped(request.memory, 128 * 4096);
		mapped(request.function, 4096);
		if (request.endbr)
			memcpy((void *)request.function, "\xf3\x0f\x1e\xfa", 4);
		answer.size = writers_image(&request, &answer);
		if (answer.size > 0) {
			int size = WRITERS_CODE;

			while (size > 0 && writers_shadow[size - 1] == HOLE)
				size--;
			answer.size = size;
			memcpy(answer.code, writers_shadow, WRITERS_CODE);
		}
		if (fwrite(&answer, sizeof(answer), 1, stdout) != 1)
			return 3;
	}
	return fflush(stdout) ? 3 : 0;
}
