/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* tramptool {{ version }}: {{ title }} as a template, profile {{ profile }}, {{ options }} */
#ifndef {{ guard }}
#define {{ guard }}

#include <stdint.h>

#ifndef TRAMPTOOL_TEMPLATE
#define TRAMPTOOL_TEMPLATE
/* S of a fix-up. */
enum tramptool_symbol {
	TRAMPTOOL_ID,		/* the function's number << 8 */
	TRAMPTOOL_FUNCTION,	/* the address of the function, whose site jumps to the trampoline */
	TRAMPTOOL_CLOCK,	/* the address of the variable that has the time */
	TRAMPTOOL_REFILL,	/* the address of the routine that makes room */
	TRAMPTOOL_CALLEE,	/* the address of the C function that a sled calls */
	TRAMPTOOL_TLS,		/* the offset of the thread's words from the thread pointer */
	TRAMPTOOL_COPY,		/* the address of the copy */
	TRAMPTOOL_PERSONALITY,	/* the address of __gcc_personality_v0, or of one like it */
	TRAMPTOOL_RESUME,	/* the address of _Unwind_Resume, or of a branch there */
	TRAMPTOOL_SYMBOLS,	/* how many there are */
};

/* A field: the psABI's formula for its type of relocation says what belongs there. */
struct tramptool_fixup {
	uint32_t offset;	/* where the field is */
	uint32_t type;		/* R_X86_64_*, R_AARCH64_* or R_RISCV_* of <elf.h> */
	uint32_t symbol;	/* S */
	uint32_t place;		/* offset of P; for a low part, that of its high part */
	int32_t addend;		/* A */
};

struct tramptool_template {
	const unsigned char *bytes;
	uint32_t size;
	uint32_t align;		/* of each copy */
	uint32_t entry;		/* where a copy is entered */
	uint32_t fixup_count;
	const struct tramptool_fixup *fixups;
	/* A copy's CIE with its FDE: one after the other, with a word of 0 behind the last, they are a table for __register_frame. */
	const unsigned char *unwind;
	uint32_t unwind_size;
	uint32_t unwind_fixup_count;
	const struct tramptool_fixup *unwind_fixups;
};
#endif

{% for piece in pieces %}{% if piece.size > 0 -%}
static const unsigned char {{ piece.name }}[] = {
{%- for line in piece.lines %}
	{{ line }}
{%- endfor %}
};
{% endif %}{% if !piece.fix_ups.is_empty() %}
static const struct tramptool_fixup {{ piece.fix_ups_name }}[] = {
{%- for f in piece.fix_ups %}
	{ {{ f.at }}, {{ f.r_type }}, {{ f.symbol }}, {{ f.place }}, {{ f.addend }} },	/* {{ f.type_name }} */
{%- endfor %}
};
{% endif %}
{% endfor -%}
static const struct tramptool_template {{ name }}_template = {
	{{ pieces[0].bytes_or_0() }}, {{ pieces[0].size }}, {{ align }}, {{ entry }}, {{ pieces[0].fix_ups.len() }}, {{ pieces[0].fix_ups_or_0() }},
	{{ pieces[1].bytes_or_0() }}, {{ pieces[1].size }}, {{ pieces[1].fix_ups.len() }}, {{ pieces[1].fix_ups_or_0() }},
};

#endif
