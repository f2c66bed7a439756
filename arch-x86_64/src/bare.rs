//! x86_64 on a bare machine of Bochs, which has shadow stacks and landing pads: Intel SDM volume 1, 17 (CET), volume 3, 4.5 (4-level
//! paging), 6.14 (exceptions in 64-bit mode), 10.8.5 (initialization). User code runs at CPL 3; the machine's own code, at CPL 0, has
//! each of its exceptions.

use codegen::arch::bare::{Bare, Bochs, Boot, Cause, Code, Entered, Exception, Guard, Page, Program, Returns, Wide};
use codegen::arch::pads::IndirectBranch;

use crate::accesses::decode;
use crate::regs::R11;

/// In place of the firmware, in 16-bit mode: turns on 64-bit mode, with page tables there.
const RESET: Code = Code::Bytes(&[
    (b"", ".code16"),
    (b"\xfa", "cli"),
    (b"\x2e\x66\x0f\x01\x16\x18\x10", "data32 lgdt %cs:0x1018"),
    (b"\x66\xb8\x00\x20\xff\xff", "mov $0xffff2000, %eax"),
    (b"\x0f\x22\xd8", "mov %eax, %cr3"),
    (b"\x66\xb8\x20\x00\x00\x00", "mov $0x20, %eax"),
    (b"\x0f\x22\xe0", "mov %eax, %cr4"),
    (b"\x66\xb9\x80\x00\x00\xc0", "mov $0xc0000080, %ecx"),
    (b"\x66\x31\xd2", "xor %edx, %edx"),
    (b"\x66\xb8\x00\x09\x00\x00", "mov $0x900, %eax"),
    (b"\x0f\x30", "wrmsr"),
    (b"\x66\xb8\x33\x00\x01\x80", "mov $0x80010033, %eax"),
    (b"\x0f\x22\xc0", "mov %eax, %cr0"),
    (b"\x66\xea\x40\x00\xff\xff\x08\x00", "ljmpl $8, $0xffff0040"),
]);

/// Touches each 128 KiB of memory in order, since Bochs places them in the order in which they are touched. Then starts.
const START: Code = Code::Bytes(&[
    (b"\xbf\x00\x00\x10\x00", "mov $0x100000, %edi"),
    (b"\xb9\x00\x08\x00\x00", "mov $2048, %ecx"),
    (b"\x8b\x07", "mov (%rdi), %eax"),
    (b"\x48\x81\xc7\x00\x00\x02\x00", "add $0x20000, %rdi"),
    (b"\xff\xc9", "dec %ecx"),
    (b"\x75\xf3", "jne . - 11"),
    (b"\xb8\x00\x00\x20\x00", "mov $0x200000, %eax"),
    (b"\xff\xe0", "jmp *%rax"),
]);

/// The first code segment, and where it is.
const FIRST_GDT: Code = Code::Bytes(&[
    (b"\0\0\0\0\0\0\0\0", ".quad 0"),
    (b"\0\0\0\0\0\x9b\x20\0", ".quad 0x209b0000000000"),
    (b"\0\0\0\0\0\0\0\0", ".quad 0"),
    (b"\x0f\0", ".word 15"),
    (b"\x00\x10\xff\xff", ".long 0xffff1000"),
]);

/// The first page tables: 4 GiB where they are, in pages of 1 GiB, accessed and written.
const FIRST_TABLE: Code = Code::Bytes(&[(b"\x23\x30\xff\xff\0\0\0\0", ".quad 0xffff3023")]);
const FIRST_PAGES: Code = Code::Bytes(&[
    (b"\xe3\0\0\0\0\0\0\0", ".quad 0xe3"),
    (b"\xe3\0\0\x40\0\0\0\0", ".quad 0x400000e3"),
    (b"\xe3\0\0\x80\0\0\0\0", ".quad 0x800000e3"),
    (b"\xe3\0\0\xc0\0\0\0\0", ".quad 0xc00000e3"),
]);

/// Where a CPU begins.
const FIRST: Code = Code::Bytes(&[(b"", ".code16"), (b"\xe9\x0d\x00", "jmp . - 0xfff0")]);

