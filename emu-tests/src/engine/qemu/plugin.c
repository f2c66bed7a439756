// SPDX-License-Identifier: GPL-2.0-only
// What QEMU loads: it lets a CPU of QEMU do what the judge, another process, asks for through memory that both share.
//
// QEMU's interface for plugins, version 7, is declared here as far as it is used: Debian has no header of it. The CPU waits in
// a callback while it is the judge's turn. shared.rs has the same layout.

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
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

#define EXPORT __attribute__((visibility("default")))

typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;
typedef struct {
	char *data;
	unsigned int len;
} GArray;
typedef struct {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
	bool is_readonly;
} qemu_plugin_reg_descriptor;
typedef struct {
	const char *target_name;
	struct {
		int min, cur;
	} version;
	bool system_emulation;
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { CB_R_REGS = 1, CB_RW_REGS_PC = 3 };
enum { MEM_RW = 3 };

GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *, unsigned int);
void qemu_plugin_register_vcpu_init_cb(uint64_t, void (*)(unsigned int, void *), void *);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t, void (*)(struct qemu_plugin_tb *, void *), void *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned int, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned int, uint32_t, uint64_t, void *), int, int,
				      void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
unsigned int qemu_plugin_mem_size_shift(uint32_t);
bool qemu_plugin_mem_is_store(uint32_t);
GArray *qemu_plugin_get_registers(void);
bool qemu_plugin_read_register(struct qemu_plugin_register *, GByteArray *);
bool qemu_plugin_write_register(struct qemu_plugin_register *, GByteArray *);
bool qemu_plugin_write_memory_vaddr(uint64_t, GByteArray *);
void qemu_plugin_set_pc(uint64_t);

EXPORT int qemu_plugin_version = 7;

enum { JUDGE = 0, CPU = 1 };
enum { RANGES = 64, REGISTERS = 1024, NAME = 24, BATCH = 128, DATA = 1 << 16, SPINS = 2000 };

// What the CPU says.
enum { PARKED = 1, INSTRUCTION, ACCESS, TRAPPED, ENDED };
// What the judge wants.
enum { READ = 1, WRITE, CODE, GO_ON, GO, STOP, RUN, BACK };

struct range {
	uint64_t first, last, writes, reads;
};

struct shared {
	// Whose turn it is; who does not have it sleeps, and is to be woken. Then the judge's process, and what this one says of itself.
	_Atomic uint32_t turn, sleeps[2];
	uint64_t judge, bytes_of_this, walled, registers;
	// The message of whose turn it was.
	uint64_t what, pc, bytes, first_of_block, at, is_write, ok;
	// Addresses of guest code: where a stopped CPU waits; where it goes to wait; where it comes to with a trap.
	uint64_t park, stub, vector;
	// Of a run.
	uint64_t from, until, budget;
	// What the judge wants to be asked about.
	uint64_t instructions, accesses, blocks;
	struct range instruction[RANGES], access[RANGES];
	// Registers by number, each with its bytes in `data`, one behind the other.
	uint64_t count;
	uint32_t ids[BATCH], sizes[BATCH];
	char names[REGISTERS][NAME];
	uint8_t data[DATA];
};

static struct shared *shared;
static struct qemu_plugin_register *handles[REGISTERS];
static GByteArray *bytes;
static bool runs, stops;
static uint64_t executed;

struct place {
	uint64_t pc;
	uint32_t size, block;
};

