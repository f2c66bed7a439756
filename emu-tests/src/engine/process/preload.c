// SPDX-License-Identifier: GPL-2.0-only
// What is loaded before Bochs: it lets the CPU of Bochs do what the judge, another process, asks for through memory that both share.
//
// Code of ours in the guest, arch-x86_64/src/bare.rs, has each exception of the code under test, and steps through that by
// RFLAGS.TF. It leaves the registers in memory and asks how to go on by a byte on port E9h. Bochs would print that by putc().

#define _GNU_SOURCE
#include "shared.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#define EXPORT __attribute__((visibility("default")))

// What the guest asks with: whether it goes on at once, at a step; and how it goes on, first when it is set up. The vector of a step.
enum { GLANCES = 0xe8, ASKS = 0xe9, STEP = 1 };
enum { TF = 1 << 8, TRACKER = 1 << 11, PAGE = 4096, PRESENT = 1 };
enum { NOTHING = 0 };
// The pages of the machine's own.
enum { MACHINE = 4 * PAGE };

// What the guest has left of its registers: the general ones, or all; and that it is to leave the others too.
enum { GENERAL, WHOLE, WANTED };

// The third page: what the guest has to copy, which state components it leaves, and registers as it leaves them. The fourth: the bytes
// to copy.
struct frame {
	uint64_t has, left, goes_on, to, components, cr2, u_cet, ssp, gs, fs, general[15], vector, error, rip, cs, flags, rsp, ss;
	uint8_t xsave[PAGE - 0x100], copied[PAGE];
};

static uint8_t *ram;
static size_t ram_size;
static struct frame *frame;
// Of a run: instructions so far; where it went on last; whether that pushes RFLAGS.
static uint64_t executed, resumed;
static bool pushes_flags;
// What the judge is to be told of a step. What it has been told, and the bytes of its code that the guest has still to copy.
static uint64_t stepped, said, written, left;
// The guest has been sent for all registers.
static bool fetches;

static uint8_t *physical(uint64_t at)
{
	return at - shared->ram < ram_size ? ram + (at - shared->ram) : NULL;
}

/// The byte at a virtual address; NULL if there is none. The entries have an address in their middle bits.
static uint8_t *byte_at(uint64_t virt)
{
	uint64_t table = shared->tables;
	for (int shift = 39; shift >= 12; shift -= 9) {
		const uint64_t *entries = (const void *)physical(table);
		uint64_t entry = entries ? entries[virt >> shift & 0x1ff] : 0;
		if (!(entry & PRESENT))
			return NULL;
		table = entry & 0xffffffffff000;
	}
	uint8_t *page = physical(table);
	return page ? page + virt % PAGE : NULL;
}

/// Go on there, whatever branch led here.
static void go(uint64_t pc)
{
	frame->rip = pc;
	frame->u_cet &= ~(uint64_t)TRACKER;
}

/// PUSHF has pushed TF too.
static void hide_step(void)
{
	if (pushes_flags && frame->rip != resumed) {
		uint8_t *second = byte_at(frame->rsp + 1);
		if (second)
			*second &= ~(TF >> 8);
	}
	pushes_flags = false;
}

/// The CPU is before an instruction: what the judge is to be told.
static uint64_t step(void)
{
	uint64_t pc = frame->rip;
	if (pc / PAGE == shared->stub / PAGE)
		return NOTHING;
	if (pc == shared->until || executed++ == shared->budget)
		return ENDED;
	return !passes(pc) && within(shared->instruction, shared->instructions, pc) ? INSTRUCTION : NOTHING;
}

/// What the judge is to be told next.
static uint64_t next(uint64_t wanted)
{
	switch (said) {
	case PARKED:
		if (wanted == RUN)
			executed = 0;
		go(shared->from);
		return step();
	case INSTRUCTION:
		if (wanted == GO) {
			go(shared->from);
			return step();
		}
		return wanted == STOP ? PARKED : NOTHING;
	case TRAPPED:
		return wanted == STOP ? PARKED : NOTHING;
	default:
		return PARKED;
	}
}

/// Have the guest copy some bytes, if it can.
static bool copy(void)
{
	uint64_t to = shared->at + written, size = left < sizeof frame->copied ? left : sizeof frame->copied;
	for (uint64_t n = 0; n < size; n++)
		if (!byte_at(to + n))
			return false;
	memcpy(frame->copied, shared->data + written, size);
	frame->left = size;
	frame->to = to;
	written += size;
	left -= size;
	return true;
}

