// SPDX-License-Identifier: MIT OR Apache-2.0
// The first program of the kernels of `cargo xtask running`: it has the kernel write trampolines, for BPF programs, tracers and probes, and
// prints them, with the symbols that they go with, and with what the kernel's own lists say of them.

#include <elf.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"
#define DEBUGGING "/sys/kernel/debug/"
#define GRAPH TRACING "instances/graph/"

// Newer than some headers; the numbers are the kernel's (include/uapi/linux/bpf.h).
#ifndef BPF_TRACE_FSESSION
#define BPF_TRACE_FSESSION 58
#endif

static int bpf(int command, union bpf_attr *attr, unsigned int size)
{
	return syscall(__NR_bpf, command, attr, size);
}

static int can_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), can = fd >= 0 && write(fd, text, strlen(text)) >= 0;

	if (fd >= 0)
		close(fd);
	return can;
}

static void put(const char *path, const char *text)
{
	if (!can_put(path, text))
		printf("running: cannot write %s to %s\n", text, path);
}

// The kernel's types, and the number of the function with a name (kernel Documentation/bpf/btf.rst).
static unsigned char *btf;
static unsigned int btf_size;

static void read_btf(void)
{
	int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY);
	struct stat stat;
	long got;

	if (fd < 0 || fstat(fd, &stat))
		return;
	btf = malloc(stat.st_size);
	while (btf_size < stat.st_size && (got = read(fd, btf + btf_size, stat.st_size - btf_size)) > 0)
		btf_size += got;
	close(fd);
}

static unsigned int word(unsigned int at)
{
	unsigned int value = 0;

	if (at + 4 <= btf_size)
		memcpy(&value, btf + at, 4);
	return value;
}

static int function(const char *name)
{
	unsigned int header = word(4), at = header + word(8), end = at + word(12), strings = header + word(16);

	for (int id = 1; btf_size && at < end; id++) {
		unsigned int info = word(at + 4), kind = info >> 24 & 0x1f, parts = info & 0xffff, more = 0;

		if (kind == 12 && !strcmp((char *)btf + strings + word(at), name))
			return id;
		if (kind == 1 || kind == 14 || kind == 17)
			more = 4;
		else if (kind == 3)
			more = 12;
		else if (kind == 4 || kind == 5 || kind == 15 || kind == 19)
			more = 12 * parts;
		else if (kind == 6 || kind == 13)
			more = 8 * parts;
		at += 12 + more;
	}
	return 0;
}

// What the kernel said of the last program.
static char said[4096];

// Load a program of which this is known; without instructions, one that returns 0.
static int load(union bpf_attr *attr, const char *what)
{
	static const struct bpf_insn nothing[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};

	if (!attr->insns) {
		attr->insns = (unsigned long)nothing;
		attr->insn_cnt = 2;
	}
	attr->license = (unsigned long)"GPL";
	attr->log_buf = (unsigned long)said;
	attr->log_size = sizeof(said);
	attr->log_level = 1;
	strncpy(attr->prog_name, what, sizeof(attr->prog_name) - 1);
	return bpf(BPF_PROG_LOAD, attr, sizeof(*attr));
}

// Attach a program, with a cookie. What is open stays so: it goes with the descriptors.
static void attach(const char *name, int how, const char *what, unsigned long long cookie, int sleepable)
{
	union bpf_attr attr;
	int id = function(name), program, link;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = how == BPF_LSM_MAC ? BPF_PROG_TYPE_LSM : BPF_PROG_TYPE_TRACING;
	attr.expected_attach_type = how;
	attr.attach_btf_id = id;
	attr.prog_flags = sleepable ? BPF_F_SLEEPABLE : 0;
	program = id ? load(&attr, what) : -1;
	if (program < 0) {
		printf("running: not loaded: %s at %s: %s\n", what, name, id ? said : "no such function");
		return;
	}
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = program;
	attr.link_create.attach_type = how;
	attr.link_create.tracing.cookie = cookie;
	link = bpf(BPF_LINK_CREATE, &attr, sizeof(attr));
	printf("running: %s: %s at %s\n", link < 0 ? "not attached" : "attached", what, name);
}

