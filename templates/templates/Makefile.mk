# SPDX-License-Identifier: GPL-2.0-only OR MIT
# For another architecture: make ARCH=... CROSS_COMPILE=...
KDIR ?= {{ kernel }}

modules clean:
	$(MAKE) -C $(KDIR) M=$(CURDIR) $@

