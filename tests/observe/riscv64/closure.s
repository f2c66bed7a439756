# A closure, dumped from 0x7f1200000000: its own address for the code behind a word.
	.option	norelax
	.option	norvc
	li	t2, 0x7f1200000000
	auipc	t1, 0
	ld	t1, 12(t1)
	jr	t1
	.balign	8
	.8byte	0x7f1200000020
	.org	0x20
	ret
