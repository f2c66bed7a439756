// SPDX-License-Identifier: GPL-2.0-only
// What QEMU loads: it lets a CPU of QEMU do what the judge, another process, asks for through memory that both share.
//
// QEMU's interface for plugins, version 7, is declared here as far as it is used: Debian has no header of it. The CPU waits in
// a callback while it is the judge's turn.

#include "shared.h"

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

static struct qemu_plugin_register *handles[REGISTERS];
// Bytes of the registers that have been set in part.
static uint32_t widths[REGISTERS];
static GByteArray *bytes;
static bool runs, stops;
static uint64_t executed;

struct place {
	uint64_t pc;
	uint32_t size, block;
};

/// Read the registers of the list.
static void read_registers(void)
{
	uint8_t *data = shared->data;
	for (uint32_t n = 0; n < shared->count && n < BATCH; n++) {
		g_byte_array_set_size(bytes, 0);
		shared->ok &= qemu_plugin_read_register(handles[shared->ids[n] % REGISTERS], bytes);
		uint32_t size = shared->sizes[n];
		memset(data, 0, size);
		memcpy(data, bytes->data, bytes->len < size ? bytes->len : size);
		data += size;
	}
}

/// Set the registers of the list. Of those that are marked so, the bits of a mask, which follows the value.
static void set_registers(void)
{
	const uint8_t *data = shared->data;
	for (uint32_t n = 0; n < shared->count && n < BATCH; n++) {
		uint32_t id = shared->ids[n] % REGISTERS, size = shared->sizes[n];
		bool masked = shared->ids[n] & MASKED;
		if (masked || size != widths[id]) {
			g_byte_array_set_size(bytes, 0);
			shared->ok &= qemu_plugin_read_register(handles[id], bytes);
			widths[id] = bytes->len;
		}
		// Registers may be wider or narrower than what is written.
		g_byte_array_set_size(bytes, widths[id]);
		for (uint32_t at = 0; at < size && at < widths[id]; at++) {
			uint8_t mask = masked ? data[size + at] : 0xff;
			bytes->data[at] = (bytes->data[at] & ~mask) | (data[at] & mask);
		}
		shared->ok &= qemu_plugin_write_register(handles[id], bytes);
		data += masked ? 2 * size : size;
	}
	shared->count = 0;
}

/// Tell the judge, and do what it asks for until it lets the CPU go. Registers that it has listed then are set first.
static uint64_t tell(uint64_t what, uint64_t pc)
{
	shared->what = what;
	shared->pc = pc;
	for (;;) {
		hand_over();
		if (shared->what != READ)
			set_registers();
		switch (shared->what) {
		case READ:
			read_registers();
			break;
		case WRITE:
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
	if (passes(place->pc))
		return;
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
