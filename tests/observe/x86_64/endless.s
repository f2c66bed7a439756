	.globl t
	.type t, %function
t:	nop
1:	jmp 1b
	.size t, . - t