// Attach a program to several functions, at their beginnings or ends.
static void attach_to_several(const char *const *names, unsigned int count, int ends, const char *what)
{
	union bpf_attr attr;
	int program, link;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_KPROBE;
	attr.expected_attach_type = BPF_TRACE_KPROBE_MULTI;
	program = load(&attr, what);
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = program;
	attr.link_create.attach_type = BPF_TRACE_KPROBE_MULTI;
	attr.link_create.kprobe_multi.syms = (unsigned long)names;
	attr.link_create.kprobe_multi.cnt = count;
	attr.link_create.kprobe_multi.flags = ends ? BPF_F_KPROBE_MULTI_RETURN : 0;
	link = program < 0 ? -1 : bpf(BPF_LINK_CREATE, &attr, sizeof(attr));
	printf("running: %s: %s at %u functions\n", link < 0 ? "not attached" : "attached", what, count);
}

static void attach_all(void)
{
	static const char *const begun[] = { "vfs_mknod", "vfs_truncate" }, *const ended[] = { "vfs_truncate", "vfs_readlink" };

	read_btf();
	attach("vfs_open", BPF_TRACE_FENTRY, "one", 0, 0);
	attach("vfs_read", BPF_TRACE_FENTRY, "read_a", 0x1234, 0);
	attach("vfs_read", BPF_TRACE_FEXIT, "read_b", 0x123456789abcdef0, 0);
	attach("vfs_write", BPF_TRACE_FEXIT, "write_a", 0, 0);
	attach("vfs_write", BPF_TRACE_FEXIT, "write_b", 7, 0);
	attach("security_file_open", BPF_MODIFY_RETURN, "decide", 0, 0);
	attach("security_file_open", BPF_TRACE_FEXIT, "decided", 1, 0);
	attach("vfs_fallocate", BPF_TRACE_FENTRY, "four", 3, 0);
	attach("vfs_fallocate", BPF_TRACE_FENTRY, "more", 4, 0);
	attach("do_sys_openat2", BPF_TRACE_FENTRY, "early", 0, 0);
	attach("do_sys_openat2", BPF_TRACE_FSESSION, "session", 5, 0);
	attach("mmap_region", BPF_TRACE_FEXIT, "seven", 0, 0);
	attach("__x64_sys_getpid", BPF_TRACE_FENTRY, "sleeps", 0, 1);
	attach("__arm64_sys_getpid", BPF_TRACE_FENTRY, "sleeps", 0, 1);
	attach("__riscv_sys_getpid", BPF_TRACE_FENTRY, "sleeps", 0, 1);
	attach("bpf_lsm_file_open", BPF_LSM_MAC, "guards", 0, 1);
	attach("bpf_lsm_inode_rename", BPF_LSM_MAC, "allows", 0, 0);
	attach_to_several(begun, 2, 0, "several_begun");
	attach_to_several(ended, 2, 1, "several_ended");
}

// Define an event of a group, which the kernel may refuse, and enable it.
static int probe(const char *group, const char *name, const char *definition)
{
	char path[128];

	if (!can_put(TRACING "dynamic_events", definition))
		return 0;
	snprintf(path, sizeof(path), TRACING "events/%s/%s/enable", group, name);
	put(path, "1");
	printf("running: event: %s\n", definition);
	return 1;
}

// Up to four probes inside of a function: the kernel refuses all that are not at the beginning of an instruction. They are so far
// apart that a jump has room in the place of each.
static void probe_inside(const char *function)
{
	char name[64], definition[128];

	for (int at = 12, made = 0; at < 200 && made < 4; at++) {
		snprintf(name, sizeof(name), "%s_%d", function, at);
		snprintf(definition, sizeof(definition), "p:inside/%s %s+%d", name, function, at);
		if (!probe("inside", name, definition))
			continue;
		made++;
		at += 15;
	}
}

