//! What a branch overwrites at a function's entry does the same at another place: original and copy run in an emulator, and all
//! registers, flags and memory are compared. The instructions are those of a table, and entries of libraries of this machine.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use codegen::arch::entry::{Class, Code};
use codegen::arch::patch::{Branch, Relocation};
use codegen::backend::Backend;
use codegen::words::abi::Reg;
use emu_tests::{Access, Accesses, Cpu as Engine, EVERYWHERE, Holds, Trap, Why, engine};
use object::{Object as _, ObjectSection, ObjectSegment, ObjectSymbol, RelocationFlags, RelocationTarget};
use session::object::Object;

/// Where an object is, and where memory for whatever registers point to.
const BASE: u64 = 0x61_0000_0000;
const DATA: u64 = 0x73_0000_0000;
const DATA_SIZE: u64 = 4 << 20;
/// Where copies are: beside the object, and where no direct branch reaches.
const ROOM: u64 = 1 << 20;
const FAR: u64 = 0x35_0000_0000;
/// Instructions that run at most.
const MOST: usize = 64;
/// Functions of a library that are tried.
const FUNCTIONS: usize = 1500;

/// Instructions at an entry: name, architecture's text, and whether it matters where they are.
struct Case(&'static str, bool);

const CASES: &[(&str, &str, &[Case])] = &[
    (
        "x86_64",
        "",
        &[
            Case("push %rbp; mov %rsp,%rbp; sub $16,%rsp", false),
            Case("lea data(%rip),%rax", true),
            // Its own address, as of a function that is compared with a pointer.
            Case("1: lea 1b(%rip),%rax", true),
            Case("push %rbx; 1: lea 1b(%rip),%rax", true),
            Case("mov data(%rip),%rax", true),
            Case("cmpl $5,data(%rip); push %rbx", true),
            Case("movups data(%rip),%xmm3", true),
            Case("push %rax; je near; nop; nop", true),
            Case("test %edi,%edi; jg data", true),
            Case("jmp data", true),
            Case("jmp near; .byte 0xcc, 0xcc, 0xcc", true),
            Case("call data", true),
            Case("sub $8,%rsp; call data", true),
            Case("sub $8,%rsp; call *data(%rip)", true),
            Case("push %rdi; push %rsi; push %rbp; call *%rax", true),
            Case("jmp *data(%rip)", true),
            Case("jrcxz near; push %rax; push %rbx; push %rbp", true),
            Case("loop near; push %rax; push %rbx; push %rbp", true),
            Case("xor %eax,%eax; ret; .byte 0xcc, 0xcc", false),
        ],
    ),
    (
        "arm64",
        ".arch armv8-a\n",
        &[
            Case("stp x29, x30, [sp, #-32]!", false),
            Case("adr x3, data", true),
            Case("adr x3, .", true),
            Case("adrp x4, data", true),
            Case("ldr w5, data", true),
            Case("ldr x6, data", true),
            Case("ldrsw x7, data", true),
            Case("ldr s1, data", true),
            Case("ldr d2, data", true),
            Case("ldr q3, data", true),
            Case("prfm pldl1keep, data", false),
            Case("b data", true),
            Case("bl data", true),
            Case("b.hi data", true),
            Case("b.vs near", true),
            Case("cbz x0, data", true),
            Case("cbnz w1, near", true),
            Case("tbz x2, #37, near", true),
            Case("tbnz w3, #0, data", true),
            Case("ret", false),
            Case("br x9", false),
        ],
    ),
    (
        "riscv64",
        ".option norelax\n.option rvc\n",
        &[
            Case("addi sp, sp, -32; sd ra, 24(sp)", false),
            Case("auipc a5, 0x1", true),
            Case("auipc a5, 0x12345; ld a0, 8(a5)", true),
            Case(".option norvc; j data", true),
            Case(".option norvc; jal ra, data", true),
            Case(".option norvc; jal t0, data", true),
            Case("addi sp, sp, -16; .option norvc; jal ra, data", true),
            Case("auipc ra, 0x1; .option norvc; jalr ra, 16(ra)", true),
            Case(".option norvc; jalr t1, 8(a0)", true),
            Case("li a0, 1; jalr a1", true),
            Case(".option norvc; beq a0, a1, data", true),
            Case(".option norvc; bne a0, a1, near", true),
            Case(".option norvc; blt a0, a1, data", true),
            Case(".option norvc; bge a0, a1, data", true),
            Case(".option norvc; bltu a0, a1, data", true),
            Case(".option norvc; bgeu a0, a1, data", true),
            Case("c.beqz a0, near; c.addi sp, -16", true),
            Case("c.bnez s1, near; lui t1, 5", true),
            Case("li a0, 1; c.j near", true),
            Case("li a0, 1; jr a1", false),
            Case("li t1, 1; li t3, 2; li t4, 3; beqz a0, near", true),
        ],
    ),
];

/// Libraries of this machine, in which entries are tried.
const LIBRARIES: &[(&str, &[&str])] = &[
    (
        "x86_64",
        &[
            "/lib/x86_64-linux-gnu/libz.so.1",
            "/lib/x86_64-linux-gnu/libm.so.6",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libstdc++.so.6",
        ],
    ),
    (
        "arm64",
        &[
            "/usr/aarch64-linux-gnu/lib/libm.so.6",
            "/usr/aarch64-linux-gnu/lib/libc.so.6",
            "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
        ],
    ),
    (
        "riscv64",
        &[
            "/usr/riscv64-linux-gnu/lib/libm.so.6",
            "/usr/riscv64-linux-gnu/lib/libc.so.6",
            "/usr/riscv64-linux-gnu/lib/libstdc++.so.6",
        ],
    ),
];

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    }
}

