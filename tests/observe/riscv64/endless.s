	.globl t
	.type t, %function
t:	nop
1:	j 1b
	.size t, . - t
