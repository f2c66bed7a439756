# SPDX-License-Identifier: GPL-2.0-only OR MIT
obj-m := {{ name }}.o
{{ name }}-y := {{ name }}_main.o {{ name }}_tramp.o
{% if object %}
# The object as tramptool made it. Where objtool looks at objects, not at whole modules, it sees those only that are made
# here: from {{ name }}_tramp.S.
ifneq ($(CONFIG_OBJTOOL)$(CONFIG_X86_KERNEL_IBT)$(CONFIG_LTO_CLANG),y)
$(obj)/{{ name }}_tramp.o: $(src)/{{ name }}_tramp.o_shipped FORCE
	$(call if_changed,copy)
endif
{% endif -%}
