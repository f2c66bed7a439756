// SPDX-License-Identifier: GPL-2.0-only
// What the judge, another process, shares with the process of an engine, and how the two take turns. shared.rs has the same layout.

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { JUDGE = 0, CPU = 1 };
enum { RANGES = 64, REGISTERS = 1024, NAME = 24, BATCH = 128, DATA = 1 << 16, PASSES = 128, YIELDS = 2000 };
// In the number of a register: a mask says which of its bits are to be set.
enum { MASKED = 1 << 16 };

// Whether the process has given up its rights, and that it is to.
enum { NO_WALL, WALLED, ASKED };
// What the CPU says.
enum { PARKED = 1, INSTRUCTION, ACCESS, TRAPPED, ENDED };
// What the judge wants.
enum { READ = 1, WRITE, CODE, GO_ON, GO, STOP, RUN, BACK, ALL, FORK };

struct range {
	uint64_t first, last, writes, reads;
};

struct shared {
	// Whose turn it is; who does not have it sleeps, and is to be woken.
	_Atomic uint32_t turn, sleeps[2];
	// The message of whose turn it was: what most have first, in one line of a cache. Registers in the lists; bytes of what is told;
	// instructions of which the judge may be told late, and those of which it is; where a run begins or goes on.
	uint32_t count;
	uint64_t what, pc;
	uint32_t bytes, first_of_block, most_late, passed;
	uint64_t from, ok, at, is_write;
	// Where it may be told late: first address, end, and one that is the last of them. And of what it is.
	uint64_t late_first, late_end, late_last;
	uint64_t passes[PASSES];
	// The judge's process, and what this one says of itself.
	uint64_t judge, bytes_of_this, walled, registers;
	// Addresses of guest code: where a stopped CPU waits; where it goes to wait; where it comes to with a trap.
	uint64_t park, stub, vector;
	// Of the guest: the address of its first byte of memory, and that of its page tables.
	uint64_t ram, tables;
	// Of a run.
	uint64_t until, budget;
	// What the judge wants to be asked about.
	uint64_t instructions, accesses, blocks;
	struct range instruction[RANGES], access[RANGES];
	// So many registers by number, each with its bytes in `data`, one behind the other.
	uint32_t ids[BATCH], sizes[BATCH];
	char names[REGISTERS][NAME];
	uint8_t data[DATA];
};

static struct shared *shared;

static inline void futex(int op, uint32_t value)
{
	struct timespec second = { 1, 0 };
	bool waits = op == FUTEX_WAIT;
	long done = syscall(SYS_futex, &shared->turn, op, value, waits ? &second : NULL, NULL, 0);
	// Nobody else ends this process.
	if (waits && done < 0 && (uint64_t)getppid() != shared->judge)
		_exit(0);
}

/// Give the judge its turn, and wait for ours.
static inline void hand_over(void)
{
	shared->most_late = 0;
	atomic_store(&shared->turn, JUDGE);
	if (atomic_load(&shared->sleeps[JUDGE]))
		futex(FUTEX_WAKE, 1);
	for (unsigned int yields = 0; atomic_load(&shared->turn) != CPU; yields++) {
		if (yields < YIELDS) {
			sched_yield();
			continue;
		}
		atomic_store(&shared->sleeps[CPU], 1);
		futex(FUTEX_WAIT, JUDGE);
		atomic_store(&shared->sleeps[CPU], 0);
	}
	shared->ok = 1;
	shared->passed = 0;
}

#if defined(__x86_64__)
#define HOST AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define HOST AUDIT_ARCH_AARCH64
#elif defined(__riscv)
#define HOST AUDIT_ARCH_RISCV64
#endif

/// From now on no thread of the process opens a file, starts a program, or reaches another process or the network. Memory, time,
/// and what is open already are left. Code is to run: should it find a way out of QEMU, it has no more than that.
static bool wall(void)
{
#ifdef HOST
	static const int left[] = {
		SYS_futex,	  SYS_read,	    SYS_write,	      SYS_readv,	 SYS_writev,	 SYS_ppoll,
		SYS_mmap,	  SYS_munmap,
		SYS_mprotect,	  SYS_madvise,	    SYS_brk,	      SYS_clock_gettime, SYS_clock_nanosleep,
		SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_getppid,	 SYS_sched_yield,
		SYS_membarrier,	  SYS_exit,	    SYS_exit_group,   SYS_restart_syscall,
	};
	enum { COUNT = sizeof left / sizeof *left, HEAD = 4 };
	struct sock_filter filter[HEAD + COUNT + 2] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HOST, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	for (int n = 0; n < COUNT; n++)
		filter[HEAD + n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, left[n], COUNT - n, 0);
	filter[HEAD + COUNT] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1);
	filter[HEAD + COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { HEAD + COUNT + 2, filter };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
		return false;
	return open("/dev/null", O_RDONLY) < 0;
#else
	return false;
#endif
}

/// May the judge be told of this instruction late? Then it is noted.
static inline bool passes(uint64_t pc)
{
	if (shared->passed >= shared->most_late || shared->passed >= PASSES || pc < shared->late_first || pc >= shared->late_end)
		return false;
	shared->passes[shared->passed++] = pc;
	if (pc == shared->late_last)
		shared->most_late = 0;
	return true;
}

static inline bool within(const struct range *ranges, uint64_t count, uint64_t at)
{
	for (uint64_t n = 0; n < count && n < RANGES; n++)
		if (at - ranges[n].first <= ranges[n].last - ranges[n].first)
			return true;
	return false;
}