/// What it pushes is as an exception leaves it, with the number [`WAITS`].
const BOOT: Code = Code::Bytes(&[
    (b"\x0f\x01\x14\x25\xa0\x06\x20\x00", "lgdt 0x2006a0"),
    (b"\x0f\x01\x1c\x25\xb0\x06\x20\x00", "lidt 0x2006b0"),
    (b"\x48\x8b\x04\x25\xc0\x06\x20\x00", "mov 0x2006c0, %rax"),
    (b"\x0f\x22\xd8", "mov %rax, %cr3"),
    (b"\x48\x8b\x04\x25\xc8\x06\x20\x00", "mov 0x2006c8, %rax"),
    (b"\x0f\x22\xe0", "mov %rax, %cr4"),
    (b"\x31\xc9", "xor %ecx, %ecx"),
    (b"\x31\xd2", "xor %edx, %edx"),
    (b"\xb8\x03\x00\x00\x00", "mov $3, %eax"),
    (b"\x0f\x01\xd1", "xsetbv"),
    (b"\xb9\xa0\x06\x00\x00", "mov $0x6a0, %ecx"),
    (b"\x8b\x04\x25\xd0\x06\x20\x00", "mov 0x2006d0, %eax"),
    (b"\x0f\x30", "wrmsr"),
    (b"\xb8\x28\x00\x00\x00", "mov $0x28, %eax"),
    (b"\x0f\x00\xd8", "ltr %ax"),
    (b"\xbc\x00\x21\x20\x00", "mov $0x202100, %esp"),
    (b"\x6a\x1b", "push $0x1b"),
    (b"\x6a\x00", "push $0"),
    (b"\x68\x02\x01\x00\x00", "push $0x102"),
    (b"\x6a\x23", "push $0x23"),
    (b"\x6a\x00", "push $0"),
    (b"\x6a\x00", "push $0"),
    (b"\x68\xff\x00\x00\x00", "push $0xff"),
    (b"\xeb\x1d", "jmp . + 31"),
]);

