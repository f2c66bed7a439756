//! XSAVEC and XRSTOR as they are done in the engine's place, beside a CPU that has them, and as iced-x86 decodes them.

use std::collections::BTreeMap;
use std::process::Command;

use codegen::arch::machine::{LentCpu, LentTo, Machine};
use codegen::listing::isa::Architecture;
use codegen::words::abi::Reg;
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use tramptool_x86_64::X86_64;
use tramptool_x86_64::regs::{RAX, RCX, RDX, VECTORS};

const MACHINE: &Machine = X86_64::MACHINE;
const AREA: u64 = 0x1_0000;
/// XSAVEC64 and XRSTOR64 of `(%rcx)`.
const SAVE: &[u8] = &[0x48, 0x0f, 0xc7, 0x21];
const RESTORE: &[u8] = &[0x48, 0x0f, 0xae, 0x29];
/// What else the engine has by these numbers: the status word, tags, what the last x87 instruction was, and x87 registers.
const WORDS: [(i32, usize, usize); 6] = [(246, 0, 2), (31, 2, 2), (258, 6, 2), (254, 8, 8), (256, 16, 8), (249, 24, 4)];
const TAGS: i32 = 247;
const ST0: i32 = 114;

/// A CPU, of whose registers only these are not 0.
#[derive(Default)]
struct Fake {
    general: BTreeMap<u8, u64>,
    others: BTreeMap<i32, Vec<u8>>,
    memory: Vec<u8>,
}

impl LentCpu for Fake {
    fn general(&self, reg: Reg) -> u64 {
        self.general.get(&reg.0).copied().unwrap_or_default()
    }

    fn get(&self, id: i32, value: &mut [u8]) {
        value.copy_from_slice(&self.others[&id][..value.len()]);
    }

    fn set(&mut self, id: i32, value: &[u8]) {
        self.others.insert(id, value.to_vec());
    }

    fn set_general(&mut self, reg: Reg, value: u64) {
        self.general.insert(reg.0, value);
    }

    fn clock(&self) -> u64 {
        0x0123_4567_89ab_cdef
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> bool {
        let from = self.memory.get(at.wrapping_sub(AREA) as usize..).and_then(|rest| rest.get(..bytes.len()));
        from.map(|from| bytes.copy_from_slice(from)).is_some()
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        let to = self.memory.get_mut(at.wrapping_sub(AREA) as usize..).and_then(|rest| rest.get_mut(..bytes.len()));
        to.map(|to| to.copy_from_slice(bytes)).is_some()
    }
}

impl Fake {
    /// With the state of an FXSAVE area.
    fn of(image: &[u8], mask: u64) -> Fake {
        let mut cpu = Fake { memory: vec![0xaa; 512], ..Fake::default() };
        cpu.memory.extend([0; 64]);
        cpu.general.extend([(RCX.0, AREA), (RAX.0, mask), (RDX.0, 0)]);
        for (id, at, bytes) in WORDS {
            cpu.set(id, &image[at..at + bytes]);
        }
        let tags = (0..8).filter(|i| image[4] >> i & 1 == 0).fold(0_u16, |all, i| all | 3 << (2 * i));
        cpu.set(TAGS, &tags.to_le_bytes());
        for (i, id) in (ST0..ST0 + 8).enumerate() {
            cpu.set(id, &image[32 + 16 * i..][..10]);
        }
        for (i, xmm) in VECTORS.iter().enumerate() {
            cpu.set(xmm.id, &image[160 + 16 * i..][..16]);
        }
        cpu
    }

    /// What FXSAVE would store of it.
    fn image(&self) -> Vec<u8> {
        let mut image = vec![0; 512];
        for (id, at, bytes) in WORDS {
            self.get(id, &mut image[at..at + bytes]);
        }
        let mut tags = [0; 2];
        self.get(TAGS, &mut tags);
        image[4] = (0..8).filter(|i| u16::from_le_bytes(tags) >> (2 * i) & 3 != 3).fold(0, |all, i| all | 1 << i);
        for (i, id) in (ST0..ST0 + 8).enumerate() {
            self.get(id, &mut image[32 + 16 * i..][..10]);
        }
        for (i, xmm) in VECTORS.iter().enumerate() {
            self.get(xmm.id, &mut image[160 + 16 * i..][..16]);
        }
        image
    }

