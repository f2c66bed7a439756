/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a call of a leaf costs that a tracer traces whose program this is: the least and the median of the rounds, in ns. Run by
 * `uftrace record`, or compiled by clang with -fxray-instrument, for XRay's flight data recorder.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "traced.h"

#ifdef __clang__
#define MINE __attribute__((xray_never_instrument))

/* xray_log_interface.h of LLVM's compiler-rt. */
int __xray_log_select_mode(const char *mode), __xray_log_init_mode(const char *mode, const char *config);
int __xray_patch(void), __xray_log_finalize(void), __xray_log_flushLog(void);

/* With room for all records, also of calls that take little time. */
static const char config[] = "func_duration_threshold_us=0 buffer_size=8388608 buffer_max=4";

MINE static int begin(void)
{
	/* 0: XRAY_REGISTRATION_OK, 1: XRayPatchingStatus::SUCCESS, 2: XRAY_LOG_INITIALIZED. */
	return __xray_log_select_mode("xray-fdr") == 0 && __xray_patch() == 1 &&
	       __xray_log_init_mode("xray-fdr", config) == 2;
}

MINE static int end(void)
{
	/* 4: XRAY_LOG_FINALIZED, 2: XRAY_LOG_FLUSHED. */
	return __xray_log_finalize() == 4 && __xray_log_flushLog() == 2;
}
#else
#define MINE UNTRACED
MINE static int begin(void) { return 1; }
MINE static int end(void) { return 1; }
#endif

TRACED long f_peer(long x) { return x + 1; }

MINE static int by_size(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

MINE int main(void)
{
	static double ns[ROUNDS];
	long x = 0;

	if (!begin())
		return 2;
	for (int round = 0; round < ROUNDS; round++) {
		struct timespec from, to;

		clock_gettime(CLOCK_MONOTONIC, &from);
		for (int i = 0; i < CALLS; i++) {
			x = f_peer(x);
			KEEP(x);
		}
		clock_gettime(CLOCK_MONOTONIC, &to);
		ns[round] = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / CALLS;
	}
	if (!end())
		return 3;
	qsort(ns, ROUNDS, sizeof ns[0], by_size);
	printf("%f %f\n", ns[0], ns[ROUNDS / 2]);
	return 0;
}
