// A closure, dumped from 0x7f1200000000: its own address for the code behind a word.
	movz	x17, #0
	movk	x17, #0, lsl #16
	movk	x17, #0x7f12, lsl #32
	ldr	x16, 1f
	br	x16
	.balign	8
1:	.8byte	0x7f1200000020
	.org	0x20
	ret
