// SPDX-License-Identifier: MIT OR Apache-2.0
// The first program of the kernels of `cargo xtask kernel` and `cargo xtask modules`: it traces a little itself, tries a
// module if it finds one, has ftrace_stub called through a pointer and findings shown if it finds what does so, runs the kernel's
// ftrace selftests if they are there, says how that went, and switches off.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"

// Calls a function of its own before each call of the traced one.
struct module {
	const char *name;
	const char *traced;
	// How enabled_functions names its trampoline.
	const char *direct;
	// What the stack of its function has, one behind the other.
	const char *first, *second;
};

static const struct module modules[] = {
	// vfs_write() calls it for /proc/self/comm.
	{ "trace_comm_write", "comm_write", "direct-->trace_comm_write_tramp", "=> comm_write\n", "=> vfs_write\n" },
	// vfs_read() calls it there, or jumps to it, so that ksys_read() has called it. The site jumps to the trampoline, so
	// that seq_read() itself is not on the stack.
	{ "trace_seq_read", "seq_read", "direct(jmp)-->trace_seq_read_tramp", "=> trace_seq_read_tramp", "s_read\n" },
};

static int failures;
static const struct module *loaded;

static void must(int good, const char *what)
{
	if (!good) {
		printf("init: FAILED: %s\n", what);
		failures++;
	}
}

static void put(const char *file, const char *text)
{
	// Without O_TRUNC a filter is added to, and a trace stays.
	int fd = open(file, O_WRONLY | O_TRUNC);

	must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), file);
	close(fd);
}

// How many lines of a file have this in them.
static int lines(const char *file, const char *text)
{
	char line[512];
	int count = 0;
	FILE *in = fopen(file, "r");

	must(in != NULL, file);
	while (in && fgets(line, sizeof(line), in))
		count += strstr(line, text) != NULL;
	if (in)
		fclose(in);
	return count;
}

static void show(const char *file)
{
	char line[512];
	FILE *in = fopen(file, "r");

	for (int i = 0; in && i < 40 && fgets(line, sizeof(line), in); i++)
		printf("init: %s", line);
	if (in)
		fclose(in);
}

// Say how enabled_functions names a trampoline.
static void enabled(const char *direct)
{
	char line[512];
	FILE *in = fopen(TRACING "enabled_functions", "r");

	while (in && fgets(line, sizeof(line), in)) {
		if (strstr(line, direct))
			printf("init: enabled: %s", strstr(line, direct));
	}
	if (in)
		fclose(in);
}

// Is each line with the first text followed by one with the second, and is there one?
static int follows(const char *file, const char *first, const char *second)
{
	char line[512];
	int found = 0, before = 0;
	FILE *in = fopen(file, "r");

	while (in && fgets(line, sizeof(line), in)) {
		if (before && !strstr(line, second))
			found = -1;
		before = strstr(line, first) != NULL;
		if (before && found >= 0)
			found++;
	}
	if (in)
		fclose(in);
	return found;
}

// How often the module's function was called.
static int calls(void)
{
	int count = -1;
	char name[128];
	FILE *in;

	snprintf(name, sizeof(name), "/sys/module/%s/parameters/calls", loaded->name);
	in = fopen(name, "r");
	must(in && fscanf(in, "%d", &count) == 1, "the module counts calls");
	if (in)
		fclose(in);
	return count;
}

// Call vfs_write() and comm_write() ten times, with arguments that matter.
static void work(void)
{
	int before = loaded ? calls() : 0;

	for (int i = 0; i < 10; i++) {
		char name[8] = "traced0", back[8] = "";
		FILE *in;

		name[6] += i;
		put("/proc/self/comm", name);
		in = fopen("/proc/self/comm", "r");
		must(in && fread(back, 1, 7, in) == 7 && strcmp(name, back) == 0, "arguments arrive");
		if (in)
			fclose(in);
	}
	if (loaded) {
		must(calls() - before == 10, "the module sees every call");
		must(lines(TRACING "enabled_functions", loaded->direct) == 1, "enabled_functions names the trampoline");
	}
}

// Do the work, and find that many calls in the trace.
static void trace(const char *tracer, const char *function)
{
	char what[128];

	put(TRACING "trace", "\n");
	put(TRACING "set_ftrace_filter", function);
	put(TRACING "current_tracer", tracer);
	work();
	put(TRACING "tracing_on", "0");
	snprintf(what, sizeof(what), "%s sees %s", tracer, function);
	must(lines(TRACING "trace", function) >= 10, what);
	// One stack for each call that was seen, of the called function alone; seq_read() has more than these ten.
	if (loaded && strcmp(function, loaded->name) == 0 &&
	    follows(TRACING "trace", loaded->first, loaded->second) < 10) {
		must(0, "the stack has function and caller");
		show(TRACING "trace");
	}
	put(TRACING "current_tracer", "nop");
	put(TRACING "set_ftrace_filter", "\n");
	put(TRACING "tracing_on", "1");
}

