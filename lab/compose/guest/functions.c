/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The functions under trace: eight of each signature, which do what they are told. Each has n, the number of its call, then
 * a seed, then words that follow from it; what comes out shows if one of them is lost.
 */
#include "guest.h"

struct pair { word first, second; };
struct big { word word[5]; };

#define CHECK4(s, c, d) mix(mix(mix(0, s), c), d)
#define GIVE4(s) argument(s, 2), argument(s, 3)

#define WORD_RESULT word
#define WORD_MORE , word c, word d
#define WORD_CHECK(s) CHECK4(s, c, d)
#define WORD_GIVE(s) , GIVE4(s)
#define WORD_MAKE(v) (v)
#define WORD_TAKE(r) (r)

#define STACK_RESULT word
#define STACK_MORE , word c, word d, word e, word f, word g, word h, word i, word j, word k
#define STACK_CHECK(s) mix(mix(mix(mix(mix(mix(mix(CHECK4(s, c, d), e), f), g), h), i), j), k)
#define STACK_GIVE(s) , GIVE4(s), argument(s, 4), argument(s, 5), argument(s, 6), argument(s, 7), argument(s, 8), \
	argument(s, 9), argument(s, 10)
#define STACK_MAKE(v) (v)
#define STACK_TAKE(r) (r)

#define PAIR_RESULT struct pair
#define PAIR_MORE , word c, word d
#define PAIR_CHECK(s) CHECK4(s, c, d)
#define PAIR_GIVE(s) , GIVE4(s)
#define PAIR_MAKE(v) ((struct pair){ v, ~(v) })
#define PAIR_TAKE(r) ({ struct pair p = r; p.second == ~p.first ? p.first : ~p.first; })

#define BIG_RESULT struct big
#define BIG_MORE , word c, word d
#define BIG_CHECK(s) CHECK4(s, c, d)
#define BIG_GIVE(s) , GIVE4(s)
#define BIG_MAKE(v) ((struct big){ { v, ~(v), (v) + 1, (v) ^ 5, -(v) } })
#define BIG_TAKE(r) ({ \
	struct big b = r; \
	word v = b.word[0]; \
	b.word[1] == ~v && b.word[2] == v + 1 && b.word[3] == (v ^ 5) && b.word[4] == -v ? v : ~v; })

#define TYPE(SIG) SIG##_RESULT (*)(word, word SIG##_MORE)

/* Call FUNCTION; its n comes with its entry. */
#define CALL_IT(SIG) do { \
	word seed = outside.mail[SEED]; \
	outside.mail[GOT] = SIG##_TAKE(((TYPE(SIG))outside.mail[FUNCTION])(0, seed SIG##_GIVE(seed))); \
} while (0)

#define LOOP(SIG) do { \
	word order; \
	while ((order = host(NEXT, 0, 0, 0)) != END) { \
		if (order == CALL) \
			CALL_IT(SIG); \
		else \
			serve(); \
	} \
} while (0)

#define DEFINE(SIG, sig, number) \
NOIPA SIG##_RESULT sig##_##number(word n, word s SIG##_MORE) \
{ \
	word tail, value; \
	host(BODY, number, n, SIG##_CHECK(s)); \
	LOOP(SIG); \
	tail = host(TAIL, number, n, 0); \
	if (tail) \
		return ((TYPE(SIG))tail)(0, outside.mail[SEED] SIG##_GIVE(outside.mail[SEED])); \
	value = host(RESULT, number, n, 0); \
	return SIG##_MAKE(value); \
}

#define ALL(SIG, sig) \
	DEFINE(SIG, sig, 0) DEFINE(SIG, sig, 1) DEFINE(SIG, sig, 2) DEFINE(SIG, sig, 3) \
	DEFINE(SIG, sig, 4) DEFINE(SIG, sig, 5) DEFINE(SIG, sig, 6) DEFINE(SIG, sig, 7) \
	/* Calls of handlers, and of nobody that can be traced. */ \
	__attribute__((noipa, used, UNTRACED)) void sig##_handler(void) { LOOP(SIG); } \
	__attribute__((noipa, used, UNTRACED)) void sig##_outside(void) { LOOP(SIG); }

#ifdef __x86_64__
#define UNTRACED no_instrument_function
#else
#define UNTRACED patchable_function_entry(0, 0)
#endif

ALL(WORD, word)
ALL(STACK, stack)
ALL(PAIR, pair)
ALL(BIG, big)
