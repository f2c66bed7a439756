//! Instructions that the checker runs in the engine's place: XSAVEC, and XRSTOR of what it stores. The engine has neither.
//! RDTSC, whose time must be the checker's own: the engine asks the machine that it runs on. CLAC and STAC, as a CPU with SMAP has them
//! at privilege level 0: that of the engine has no SMAP.
//! Intel SDM volume 1, 13.4, 13.8 and 13.10; volume 2, CLAC, STAC, XSAVEC and XRSTOR. Of the state components there are x87 and SSE, as
//! the engine has no more.

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;

use crate::regs::{RAX, RDX, VECTORS};

/// The emulation of these instructions.
pub(crate) const LENT: Lent = Lent { size, run, told: |code| code.starts_with(&RDTSC), ..Lent::NONE };

const RDTSC: [u8; 2] = [0x0f, 0x31];
const CLAC: [u8; 3] = [0x0f, 0x01, 0xca];
const STAC: [u8; 3] = [0x0f, 0x01, 0xcb];

/// The engine's number of the flags register (x86.h).
pub(crate) const FLAGS: i32 = 253;
/// AC lets kernel code at user memory: it is set in short sequences only, none of which calls.
pub(crate) const AC: u64 = 1 << 18;

/// The components that XCR0 enables.
const ENABLED: u64 = X87 | SSE;
const X87: u64 = 1;
const SSE: u64 = 2;

/// Where in the area: control words, registers, header; and the bytes of one register's place.
const MXCSR_AT: u64 = 24;
const ST_AT: u64 = 32;
const XMM_AT: u64 = 160;
const HEADER_AT: u64 = 512;
const XCOMP_AT: u64 = HEADER_AT + 8;
const PLACE: u64 = 16;
/// XCOMP_BV says by this that the area is compacted.
const COMPACTED: u64 = 1 << 63;

/// MXCSR as it is initially, and the bits that it has.
const MXCSR_INITIALLY: u32 = 0x1f80;
const MXCSR_BITS: u32 = 0xffff;

/// The engine's numbers (x86.h) of control and status words, of the first x87 register, and of what the last x87 instruction was.
const FPSW: i32 = 31;
const ST0: i32 = 114;
const FPCW: i32 = 246;
const FPTAG: i32 = 247;
const MXCSR: i32 = 249;
const FIP: i32 = 254;
const FDP: i32 = 256;
const FOP: i32 = 258;

/// How many bytes such an instruction has; `None` if the code begins with none.
fn size(code: &[u8]) -> Option<usize> {
    if code.starts_with(&RDTSC) {
        return Some(RDTSC.len());
    }
    if code.starts_with(&CLAC) || code.starts_with(&STAC) {
        return Some(CLAC.len());
    }
    Form::read(code).map(|form| form.size)
}

/// The bytes of its area that XSAVEC or XRSTOR of these components accesses, as [`Area`] does: whether it stores, offsets and sizes.
/// `None` if the code begins with neither.
pub(crate) fn pieces(code: &[u8], asked: u64) -> Option<(bool, Vec<(u64, usize)>)> {
    let Form { saves, wide, .. } = Form::read(code)?;
    let (address, tags, st) =
        (if wide || saves { 8 } else { 4 }, if saves { 2 } else { 1 }, if saves { 16 } else { 10 });
    let mut all = vec![(HEADER_AT, 8), (XCOMP_AT, 8)];
    if !saves {
        all.extend((XCOMP_AT + 8..HEADER_AT + 64).step_by(8).map(|at| (at, 8)));
    }
    if asked & X87 != 0 {
        all.extend([(4, tags), (0, 2), (2, 2), (6, 2), (8, address), (16, address)]);
        all.extend(places(ST_AT).take(8).map(|at| (at, st)));
    }
    if asked & SSE != 0 {
        all.push((MXCSR_AT, 4));
        all.extend(saves.then_some((MXCSR_AT + 4, 4)));
        all.extend(places(XMM_AT).take(VECTORS.len()).map(|at| (at, PLACE as usize)));
    }
    Some((saves, all))
}

/// Run it.
///
/// # Errors
/// The fault that a CPU would raise.
fn run(code: &[u8], next: u64, cpu: &mut dyn LentCpu) -> Result<LentTo, &'static str> {
    if code.starts_with(&RDTSC) {
        let now = cpu.clock();
        cpu.set_general(RAX, now & 0xffff_ffff);
        cpu.set_general(RDX, now >> 32);
        return Ok(LentTo::Us);
    }
    if code.starts_with(&CLAC) || code.starts_with(&STAC) {
        let mut flags = [0; 8];
        cpu.get(FLAGS, &mut flags);
        let others = u64::from_le_bytes(flags) & !AC;
        cpu.set(FLAGS, &(others | if code.starts_with(&STAC) { AC } else { 0 }).to_le_bytes());
        return Ok(LentTo::Us);
    }
    let Some(form) = Form::read(code) else { return Ok(LentTo::Engine) };
    let area = Area { at: form.address(cpu, next), wide: form.wide };
    // EDX:EAX.
    let (low, high) = (cpu.general(RAX) & 0xffff_ffff, cpu.general(RDX) << 32);
    let asked = (low | high) & ENABLED;
    match form.saves {
        true => area.save(cpu, asked).map(|()| LentTo::Us),
        false => area.restore(cpu, asked),
    }
}