/// Leaves registers in the third page and asks, by a byte on port E9h, how to go on: at a step, which is vector 1, the general ones
/// alone, and all others if the first word there is 2 then. It is 1 where all are there. If bytes are to be copied meanwhile, it does
/// and asks again: Bochs drops what it has decoded where the guest writes. MSR 6A0h is IA32_U_CET, 6A7h IA32_PL3_SSP. XCR0 is what the
/// word at 202020h has: Bochs 2.7's XSAVEC overwrites its own header where AVX is enabled. The next word has what it is.
const MONITOR: Code = Code::Bytes(&[
    (b"\x50", "push %rax"),
    (b"\x51", "push %rcx"),
    (b"\x52", "push %rdx"),
    (b"\x53", "push %rbx"),
    (b"\x55", "push %rbp"),
    (b"\x56", "push %rsi"),
    (b"\x57", "push %rdi"),
    (b"\x41\x50", "push %r8"),
    (b"\x41\x51", "push %r9"),
    (b"\x41\x52", "push %r10"),
    (b"\x41\x53", "push %r11"),
    (b"\x41\x54", "push %r12"),
    (b"\x41\x55", "push %r13"),
    (b"\x41\x56", "push %r14"),
    (b"\x41\x57", "push %r15"),
    (b"\x83\x3c\x25\xc8\x20\x20\x00\x01", "cmpl $1, 0x2020c8"),
    (b"\x0f\x84\x83\x00\x00\x00", "je . + 0x89"),
    (b"\xf3\x48\x0f\xae\xc0", "rdfsbase %rax"),
    (b"\x48\x89\x04\x25\x48\x20\x20\x00", "mov %rax, 0x202048"),
    (b"\xf3\x48\x0f\xae\xc8", "rdgsbase %rax"),
    (b"\x48\x89\x04\x25\x40\x20\x20\x00", "mov %rax, 0x202040"),
    (b"\xb9\xa7\x06\x00\x00", "mov $0x6a7, %ecx"),
    (b"\x0f\x32", "rdmsr"),
    (b"\x89\x04\x25\x38\x20\x20\x00", "mov %eax, 0x202038"),
    (b"\x89\x14\x25\x3c\x20\x20\x00", "mov %edx, 0x20203c"),
    (b"\xb9\xa0\x06\x00\x00", "mov $0x6a0, %ecx"),
    (b"\x0f\x32", "rdmsr"),
    (b"\x89\x04\x25\x30\x20\x20\x00", "mov %eax, 0x202030"),
    (b"\x89\x14\x25\x34\x20\x20\x00", "mov %edx, 0x202034"),
    (b"\x0f\x20\xd0", "mov %cr2, %rax"),
    (b"\x48\x89\x04\x25\x28\x20\x20\x00", "mov %rax, 0x202028"),
    (b"\x8b\x04\x25\x20\x20\x20\x00", "mov 0x202020, %eax"),
    (b"\x39\x04\x25\x24\x20\x20\x00", "cmp %eax, 0x202024"),
    (b"\x74\x0e", "je . + 0x10"),
    (b"\x89\x04\x25\x24\x20\x20\x00", "mov %eax, 0x202024"),
    (b"\x31\xd2", "xor %edx, %edx"),
    (b"\x31\xc9", "xor %ecx, %ecx"),
    (b"\x0f\x01\xd1", "xsetbv"),
    (b"\x31\xd2", "xor %edx, %edx"),
    (b"\x48\x0f\xae\x24\x25\x00\x22\x20\x00", "xsave64 0x202200"),
    (b"\xc7\x04\x25\x00\x20\x20\x00\x01\x00\x00\x00", "movl $1, 0x202000"),
    (b"\xb0\xe9", "mov $0xe9, %al"),
    (b"\xe6\xe9", "out %al, $0xe9"),
    (b"\x8b\x0c\x25\x08\x20\x20\x00", "mov 0x202008, %ecx"),
    (b"\xe3\x11", "jrcxz . + 0x13"),
    (b"\x48\x8b\x3c\x25\x18\x20\x20\x00", "mov 0x202018, %rdi"),
    (b"\xbe\x00\x30\x20\x00", "mov $0x203000, %esi"),
    (b"\xf3\xa4", "rep movsb"),
    (b"\xeb\xe2", "jmp . - 0x1c"),
    (b"\x83\x3c\x25\x00\x20\x20\x00\x01", "cmpl $1, 0x202000"),
    (b"\x72\x6f", "jb . + 0x71"),
    (b"\x0f\x87\x4f\xff\xff\xff", "ja . - 0xab"),
    (b"\x8b\x04\x25\x20\x20\x20\x00", "mov 0x202020, %eax"),
    (b"\x31\xd2", "xor %edx, %edx"),
    (b"\x48\x89\x04\x25\x00\x24\x20\x00", "mov %rax, 0x202400"),
    (b"\x48\x0f\xae\x2c\x25\x00\x22\x20\x00", "xrstor64 0x202200"),
    (b"\x8b\x04\x25\x30\x20\x20\x00", "mov 0x202030, %eax"),
    (b"\x8b\x14\x25\x34\x20\x20\x00", "mov 0x202034, %edx"),
    (b"\xb9\xa0\x06\x00\x00", "mov $0x6a0, %ecx"),
    (b"\x0f\x30", "wrmsr"),
    (b"\x8b\x04\x25\x38\x20\x20\x00", "mov 0x202038, %eax"),
    (b"\x8b\x14\x25\x3c\x20\x20\x00", "mov 0x20203c, %edx"),
    (b"\xb9\xa7\x06\x00\x00", "mov $0x6a7, %ecx"),
    (b"\x0f\x30", "wrmsr"),
    (b"\x48\x8b\x04\x25\x40\x20\x20\x00", "mov 0x202040, %rax"),
    (b"\xf3\x48\x0f\xae\xd8", "wrgsbase %rax"),
    (b"\x48\x8b\x04\x25\x48\x20\x20\x00", "mov 0x202048, %rax"),
    (b"\xf3\x48\x0f\xae\xd0", "wrfsbase %rax"),
    (b"\xc7\x04\x25\x00\x20\x20\x00\x00\x00\x00\x00", "movl $0, 0x202000"),
    (b"\x41\x5f", "pop %r15"),
    (b"\x41\x5e", "pop %r14"),
    (b"\x41\x5d", "pop %r13"),
    (b"\x41\x5c", "pop %r12"),
    (b"\x41\x5b", "pop %r11"),
    (b"\x41\x5a", "pop %r10"),
    (b"\x41\x59", "pop %r9"),
    (b"\x41\x58", "pop %r8"),
    (b"\x5f", "pop %rdi"),
    (b"\x5e", "pop %rsi"),
    (b"\x5d", "pop %rbp"),
    (b"\x5b", "pop %rbx"),
    (b"\x5a", "pop %rdx"),
    (b"\x59", "pop %rcx"),
    (b"\x58", "pop %rax"),
    (b"\x48\x83\xc4\x10", "add $16, %rsp"),
    (b"\x48\xcf", "iretq"),
]);

