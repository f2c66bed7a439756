/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
{{ c }} tramptool {{ version }}: {{ title }}, profile {{ profile }}, {{ options }}
{{ c }} {{ made_by }}
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
{% if let Some(byte) = padding.first() -%}
{{ "\t" }}.skip	{{ padding.len() }}, {{ "{:#x}"|format(byte) }}
{% endif -%}
{% for line in f.typed -%}
{{ line }}
{% endfor -%}
{% if !f.lead.is_empty() -%}
{{ "\t" }}.cfi_startproc
{% for line in f.cfi_entry -%}
{{ "\t" }}{{ line }}
{% endfor -%}
{{ "\t" }}{{ c }} An unwinder looks up the address before the one that a function returns to.
{% for line in f.lead -%}
{{ "\t" }}{{ line }}
{% endfor -%}
{% endif -%}
{{ "\t" }}.globl	{{ f.name }}
	.type	{{ f.name }}, {{ function_type }}
{{ f.name }}:
{% if f.lead.is_empty() -%}
{{ "\t" }}.cfi_startproc
{% for line in f.cfi_entry -%}
{{ "\t" }}{{ line }}
{% endfor -%}
{% endif -%}
{% for line in f.lines -%}
{{ line }}
{% endfor -%}
{{ "\t" }}.cfi_endproc
	.size	{{ f.name }}, . - {{ f.name }}
{% for symbol in f.protected -%}
{{ "\t" }}.protected	{{ symbol }}
{% endfor -%}
{% if !f.export.is_empty() -%}
{{ "\t" }}.globl	{{ f.export }}
	.type	{{ f.export }}, {{ function_type }}
	.set	{{ f.export }}, {{ f.name }}
	.size	{{ f.export }}, . - {{ f.name }}
{% endif -%}
{% endfor %}
{%- if let Some([pointer, label, personality]) = personality %}
{{ c }} Where exceptions go: calls with their landing pads. Whom unwinders ask.
	.section {{ tables }}, "a", {{ progbits }}
{% for f in functions -%}
{% for line in f.table -%}
{{ line }}
{% endfor -%}
{% endfor -%}
{{ "\t" }}.section {{ pointer }}, "aw", {{ progbits }}
	.balign	8
{{ label }}:
	.8byte	{{ personality }}
{% endif %}
	.section .note.GNU-stack, "", {{ progbits }}
{% if let Some((words, said)) = properties -%}
{{ "\t" }}.section .note.gnu.property, "a"
	.balign	8
	.4byte	4, 16, 5
	.asciz	"GNU"
	.4byte	{{ words }}		{{ c }} {{ said }}
{% endif -%}
{% if exports %}
{{ c }} What EXPORT_SYMBOL makes: licence, namespace, address.
	.section .export_symbol, "a"
{% for f in functions -%}
{% if !f.export.is_empty() -%}
__export_symbol_{{ f.export }}:
	.asciz	""
	.asciz	""
	.balign	8
	.8byte	{{ f.export }}
{% endif -%}
{% endfor -%}
{% endif -%}

