// An encoding that A64 leaves unallocated, between FMULX and FCMEQ of half precision, and that Unicorn takes for impossible.
    .globl  fatal
    .type   fatal, %function
fatal:
    .inst   0x4e472e65
    ret
    .size   fatal, . - fatal
