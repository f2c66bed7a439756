// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows in a booted kernel what docs/findings.md has of its function graph and of its fprobe, each by the shortest sequence of
// lab/compose/tests/findings.rs. A line of the log says of each whether it happened. What is not exported is given by address.

#include <linux/fprobe.h>
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/version.h>

// Since then handlers get ftrace_regs, and fprobe is a user of the function graph.
#define SINCE_6_14 (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0))

static unsigned long register_graph, unregister_graph, reserve_data, retrieve_data;
module_param(register_graph, ulong, 0444);
module_param(unregister_graph, ulong, 0444);
module_param(reserve_data, ulong, 0444);
module_param(retrieve_data, ulong, 0444);

typedef int register_graph_t(struct fgraph_ops *ops);
typedef void unregister_graph_t(struct fgraph_ops *ops);
typedef void *reserve_data_t(int idx, int size_bytes);
typedef void *retrieve_data_t(int idx, int *size_bytes);

static int failed;

static void must(int code, const char *what)
{
	if (code) {
		pr_err("FAILED: %s: %d\n", what, code);
		failed = code;
	}
}

static void say(const char *what, bool happened)
{
	pr_info("finding: %s: %s\n", what, happened ? "shown" : "NOT shown");
}

// What runs inside f0.
static void (*inside)(void);

static noinline void f0(void)
{
	if (inside)
		inside();
	barrier();
}

static noinline void f1(void)
{
	barrier();
}

// Not the same code as f1: compilers keep one of two.
static noinline void f2(void)
{
	WRITE_ONCE(inside, NULL);
}

static noinline int nested(int depth)
{
	int below = depth ? nested(depth - 1) : 0;

	barrier();
	return below + 1;
}

// A user of the function graph, which keeps a word from each entry to its return.
struct graph_user {
	struct fgraph_ops ops;
	unsigned long word, found;
	int entries, exits;
};

static int entered(struct fgraph_ops *ops)
{
	struct graph_user *user = container_of(ops, struct graph_user, ops);
	unsigned long *data = ((reserve_data_t *)reserve_data)(ops->idx, sizeof(*data));

	user->entries++;
	if (data)
		*data = user->word;
	return data != NULL;
}

static void left(struct fgraph_ops *ops)
{
	struct graph_user *user = container_of(ops, struct graph_user, ops);
	unsigned long *data;
	int bytes;

	user->exits++;
	data = ((retrieve_data_t *)retrieve_data)(ops->idx, &bytes);
	user->found = data ? *data : 0;
}

#if SINCE_6_14
static int entry(struct ftrace_graph_ent *trace, struct fgraph_ops *ops, struct ftrace_regs *regs)
{
	return entered(ops);
}

static void leave(struct ftrace_graph_ret *trace, struct fgraph_ops *ops, struct ftrace_regs *regs)
{
	left(ops);
}
#else
static int entry(struct ftrace_graph_ent *trace, struct fgraph_ops *ops)
{
	return entered(ops);
}

static void leave(struct ftrace_graph_ret *trace, struct fgraph_ops *ops)
{
	left(ops);
}
#endif

static struct graph_user a = { .ops = { .entryfunc = entry, .retfunc = leave }, .word = 0xa };
static struct graph_user b = { .ops = { .entryfunc = entry, .retfunc = leave }, .word = 0xb };

static void add(struct graph_user *user, void *function)
{
	user->entries = user->exits = user->found = 0;
	must(ftrace_set_filter_ip(&user->ops.ops, (unsigned long)function, 0, 1), "ftrace_set_filter_ip");
	must(((register_graph_t *)register_graph)(&user->ops), "register_ftrace_graph");
}

static void take(struct graph_user *user)
{
	((unregister_graph_t *)unregister_graph)(&user->ops);
}

// Slots are given out in turn: give out those before `slot`.
static void add_in(struct graph_user *user, int slot, void *function)
{
	int tries;

	for (tries = 0; tries < 16 && !failed; tries++) {
		add(user, function);
		if (user->ops.idx == slot)
			return;
		take(user);
	}
	must(-ENOSPC, "a user's slot");
}

