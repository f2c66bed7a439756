/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two users of the function graph, each of whom keeps a word from a function's entry to its return: through the runtime core,
 * and through C of the kernel's shape. That is what Linux 7.3's function graph does, step by step, for x86-64 without mitigations:
 * written for this, from a description. Left out are tracepoints, pausing, and what only a stack that is out of step wants.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph.h"

typedef uint64_t word;
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define NOINLINE __attribute__((noinline, noclone))
/* The compiler keeps the order of what an interrupt may see. */
#define barrier() __asm__ volatile("" ::: "memory")
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))

/* What a user keeps, and what it does with it at the return. Verified: that it is what was kept for that call. */
uint64_t wrong;
#ifdef COUNT
static word stamp, held[2][64];
static unsigned calls[2];

static word keep(int user, word ip)
{
	entries++;
	held[user][calls[user]++ % 64] = ++stamp ^ ip;
	return stamp ^ ip;
}

static void kept(int user, word value)
{
	exits++;
	wrong += held[user][--calls[user] % 64] != value;
}
#else
static word keep(int user, word ip) { return ip + user; }
static void kept(int user, word value) { __asm__ volatile("" : : "r"(user), "r"(value)); }
#endif

/* Users of the core. */
struct core_user {
	bool (*entry)(word ip, void *regs, void *room);
	void (*exit)(word ip, void *regs, word kept);
};
bool core_keep(void *room, word kept);
static bool core_entry_0(word ip, void *regs, void *room) { return core_keep(room, keep(0, ip)); }
static bool core_entry_1(word ip, void *regs, void *room) { return core_keep(room, keep(1, ip)); }
static void core_exit_0(word ip, void *regs, word value) { kept(0, value); }
static void core_exit_1(word ip, void *regs, word value) { kept(1, value); }
static const struct core_user core_users[2] = { { core_entry_0, core_exit_0 }, { core_entry_1, core_exit_1 } };

/* What trampolines hand to whom they call. */
extern void *function_trace_op;
void *core_start_users(const struct core_user *users, const word *functions, size_t count);
bool core_start(const word *functions, size_t count)
{
	function_trace_op = core_start_users(core_users, functions, count);
	return function_trace_op;
}

/*
 * The kernel's: a shadow stack of words. A frame is the return address, the function, where the return address lay, and a word that
 * says how far below it the frame begins, what it is, and who wants the return. Above it are the users' words, each with such a word.
 */
enum { WORDS = 512, USERS = 16, FRAME = 3, LIMIT = WORDS - (FRAME + 1 + USERS), MOST = 256 };
enum { OFFSET_BITS = 10, TYPE_SHIFT = 10, INDEX_SHIFT = 12, SIZE_BITS = 5, OWNER_SHIFT = 17 };
enum { RESERVED, BITMAP, DATA };
#define OFFSET(w) ((w) & ((1 << OFFSET_BITS) - 1))
#define TYPE(w) ((w) >> TYPE_SHIFT & 3)
#define MADE(offset, type) ((word)(type) << TYPE_SHIFT | (offset))

struct task {
	word *stack;
	int top, depth;
	uint64_t overrun;
	word recursion;
	int preempt;
	int paused;
};

static word stack_of_thread[WORDS] __attribute__((aligned(4096)));
static struct task thread = { .stack = stack_of_thread, .depth = -1 };
/* As the kernel has it, for each CPU. */
static __thread struct task *current = &thread;

struct call {
	word func;
	int depth;
	uint64_t overrun;
};

/* A filter: lists of functions, by a hash of the address. */
struct entry {
	struct entry *next;
	word ip;
};
enum { HASH_BITS = 12 };
struct hash {
	word count;
	struct entry *buckets[1 << HASH_BITS];
};

struct user {
	int (*entry)(struct call *call, struct user *user, void *fregs);
	void (*exit)(struct call *call, struct user *user, void *fregs);
	struct hash *filter, *notrace;
	int index;
};

static struct user nobody, *users[USERS] = { &nobody, &nobody, &nobody, &nobody, &nobody, &nobody, &nobody, &nobody,
					     &nobody, &nobody, &nobody, &nobody, &nobody, &nobody, &nobody, &nobody };
