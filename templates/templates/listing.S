/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
{{ c }} tramptool {{ version }}: {{ title }}, profile {{ profile }}, {{ options }}
{{ c }} Assemble with: {{ assembler }} {{ stem }}.S -o {{ stem }}.o
{%- for line in prologue %}
	{{ line }}
{%- endfor %}
{% for f in functions %}
{% for line in f.consts -%}
{{ line }}
{% endfor %}
{%- if !f.consts.is_empty() %}
{% endif -%}
{{ c }} {{ f.declaration }}
{{ c }}
{% for line in f.contract -%}
{{ c }} {{ line }}
{% endfor -%}
{{ "\t" }}.text
	.balign	{{ align }}{{ fill }}
	.globl	{{ f.name }}
	.type	{{ f.name }}, {{ function_type }}
{{ f.name }}:
	.cfi_startproc
{% for line in f.cfi_entry -%}
{{ "\t" }}{{ line }}
{% endfor -%}
{% for line in f.lines -%}
{{ line }}
{% endfor -%}
{{ "\t" }}.cfi_endproc
	.size	{{ f.name }}, . - {{ f.name }}
{% endfor %}
	.section .note.GNU-stack, "", {{ progbits }}

