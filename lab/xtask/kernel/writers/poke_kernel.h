/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For the kernel's half of a program that has alternative.c write: there is one CPU, and text is written where the program says. */
#ifndef POKE_KERNEL_H
#define POKE_KERNEL_H

#include <linux/version.h>
#include <linux/cpumask.h>
#include <asm/text-patching.h>

struct cpumask __cpu_possible_mask = { { 1 } }, __cpu_online_mask = { { 1 } };

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
#define text_poke_mm_addr poking_addr
#define smp_text_poke_int3_handler poke_int3_handler
#define smp_text_poke_single text_poke_bp
#define smp_text_poke_batch_add text_poke_queue
#define smp_text_poke_batch_finish text_poke_finish
#endif

void written_at(unsigned long text);
void written_at(unsigned long text) { text_poke_mm_addr = text; }

#endif