/// An instruction: which, and where its operand is.
struct Form {
    saves: bool,
    /// REX.W: addresses of x87 instructions and data have 64 bits.
    wide: bool,
    base: Option<Reg>,
    /// The register that is added, and how far it is shifted.
    index: Option<(Reg, u8)>,
    /// The displacement is from the next instruction.
    relative: bool,
    displacement: i32,
    size: usize,
}

impl Form {
    /// 0F C7 /4 and 0F AE /5 with an operand in memory, and with no prefix but REX.
    fn read(code: &[u8]) -> Option<Form> {
        let (rex, rest) = match code {
            [rex @ 0x40..=0x4f, rest @ ..] => (*rex, rest),
            rest => (0, rest),
        };
        let [0x0f, opcode, modrm, tail @ ..] = rest else { return None };
        let mut tail = tail;
        let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
        let saves = match (opcode, reg) {
            (0xc7, 4) => true,
            (0xae, 5) => false,
            _ => return None,
        };
        let register = |low: u8, bit: u8| Reg(low | (rex >> bit & 1) << 3);
        let (mut base, mut index) = (Some(register(rm, 0)), None);
        if rm == 4 {
            let [sib, rest @ ..] = tail else { return None };
            tail = rest;
            base = Some(register(sib & 7, 0)).filter(|_| (sib & 7, mode) != (5, 0));
            // SP is no index.
            index = Some((register(sib >> 3 & 7, 1), sib >> 6)).filter(|(reg, _)| reg.0 != 4);
        }
        let relative = (rm, mode) == (5, 0);
        if relative {
            base = None;
        }
        let (displacement, tail) = match mode {
            1 => tail.split_first_chunk().map(|(byte, rest)| (i32::from(i8::from_le_bytes(*byte)), rest))?,
            0 if base.is_some() => (0, tail),
            0 | 2 => tail.split_first_chunk().map(|(word, rest)| (i32::from_le_bytes(*word), rest))?,
            _ => return None,
        };
        let size = code.len() - tail.len();
        Some(Form { saves, wide: rex & 8 != 0, base, index, relative, displacement, size })
    }

    fn address(&self, cpu: &dyn LentCpu, next: u64) -> u64 {
        let base = self.base.map_or(0, |reg| cpu.general(reg));
        let index = self.index.map_or(0, |(reg, shift)| cpu.general(reg) << shift);
        let next = if self.relative { next } else { 0 };
        base.wrapping_add(index).wrapping_add(next).wrapping_add_signed(self.displacement.into())
    }
}

/// An XSAVE area.
struct Area {
    at: u64,
    wide: bool,
}

const UNALIGNED: &str = "#GP: the XSAVE area is not aligned to 64 bytes";
const UNMAPPED: &str = "#PF: there is no memory for the XSAVE area";

