# SPDX-License-Identifier: GPL-2.0-only OR MIT
obj-m := {{ name }}.o
{{ name }}-y := {{ name }}_main.o {{ name }}_tramp.o