static void unseen_entry(void)
{
	add_in(&a, 0, f1);
	if (failed)
		return;
	add(&b, f0);
	f0();
	say("fgraph: a return handler runs for a function whose entry it never saw",
	    a.entries == 0 && a.exits == 1 && b.entries == 1 && b.exits == 1);
	take(&b);
	take(&a);
}

static void replace_user(void)
{
	take(&a);
	add_in(&b, a.ops.idx, f1);
}

static void slot_again(void)
{
	add(&a, f0);
	inside = replace_user;
	f0();
	inside = NULL;
	say("fgraph: a return handler runs for the call of a user who is gone, and finds its data",
	    a.entries == 1 && a.exits == 0 && b.entries == 0 && b.exits == 1 && b.found == a.word);
	take(&b);
}

#if SINCE_6_14
static int probe_entries;
static unsigned long exit_ip, exit_found;

static int probe_entry(struct fprobe *probe, unsigned long ip, unsigned long ret_ip, struct ftrace_regs *regs, void *data)
{
	probe_entries++;
	*(unsigned long *)data = 0xa;
	return 0;
}

static void probe_exit(struct fprobe *probe, unsigned long ip, unsigned long ret_ip, struct ftrace_regs *regs, void *data)
{
}

static void other_exit(struct fprobe *probe, unsigned long ip, unsigned long ret_ip, struct ftrace_regs *regs, void *data)
{
	exit_ip = ip;
	exit_found = data ? *(unsigned long *)data : 0;
}

// Without an exit handler on some function, the function graph would not come here again.
static struct fprobe stays = { .exit_handler = probe_exit };
static struct fprobe probe;

static void probe_on(struct fprobe *on, void *function)
{
	unsigned long ip = (unsigned long)function;

	must(register_fprobe_ips(on, &ip, 1), "register_fprobe_ips");
}

static void replace_probe(void)
{
	must(unregister_fprobe(&probe), "unregister_fprobe");
	probe = (struct fprobe){ .exit_handler = other_exit };
	probe_on(&probe, f2);
}

static void memory_again(void)
{
	probe = (struct fprobe){ .entry_handler = probe_entry, .exit_handler = probe_exit, .entry_data_size = 8 };
	probe_on(&stays, f1);
	probe_on(&probe, f0);
	inside = replace_probe;
	f0();
	inside = NULL;
	say("fprobe: an exit handler runs for the call of a probe that is gone, and finds its data",
	    exit_ip - (unsigned long)f0 < 32 && exit_found == 0xa);
	must(unregister_fprobe(&probe), "unregister_fprobe");
	must(unregister_fprobe(&stays), "unregister_fprobe");
}

static void uncounted(void)
{
	// With a word of data, the last frame for which there is room leaves none for the return address of another.
	enum { CALLS = 100 };

	probe = (struct fprobe){ .entry_handler = probe_entry, .exit_handler = probe_exit, .entry_data_size = 8 };
	probe_on(&probe, nested);
	probe_entries = 0;
	must(nested(CALLS - 1) == CALLS ? 0 : -EINVAL, "nested calls");
	say("fprobe: calls for which the shadow stack has no room are not in nmissed",
	    probe_entries < CALLS && probe_entries + probe.nmissed < CALLS);
	pr_info("%d calls, %d entries, nmissed %lu\n", CALLS, probe_entries, probe.nmissed);
	must(unregister_fprobe(&probe), "unregister_fprobe");
}
#endif

static int __init findings_init(void)
{
	unseen_entry();
	if (!failed)
		slot_again();
#if SINCE_6_14
	if (!failed)
		memory_again();
	if (!failed)
		uncounted();
#endif
	return failed;
}

static void __exit findings_exit(void)
{
	ftrace_free_filter(&a.ops.ops);
	ftrace_free_filter(&b.ops.ops);
}

module_init(findings_init);
module_exit(findings_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("shows what the kernel's function graph and fprobe do");
