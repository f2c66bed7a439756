/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* tramptool {{ version }}: {{ title }}, profile {{ profile }}, {{ options }} */
#ifndef {{ guard }}
#define {{ guard }}
{%- for tag in tags %}
{{ tag }};
{%- endfor %}

#ifdef __cplusplus
extern "C" {
#endif
{% for f in functions %}
/* {{ f.about }} */
void {{ f.name }}(void);
{%- for label in f.labels %}
extern const unsigned char {{ label }}[];
{%- endfor %}
{%- for offset in f.offsets %}
#define {{ offset }}
{%- endfor %}
{% endfor %}
{%- for alike in handlers %}
/*
 * Yours. What they must keep stands above the trampolines in the .S.
{%- for sentence in alike.about %}
 * {{ sentence }}
{%- endfor %}
 */
{% for declaration in alike.declarations -%}
{{ declaration }};
{% endfor -%}
{% endfor %}
#ifdef __cplusplus
}
#endif

#endif