// The second tracer is one of an instance. Linux 7.3 calls whoever comes first at the end of functions of others, too (kernel
// kernel/trace/fgraph.c, BIT(0)); fprobes would warn of that.
static void trace_graph(void)
{
	mkdir(TRACING "instances/graph", 0755);
	put(GRAPH "set_ftrace_filter", "vfs_create");
	put(GRAPH "set_ftrace_filter", "vfs_open");
	put(GRAPH "set_ftrace_filter", "vfs_fallocate");
	put(GRAPH "set_ftrace_filter", "vfs_rename");
	put(GRAPH "current_tracer", "function_graph");
}

static void trace(void)
{
	// Where a site is first in a function, and kprobes have no use for sites, one goes behind it.
	if (!probe("kprobes", "begun", "p:kprobes/begun vfs_getattr") && !probe("kprobes", "begun", "p:kprobes/begun vfs_getattr+8"))
		printf("running: no kprobe\n");
	if (!probe("kprobes", "ended", "r:kprobes/ended vfs_rename"))
		printf("running: no kretprobe\n");
	if (!probe("fprobes", "begun", "f:fprobes/begun vfs_mkdir") || !probe("fprobes", "ended", "f:fprobes/ended vfs_rmdir%return"))
		printf("running: no fprobe\n");
	probe_inside("vfs_unlink");
	probe_inside("vfs_link");
	probe_inside("vfs_symlink");
	// Some functions are traced by several of all these.
	put(TRACING "set_ftrace_filter", "vfs_statfs");
	put(TRACING "set_ftrace_filter", "vfs_open");
	put(TRACING "set_ftrace_filter", "vfs_rmdir");
	put(TRACING "current_tracer", "function");
}

// Wait until the kernel has put jumps in the place of kprobes, where it does that. Images that others have taken the place of go
// after a while, too.
static void settle(void)
{
	char line[512];
	int optimized = access("/proc/sys/debug/kprobes-optimization", F_OK) != 0;

	for (int seconds = 0; seconds < 40 && (seconds < 2 || !optimized); seconds++) {
		FILE *list = fopen(DEBUGGING "kprobes/list", "r");

		while (list && fgets(line, sizeof(line), list))
			optimized |= strstr(line, "[OPTIMIZED]") != NULL;
		if (list)
			fclose(list);
		sleep(1);
	}
}

static unsigned char bytes[4096] __attribute__((aligned(8)));

// Memory that /proc/kcore has; how much of it.
static long read_kcore(int kcore, unsigned long long at)
{
	static Elf64_Phdr programs[256];
	Elf64_Ehdr header;
	long size = 0;

	if (pread(kcore, &header, sizeof(header), 0) != sizeof(header) || header.e_phnum > 256)
		return 0;
	if (pread(kcore, programs, header.e_phnum * sizeof(*programs), header.e_phoff) < 0)
		return 0;
	for (int i = 0; i < header.e_phnum; i++)
		if (programs[i].p_type == PT_LOAD && at - programs[i].p_vaddr < programs[i].p_memsz)
			size = pread(kcore, bytes, sizeof(bytes), programs[i].p_offset + (at - programs[i].p_vaddr));
	return size;
}

// Memory that a program reads, by words: each time it is called with an address, and leaves there what it has. RISC-V's /proc/kcore
// has negative offsets for memory of vmalloc, which nobody can read from (kernel fs/proc/kcore.c, kc_vaddr_to_offset).
static long read_by_program(unsigned long long at)
{
	static const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_6, .src_reg = BPF_REG_1 },
		{ .code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_6 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_10 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_1, .imm = -8 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .imm = 8 },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_probe_read_kernel },
		{ .code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_10, .off = -8 },
		{ .code = BPF_STX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_6, .src_reg = BPF_REG_1 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	static int program;
	unsigned long long *words = (void *)bytes;
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_SYSCALL;
	attr.prog_flags = BPF_F_SLEEPABLE;
	attr.insns = (unsigned long)insns;
	attr.insn_cnt = sizeof(insns) / sizeof(*insns);
	program = program ? program : load(&attr, "reads");
	for (unsigned int i = 0; i < sizeof(bytes) / 8; i++) {
		words[i] = at + 8 * i;
		memset(&attr, 0, sizeof(attr));
		attr.test.prog_fd = program;
		attr.test.ctx_in = (unsigned long)&words[i];
		attr.test.ctx_size_in = 8;
		if (bpf(BPF_PROG_TEST_RUN, &attr, sizeof(attr)) || attr.test.retval)
			return 8 * i;
	}
	return sizeof(bytes);
}