/* A bit for each slot that is taken. */
static word taken;
static int dead;

static unsigned bucket(word ip)
{
	return ip * 0x61c8864680b583ebUL >> (64 - HASH_BITS);
}

NOINLINE static struct entry *lookup(struct hash *hash, word ip)
{
	struct entry *at = READ_ONCE(hash->buckets[bucket(ip)]);

	while (at && at->ip != ip)
		at = READ_ONCE(at->next);
	return at;
}

/* Is the function in the user's filter? None is all. */
NOINLINE static bool wants(struct user *user, word ip)
{
	struct hash *filter = READ_ONCE(user->filter), *notrace = READ_ONCE(user->notrace);

	return (!filter || !filter->count || lookup(filter, ip)) &&
	       (!notrace || !notrace->count || !lookup(notrace, ip));
}

/* A bit for each context; what the kernel counts for each CPU says which it is. */
static int trylock(void)
{
	word held = READ_ONCE(current->recursion);
	int count = READ_ONCE(current->preempt);
	int context = (count >> 20 & 0xf ? 1 : 0) + (count >> 16 & 0x1f ? 1 : 0) + (count >> 8 & 1 ? 1 : 0);

	if (unlikely(held >> context & 1))
		return -1;
	WRITE_ONCE(current->recursion, held | 1UL << context);
	barrier();
	WRITE_ONCE(current->preempt, count + 1);
	return context;
}

static void unlock(int context)
{
	barrier();
	WRITE_ONCE(current->preempt, current->preempt - 1);
	barrier();
	current->recursion &= ~(1UL << context);
}

/* Where the frame begins that ends below `top`; negative if there is none. */
static int frame_below(struct task *t, int top)
{
	if (unlikely(top <= 0))
		return -1;
	return top - 1 - (int)OFFSET(t->stack[top - 1]);
}

NOINLINE static int push(word ret, word func, word *retp)
{
	struct task *t = current;
	int top;

	if (unlikely(READ_ONCE(dead)) || unlikely(!t->stack))
		return -1;
	top = READ_ONCE(t->top);
	if (unlikely(top + FRAME + 1 >= LIMIT)) {
		t->overrun++;
		return -1;
	}
	/* An interrupt may come between any two of these, push and pop: what it finds must lead to the frame below. */
	WRITE_ONCE(t->stack[top + FRAME], MADE(FRAME, RESERVED));
	WRITE_ONCE(t->stack[top], ret);
	barrier();
	WRITE_ONCE(t->top, top + FRAME + 1);
	barrier();
	WRITE_ONCE(t->stack[top + FRAME], MADE(FRAME, RESERVED));
	t->stack[top] = ret;
	t->stack[top + 1] = func;
	t->stack[top + 2] = (word)retp;
	return top + FRAME;
}

/* The kernel's function_graph_enter_regs(). */
NOINLINE static int graph_enter(word ret, word func, word *retp, void *fregs)
{
	struct call call = { .func = func };
	word wanted = 0, left;
	int context = trylock(), reference;

	if (unlikely(context < 0))
		return -1;
	call.depth = ++current->depth;
	reference = push(ret, func, retp);
	if (unlikely(reference < 0))
		goto out;
	for (left = READ_ONCE(taken); left; left &= left - 1) {
		int index = __builtin_ctzl(left), before = current->top;
		struct user *user = READ_ONCE(users[index]);

		if (user == &nobody)
			continue;
		if (wants(user, func) && user->entry(&call, user, fregs))
			wanted |= 1UL << index;
		else
			current->top = before;
	}
	if (!wanted) {
		current->top -= FRAME + 1;
		goto out;
	}
	current->stack[reference] = (wanted | 1) << INDEX_SHIFT | MADE(FRAME, BITMAP);
	unlock(context);
	return 0;
out:
	current->depth--;
	unlock(context);
	return -1;
}

/* fgraph_reserve_data(). */
NOINLINE static void *reserve(int index, int bytes)
{
	struct task *t = current;
	int top = t->top, words = (bytes + 7) / 8, next = top + words + 1;
	word *at = &t->stack[top], made;

	if (unlikely(bytes > MOST) || unlikely(next >= LIMIT))
		return NULL;
	made = (word)index << OWNER_SHIFT | (word)(words - 1) << INDEX_SHIFT |
	       MADE(OFFSET(t->stack[top - 1]) + words + 1, DATA);
	WRITE_ONCE(t->stack[next - 1], made);
	barrier();
	WRITE_ONCE(t->top, next);
	barrier();
	WRITE_ONCE(t->stack[next - 1], made);
	return at;
}

