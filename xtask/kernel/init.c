// SPDX-License-Identifier: MIT OR Apache-2.0
// The only program of the kernels of `cargo xtask kernel`: it traces a little itself, says so, and switches off.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"

static int failures;

static void must(int good, const char *what)
{
	if (!good) {
		printf("init: FAILED: %s\n", what);
		failures++;
	}
}

static void put(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY);

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

// Call vfs_write() ten times, and find that many in the trace.
static void trace(const char *tracer)
{
	char what[128];

	put(TRACING "trace", "\n");
	put(TRACING "set_ftrace_filter", "vfs_write");
	put(TRACING "current_tracer", tracer);
	for (int i = 0; i < 10; i++)
		put("/proc/self/comm", "traced");
	put(TRACING "tracing_on", "0");
	snprintf(what, sizeof(what), "%s sees vfs_write", tracer);
	must(lines(TRACING "trace", "vfs_write") >= 10, what);
	put(TRACING "current_tracer", "nop");
	put(TRACING "set_ftrace_filter", "\n");
	put(TRACING "tracing_on", "1");
}

int main(void)
{
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	must(mount("proc", "/proc", "proc", 0, NULL) == 0, "mount /proc");
	must(mount("sysfs", "/sys", "sysfs", 0, NULL) == 0, "mount /sys");
	must(mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL) == 0, "mount tracefs");
	trace("function");
	trace("function_graph");
	if (failures == 0)
		printf("init: all is well\n");
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
