/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the two halves of the program share, and lab/xtask/src/writers/harness.rs with both: one request on stdin for each image, and
 * one answer on stdout. All members are at multiples of their size; all machines are little-endian.
 */
#ifndef WRITERS_H
#define WRITERS_H

/* Programs of one kind, at most; of all kinds; bytes of an image: the kernel's limit is a page. */
#define WRITERS_PROGRAMS 6
#define WRITERS_SKIPS 24
#define WRITERS_CODE 4096

struct writers_program {
	unsigned long long func, cookie;
	unsigned int session, sleepable;
};

struct writers_request {
	/* Where the image is to run, where the traced function is, and memory for programs and links; in it, perhaps with a tag in its
	 * upper byte, the image's description. */
	unsigned long long image, function, memory, im;
	/* What returns jump to where they go through a thunk; 0 where they do not. */
	unsigned long long thunk;
	/* What is called before and after programs: those that do not sleep, those that do. */
	unsigned long long enter[2], exit[2];
	unsigned int flags;
	unsigned char ret_size, ret_flags, nr_args, pad;
	unsigned char arg_size[12], arg_flags[12];
	/* By the kernel's numbers: fentry, fexit, fmod_ret. */
	unsigned int count[3];
	/* The traced function begins with ENDBR64. */
	unsigned int endbr;
	struct writers_program program[3][WRITERS_PROGRAMS];
};

struct writers_answer {
	/* Bytes of code; below 0 the kernel's error. */
	int size;
	unsigned int skips;
	unsigned long long im, tramp_enter, tramp_exit;
	unsigned long long after_call, epilogue;
	unsigned long long program[3][WRITERS_PROGRAMS];
	struct {
		unsigned long long nop, target;
	} skip[WRITERS_SKIPS];
	unsigned char code[WRITERS_CODE];
};

/* The kernel's half. */
int writers_image(const struct writers_request *request, struct writers_answer *answer);

/* The other half: what an image was written to. */
extern unsigned char writers_shadow[2 * WRITERS_CODE];
extern unsigned long long writers_at;

#endif