/// Where exceptions come to, in the order of [`VECTORS`]. A step, the last, asks first whether the guest goes on at once, by another
/// byte: then there is something else than 0 at 202010h.
const STUBS: Code = Code::Bytes(&[
    (b"\x6a\x00", "push $0"),
    (b"\x6a\x00", "push $0"),
    (b"\xe9\x77\xfe\xff\xff", "jmp . - 388"),
    (b"\x6a\x00", "push $0"),
    (b"\x6a\x03", "push $3"),
    (b"\xe9\x6e\xfe\xff\xff", "jmp . - 397"),
    (b"\x6a\x00", "push $0"),
    (b"\x6a\x06", "push $6"),
    (b"\xe9\x65\xfe\xff\xff", "jmp . - 406"),
    (b"\x6a\x00", "push $0"),
    (b"\x6a\x10", "push $16"),
    (b"\xe9\x5c\xfe\xff\xff", "jmp . - 415"),
    (b"\x6a\x00", "push $0"),
    (b"\x6a\x13", "push $19"),
    (b"\xe9\x53\xfe\xff\xff", "jmp . - 424"),
    (b"\x6a\x08", "push $8"),
    (b"\xe9\x4c\xfe\xff\xff", "jmp . - 431"),
    (b"\x6a\x0c", "push $12"),
    (b"\xe9\x45\xfe\xff\xff", "jmp . - 438"),
    (b"\x6a\x0d", "push $13"),
    (b"\xe9\x3e\xfe\xff\xff", "jmp . - 445"),
    (b"\x6a\x0e", "push $14"),
    (b"\xe9\x37\xfe\xff\xff", "jmp . - 452"),
    (b"\x6a\x15", "push $21"),
    (b"\xe9\x30\xfe\xff\xff", "jmp . - 459"),
    (b"\x6a\x00", "push $0"),
    (b"\x6a\x01", "push $1"),
    (b"\x50", "push %rax"),
    (b"\xb0\xe8", "mov $0xe8, %al"),
    (b"\xe6\xe9", "out %al, $0xe9"),
    (b"\x80\x3c\x25\x10\x20\x20\x00\x00", "cmpb $0, 0x202010"),
    (b"\x58", "pop %rax"),
    (b"\x0f\x84\x18\xfe\xff\xff", "je . - 482"),
    (b"\x48\x83\xc4\x10", "add $16, %rsp"),
    (b"\x48\xcf", "iretq"),
]);

/// Calls and jumps by r11, which expect a landing pad.
const ENTER: Code = Code::Bytes(&[(b"\x41\xff\xd3", "call *%r11"), (b"\x41\xff\xe3", "jmp *%r11")]);

/// The addresses of the first, the second and the third page.
const PAGES: [u64; 3] = [0x20_0000, 0x20_1000, 0x20_2000];
/// Where [`MONITOR`] and [`STUBS`] are in the first.
const MONITOR_AT: u64 = 0x80;
const STUBS_AT: u64 = 0x200;
/// Exceptions, and the bytes of the stub of each: the CPU pushes an error code for some.
const VECTORS: [(u64, u64); 11] =
    [(0, 9), (3, 9), (6, 9), (16, 9), (19, 9), (8, 7), (12, 7), (13, 7), (14, 7), (21, 7), (1, 30)];