/// What hooks know of a run.
#[derive(Default)]
struct Run {
    inside: Range<u64>,
    left_to: Option<u64>,
    /// What was overwritten.
    written: Vec<(u64, Vec<u8>)>,
}

/// What can be seen of a run.
#[derive(PartialEq, Debug)]
struct Outcome {
    left_to: Option<u64>,
    error: Option<Trap>,
    general: Vec<u64>,
    flags: u64,
    vectors: Vec<Vec<u8>>,
    memory: BTreeMap<u64, u8>,
}

struct Cpu {
    backend: &'static dyn Backend,
    uc: Box<Engine<'static, Run>>,
    /// Where the next copies are.
    rooms: [u64; 2],
}

impl Cpu {
    fn new(backend: &'static dyn Backend, segments: &[(u64, Vec<u8>)]) -> Cpu {
        let machine = backend.machine();
        let mut uc = engine(backend, Run::default()).unwrap();
        for thread in machine.threads {
            uc.write(thread.id, DATA + DATA_SIZE / 2).unwrap();
        }
        let last = segments.iter().map(|(at, bytes)| at + bytes.len() as u64).max().unwrap();
        uc.map(BASE - ROOM, ROOM + last.next_multiple_of(0x1000) + 0x10_0000, Holds::Code).unwrap();
        uc.map(FAR, ROOM, Holds::Code).unwrap();
        uc.map(DATA, DATA_SIZE, Holds::Code).unwrap();
        for (at, bytes) in segments {
            assert!(uc.store(BASE + at, bytes));
        }
        let mut random = Random(1);
        let data: Vec<u8> = (0..DATA_SIZE / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        assert!(uc.store(DATA, &data));
        let leaves = |uc: &mut Engine<Run>, at, _| {
            if !uc.data().inside.contains(&at) {
                uc.data_mut().left_to = Some(at);
                uc.stop();
            }
        };
        uc.on_instructions(EVERYWHERE, Box::new(leaves)).unwrap();
        let writes = |uc: &mut Engine<Run>, Access { at, bytes, .. }: Access| {
            let mut old = vec![0; bytes];
            if uc.load(at, &mut old) {
                uc.data_mut().written.push((at, old));
            }
        };
        uc.on_accesses(Accesses::Writes, EVERYWHERE, Box::new(writes)).unwrap();
        Cpu { backend, uc, rooms: [BASE - ROOM + 0x1_0000, FAR] }
    }

    /// Let arm64 sign at EL1: Arm ARM, SCR_EL3.API and NS, HCR_EL2.API, SCTLR_EL1.EnIA and EnIB; TCR_EL1 for addresses of 48 bits; and
    /// a key B (APIBKeyLo_EL1) that is another than A.
    fn signs(&mut self) {
        /// Unicorn's register for the control register with this op1, CRn, CRm and op2.
        const CP_REG: i32 = 290;
        let all = [
            ([6, 1, 1, 0], 3 << 16 | 1 << 10 | 1),
            ([4, 1, 1, 0], 3 << 40 | 1 << 31),
            ([0, 1, 0, 0], 0xf0d0_0800),
            ([0, 2, 0, 2], 0x10_0010_u64),
            ([0, 2, 1, 2], 0x1234_5678),
        ];
        for ([op1, crn, crm, op2], value) in all {
            let number = [crn, crm, 3, op1, op2, 0_u32].map(u32::to_le_bytes).concat();
            self.uc.write_bytes(CP_REG, &[number, value.to_le_bytes().to_vec()].concat()).unwrap();
        }
    }

    fn registers(&self) -> impl Iterator<Item = i32> + use<> {
        let reserved = self.backend.machine().reserved;
        let all = self.backend.facts().abi.regs;
        (0..).zip(all).filter(move |(n, _)| !reserved.contains(Reg(*n))).map(|(_, register)| register.emu)
    }

    /// Values that lead both ways at branches, and to memory.
    fn begin(&mut self, seed: u64) {
        let mut random = Random(seed << 32);
        for register in self.registers() {
            let value = match random.next() >> 60 {
                0..4 => 0,
                4 => random.next(),
                _ => DATA + DATA_SIZE / 4 + random.next() % (DATA_SIZE / 2),
            };
            self.uc.write(register, value).unwrap();
        }
        // What is signed is an address.
        if let Some(link) = self.backend.facts().abi.link {
            let link = self.backend.facts().abi.regs[usize::from(link.0)].emu;
            self.uc.write(link, BASE + (random.next() % ROOM) / 4 * 4).unwrap();
        }
        let sp = self.backend.facts().abi.regs[usize::from(self.backend.facts().abi.sp.0)].emu;
        self.uc.write(sp, DATA + DATA_SIZE / 2 + (random.next() % 4096) * 16).unwrap();
        let machine = self.backend.machine();
        if let Some((register, bits)) = machine.flags {
            self.uc.write(register.id, random.next() & bits | 2).unwrap();
        }
        for vector in machine.vectors {
            let bytes = [random.next(), random.next()].map(u64::to_le_bytes).concat();
            self.uc.write_bytes(vector.id, &bytes[..self.backend.facts().abi.vector_bytes]).unwrap();
        }
    }

    /// Run what is inside, from its beginning on, and put memory back.
    fn run(&mut self, inside: Range<u64>, seed: u64) -> Outcome {
        self.begin(seed);
        let from = inside.start;
        *self.uc.data_mut() = Run { inside, ..Run::default() };
        let error = self.uc.run_at_most(from, 0, MOST).err();
        let fetched = error.as_ref().is_some_and(|trap| matches!(trap.why, Why::NoCode | Why::NotCode));
        let mut run = std::mem::take(self.uc.data_mut());
        if fetched {
            run.left_to = Some(self.uc.pc());
        }
        let mut memory = BTreeMap::new();
        for (at, old) in &run.written {
            let mut now = vec![0; old.len()];
            assert!(self.uc.load(*at, &mut now));
            memory.extend((*at..).zip(now));
        }
        for (at, old) in run.written.iter().rev() {
            assert!(self.uc.store(*at, old));
        }
        let general = self.registers().map(|register| self.uc.read(register).unwrap()).collect();
        let machine = self.backend.machine();
        let flags = machine.flags.map_or(0, |(register, bits)| self.uc.read(register.id).unwrap() & bits);
        let vector = |id| {
            let mut bytes = vec![0; self.backend.facts().abi.vector_bytes];
            self.uc.read_bytes(id, &mut bytes).unwrap();
            bytes
        };
        let vectors = machine.vectors.iter().map(|vector_register| vector(vector_register.id)).collect();
        Outcome { left_to: run.left_to, error, general, flags, vectors, memory }
    }

    /// Where the next copy is: beside the object, or far away.
    fn room(&mut self, far: bool) -> u64 {
        let room = &mut self.rooms[usize::from(far)];
        *room += 256;
        *room
    }

    /// Does the code do at `to` what is done inside of this range? If not, the first difference in words.
    fn same(&mut self, inside: &Range<u64>, to: u64, code: &[u8], seeds: Range<u64>) -> Result<(), String> {
        assert!(self.uc.store(to, code));
        for seed in seeds {
            let original = self.run(inside.clone(), seed);
            // A loop: what it has done until then depends on its length.
            if original.left_to.is_none() && original.error.is_none() {
                continue;
            }
            let mut copy = self.run(to..to + code.len() as u64, seed);
            // A far jump may lose what is free at an entry, unless it has been set since.
            let before = {
                self.begin(seed);
                self.registers().map(|register| self.uc.read(register).unwrap()).collect::<Vec<_>>()
            };
            for (n, register) in
                self.backend.facts().abi.regs.iter().filter(|r| self.registers().any(|id| id == r.emu)).enumerate()
            {
                if FREE.contains(&register.name) && original.general[n] == before[n] {
                    copy.general[n] = before[n];
                }
            }
            if original != copy {
                return Err(format!("seed {seed}: {original:x?}\n{copy:x?}\n{code:02x?}"));
            }
        }
        Ok(())
    }
}

/// What far jumps of arm64 and riscv64 may use.
const FREE: [&str; 6] = ["x16", "t1", "t3", "t4", "t5", "t6"];

/// The bytes of a case, and where its instructions are among them.
fn assembled(backend: &dyn Backend, head: &str, text: &str) -> (Vec<u8>, Range<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("a.s"), dir.path().join("a.o"));
    // An engine sees no branch to what is no instruction.
    let text = format!(
        "{head}.text\n.fill 2048, 2, 1\nfirst: {text}\nbehind: .fill 32, 2, 1\nnear: .fill 2016, 2, 1\n\
         data: .quad 0x7300123457, 1, 2\n.fill 2048, 2, 1\n"
    );
    std::fs::write(&source, &text).unwrap();
    let run = Command::new(backend.facts().assembler).args([&source, Path::new("-o"), &out]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let bytes = std::fs::read(out).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = |name| file.symbols().find(|s| s.name() == Ok(name)).unwrap().address();
    let code = file.section_by_name(".text").unwrap();
    let mut bytes = code.data().unwrap().to_vec();
    for (place, relocation) in code.relocations() {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { panic!("{text}: {relocation:?}") };
        let RelocationTarget::Symbol(symbol) = relocation.target() else { panic!("{text}: {relocation:?}") };
        let value = file.symbol_by_index(symbol).unwrap().address().wrapping_add_signed(relocation.addend());
        let relocation = Relocation { r_type: r_type.0, place, value, high: 0 };
        backend.relocate(&relocation, &mut bytes[place as usize..]).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    (bytes, symbol("first")..symbol("behind"))
}

#[test]
fn each_kind_of_instruction_does_the_same_elsewhere() {
    for (arch, head, cases) in CASES {
        let backend = arch::backend(arch).unwrap();
        for Case(text, refers) in *cases {
            let (bytes, at) = assembled(backend, head, text);
            let code = bytes[at.start as usize..at.end as usize].to_vec();
            let mut cpu = Cpu::new(backend, &[(0, bytes)]);
            let inside = BASE + at.start..BASE + at.end;
            for far in [false, true] {
                let to = cpu.room(far);
                match backend.moved(&code, inside.start, to) {
                    Ok(copy) => cpu.same(&inside, to, &copy, 0..40).unwrap_or_else(|e| panic!("{text}: {e}")),
                    // Memory relative to the instruction pointer is out of reach.
                    Err(e) => assert!(far && e.to_string().contains("too far away"), "{text}: {e}"),
                }
            }
            // Faults are seen: an instruction that nobody has mended, and one that leads a little too far.
            let to = cpu.room(false);
            let mut lost = code.clone();
            lost.extend(backend.branch(Branch::Past, to + code.len() as u64, inside.end).unwrap());
            assert_eq!(cpu.same(&inside, to, &lost, 0..40).is_err(), *refers, "{text}: lost");
            let to = cpu.room(false);
            let off = backend.moved(&code, inside.start + 4, to).unwrap();
            assert!(!refers || cpu.same(&inside, to, &off, 0..40).is_err(), "{text}: 4 bytes off");
        }
    }
}

/// A function that signs its return address, and is patched behind that: its copy signs once more, and what leads to a trampoline has
/// authenticated. Each instruction that is left out is noticed, so the engine signs.
#[test]
fn what_was_signed_is_authenticated_and_signed_again() {
    let backend: &dyn Backend = arch::backend("arm64").unwrap();
    for (sign, word) in [
        ("paciasp", "stp x29, x30, [sp, #-32]!"),
        ("pacibsp", "adrp x4, data"),
        ("paciasp", "ldr x6, data"),
        ("pacibsp", "cbz x0, near"),
        ("paciasp", "autiasp"),
        ("pacibsp", "autibsp"),
    ] {
        let text = format!("{sign}; {word}");
        let (bytes, at) = assembled(backend, ".arch armv8.3-a\n", &text);
        let code = bytes[at.start as usize..at.end as usize].to_vec();
        let inside = BASE + at.start..BASE + at.end;
        let function =
            Code { name: "f", address: inside.start, bytes: &code, size: code.len(), leads: &[], guarded: true };
        let [entry] = *backend.entries(&function) else { panic!("{text}") };
        assert_eq!((entry.class, entry.at, entry.covers), (Class::Word, 4, 4), "{text}");
        let mut cpu = Cpu::new(backend, &[(0, bytes)]);
        cpu.signs();
        for far in [false, true] {
            let to = cpu.room(far);
            let copy = backend.resumed(&entry, &code[entry.at..], inside.start + 4, to).unwrap();
            cpu.same(&inside, to, &copy, 0..40).unwrap_or_else(|e| panic!("{text}: {e}"));
            let to = cpu.room(far);
            let lost = backend.moved(&code[entry.at..], inside.start + 4, to).unwrap();
            assert!(cpu.same(&inside, to, &lost, 0..40).is_err(), "{text}: not signed");
        }
        let signing = entry.signed.unwrap();
        let from = cpu.room(false);
        assert!(cpu.uc.store(from, &backend.branch(Branch::SiteJump, from, BASE).unwrap()));
        let mut led = |authenticated: bool| {
            let to = cpu.room(false);
            let front = match authenticated {
                true => backend.authenticated(signing, Branch::SiteJump, to + 4, BASE),
                false => backend.branch(Branch::SiteJump, to + 4, BASE),
            };
            cpu.same(&(from..from + 4), to, &[signing.sign, &front.unwrap()].concat(), 0..40)
        };
        led(true).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(led(false).is_err(), "{text}: not authenticated");
    }
}

#[test]
fn entries_of_libraries_do_the_same_elsewhere() {
    for (arch, libraries) in LIBRARIES {
        let backend = arch::backend(arch).unwrap();
        for path in *libraries {
            let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"));
            let file = object::File::parse(&*bytes).unwrap();
            let segments: Vec<_> = file.segments().map(|s| (s.address(), s.data().unwrap().to_vec())).collect();
            let mut cpu = Cpu::new(backend, &segments);
            let object = Object::read(Path::new(path), true, backend).unwrap();
            let all = object.functions.len();
            assert!(all > 50, "{path}: {all}");
            assert!(object.refused.len() * 40 < all, "{path}: {} of {all} are refused", object.refused.len());
            let step = all.div_ceil(FUNCTIONS);
            for function in object.functions.iter().step_by(step) {
                for (n, entry) in (0..).zip(&function.entries) {
                    let code = &function.bytes[..entry.covers];
                    let site = BASE + function.site;
                    let to = cpu.room(false);
                    let copy = backend.resumed(entry, code, site, to);
                    let copy = copy.unwrap_or_else(|e| panic!("{path}: {}: {e}", function.name));
                    let seeds = function.site * 8 + n..function.site * 8 + n + 4;
                    let begins = site - entry.signed.map_or(0, |signing| signing.sign.len() as u64);
                    let same = cpu.same(&(begins..site + entry.covers as u64), to, &copy, seeds);
                    same.unwrap_or_else(|e| panic!("{path}: {}: {e}", function.name));
                }
            }
        }
    }
}
