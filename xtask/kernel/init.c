// SPDX-License-Identifier: MIT OR Apache-2.0
// The only program of the kernels of `cargo xtask kernel` and `cargo xtask modules`: it traces a little itself, tries a
// module if it finds one, says how that went, and switches off.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"
// Calls a function of its own before each comm_write(), which vfs_write() calls for /proc/self/comm.
#define MODULE "trace_comm_write"
#define DIRECT "direct-->" MODULE "_tramp"

static int failures;
static int loaded;

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
	FILE *in = fopen("/sys/module/" MODULE "/parameters/calls", "r");

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
		must(lines(TRACING "enabled_functions", DIRECT) == 1, "enabled_functions names the trampoline");
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
	// One stack for each call that was seen, of the called function alone.
	if (strcmp(function, MODULE) == 0 && follows(TRACING "trace", "=> comm_write\n", "=> vfs_write\n") != 10) {
		must(0, "the stack has function and caller");
		show(TRACING "trace");
	}
	put(TRACING "current_tracer", "nop");
	put(TRACING "set_ftrace_filter", "\n");
	put(TRACING "tracing_on", "1");
}

// Load the module, have its function traced alone and together with tracers, and unload it.
static void module(int file)
{
	static char log[1 << 20];
	int length;

	klogctl(5 /* clear */, NULL, 0);
	loaded = syscall(SYS_finit_module, file, "", 0) == 0;
	must(loaded, "load the module");
	if (!loaded)
		return;
	work();
	trace("function", "comm_write");
	trace("function_graph", "comm_write");
	put(TRACING "options/func_stack_trace", "1");
	trace("function", MODULE);
	put(TRACING "options/func_stack_trace", "0");
	must(syscall(SYS_delete_module, MODULE, O_NONBLOCK) == 0, "unload the module");
	loaded = 0;
	must(lines(TRACING "enabled_functions", "comm_write") == 0, "nothing is left enabled");
	work();
	length = klogctl(3 /* read all since then */, log, sizeof(log) - 1);
	must(length > 0, "read the log");
	must(!strstr(log, "WARNING") && !strstr(log, "BUG") && !strstr(log, "cut here"), "no warning in the log");
	printf("init: the module was traced alone, with function, with function_graph\n");
}

int main(void)
{
	int file = open("/" MODULE ".ko", O_RDONLY);

	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	must(mount("proc", "/proc", "proc", 0, NULL) == 0, "mount /proc");
	must(mount("sysfs", "/sys", "sysfs", 0, NULL) == 0, "mount /sys");
	must(mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL) == 0, "mount tracefs");
	trace("function", "vfs_write");
	trace("function_graph", "vfs_write");
	if (file >= 0)
		module(file);
	if (failures == 0)
		printf("init: all is well\n");
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
