/* SPDX-License-Identifier: GPL-2.0-only */
/* The variant of LLVM XRay, compiled by clang with -fxray-instrument. */
#include "traced.h"

FUNCTIONS(xray)

void on_entry(void), on_exit_(void);
int __xray_set_handler(void (*handler)(int function, int event));
int __xray_patch(void);

__attribute__((xray_never_instrument)) static void handler(int function, int event)
{
	(void)function;
	/* 0: entry; else a way out. */
	if (event == 0)
		on_entry();
	else
		on_exit_();
}

__attribute__((xray_never_instrument)) int xray_start(void)
{
	/* 1: XRayPatchingStatus::SUCCESS. */
	return __xray_set_handler(handler) && __xray_patch() == 1;
}
