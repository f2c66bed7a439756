/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the functions under trace, the layer between trampolines and core, and the core itself have in common. Whatever is
 * decided and recorded is so outside: host() does nothing, and the emulator stands at its first instruction.
 */
typedef unsigned long word;

/* Why host() is called. */
enum call {
	NEXT = 1,	/* What is to be done now: enum order. */
	BODY,		/* The body of a function runs: its number, n, what its arguments came to. */
	TAIL,		/* Which function it calls last, as a jump: an address, or 0. */
	RESULT,		/* It returns: what? */
	CHANGED,	/* Users came or went: TARGETS says what sites shall call. */
	UNWIND,		/* A handler is about to run: who is up the stack? The core's answer to the last question. */
	DIRECT,		/* A direct trampoline calls. */
	ASTRAY,		/* A function that runs within a paired trampoline would return elsewhere: where? */
};

/* What NEXT answers. */
enum order {
	END,		/* Nothing. */
	CALL,		/* Call FUNCTION from here. */
	SERVE,		/* What SERVICE says. */
};

enum service {
	INTERRUPT = 1,	/* FUNCTION is called by an interrupt. */
	SWITCH,		/* FUNCTION is called by the other thread. */
	CONTROL,	/* What USER has is done. */
	BALANCED,	/* Is nothing pending? */
	EXIT,		/* The third thread has ended. */
};

/* Words that both sides read and write. */
enum mail {
	FUNCTION, SEED, GOT, SERVICE, ANSWER, CURRENT,
	SEEN, KEY, IP, PARENT, DEPTH, RETVAL, LENGTH,
	ARGS,				/* 8 */
	DATA = ARGS + 8,		/* 40 */
	TARGETS = DATA + 40,		/* 8 */
	USER = TARGETS + 8,		/* 32 */
	ASKED = USER + 32,		/* 2: a return address, and where it lies. */
	MAIL = ASKED + 2,
};

struct outside {
	word (*host)(word, word, word, word);
	void (*run)(void);
	void (*unwind)(void);
	word (*caller)(word parent, word retp);
	volatile word mail[MAIL];
};

extern struct outside outside;
extern word host(word call, word a, word b, word c);
extern void serve(void);

#define NOIPA __attribute__((noipa, used))

static inline __attribute__((always_inline)) word mix(word h, word v)
{
	h ^= v;
	return (h << 23 | h >> 41) * 0x5bd1e995UL;
}

/* Argument i of a call with this seed. */
static inline __attribute__((always_inline)) word argument(word seed, word i)
{
	return seed * 0x9e3779b97f4a7c15UL + i;
}