impl Area {
    fn save(&self, cpu: &mut dyn LentCpu, asked: u64) -> Result<(), &'static str> {
        if !self.at.is_multiple_of(64) {
            return Err(UNALIGNED);
        }
        // XINUSE may be 1 for what is in its initial state: everything asked for is stored.
        if asked & X87 != 0 {
            self.save_x87(cpu)?;
        }
        if asked & SSE != 0 {
            let mut mxcsr = [0; 4];
            cpu.get(MXCSR, &mut mxcsr);
            self.write(cpu, MXCSR_AT, &mxcsr)?;
            self.write(cpu, MXCSR_AT + 4, &MXCSR_BITS.to_le_bytes())?;
            for (at, xmm) in places(XMM_AT).zip(VECTORS) {
                let mut value = [0; 16];
                cpu.get(xmm.id, &mut value);
                self.write(cpu, at, &value)?;
            }
        }
        // No other word of the header is written.
        self.write(cpu, HEADER_AT, &asked.to_le_bytes())?;
        self.write(cpu, XCOMP_AT, &(asked | COMPACTED).to_le_bytes())
    }

    fn restore(&self, cpu: &mut dyn LentCpu, asked: u64) -> Result<LentTo, &'static str> {
        if !self.at.is_multiple_of(64) {
            return Err(UNALIGNED);
        }
        let compacted = self.word(cpu, XCOMP_AT)?;
        if compacted & COMPACTED == 0 {
            return Ok(LentTo::Engine);
        }
        let stored = self.word(cpu, HEADER_AT)?;
        if compacted & !COMPACTED & !ENABLED != 0 {
            return Err("#GP: XCOMP_BV has a state component that XCR0 has not");
        }
        if stored & !compacted != 0 {
            return Err("#GP: XSTATE_BV has a state component that XCOMP_BV has not");
        }
        for at in (XCOMP_AT + 8..HEADER_AT + 64).step_by(8) {
            if self.word(cpu, at)? != 0 {
                return Err("#GP: bytes 16 to 63 of the XSAVE header are not all 0");
            }
        }
        let load = asked & stored;
        if asked & X87 != 0 {
            self.restore_x87(cpu, load & X87 != 0)?;
        }
        if asked & SSE != 0 {
            let mut mxcsr = MXCSR_INITIALLY.to_le_bytes();
            if load & SSE != 0 {
                self.read(cpu, MXCSR_AT, &mut mxcsr)?;
            }
            if u32::from_le_bytes(mxcsr) & !MXCSR_BITS != 0 {
                return Err("#GP: a reserved bit of MXCSR is set");
            }
            cpu.set(MXCSR, &mxcsr);
            for (at, xmm) in places(XMM_AT).zip(VECTORS) {
                let mut value = [0; 16];
                if load & SSE != 0 {
                    self.read(cpu, at, &mut value)?;
                }
                cpu.set(xmm.id, &value);
            }
        }
        Ok(LentTo::Us)
    }

    fn save_x87(&self, cpu: &mut dyn LentCpu) -> Result<(), &'static str> {
        let mut tags = [0; 2];
        cpu.get(FPTAG, &mut tags);
        let tags = u16::from_le_bytes(tags);
        // One bit for each register that is not empty.
        let tags = (0..8).filter(|i| tags >> (2 * i) & 3 != 3).fold(0_u8, |all, i| all | 1 << i);
        self.write(cpu, 4, &[tags, 0])?;
        for (at, id, bytes) in self.words() {
            let mut value = [0; 8];
            cpu.get(id, &mut value[..bytes]);
            let room = if bytes == 2 { 2 } else { 8 };
            self.write(cpu, at, &value[..room])?;
        }
        for (at, id) in places(ST_AT).zip(ST0..ST0 + 8) {
            let mut value = [0; PLACE as usize];
            cpu.get(id, &mut value[..10]);
            self.write(cpu, at, &value)?;
        }
        Ok(())
    }

    /// `load` it, or set it to what it is initially.
    fn restore_x87(&self, cpu: &mut dyn LentCpu, load: bool) -> Result<(), &'static str> {
        let mut tags = [0];
        if load {
            self.read(cpu, 4, &mut tags)?;
        }
        let tags = (0..8).filter(|i| tags[0] >> i & 1 == 0).fold(0_u16, |all, i| all | 3 << (2 * i));
        for (at, id, bytes) in self.words() {
            let mut value = [0; 8];
            if load {
                self.read(cpu, at, &mut value[..bytes])?;
            } else if id == FPCW {
                value[..2].copy_from_slice(&0x037f_u16.to_le_bytes());
            }
            // What a 32-bit address leaves out is 0.
            let whole = if bytes == 2 { 2 } else { 8 };
            cpu.set(id, &value[..whole]);
        }
        for (at, id) in places(ST_AT).zip(ST0..ST0 + 8) {
            let mut value = [0; 10];
            if load {
                self.read(cpu, at, &mut value)?;
            }
            cpu.set(id, &value);
        }
        cpu.set(FPTAG, &tags.to_le_bytes());
        Ok(())
    }

    /// Words of the x87: where they are, their registers, and their bytes. Selectors are 0, as on CPUs of today. The status word
    /// comes before the registers, of which it says which one is the top.
    fn words(&self) -> [(u64, i32, usize); 5] {
        let address = if self.wide { 8 } else { 4 };
        [(0, FPCW, 2), (2, FPSW, 2), (6, FOP, 2), (8, FIP, address), (16, FDP, address)]
    }

    fn word(&self, cpu: &mut dyn LentCpu, at: u64) -> Result<u64, &'static str> {
        let mut word = [0; 8];
        self.read(cpu, at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read(&self, cpu: &mut dyn LentCpu, at: u64, bytes: &mut [u8]) -> Result<(), &'static str> {
        if cpu.read(self.at.wrapping_add(at), bytes) { Ok(()) } else { Err(UNMAPPED) }
    }

    fn write(&self, cpu: &mut dyn LentCpu, at: u64, bytes: &[u8]) -> Result<(), &'static str> {
        if cpu.write(self.at.wrapping_add(at), bytes) { Ok(()) } else { Err(UNMAPPED) }
    }
}

/// The places of registers, from the first on.
fn places(first: u64) -> impl Iterator<Item = u64> {
    (first..).step_by(PLACE as usize)
}
