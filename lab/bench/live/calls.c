// SPDX-License-Identifier: MIT OR Apache-2.0
// What -finstrument-functions calls: counts entries, and says the number at the end.
#include <stdio.h>

static unsigned long entered;

__attribute__((no_instrument_function, patchable_function_entry(0, 0))) void __cyg_profile_func_enter(void *f, void *site) {
    (void)f, (void)site;
    entered++;
}
__attribute__((no_instrument_function, patchable_function_entry(0, 0))) void __cyg_profile_func_exit(void *f, void *site) {
    (void)f, (void)site;
}
__attribute__((destructor, no_instrument_function, patchable_function_entry(0, 0))) static void told(void) {
    fprintf(stderr, "entered %lu\n", entered);
}