/// Vector 3 may be asked for by code.
const BREAKPOINT: u64 = 3;

/// State components of XSAVE: x87 and SSE; AVX and AVX-512 too.
const X87_SSE: u32 = 3;
const COMPONENTS: u32 = 0xe7;
/// CR4: PAE, OSFXSR, OSXMMEXCPT, FSGSBASE, OSXSAVE; and CET.
const CR4: u64 = 1 << 5 | 1 << 9 | 1 << 10 | 1 << 16 | 1 << 18;
const CET: u64 = 1 << 23;
/// IA32_U_CET: SH_STK_EN, ENDBR_EN.
const PROTECTED: u64 = 1 | 1 << 2;
/// Bits of page table entries: P; W; U; A and D; XD. Those of a shadow stack have D and no W.
const P: u64 = 1;
const W: u64 = 1 << 1;
const U: u64 = 1 << 2;
const USED: u64 = 3 << 5;
const XD: u64 = 1 << 63;

/// The machine.
pub const BARE: Option<&Bare> = Some(&Bare {
    program: Program::Bochs(Bochs {
        model: "tigerlake",
        rom: &[
            (0, RESET),
            (0x40, START),
            (0x1000, FIRST_GDT),
            (0x2000, FIRST_TABLE),
            (0x3000, FIRST_PAGES),
            (0xfff0, FIRST),
        ],
        registers: REGISTERS,
        general: 0x50..0x100,
        wide: 0x440..0xc80,
        components: (0x20, X87_SSE, COMPONENTS),
    }),
    // Below are holes.
    ram: 0x10_0000,
    // Bochs begins the later the more it has: it compares the name of each 128 KiB with all others.
    memory: 1 << 28,
    start: PAGES[0],
    boot: &[(0, BOOT), (MONITOR_AT, MONITOR), (STUBS_AT, STUBS)],
    parameters: (0x400, parameters),
    around: &[(0x20, ENTER)],
    park: 0,
    trap: 0,
    entered: &[
        Entered { by: IndirectBranch::Call, at: 0x20, reg: R11 },
        Entered { by: IndirectBranch::Jump, at: 0x23, reg: R11 },
    ],
    setters: &[],
    names: &[],
    // RFLAGS.TF is the machine's.
    parts: &[("rflags", "flags", !0x100)],
    resumes: None,
    split: false,
    table: |at| at | P | W | U | USED,
    page,
    syndrome: &["vector", "error", "rip", "cr2"],
    cause,
    enforces: &[Guard::LandingPad, Guard::ShadowStack],
    shadow_stack: "ssp",
    wide: WIDE,
    lengths: None,
    decode,
});