static inline void pause_a_moment(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void futex(int op, uint32_t value)
{
	struct timespec second = { 1, 0 };
	bool waits = op == FUTEX_WAIT;
	long done = syscall(SYS_futex, &shared->turn, op, value, waits ? &second : NULL, NULL, 0);
	// Nobody else ends this process.
	if (waits && done < 0 && (uint64_t)getppid() != shared->judge)
		_exit(0);
}

/// Tell the judge, and do what it asks for until it lets the CPU go.
static uint64_t tell(uint64_t what, uint64_t pc)
{
	shared->what = what;
	shared->pc = pc;
	for (;;) {
		atomic_store(&shared->turn, JUDGE);
		if (atomic_load(&shared->sleeps[JUDGE]))
			futex(FUTEX_WAKE, 1);
		for (unsigned int spins = 0; atomic_load(&shared->turn) != CPU; spins++) {
			if (spins < SPINS) {
				pause_a_moment();
				continue;
			}
			atomic_store(&shared->sleeps[CPU], 1);
			futex(FUTEX_WAIT, JUDGE);
			atomic_store(&shared->sleeps[CPU], 0);
		}
		uint8_t *data = shared->data;
		shared->ok = 1;
		switch (shared->what) {
		case READ:
			for (uint64_t n = 0; n < shared->count && n < BATCH; n++) {
				g_byte_array_set_size(bytes, 0);
				bool read = qemu_plugin_read_register(handles[shared->ids[n] % REGISTERS], bytes);
				uint32_t size = shared->sizes[n];
				memset(data, 0, size);
				memcpy(data, bytes->data, bytes->len < size ? bytes->len : size);
				shared->ok &= read;
				data += size;
			}
			break;
		case WRITE:
			for (uint64_t n = 0; n < shared->count && n < BATCH; n++) {
				struct qemu_plugin_register *handle = handles[shared->ids[n] % REGISTERS];
				// Registers may be wider or narrower than what is written.
				g_byte_array_set_size(bytes, 0);
				shared->ok &= qemu_plugin_read_register(handle, bytes);
				uint32_t size = shared->sizes[n];
				memcpy(bytes->data, data, bytes->len < size ? bytes->len : size);
				shared->ok &= qemu_plugin_write_register(handle, bytes);
				data += size;
			}
			break;
		case CODE: {
			GByteArray code = { shared->data, shared->bytes };
			shared->ok = qemu_plugin_write_memory_vaddr(shared->at, &code);
			break;
		}
		default:
			return shared->what;
		}
	}
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
		SYS_futex,	  SYS_read,	    SYS_write,	      SYS_ppoll,	 SYS_mmap,	 SYS_munmap,
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

/// The CPU is where it waits: nothing runs until the judge says so.
static void park(void)
{
	if (!shared->walled)
		shared->walled = wall();
	for (;;) {
		uint64_t wanted = tell(PARKED, shared->park);
		if (wanted == RUN) {
			executed = 0;
			stops = false;
		}
		runs = wanted == RUN || wanted == BACK;
		if (runs || wanted == GO)
			qemu_plugin_set_pc(shared->from);
	}
}

/// Go and wait. The stub has a landing pad.
static void leave(void)
{
	runs = false;
	qemu_plugin_set_pc(shared->stub);
}

static bool within(const struct range *ranges, uint64_t count, uint64_t at)
{
	for (uint64_t n = 0; n < count && n < RANGES; n++)
		if (at - ranges[n].first <= ranges[n].last - ranges[n].first)
			return true;
	return false;
}

static void instruction(unsigned int cpu, void *data)
{
	(void)cpu;
	const struct place *place = data;
	if (place->pc == shared->park)
		park();
	if (!runs || (place->pc ^ shared->stub) < 4096) {
		if (place->pc == shared->vector && tell(TRAPPED, place->pc) == STOP)
			leave();
		return;
	}
	if (stops || place->pc == shared->until || executed++ == shared->budget) {
		tell(ENDED, place->pc);
		leave();
	}
	shared->first_of_block = shared->blocks && place->block ? place->block : 0;
	if (!shared->first_of_block && !within(shared->instruction, shared->instructions, place->pc))
		return;
	shared->bytes = place->size;
	uint64_t wanted = tell(INSTRUCTION, place->pc);
	if (wanted == GO)
		qemu_plugin_set_pc(shared->from);
	if (wanted == STOP)
		leave();
}

static void accessed(unsigned int cpu, uint32_t info, uint64_t at, void *data)
{
	(void)cpu;
	const struct place *place = data;
	if (!runs || stops || (place->pc ^ shared->stub) < 4096)
		return;
	uint64_t size = 1ull << qemu_plugin_mem_size_shift(info);
	bool is_write = qemu_plugin_mem_is_store(info);
	for (uint64_t n = 0; n < shared->accesses && n < RANGES; n++) {
		const struct range *range = &shared->access[n];
		if (at > range->last || at + size <= range->first || !(is_write ? range->writes : range->reads))
			continue;
		shared->at = at;
		shared->bytes = size;
		shared->is_write = is_write;
		if (tell(ACCESS, place->pc) == STOP)
			stops = true;
		return;
	}
}

static void translated(struct qemu_plugin_tb *block, void *data)
{
	(void)data;
	size_t count = qemu_plugin_tb_n_insns(block);
	uint32_t size = 0;
	for (size_t n = 0; n < count; n++)
		size += qemu_plugin_insn_size(qemu_plugin_tb_get_insn(block, n));
	for (size_t n = 0; n < count; n++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, n);
		// QEMU may run the code as long as it lives.
		struct place *place = malloc(sizeof *place);
		if (!place)
			abort();
		*place = (struct place){ qemu_plugin_insn_vaddr(insn), qemu_plugin_insn_size(insn), n ? 0 : size };
		qemu_plugin_register_vcpu_insn_exec_cb(insn, instruction, CB_RW_REGS_PC, place);
		qemu_plugin_register_vcpu_mem_cb(insn, accessed, CB_R_REGS, MEM_RW, place);
	}
}

static void begun(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	GArray *all = qemu_plugin_get_registers();
	const qemu_plugin_reg_descriptor *descriptors = (const void *)all->data;
	bytes = g_byte_array_new();
	for (unsigned int n = 0; n < all->len && n < REGISTERS; n++) {
		handles[n] = descriptors[n].handle;
		snprintf(shared->names[n], NAME, "%s", descriptors[n].name);
		shared->registers = n + 1;
	}
}

EXPORT int qemu_plugin_install(uint64_t id, const qemu_info_t *info, int argc, char **argv)
{
	(void)info;
	const char *file = argc == 1 ? strchr(argv[0], '=') : NULL;
	int fd = file ? open(file + 1, O_RDWR) : -1;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		return 1;
	shared->bytes_of_this = sizeof *shared;
	qemu_plugin_register_vcpu_init_cb(id, begun, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
	return 0;
}