    fn run(&mut self, code: &[u8]) -> Result<LentTo, &'static str> {
        assert_eq!((MACHINE.lent.size)(code), Some(code.len()));
        (MACHINE.lent.run)(code, 0x1000, self)
    }
}

/// MXCSR_MASK says which bits of MXCSR a CPU has; behind bytes 416, FXSAVE and XSAVE leave memory alone.
fn known(image: &[u8]) -> Vec<u8> {
    [&image[..28], &image[32..416], image.get(512..).unwrap_or_default()].concat()
}

fn bytes(line: &str) -> Vec<u8> {
    (0..line.len()).step_by(2).map(|i| u8::from_str_radix(&line[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn they_do_what_a_cpu_does() {
    let has = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|info| info.contains(" xsavec"));
    if !has || !cfg!(target_arch = "x86_64") {
        println!("skipped: this CPU has no XSAVEC");
        return;
    }
    let program = format!("{}/xsave", env!("CARGO_TARGET_TMPDIR"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/xsave.c");
    assert!(Command::new("gcc").args(["-O1", "-mxsavec", source, "-o", &program]).status().unwrap().success());
    let out = Command::new(&program).output().unwrap();
    assert!(out.status.success());
    let lines: Vec<Vec<u8>> = String::from_utf8(out.stdout).unwrap().lines().map(bytes).collect();
    let cases: Vec<_> = (1..4).flat_map(|mask| [(mask, false), (mask, true)]).collect();
    assert_eq!(lines.len(), 4 * cases.len());
    for ((mask, initial), told) in cases.into_iter().zip(lines.chunks(4)) {
        let [before, area, other, behind] = told else { unreachable!() };
        let mut cpu = Fake::of(before, mask);
        assert_eq!(cpu.run(SAVE), Ok(LentTo::Us));
        assert_eq!(known(&cpu.memory), known(area), "{mask}");
        let mut cpu = Fake::of(other, mask);
        assert_eq!(cpu.image()[..28], other[..28]);
        cpu.memory.clone_from(area);
        if initial {
            cpu.memory[512..520].fill(0);
        }
        assert_eq!(cpu.run(RESTORE), Ok(LentTo::Us));
        assert_eq!(known(&cpu.image()), known(behind), "{mask} {initial}");
    }
}

#[test]
fn what_a_cpu_refuses_is_a_fault() {
    let image = [0; 512];
    let restored = |change: &dyn Fn(&mut Fake)| {
        let mut cpu = Fake::of(&image, 3);
        assert_eq!(cpu.run(SAVE), Ok(LentTo::Us));
        change(&mut cpu);
        cpu.run(RESTORE)
    };
    assert_eq!(restored(&|_| ()), Ok(LentTo::Us));
    // What the engine has itself.
    assert_eq!(restored(&|cpu| cpu.memory[520..528].fill(0)), Ok(LentTo::Engine));
    for at in 528..576 {
        assert!(restored(&|cpu| cpu.memory[at] = 1).is_err_and(|e| e.contains("16 to 63")), "{at}");
    }
    assert!(restored(&|cpu| cpu.memory[512] = 7).is_err_and(|e| e.contains("XSTATE_BV")));
    assert!(restored(&|cpu| cpu.memory[520] = 7).is_err_and(|e| e.contains("XCOMP_BV")));
    assert!(restored(&|cpu| cpu.memory[26] = 1).is_err_and(|e| e.contains("MXCSR")));
    let aside = |cpu: &mut Fake| cpu.general.insert(RCX.0, AREA + 16);
    assert!(restored(&|cpu| _ = aside(cpu)).is_err_and(|e| e.contains("64 bytes")));
    let mut cpu = Fake::of(&image, 3);
    aside(&mut cpu);
    assert!(cpu.run(SAVE).is_err_and(|e| e.contains("64 bytes")));
    let mut cpu = Fake::of(&image, 3);
    cpu.memory.truncate(512);
    assert!(cpu.run(SAVE).is_err_and(|e| e.contains("#PF")));
}

/// Every form of an operand, and every other instruction of the same two opcodes.
#[test]
fn operands_are_where_iced_says() {
    const NEXT: u64 = 0x1000;
    let general: BTreeMap<u8, u64> =
        (0..16).map(|i| (i, 0x1000_0000_0000 + 0x40 * u64::from(i) * u64::from(i))).collect();
    let value = |register: Register, _: usize, _: usize| match register {
        Register::ES | Register::CS | Register::SS | Register::DS | Register::FS | Register::GS => Some(0),
        register => general.get(&(register.number() as u8)).copied(),
    };
    let (mut found, mut aligned) = (0, 0);
    for (rex, opcode, modrm) in (0x3f..0x50_u8).flat_map(|rex| {
        [0xc7, 0xae].into_iter().flat_map(move |opcode| (0..=255_u8).map(move |modrm| (rex, opcode, modrm)))
    }) {
        for sib in [0x00, 0x40, 0x25, 0x65, 0xa4, 0xcb, 0xff_u8] {
            let mut code = vec![0x0f, opcode, modrm, sib, 0x40, 0x82, 0xfe, 0xff, 0x12, 0x34];
            if rex > 0x3f {
                code.insert(0, rex);
            }
            let decoded = |ip| Decoder::with_ip(64, &code, ip, DecoderOptions::NONE).decode();
            let size = decoded(0).len();
            let insn = decoded(NEXT - size as u64);
            let first = match insn.mnemonic() {
                // What is stored of no state component, and what is read before all else.
                Mnemonic::Xsavec | Mnemonic::Xsavec64 => Some(512),
                Mnemonic::Xrstor | Mnemonic::Xrstor64 => Some(520),
                _ => None,
            };
            assert_eq!((MACHINE.lent.size)(&code), first.map(|_| size), "{code:x?}");
            let Some(first) = first else { continue };
            assert_eq!(insn.op0_kind(), OpKind::Memory);
            let mut cpu = Seen { general: general.clone(), first: None };
            let fault = (MACHINE.lent.run)(&code, NEXT, &mut cpu).unwrap_err();
            let area = insn.virtual_address(0, 0, value).unwrap();
            match area.is_multiple_of(64) {
                true => assert_eq!(cpu.first, Some(area.wrapping_add(first)), "{code:x?}"),
                false => assert!(fault.contains("64 bytes"), "{code:x?}: {fault}"),
            }
            aligned += usize::from(area.is_multiple_of(64));
            found += 1;
        }
    }
    assert!(found > 2000 && aligned > 1000, "{found} {aligned}");
    for size in 0..4 {
        assert_eq!((MACHINE.lent.size)(&SAVE[..size]), None);
    }
}

/// A CPU without memory.
struct Seen {
    general: BTreeMap<u8, u64>,
    /// What was accessed first.
    first: Option<u64>,
}

impl LentCpu for Seen {
    fn general(&self, reg: Reg) -> u64 {
        self.general[&reg.0]
    }

    fn get(&self, _: i32, value: &mut [u8]) {
        value.fill(0);
    }

    fn set(&mut self, _: i32, _: &[u8]) {}

    fn set_general(&mut self, _: Reg, _: u64) {}

    fn clock(&self) -> u64 {
        0
    }

    fn read(&mut self, at: u64, _: &mut [u8]) -> bool {
        self.first.get_or_insert(at);
        false
    }

    fn write(&mut self, at: u64, _: &[u8]) -> bool {
        self.first.get_or_insert(at);
        false
    }
}