/// [`MONITOR`] pushes general ones from 0x100 down; XSAVE's area is at 0x200 (Intel SDM volume 1, 13.4 and 13.5). Its parts for vectors
/// are named by the registers whose upper bits they have: of YMM, those from 128 on, of the first ZMM, those from 256 on.
const REGISTERS: &[(&str, u64, usize)] = &[
    ("cr2", 0x28, 8),
    ("u_cet", 0x30, 8),
    ("ssp", 0x38, 8),
    ("gs", 0x40, 8),
    ("fs", 0x48, 8),
    ("r15", 0x50, 8),
    ("r14", 0x58, 8),
    ("r13", 0x60, 8),
    ("r12", 0x68, 8),
    ("r11", 0x70, 8),
    ("r10", 0x78, 8),
    ("r9", 0x80, 8),
    ("r8", 0x88, 8),
    ("rdi", 0x90, 8),
    ("rsi", 0x98, 8),
    ("rbp", 0xa0, 8),
    ("rbx", 0xa8, 8),
    ("rdx", 0xb0, 8),
    ("rcx", 0xb8, 8),
    ("rax", 0xc0, 8),
    ("vector", 0xc8, 8),
    ("error", 0xd0, 8),
    ("rip", 0xd8, 8),
    ("flags", 0xe8, 8),
    ("rsp", 0xf0, 8),
    ("fpcw", 0x200, 2),
    ("mxcsr", 0x218, 4),
    ("xmm0", 0x2a0, 16),
    ("xmm1", 0x2b0, 16),
    ("xmm2", 0x2c0, 16),
    ("xmm3", 0x2d0, 16),
    ("xmm4", 0x2e0, 16),
    ("xmm5", 0x2f0, 16),
    ("xmm6", 0x300, 16),
    ("xmm7", 0x310, 16),
    ("xmm8", 0x320, 16),
    ("xmm9", 0x330, 16),
    ("xmm10", 0x340, 16),
    ("xmm11", 0x350, 16),
    ("xmm12", 0x360, 16),
    ("xmm13", 0x370, 16),
    ("xmm14", 0x380, 16),
    ("xmm15", 0x390, 16),
    ("ymm0", 0x440, 16),
    ("ymm1", 0x450, 16),
    ("ymm2", 0x460, 16),
    ("ymm3", 0x470, 16),
    ("ymm4", 0x480, 16),
    ("ymm5", 0x490, 16),
    ("ymm6", 0x4a0, 16),
    ("ymm7", 0x4b0, 16),
    ("ymm8", 0x4c0, 16),
    ("ymm9", 0x4d0, 16),
    ("ymm10", 0x4e0, 16),
    ("ymm11", 0x4f0, 16),
    ("ymm12", 0x500, 16),
    ("ymm13", 0x510, 16),
    ("ymm14", 0x520, 16),
    ("ymm15", 0x530, 16),
    ("k0", 0x640, 8),
    ("k1", 0x648, 8),
    ("k2", 0x650, 8),
    ("k3", 0x658, 8),
    ("k4", 0x660, 8),
    ("k5", 0x668, 8),
    ("k6", 0x670, 8),
    ("k7", 0x678, 8),
    ("zmm0", 0x680, 32),
    ("zmm1", 0x6a0, 32),
    ("zmm2", 0x6c0, 32),
    ("zmm3", 0x6e0, 32),
    ("zmm4", 0x700, 32),
    ("zmm5", 0x720, 32),
    ("zmm6", 0x740, 32),
    ("zmm7", 0x760, 32),
    ("zmm8", 0x780, 32),
    ("zmm9", 0x7a0, 32),
    ("zmm10", 0x7c0, 32),
    ("zmm11", 0x7e0, 32),
    ("zmm12", 0x800, 32),
    ("zmm13", 0x820, 32),
    ("zmm14", 0x840, 32),
    ("zmm15", 0x860, 32),
    ("zmm16", 0x880, 64),
    ("zmm17", 0x8c0, 64),
    ("zmm18", 0x900, 64),
    ("zmm19", 0x940, 64),
    ("zmm20", 0x980, 64),
    ("zmm21", 0x9c0, 64),
    ("zmm22", 0xa00, 64),
    ("zmm23", 0xa40, 64),
    ("zmm24", 0xa80, 64),
    ("zmm25", 0xac0, 64),
    ("zmm26", 0xb00, 64),
    ("zmm27", 0xb40, 64),
    ("zmm28", 0xb80, 64),
    ("zmm29", 0xbc0, 64),
    ("zmm30", 0xc00, 64),
    ("zmm31", 0xc40, 64),
];