/// The guest goes on. 9Ch is PUSHF, behind prefixes.
static void resume(void)
{
	frame->flags |= TF;
	resumed = frame->rip;
	uint64_t at = resumed;
	const uint8_t *byte = byte_at(at);
	while (byte && (*byte == 0x66 || (*byte & 0xf0) == 0x40))
		byte = byte_at(++at);
	pushes_flags = byte && *byte == 0x9c;
}

/// The guest has come to an instruction: does it go on at once?
static void glanced(void)
{
	hide_step();
	stepped = step();
	frame->goes_on = stepped == NOTHING;
	if (frame->goes_on)
		resume();
}

/// Memory of the judge's, at an address or anywhere.
static void *mapped(uint64_t judge, uint64_t descriptor, void *at, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)judge, (unsigned long long)descriptor);
	int fd = open(path, O_RDWR);
	void *found = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
	if (found == MAP_FAILED)
		_exit(1);
	close(fd);
	return found;
}

/// Become two. Is this the new one? It has messages and memory of its own, with the machine's pages as they are, and nothing of the old
/// one's: that has no wall. It is a child of the judge, too. Bochs has one thread.
static bool forked(void)
{
	static uint8_t kept[MACHINE];
	uint64_t judge = shared->judge, message = shared->at, memory = shared->from, start = shared->stub - PAGE - shared->ram;
	long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
	if (pid) {
		shared->ok = pid > 0;
		shared->pc = pid;
		return false;
	}
	memcpy(kept, ram + start, MACHINE);
	mapped(judge, memory, ram, ram_size);
	memcpy(ram + start, kept, MACHINE);
	munmap(shared, sizeof *shared);
	// This library too is a file that could be written to, and the old one runs it.
	if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0))
		_exit(1);
	shared = mapped(judge, message, NULL, sizeof *shared);
	shared->bytes_of_this = sizeof *shared;
	return true;
}

/// The guest asks.
static void asked(void)
{
	bool copies = frame->left > 0, is_told = fetches && shared->what != ALL;
	frame->left = 0;
	if (!shared->walled) {
		// It takes Bochs a tenth of a second to come to here.
		do {
			shared->what = PARKED;
			hand_over();
		} while (shared->what != FORK || !forked());
		shared->walled = wall();
		said = PARKED;
	} else if (!copies && !fetches) {
		said = TRAPPED;
		if (frame->vector == STEP)
			said = stepped;
		else
			hide_step();
	}
	fetches = false;
	while (said) {
		if (copies && left && copy())
			return;
		if (!is_told) {
			shared->ok = !left;
			shared->what = said;
			shared->pc = frame->rip;
			hand_over();
			left = 0;
		}
		is_told = copies = false;
		uint64_t wanted = shared->what;
		// Whoever goes elsewhere also changes what the CPU expects there.
		if (wanted == ALL || wanted == GO || wanted == RUN || wanted == BACK) {
			if (frame->has != WHOLE) {
				frame->has = WANTED;
				fetches = true;
				return;
			}
			if (wanted != ALL)
				said = next(wanted);
		} else if (wanted == CODE) {
			copies = true;
			written = 0;
			left = shared->bytes < DATA ? shared->bytes : DATA;
			if (left && copy())
				return;
		} else {
			said = next(wanted);
		}
	}
	resume();
}

EXPORT int putc(int byte, FILE *file)
{
	(void)file;
	if (ram && (byte & 0xff) == GLANCES)
		glanced();
	else if (ram && (byte & 0xff) == ASKS)
		asked();
	return byte;
}

/// The guest's memory is that which both share: Bochs has room for the firmware behind it.
EXPORT void *_Znam(size_t size)
{
	if (ram || !shared || size < ram_size)
		return malloc(size);
	const char *file = getenv("TRAMPTOOL_RAM");
	int fd = file ? open(file, O_RDWR) : -1;
	void *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED || mmap(all, ram_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		_exit(1);
	close(fd);
	ram = all;
	frame = (void *)physical(shared->stub + PAGE);
	return ram;
}

/// Bochs's one thread besides the CPU's would open a socket, for viewers of its display. It is not started: behind the wall it could
/// not even begin.
EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*runs)(void *), void *with)
{
	(void)how, (void)runs, (void)with;
	*thread = 0;
	return 0;
}

/// Programs that lead to Bochs, as a shell, are left as they are.
__attribute__((constructor)) static void begun(void)
{
	const char *file = getenv("TRAMPTOOL_SHARED"), *size = getenv("TRAMPTOOL_RAM_SIZE");
	int fd = file && size ? open(file, O_RDWR) : -1;
	void *found = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (found == MAP_FAILED)
		return;
	shared = found;
	shared->bytes_of_this = sizeof *shared;
	ram_size = strtoull(size, NULL, 10);
}
