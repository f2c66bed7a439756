// SPDX-License-Identifier: MIT OR Apache-2.0
// The first program of the kernels of `cargo xtask running`: it has the kernel write trampolines, for BPF programs and for tracers, and
// prints them, with the symbols that they go with.

#include <elf.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"

// Newer than some headers; the numbers are the kernel's (include/uapi/linux/bpf.h).
#ifndef BPF_TRACE_FSESSION
#define BPF_TRACE_FSESSION 58
#endif

static int bpf(int command, union bpf_attr *attr, unsigned int size)
{
	return syscall(__NR_bpf, command, attr, size);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		printf("running: cannot write %s to %s\n", text, path);
	if (fd >= 0)
		close(fd);
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

// Attach a program that returns 0, with a cookie. What is open stays so: it goes with the descriptors.
static void attach(const char *name, int how, const char *what, unsigned long long cookie, int sleepable)
{
	struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	static char log[4096];
	union bpf_attr attr;
	int id = function(name), program, link;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_TRACING;
	attr.expected_attach_type = how;
	attr.attach_btf_id = id;
	attr.insns = (unsigned long)insns;
	attr.insn_cnt = 2;
	attr.license = (unsigned long)"GPL";
	attr.log_buf = (unsigned long)log;
	attr.log_size = sizeof(log);
	attr.log_level = 1;
	attr.prog_flags = sleepable ? BPF_F_SLEEPABLE : 0;
	strncpy(attr.prog_name, what, sizeof(attr.prog_name) - 1);
	program = id ? bpf(BPF_PROG_LOAD, &attr, sizeof(attr)) : -1;
	if (program < 0) {
		printf("running: not loaded: %s at %s: %s\n", what, name, id ? log : "no such function");
		return;
	}
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = program;
	attr.link_create.attach_type = how;
	attr.link_create.tracing.cookie = cookie;
	link = bpf(BPF_LINK_CREATE, &attr, sizeof(attr));
	printf("running: %s: %s at %s\n", link < 0 ? "not attached" : "attached", what, name);
}

static void attach_all(void)
{
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
}

static void trace(void)
{
	put(TRACING "kprobe_events", "p:probe vfs_getattr");
	put(TRACING "events/kprobes/probe/enable", "1");
	put(TRACING "set_ftrace_filter", "vfs_statfs");
	put(TRACING "current_tracer", "function");
}

// Memory that /proc/kcore has.
static void print_memory(int kcore, unsigned long long at)
{
	static Elf64_Phdr programs[256];
	static unsigned char bytes[4096];
	Elf64_Ehdr header;
	long size = 0;

	if (pread(kcore, &header, sizeof(header), 0) != sizeof(header) || header.e_phnum > 256)
		return;
	if (pread(kcore, programs, header.e_phnum * sizeof(*programs), header.e_phoff) < 0)
		return;
	for (int i = 0; i < header.e_phnum; i++)
		if (programs[i].p_type == PT_LOAD && at - programs[i].p_vaddr < programs[i].p_memsz)
			size = pread(kcore, bytes, sizeof(bytes), programs[i].p_offset + (at - programs[i].p_vaddr));
	if (size <= 0) {
		printf("running: no memory at %llx\n", at);
		return;
	}
	printf("memory: %llx ", at);
	for (long i = 0; i < size; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

// Symbols that trampolines go with: what they call, what they are for, and what stands behind them.
static int wanted(const char *name, const char *module)
{
	static const char *const names[] = {
		"vfs_open", "vfs_read", "vfs_statfs", "vfs_getattr", "vfs_rename", "vfs_write", "security_file_open", "vfs_fallocate", "do_sys_openat2", "mmap_region",
		"__x64_sys_getpid", "__arm64_sys_getpid", "__riscv_sys_getpid", "__x86_return_thunk", "ftrace_caller",
		"ftrace_regs_caller", "ftrace_ops_list_func", "arch_ftrace_ops_list_func", "kprobe_ftrace_handler", "ftrace_stub",
	};

	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return 1;
	return !strncmp(name, "__bpf_", 6) || !strcmp(module, "[bpf]") || !strncmp(module, "[__builtin", 10);
}

// The functions that the kernel says are traced.
static char traced[64][128];
static int all_traced;

static void read_traced(void)
{
	FILE *list = fopen(TRACING "enabled_functions", "r");
	char line[4096];

	while (list && all_traced < 64 && fgets(line, sizeof(line), list)) {
		if (line[0] == '\t' || line[0] == ' ' || sscanf(line, "%127s", traced[all_traced]) != 1)
			continue;
		printf("traced: %s\n", traced[all_traced]);
		all_traced++;
	}
	if (list)
		fclose(list);
}

static int is_traced(const char *name)
{
	for (int i = 0; i < all_traced; i++)
		if (!strcmp(traced[i], name))
			return 1;
	return 0;
}

static void print_all(void)
{
	FILE *symbols = fopen("/proc/kallsyms", "r");
	int kcore = open("/proc/kcore", O_RDONLY), found = 0;
	char line[1024], name[512], module[128], type;
	unsigned long long at;

	read_traced();
	if (!symbols || kcore < 0) {
		printf("running: no kallsyms or no kcore\n");
		return;
	}
	while (fgets(line, sizeof(line), symbols)) {
		module[0] = 0;
		if (sscanf(line, "%llx %c %511s %127s", &at, &type, name, module) < 3)
			continue;
		if (!wanted(name, module) && !is_traced(name))
			continue;
		printf("symbol: %llx %c %s %s\n", at, type, name, module);
		// What is copied is read too, as a copy is told by it, and functions for their sites.
		if (is_traced(name) || (*module != '[' && strncmp(name, "__", 2)))
			print_memory(kcore, at);
		if (strncmp(name, "bpf_trampoline_", 15) && strcmp(name, "ftrace_trampoline"))
			continue;
		print_memory(kcore, at);
		found++;
	}
	printf("running: %d trampolines\n", found);
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
	put("/proc/sys/kernel/printk", "1");
	fd = open("/proc/sys/kernel/osrelease", O_RDONLY);
	if (fd >= 0 && read(fd, release, sizeof(release) - 1) > 0)
		printf("release: %s", release);
	attach_all();
	trace();
	// Images that others have taken the place of go after a while.
	sleep(2);
	print_all();
	printf("init: all is well\n");
	reboot(RB_POWER_OFF);
	return 0;
}