/// Those that the tables of registers do not have.
#[rustfmt::skip]
const WIDE: &[Wide] = &[
    wide("ymm0", 16), wide("ymm1", 16), wide("ymm2", 16), wide("ymm3", 16), wide("ymm4", 16), wide("ymm5", 16),
    wide("ymm6", 16), wide("ymm7", 16), wide("ymm8", 16), wide("ymm9", 16), wide("ymm10", 16),
    wide("ymm11", 16), wide("ymm12", 16), wide("ymm13", 16), wide("ymm14", 16), wide("ymm15", 16),
    wide("k0", 8), wide("k1", 8), wide("k2", 8), wide("k3", 8), wide("k4", 8), wide("k5", 8), wide("k6", 8),
    wide("k7", 8), wide("zmm0", 32), wide("zmm1", 32), wide("zmm2", 32), wide("zmm3", 32), wide("zmm4", 32),
    wide("zmm5", 32), wide("zmm6", 32), wide("zmm7", 32), wide("zmm8", 32), wide("zmm9", 32), wide("zmm10", 32),
    wide("zmm11", 32), wide("zmm12", 32), wide("zmm13", 32), wide("zmm14", 32), wide("zmm15", 32),
    wide("zmm16", 64), wide("zmm17", 64), wide("zmm18", 64), wide("zmm19", 64), wide("zmm20", 64),
    wide("zmm21", 64), wide("zmm22", 64), wide("zmm23", 64), wide("zmm24", 64), wide("zmm25", 64),
    wide("zmm26", 64), wide("zmm27", 64), wide("zmm28", 64), wide("zmm29", 64), wide("zmm30", 64),
    wide("zmm31", 64),
];

const fn wide(name: &'static str, bytes: usize) -> Wide {
    Wide { name, bytes, known: 0, set: u64::MAX }
}

/// The interrupt descriptor table at 0x400, segments at 0x600, the task state at 0x638; at 0x6a0 where segments and interrupts are,
/// then CR3, CR4 and IA32_U_CET.
fn parameters(boot: &Boot) -> Vec<u64> {
    let [first, _, third] = PAGES;
    let mut words = vec![0; 0x2d8 / 8];
    let mut stub = first + STUBS_AT;
    for (vector, bytes) in VECTORS {
        // An interrupt gate of 64 bits, in segment 8.
        let privilege = if vector == BREAKPOINT { 3 << 45 } else { 0 };
        words[vector as usize * 2] = stub & 0xffff | 8 << 16 | 0x8e << 40 | privilege | (stub >> 16) << 48;
        stub += bytes;
    }
    // Nothing; code and data of the machine; data and code of CPL 3; the task state, of 104 bytes.
    let task = first + 0x638;
    let segments =
        [0, 0x20_9b00_0000_0000, 0x93 << 40, 0xf3 << 40, 0x20_fb00_0000_0000, 0x67 | task << 16 | 0x89 << 40, 0];
    words[0x40..0x47].copy_from_slice(&segments);
    // RSP0, and no table of ports.
    words[0x47] = (third + 0x100) << 32;
    words[0x53] = 0x68 << 48;
    let cet = if boot.enforced { (CR4 | CET, PROTECTED) } else { (CR4, 0) };
    let tables = [0x37 | (first + 0x600) << 16, 0, 0x1ff | (first + 0x400) << 16, 0, boot.tables[0], cet.0, cet.1];
    words[0x54..].copy_from_slice(&tables);
    words
}

/// A page table entry.
fn page(at: u64, page: Page) -> u64 {
    let may = match page {
        Page::Machine => W,
        Page::Code | Page::Guarded => W | U,
        Page::Data => W | U | XD,
        Page::ShadowStack => U | XD,
    };
    at | P | may | USED
}

/// Intel SDM volume 3, 6.15. Error codes: of a page fault, bit 4 is a fetch; of a control protection, 1 is RET, 3 is ENDBR64.
fn cause(registers: &[u64]) -> Exception {
    let (vector, error, pc, at) = match registers {
        [vector, error, pc, at, ..] => (*vector, *error, *pc, *at),
        _ => (u64::MAX, 0, 0, 0),
    };
    let why = match (vector, error) {
        (3 | 6, _) => Cause::Breakpoint,
        (14, _) if error & 1 << 4 != 0 => Cause::Fetch,
        (14, _) => Cause::Access,
        (21, 1) => Cause::Guard(Guard::ShadowStack),
        (21, 3) => Cause::Guard(Guard::LandingPad),
        _ => Cause::Other(vector),
    };
    let returns_to = (why == Cause::Guard(Guard::ShadowStack)).then_some(Returns::Stack);
    Exception { why, pc, at, returns_to }
}
