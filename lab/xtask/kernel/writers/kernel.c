// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The kernel's half of a program that has a kernel's JIT write trampolines: compiled as the JIT is, with the kernel's own headers, it
 * says what is traced by whom and calls the JIT.
 */
#include <linux/version.h>
#include <linux/bpf.h>
#include <linux/filter.h>

#include "writers.h"

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define HAS_SESSIONS 1
#define tramp_lists bpf_tramp_nodes
#define tramp_entry bpf_tramp_node
#define tramp_count nr_nodes
#define tramp_entries nodes
#else
#define HAS_SESSIONS 0
#define tramp_lists bpf_tramp_links
#define tramp_entry bpf_tramp_link
#define tramp_count nr_links
#define tramp_entries links
#endif

/* Bytes for the description of an image: more than it has. */
#define ROOM 4096

struct attached {
	struct bpf_prog prog;
	struct bpf_prog_aux aux;
	struct bpf_link link;
	struct tramp_entry entry;
} __aligned(64);

static const struct writers_request *asked;

bpf_trampoline_enter_t bpf_trampoline_enter(const struct bpf_prog *prog)
{
	return (void *)asked->enter[prog->sleepable];
}

bpf_trampoline_exit_t bpf_trampoline_exit(const struct bpf_prog *prog)
{
	return (void *)asked->exit[prog->sleepable];
}

#ifdef CONFIG_MITIGATION_RETHUNK
bool cpu_wants_rethunk(void) { return asked->thunk; }
bool cpu_wants_rethunk_at(void *addr) { return asked->thunk; }
typeof(x86_return_thunk) x86_return_thunk;
#endif

#ifdef CONFIG_MITIGATION_CALL_DEPTH_TRACKING
/* In place of the kernel's accounting, which counts in memory of the CPU: as many bytes without effect, before the call. */
int x86_call_depth_emit_accounting(u8 **pprog, void *func, void *ip)
{
	static const u8 nop[] = { 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00 };

	memcpy(*pprog, nop, sizeof(nop));
	*pprog += sizeof(nop);
	return sizeof(nop);
}
#endif

#ifdef CONFIG_X86_KERNEL_IBT
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
__noendbr bool is_endbr(u32 *at) { return __is_endbr(*at); }
#endif
#endif

static void attach(struct attached *to, const struct writers_program *program, bool struct_ops)
{
	to->prog.jited = 1;
	to->prog.sleepable = program->sleepable;
	to->prog.bpf_func = (void *)program->func;
	to->prog.aux = &to->aux;
	to->prog.expected_attach_type = BPF_TRACE_FENTRY;
	to->link.prog = &to->prog;
	to->link.type = struct_ops ? BPF_LINK_TYPE_STRUCT_OPS : BPF_LINK_TYPE_TRACING;
	to->entry.cookie = program->cookie;
#if HAS_SESSIONS
	if (program->session) {
		to->prog.expected_attach_type = BPF_TRACE_FSESSION;
		to->prog.call_session_cookie = 1;
	}
	to->entry.link = &to->link;
#else
	to->entry.link = to->link;
#endif
}

int writers_image(const struct writers_request *request, struct writers_answer *answer)
{
	static struct tramp_lists lists[BPF_TRAMP_MAX];
	struct attached *next = (void *)(request->memory + ROOM);
	struct bpf_tramp_image *im = (void *)request->im;
	struct btf_func_model model = {};
	void *function = (void *)request->function;
	int kind, i, size;
#if HAS_SESSIONS
	static struct bpf_tramp_skip skips[WRITERS_SKIPS];
	struct attached *sessions[WRITERS_PROGRAMS];
	int session = 0;
#endif

	asked = request;
#ifdef CONFIG_MITIGATION_RETHUNK
	x86_return_thunk = (void *)request->thunk;
#endif
	memset(lists, 0, sizeof(lists));
	memset(im, 0, sizeof(*im));
	model.ret_size = request->ret_size;
	model.ret_flags = request->ret_flags;
	model.nr_args = request->nr_args;
	memcpy(model.arg_size, request->arg_size, sizeof(model.arg_size));
	memcpy(model.arg_flags, request->arg_flags, sizeof(model.arg_flags));
	for (kind = 0; kind < 3; kind++) {
		for (i = 0; i < request->count[kind]; i++) {
			const struct writers_program *program = &request->program[kind][i];

#if HAS_SESSIONS
			/* A session is one program in two lists. */
			if (program->session && kind == BPF_TRAMP_FEXIT) {
				lists[kind].tramp_entries[i] = &sessions[session]->entry;
				answer->program[kind][i] = (unsigned long)&sessions[session++]->prog;
				lists[kind].tramp_count++;
				continue;
			}
			if (program->session)
				sessions[session++] = next;
			if (i + 1 == request->count[kind])
				session = 0;
#endif
			memset(next, 0, sizeof(*next));
			attach(next, program, request->flags & BPF_TRAMP_F_INDIRECT);
			lists[kind].tramp_entries[i] = &next->entry;
			lists[kind].tramp_count++;
			answer->program[kind][i] = (unsigned long)&next->prog;
			next++;
		}
	}
	answer->im = (unsigned long)im;
	answer->tramp_enter = (unsigned long)__bpf_tramp_enter;
	answer->tramp_exit = (unsigned long)__bpf_tramp_exit;
	size = arch_bpf_trampoline_size(&model, request->flags, lists, function);
	if (size < 0)
		return size;
	if (size > WRITERS_CODE)
		return -E2BIG;
#if HAS_SESSIONS
	im->skips = skips;
#endif
	if (request->flags & BPF_TRAMP_F_INDIRECT)
		return arch_prepare_bpf_trampoline(NULL, (void *)request->image, (void *)request->image + size, &model, request->flags,
						   lists, function);
	size = arch_prepare_bpf_trampoline(im, (void *)request->image, (void *)request->image + size, &model, request->flags, lists,
					   function);
#if HAS_SESSIONS
	answer->skips = im->nr_skips;
	for (i = 0; i < im->nr_skips; i++) {
		answer->skip[i].nop = (unsigned long)skips[i].nop;
		answer->skip[i].target = (unsigned long)skips[i].target;
	}
#else
	answer->after_call = (unsigned long)im->ip_after_call;
	answer->epilogue = (unsigned long)im->ip_epilogue;
#endif
	return size;
}
