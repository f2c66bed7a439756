	.globl t
	.type t, %function
t:	mov %rdi, %rsp
	call f
	ret
	.size t, . - t
