/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel's arch/x86/kernel/ftrace_64.S needs to be assembled for a program: its own headers, reduced to what
 * that file uses, for a CPU without mitigations.
 */
#define CONFIG_DYNAMIC_FTRACE 1
#define CONFIG_FUNCTION_GRAPH_TRACER 1
#define CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS 1

#define GLOBAL_LABEL(name) .globl name; name:
#define SYM_L_GLOBAL
#define SYM_FUNC_START(name) .balign 16; GLOBAL_LABEL(name)
#define SYM_TYPED_FUNC_START(name) SYM_FUNC_START(name)
#define SYM_CODE_START(name) SYM_FUNC_START(name)
#define SYM_FUNC_END(name) .type name, @function; .size name, . - name
#define SYM_CODE_END(name) SYM_FUNC_END(name)
#define SYM_INNER_LABEL(name, linkage) GLOBAL_LABEL(name)
#define EXPORT_SYMBOL(name)
#define STACK_FRAME_NON_STANDARD_FP(name)
#define ANNOTATE_NOENDBR
#define ANNOTATE_INTRA_FUNCTION_CALL
#define ANNOTATE_UNRET_SAFE
#define UNWIND_HINT_FUNC
#define UNWIND_HINT_UNDEFINED
#define CALL_DEPTH_ACCOUNT
#define ENCODE_FRAME_POINTER
#define RET ret
#define X86_FEATURE_CALL_DEPTH 0
#define QUOTE(text...) #text
#define __stringify(text...) QUOTE(text)
#define MCOUNT_INSN_SIZE 5
#define __KERNEL_CS 0x10
#define __KERNEL_DS 0x18

/* struct pt_regs */
#define R15 0
#define R14 8
#define R13 16
#define R12 24
#define RBP 32
#define RBX 40
#define R11 48
#define R10 56
#define R9 64
#define R8 72
#define RAX 80
#define RCX 88
#define RDX 96
#define RSI 104
#define RDI 112
#define ORIG_RAX 120
#define RIP 128
#define CS 136
#define EFLAGS 144
#define RSP 152
#define SS 160
#define FRAME_SIZE 168
#define SIZEOF_PTREGS 168

.macro ALTERNATIVE old, new, feature
	\old
.endm
.section .note.GNU-stack, "", @progbits
.text