/* fgraph_retrieve_data(). */
NOINLINE static void *retrieve(int index, int *bytes)
{
	struct task *t = current;
	int at = t->top - 1;

	while (likely(at > 0) && TYPE(t->stack[at]) == DATA) {
		word reference = t->stack[at];
		int words = (int)(reference >> INDEX_SHIFT & ((1 << SIZE_BITS) - 1)) + 1;

		if ((int)(reference >> OWNER_SHIFT & (USERS - 1)) == index) {
			*bytes = words * 8;
			return &t->stack[at - words];
		}
		at -= words + 1;
	}
	return NULL;
}

/* The copy of ftrace_64.S that is for this. */
void k5_return_to_handler(void);

/* ftrace_graph_func(): what ftrace_caller calls. 152: pt_regs.sp, the address of parent_ip. */
void kernel_graph_entry(word ip, word parent, void *op, char *fregs)
{
	word *retp = *(word **)(fregs + 152);

	if (unlikely(READ_ONCE(dead)) || unlikely(READ_ONCE(current->paused)))
		return;
	if (!graph_enter(*retp, ip, retp, fregs))
		*retp = (word)k5_return_to_handler;
}

/* ftrace_return_to_handler(). 128: pt_regs.ip. */
word kernel_graph_exit(char *fregs)
{
	struct task *t = current;
	int start = frame_below(t, t->top), context;
	struct call call;
	word ret, left;

	if (unlikely(start < 0) || unlikely(TYPE(t->stack[start + FRAME]) != BITMAP)) {
		dead = 1;
		__builtin_trap();
	}
	ret = t->stack[start];
	call = (struct call){ t->stack[start + 1], t->depth, t->overrun };
	*(word *)(fregs + 128) = ret;
	context = trylock();
	if (likely(context >= 0)) {
		for (left = t->stack[start + FRAME] >> INDEX_SHIFT & 0xffff; left; left &= left - 1) {
			struct user *user = READ_ONCE(users[__builtin_ctzl(left)]);

			if (user != &nobody)
				user->exit(&call, user, fregs);
		}
		unlock(context);
	}
	/* An interrupt that pushes now overwrites the frame, whose address is here already. */
	barrier();
	WRITE_ONCE(t->top, start);
	t->depth--;
	return ret;
}

/* Users of it. */
static int entry(int number, struct call *call, struct user *user)
{
	word *data = reserve(user->index, 8);

	if (!data)
		return 0;
	*data = keep(number, call->func);
	return 1;
}

static void leave(int number, struct user *user)
{
	int bytes;
	word *data = retrieve(user->index, &bytes);

	if (data)
		kept(number, *data);
}

static int entry_0(struct call *call, struct user *user, void *fregs) { return entry(0, call, user); }
static int entry_1(struct call *call, struct user *user, void *fregs) { return entry(1, call, user); }
static void exit_0(struct call *call, struct user *user, void *fregs) { leave(0, user); }
static void exit_1(struct call *call, struct user *user, void *fregs) { leave(1, user); }

static struct hash filters[2];
static struct entry listed[2][FUNCTIONS];
static struct user both[2] = { { entry_0, exit_0 }, { entry_1, exit_1 } };

bool kernel_start(const word *functions, size_t count)
{
	if (count > FUNCTIONS)
		return false;
	for (int index = 0; index < 2; index++) {
		for (size_t i = 0; i < count; i++) {
			struct entry **at = &filters[index].buckets[bucket(functions[i])];

			listed[index][i] = (struct entry){ *at, functions[i] };
			*at = &listed[index][i];
		}
		filters[index].count = count;
		both[index].filter = &filters[index];
		both[index].index = index;
		users[index] = &both[index];
		taken |= 1UL << index;
	}
	return true;
}

bool kernel_balanced(void)
{
	return thread.top == 0 && thread.depth == -1 && thread.recursion == 0 && thread.preempt == 0;
}
