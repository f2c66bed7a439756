	.globl t
	.type t, %function
t:	nop
1:	b 1b
	.size t, . - t