static void print_memory(int kcore, unsigned long long at)
{
	long size = read_kcore(kcore, at);

	if (size <= 0)
		size = read_by_program(at);
	if (size <= 0) {
		printf("running: no memory at %llx\n", at);
		return;
	}
	printf("memory: %llx ", at);
	for (long i = 0; i < size; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

// Names.
struct names {
	char all[128][128];
	int count;
};

// The functions that the kernel says are traced or probed, and those that its trampolines call there.
static struct names listed, called;

static int is_in(const struct names *names, const char *name)
{
	for (int i = 0; i < names->count; i++)
		if (!strcmp(names->all[i], name))
			return 1;
	return 0;
}

static void add(struct names *names, const char *name)
{
	if (names->count < 128 && !is_in(names, name))
		strcpy(names->all[names->count++], name);
}

// Symbols that trampolines go with: what they call, what they are for, and what stands behind them.
static int wanted(const char *name, const char *module)
{
	static const char *const names[] = {
		"vfs_open", "vfs_read", "vfs_statfs", "vfs_getattr", "vfs_rename", "vfs_write", "security_file_open", "vfs_fallocate", "do_sys_openat2", "mmap_region",
		"__x64_sys_getpid", "__arm64_sys_getpid", "__riscv_sys_getpid", "__x86_return_thunk", "ftrace_caller",
		"ftrace_regs_caller", "ftrace_ops_list_func", "arch_ftrace_ops_list_func", "kprobe_ftrace_handler", "ftrace_stub",
		"optimized_callback", "optprobe_template_entry", "optprobe_template_end", "asm_exc_page_fault", "kprobe_table",
	};

	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return 1;
	if (is_in(&listed, name) || is_in(&called, name))
		return 1;
	return !strncmp(name, "__bpf_", 6) || !strcmp(module, "[bpf]") || !strncmp(module, "[__builtin", 10);
}

// Print one of the kernel's lists, with this in front of each line, and note the functions that it names.
static void print_list(const char *path, const char *start, const char *form)
{
	FILE *list = fopen(path, "r");
	char line[4096], name[128];

	while (list && fgets(line, sizeof(line), list)) {
		printf("%s: %s", start, line);
		for (const char *at = strchr(line, '('); at; at = strchr(at + 1, '('))
			if (sscanf(at, "(%127[^+) ]", name) == 1)
				add(&called, name);
		// A line that begins with a space is more of the one before.
		if (line[0] != '\t' && line[0] != ' ' && sscanf(line, form, name) == 1)
			add(&listed, name);
	}
	if (list)
		fclose(list);
	else
		printf("running: no %s\n", path);
}

// The functions that BPF programs are attached to, by their numbers, as the kernel's list of links has them.
static void print_links(void)
{
	struct bpf_link_info info;
	union bpf_attr attr;
	unsigned int id = 0;

	for (;;) {
		memset(&attr, 0, sizeof(attr));
		attr.start_id = id;
		if (bpf(BPF_LINK_GET_NEXT_ID, &attr, sizeof(attr)))
			return;
		id = attr.next_id;
		memset(&attr, 0, sizeof(attr));
		attr.link_id = id;
		attr.info.bpf_fd = bpf(BPF_LINK_GET_FD_BY_ID, &attr, sizeof(attr));
		memset(&info, 0, sizeof(info));
		attr.info.info_len = sizeof(info);
		attr.info.info = (unsigned long)&info;
		if (!bpf(BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof(attr)) && info.type == BPF_LINK_TYPE_TRACING)
			printf("link: %u\n", info.tracing.target_btf_id);
	}
}

// The structures of the kernel's probes, and what stands at each probe: their table has lists of them (kernel kernel/kprobes.c), and the
// address comes fourth (kernel include/linux/kprobes.h, struct kprobe).
static void print_probes(int kcore, unsigned long long table)
{
	enum { LISTS = 64, ADDRESS = 5, MOST = 256 };
	int left = MOST;
	unsigned long long heads[LISTS], words[ADDRESS + 1];

	if (read_kcore(kcore, table) < (long)sizeof(heads))
		return;
	memcpy(heads, bytes, sizeof(heads));
	for (int i = 0; i < LISTS; i++)
		for (unsigned long long at = heads[i]; at && left--; at = words[0]) {
			if (read_kcore(kcore, at) < (long)sizeof(words))
				return;
			memcpy(words, bytes, sizeof(words));
			print_memory(kcore, at);
			print_memory(kcore, words[ADDRESS]);
		}
}

static int is_written(const char *name)
{
	return !strncmp(name, "bpf_trampoline_", 15) || !strcmp(name, "ftrace_trampoline") || !strcmp(name, "kprobe_insn_page") ||
	       !strcmp(name, "kprobe_optinsn_page");
}

static void print_all(void)
{
	FILE *symbols = fopen("/proc/kallsyms", "r");
	int kcore = open("/proc/kcore", O_RDONLY), found = 0;
	char line[1024], name[512], module[128], type;
	unsigned long long at;

	print_list(TRACING "enabled_functions", "traced", "%127s");
	print_list(DEBUGGING "kprobes/list", "kprobe", "%*s %*s %127[^+ ]");
	print_links();
	if (!symbols || kcore < 0) {
		printf("running: no kallsyms or no kcore\n");
		return;
	}
	while (fgets(line, sizeof(line), symbols)) {
		module[0] = 0;
		if (sscanf(line, "%llx %c %511s %127s", &at, &type, name, module) < 3)
			continue;
		if (!wanted(name, module))
			continue;
		printf("symbol: %llx %c %s %s\n", at, type, name, module);
		// What is copied is read too, as a copy is told by it, and functions for their sites and probes.
		if (is_in(&listed, name) || is_written(name) || (*module != '[' && strncmp(name, "__", 2)))
			print_memory(kcore, at);
		if (!strcmp(name, "kprobe_table"))
			print_probes(kcore, at);
		found += is_written(name);
	}
	printf("running: %d trampolines\n", found);
}

// What the kernel found wrong with itself, which it does not print.
static void print_warnings(void)
{
	static char log[1 << 20];
	int size = klogctl(3, log, sizeof(log) - 1);

	log[size > 0 ? size : 0] = 0;
	for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n"))
		if (strstr(line, "WARNING: ") || strstr(line, "BUG: "))
			printf("running: the kernel's log: %s\n", line);
}

int main(void)
{
	char release[128] = "";
	int fd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("tracefs", TRACING, "tracefs", 0, NULL);
	mount("debugfs", DEBUGGING, "debugfs", 0, NULL);
	put("/proc/sys/kernel/printk", "1");
	// RISC-V has them off at first.
	put("/proc/sys/net/core/bpf_jit_enable", "1");
	put("/proc/sys/net/core/bpf_jit_kallsyms", "1");
	fd = open("/proc/sys/kernel/osrelease", O_RDONLY);
	if (fd >= 0 && read(fd, release, sizeof(release) - 1) > 0)
		printf("release: %s", release);
	trace_graph();
	attach_all();
	trace();
	settle();
	print_all();
	print_warnings();
	printf("init: all is well\n");
	reboot(RB_POWER_OFF);
	return 0;
}
