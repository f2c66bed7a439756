# A function with the table that objtool makes: SP is what ORC_REG_SP is, FIRST how far CFA is above it at the entry, and HEADER
# which .orc_header there is. A function begins at 8.
	.text
	.globl	t
	.type	t, @function
t:
	push	%rbx
	call	handler
	pop	%rbx
	ret
	.size	t, . - t
	.section .orc_unwind_ip, "a"
	.long	t - ., t + 1 - ., t + 7 - ., t + 8 - .
	.section .orc_unwind, "a"
	.short	FIRST, 0
	.byte	SP, 2
	.short	16, 0
	.byte	SP, 2
	.short	FIRST, 0
	.byte	SP, 2
	.short	0, 0
	.byte	0, 0
# scripts/orc_hash.sh of Linux 6.12 and 7.3.
.if HEADER
	.section .orc_header, "a"
.if HEADER == 1
	.byte	0xfe, 0x5d, 0x32, 0xbf, 0x58, 0x1b, 0xd6, 0x3b, 0x2c, 0xa9, 0xa5, 0xc6, 0x5b, 0xa5, 0xa6, 0x25, 0xea, 0xb3, 0xfe, 0x24
.else
	.byte	0x13, 0x7c, 0x36, 0xad, 0x76, 0x27, 0xc4, 0xdd, 0x55, 0x93, 0x21, 0x76, 0xbb, 0x0e, 0xcd, 0xbd, 0x50, 0x41, 0xfc, 0x82
.endif
.endif
	.section .note.GNU-stack,"",@progbits
