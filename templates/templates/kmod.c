// SPDX-License-Identifier: GPL-2.0-only OR MIT
// {{ callee }}() is called before {{ function }}(), each time. Made by tramptool {{ version }}, to be changed as you like.
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/types.h>
{% for tag in tags %}
{{ tag }};
{%- endfor %}
{%- if !tags.is_empty() %}
{% endif %}
void {{ callee }}{{ params }};
// In {{ name }}_tramp.S.
void {{ tramp }}(void);

{% if jumped -%}
// The site jumps to it. It jumps to {{ function }}() behind the site, for which the kernel must export that.
#ifndef CONFIG_DYNAMIC_FTRACE_WITH_JMP
#error "{{ tramp }} needs CONFIG_DYNAMIC_FTRACE_WITH_JMP"
#endif
#define DIRECT ftrace_jmp_set((unsigned long){{ tramp }})
{%- else -%}
#define DIRECT ((unsigned long){{ tramp }})
{%- endif %}

static unsigned long calls;
module_param(calls, ulong, 0444);
MODULE_PARM_DESC(calls, "calls of {{ function }}() that were seen; CPUs at the same time may lose some");

void {{ callee }}{{ params }}
{
	WRITE_ONCE(calls, calls + 1);
}

static struct ftrace_ops direct;

static int __init {{ name }}_init(void)
{
	unsigned char function[] = "{{ function }}";
	int err = ftrace_set_filter(&direct, function, strlen(function), 1);

	if (!err)
		err = register_ftrace_direct(&direct, DIRECT);
	if (err)
		ftrace_free_filter(&direct);
	return err;
}

static void __exit {{ name }}_exit(void)
{
	unregister_ftrace_direct(&direct, DIRECT, true);
}

module_init({{ name }}_init);
module_exit({{ name }}_exit);
MODULE_DESCRIPTION("{{ callee }}() before {{ function }}()");
MODULE_LICENSE("Dual MIT/GPL");