// Load the module, have its function traced alone and together with tracers, and unload it.
static void module(const struct module *module, int file)
{
	static char log[1 << 20];
	int length;

	klogctl(5 /* clear */, NULL, 0);
	if (syscall(SYS_finit_module, file, "", 0) != 0) {
		must(0, "load the module");
		return;
	}
	loaded = module;
	work();
	enabled(module->direct);
	trace("function", module->traced);
	trace("function_graph", module->traced);
	put(TRACING "options/func_stack_trace", "1");
	trace("function", module->name);
	put(TRACING "options/func_stack_trace", "0");
	must(syscall(SYS_delete_module, module->name, O_NONBLOCK) == 0, "unload the module");
	loaded = NULL;
	must(lines(TRACING "enabled_functions", module->traced) == 0, "nothing is left enabled");
	work();
	length = klogctl(3 /* read all since then */, log, sizeof(log) - 1);
	must(length >= 0, "read the log");
	log[length > 0 ? length : 0] = 0;
	must(!strstr(log, "WARNING") && !strstr(log, "BUG") && !strstr(log, "cut here"), "no warning in the log");
	printf("init: the module was traced alone, with function, with function_graph\n");
}

// Write ` NAME=ADDRESS` of a symbol of the kernel behind what is there.
static void address(char *text, size_t size, const char *name, const char *symbol)
{
	char line[512], ending[128];
	size_t length = strlen(text);
	FILE *in = fopen("/proc/kallsyms", "r");

	snprintf(ending, sizeof(ending), " %s\n", symbol);
	while (in && fgets(line, sizeof(line), in)) {
		if (strstr(line, ending))
			snprintf(text + length, size - length, " %s=0x%.*s", name, (int)strcspn(line, " "), line);
	}
	if (in)
		fclose(in);
}

// Load the module that calls ftrace_stub through a pointer.
static void indirect(int file)
{
	char stub[64] = "";

	address(stub, sizeof(stub), "stub", "ftrace_stub");
	must(syscall(SYS_finit_module, file, stub, 0) == 0, "ftrace_stub is called through a pointer");
}

// Load the module that shows findings: it says itself which.
static void findings(int file)
{
	char addresses[256] = "";

	address(addresses, sizeof(addresses), "register_graph", "register_ftrace_graph");
	address(addresses, sizeof(addresses), "unregister_graph", "unregister_ftrace_graph");
	address(addresses, sizeof(addresses), "reserve_data", "fgraph_reserve_data");
	address(addresses, sizeof(addresses), "retrieve_data", "fgraph_retrieve_data");
	must(syscall(SYS_finit_module, file, addresses, 0) == 0, "the module with findings runs");
	must(syscall(SYS_delete_module, "findings", O_NONBLOCK) == 0, "unload it");
}

// Run a line of shell; busybox is what there is.
static void shell(const char *line)
{
	pid_t child = fork();

	if (child == 0) {
		execl("/bin/busybox", "sh", "-c", line, NULL);
		_exit(127);
	}
	must(child > 0 && waitpid(child, NULL, 0) == child, line);
}

// Have the kernel's ftrace selftests print their verdicts, and then what the kernel warned of meanwhile.
static void selftests(void)
{
	static char log[1 << 20];
	int length;

	mkdir("/dev", 0755);
	mkdir("/tmp", 0777);
	must(mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) == 0, "mount /dev");
	setenv("PATH", "/bin", 1);
	klogctl(5 /* clear */, NULL, 0);
	// What the kernel says would come into the middle of verdicts.
	klogctl(8 /* console level */, NULL, 1);
	shell("busybox --install -s /bin && depmod && cd /ftrace && ./ftracetest -K -l /tmp/logs");
	// Of those that failed.
	shell("cd /tmp/logs && tail -n 12 *-log.* | sed 's/^/# /'");
	klogctl(8, NULL, 7);
	length = klogctl(3 /* read all since then */, log, sizeof(log) - 1);
	must(length >= 0, "read the log");
	log[length > 0 ? length : 0] = 0;
	for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n")) {
		if (strstr(line, "WARNING: ") || strstr(line, "BUG: "))
			printf("%s\n", strchr(line, ']') ? strchr(line, ']') + 2 : line);
	}
}

int main(void)
{
	int file;

	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	must(mount("proc", "/proc", "proc", 0, NULL) == 0, "mount /proc");
	must(mount("sysfs", "/sys", "sysfs", 0, NULL) == 0, "mount /sys");
	must(mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL) == 0, "mount tracefs");
	trace("function", "vfs_write");
	trace("function_graph", "vfs_write");
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		char name[128];

		snprintf(name, sizeof(name), "/%s.ko", modules[i].name);
		file = open(name, O_RDONLY);
		if (file >= 0)
			module(&modules[i], file);
	}
	file = open("/indirect.ko", O_RDONLY);
	if (file >= 0)
		indirect(file);
	file = open("/findings.ko", O_RDONLY);
	if (file >= 0)
		findings(file);
	if (access("/ftrace/ftracetest", X_OK) == 0)
		selftests();
	if (failures == 0)
		printf("init: all is well\n");
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
