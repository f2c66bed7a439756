/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is wrong, by kinds: how often, and the first of each. For programs that print it, a line a kind, and then what they have run. */
#ifndef TOLD_H
#define TOLD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static struct told_kind {
	char what[96], as[200];
	unsigned long times;
} told_kinds[32];
/* What is run now. Once something is wrong with it, nothing more is told of it: that may follow from the first. */
static char told_as[200];
static bool told;

/* The kernel keeps its stack at multiples of 8 on x86. */
#ifdef __x86_64__
#define STUB __attribute__((force_align_arg_pointer, noinline, used))
#else
#define STUB __attribute__((noinline, used))
#endif

STUB static void wrong(const char *format, ...)
{
	char what[96];
	va_list list;
	int i = 0;

	if (told)
		return;
	told = true;
	va_start(list, format);
	vsnprintf(what, sizeof(what), format, list);
	va_end(list);
	while (i < 31 && told_kinds[i].times && strcmp(told_kinds[i].what, what))
		i++;
	if (!told_kinds[i].times++) {
		strcpy(told_kinds[i].what, what);
		strcpy(told_kinds[i].as, told_as);
	}
}

/* The exit code. */
__attribute__((unused)) static int told_all(unsigned long count, const char *of)
{
	bool good = true;

	for (int i = 0; i < 32; i++)
		if (told_kinds[i].times) {
			good = false;
			printf("%s, %lu times, as of %s\n", told_kinds[i].what, told_kinds[i].times, told_kinds[i].as);
		}
	printf("%lu %s\n", count, of);
	return good ? 0 : 1;
}

#endif
