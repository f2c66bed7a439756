// SPDX-License-Identifier: MIT OR Apache-2.0
// What this CPU makes of XSAVEC and of XRSTOR. For each mask of state components, and with and without what was stored, in
// hexadecimal, a line each: FXSAVE before, the area behind XSAVEC, FXSAVE of other state, and FXSAVE behind XRSTOR.
#include <stdio.h>
#include <string.h>

static unsigned char before[512] __attribute__((aligned(64))), other[512] __attribute__((aligned(64)));
static unsigned char behind[512] __attribute__((aligned(64))), area[4096] __attribute__((aligned(64)));

static void print(const unsigned char *from, int bytes)
{
	for (int i = 0; i < bytes; i++)
		printf("%02x", from[i]);
	printf("\n");
}

// A state of the x87 and SSE with these control words, values from `seed` on, and so many x87 registers in use.
static void make(unsigned char *to, unsigned short control, unsigned int mxcsr, unsigned char seed)
{
	memset(to, 0, 512);
	memcpy(to, &control, 2);
	to[3] = 6 << 3; // the top is register 6
	to[4] = 0xc0;
	memcpy(to + 24, &mxcsr, 4);
	for (int i = 0; i < 8; i++)
		for (int j = 0; j < 10; j++)
			to[32 + 16 * i + j] = seed + 16 * i + j;
	for (int i = 0; i < 256; i++)
		to[160 + i] = seed * 3 + i * 7;
}

int main(void)
{
	for (unsigned int mask = 1; mask < 4; mask++)
		for (int initial = 0; initial < 2; initial++) {
			make(before, 0x0a7f, 0xbfc0, 0x11);
			make(other, 0x037f, 0x1f80, 0x77);
			memset(area, 0xaa, sizeof(area));
			memset(area + 512, 0, 64);
			asm volatile("fxrstor64 %1\n\tfxsave64 %1\n\txsavec64 %0"
				     : "+m"(area), "+m"(before) : "a"(mask), "d"(0) : "memory");
			print(before, 512);
			print(area, 576);
			if (initial)
				memset(area + 512, 0, 8);
			asm volatile("fxrstor64 %1\n\tfxsave64 %1\n\txrstor64 %2\n\tfxsave64 %0\n\tfninit"
				     : "=m"(behind), "+m"(other) : "m"(area), "a"(mask), "d"(0) : "memory");
			print(other, 512);
			print(behind, 512);
		}
	return 0;
}
