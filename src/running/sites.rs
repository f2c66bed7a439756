//! The sites of a running kernel: what each does, told by its bytes in the kernel's memory, as the profile says that a kernel writes
//! them.

use std::collections::BTreeMap;

use codegen::arch::patch::{SiteState, Write};
use codegen::arch::site::{Site, Spot, What};
use codegen::backend::Backend;
use codegen::words::error::Result;
use emu_tests::{copied_calls, disassemble};
use serde::Serialize;

use super::kernel::{FTRACE, Kernel};
use super::symbols::Symbol;

/// Bytes before a site: landing pads of functions (x86-64 ENDBR64, arm64 BTI and PACIASP, RISC-V LPAD).
const PADS: [u64; 2] = [0, 4];

/// Bytes of a site.
const LONGEST: u64 = 16;

/// What a site does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// Nothing.
    Off,
    /// It goes to a trampoline.
    On {
        /// The trampoline's name, and its address where others have the name too.
        target: String,
        /// It jumps there, and does not call.
        jump: bool,
        /// What a copy of an entry trampoline calls.
        #[serde(skip_serializing_if = "Option::is_none")]
        calls: Option<String>,
    },
    /// A breakpoint stands there while it is written.
    BeingWritten,
    /// It goes to code of another module, which is no trampoline that the kernel names.
    Elsewhere {
        /// Where.
        target: String,
    },
}

/// A site.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RunningSite {
    /// The function.
    pub function: String,
    /// The address that the tracer records.
    pub ip: u64,
    /// What it does.
    #[serde(flatten)]
    pub state: State,
}

/// What tells sites.
struct Reader<'k> {
    kernel: &'k Kernel,
    backend: &'static dyn Backend,
    site: &'static Site,
    entry: Option<u64>,
    /// The trampolines by address.
    trampolines: BTreeMap<u64, Trampoline>,
}

/// A trampoline.
struct Trampoline {
    /// Its name, with its address if several have it.
    name: String,
    /// What a copy of an entry trampoline calls.
    calls: Option<String>,
}

/// All sites of a kernel whose memory is given.
///
/// # Errors
/// No profile is for this kernel, or it is of an unknown architecture.
pub fn sites(kernel: &Kernel, backends: &[&'static dyn Backend]) -> Result<Vec<RunningSite>> {
    let backend = kernel.backend(backends)?;
    let convention = kernel.profile()?.convention(backend.facts().name)?;
    let entries: Vec<&str> = convention.specs().map(|spec| spec.name).collect();
    let is_one = |symbol: &&Symbol| {
        entries.contains(&symbol.name.as_str()) || symbol.name == FTRACE || symbol.name.starts_with("bpf_trampoline_")
    };
    let reader = Reader {
        kernel,
        backend,
        site: &convention.site,
        entry: convention.site.entry.and_then(|name| kernel.symbols.one(name).ok()).map(|symbol| symbol.address),
        trampolines: kernel
            .symbols
            .all()
            .filter(is_one)
            .map(|one| (one.address, trampoline(kernel, backend, one)))
            .collect(),
    };
    let mut all = Vec::new();
    for symbol in kernel.symbols.all().filter(|symbol| !reader.trampolines.contains_key(&symbol.address)) {
        all.extend(reader.of(symbol)?);
    }
    all.dedup_by_key(|site| site.ip);
    Ok(all)
}

impl Reader<'_> {
    /// The site of a function, if it has one and its memory is given.
    fn of(&self, symbol: &Symbol) -> Result<Option<RunningSite>> {
        let Ok(code) = self.kernel.memory.read(symbol.address, PADS[1] + LONGEST) else { return Ok(None) };
        // The tracer records the address behind what it writes first.
        let protocol = &self.site.protocol;
        let all = [&protocol.initial, &protocol.disabled, &protocol.call].into_iter().flatten();
        let before = all.filter(|w| !matches!(w.what, What::Op | What::NopOp(_))).map(|w| w.at).min().unwrap_or(0);
        // A kprobe may have its breakpoint in the place of an instruction of the site: of one before that address.
        for may_be_probed in [false, true].into_iter().take(if before < 0 { 2 } else { 1 }) {
            for pad in PADS {
                let Some(bytes) = code.get(pad as usize..) else { continue };
                let from = if may_be_probed { self.breakpoint(bytes)? } else { 0 };
                if may_be_probed && from == 0 {
                    continue;
                }
                let ip = symbol.address.wrapping_add(pad).wrapping_add_signed(-before);
                let found = Bytes { at: symbol.address.wrapping_add(pad), bytes, from };
                if let Some(state) = self.state(ip, &found)? {
                    return Ok(Some(RunningSite { function: symbol.name.clone(), ip, state }));
                }
            }
        }
        Ok(None)
    }

    /// The size of the breakpoint that code begins with, whatever its number is; 0 if it begins with another instruction.
    fn breakpoint(&self, code: &[u8]) -> Result<u64> {
        let machine = self.backend.machine();
        let first = |code: &[u8]| disassemble(machine, code, 0).map(|lines| lines.into_iter().next());
        let (Some(found), Some(trap)) = (first(code)?, first(machine.trap)?) else { return Ok(0) };
        let mnemonic = |text: &str| text.split_whitespace().next().map(str::to_owned);
        Ok(if mnemonic(&found.text) == mnemonic(&trap.text) { found.size as u64 } else { 0 })
    }

    /// What the site at `ip` does, if these bytes are one.
    fn state(&self, ip: u64, found: &Bytes) -> Result<Option<State>> {
        let on = |target, jump| self.written(ip, SiteState::Enabled { target, op: Some(0), jump });
        let off = self.written(ip, SiteState::Disabled);
        if off.as_ref().is_some_and(|writes| found.has(writes, found.from)) {
            return Ok(Some(State::Off));
        }
        let all = || self.trampolines.iter().flat_map(|(to, one)| [(*to, one, false), (*to, one, true)]);
        let found_on = all().find(|(to, _, jump)| on(*to, *jump).is_some_and(|writes| found.has(&writes, found.from)));
        if let Some((_, Trampoline { name, calls }, jump)) = found_on {
            return Ok(Some(State::On { target: name.clone(), jump, calls: calls.clone() }));
        }
        // Behind the breakpoint stands what was there before, or what will be.
        let traps = |breakpoint: &Vec<u8>| {
            let states = || off.clone().into_iter().chain(all().filter_map(|(to, _, jump)| on(to, jump)));
            let rest = breakpoint.len() as u64;
            found.bytes.starts_with(breakpoint) && states().any(|writes| found.has(&writes, rest))
        };
        if self.site.protocol.breakpoint.as_ref().is_some_and(traps) {
            return Ok(Some(State::BeingWritten));
        }
        let lines = disassemble(self.backend.machine(), found.bytes, 0)?;
        for target in lines.iter().take(2).filter_map(|line| line.target) {
            let target = found.at.wrapping_add(target as u64);
            let goes = |jump| on(target, jump).is_some_and(|writes| found.has(&writes, found.from));
            if !self.is_own(found.at, target) && [false, true].into_iter().any(goes) {
                let name = self.kernel.symbols.at(target).map_or_else(|| format!("{target:#x}"), |s| s.name.clone());
                return Ok(Some(State::Elsewhere { target: name }));
            }
        }
        Ok(None)
    }

    /// Is this a call that a compiler or an assembler put there? Functions without a site may begin with a call, as cold parts and
    /// thunks do: of one of their own module, or of the kernel's.
    fn is_own(&self, at: u64, target: u64) -> bool {
        let module = |address| self.kernel.symbols.before(address).map_or("", |symbol| symbol.module.as_str());
        module(target).is_empty() || module(target) == module(at)
    }

    /// What stands at a site in a state; none if it cannot be in it. What is too far away for the site itself, it reaches through the
    /// entry trampoline, and is on with that.
    fn written(&self, ip: u64, state: SiteState) -> Option<Vec<Write>> {
        let spot = Spot { ip, has_op: false, toward: self.entry, nop_op: None };
        match state {
            SiteState::Enabled { target, .. } if self.site.goes_to(self.backend, spot, target) != target => {
                return None;
            }
            _ => {}
        }
        self.site.patch(self.backend, spot, state).ok()
    }
}

/// What is told of a trampoline.
fn trampoline(kernel: &Kernel, backend: &dyn Backend, symbol: &Symbol) -> Trampoline {
    let name = match kernel.symbols.one(&symbol.name) {
        Ok(_) => symbol.name.clone(),
        Err(_) => format!("{}@{:#x}", symbol.name, symbol.address),
    };
    let code = (symbol.name == FTRACE).then(|| kernel.code(symbol).ok()).flatten();
    let calls = code.and_then(|code| copied_calls(backend, (&code, symbol.address)).ok());
    let named = |to| kernel.symbols.at(to).map_or_else(|| format!("{to:#x}"), |symbol| symbol.name.clone());
    Trampoline { name, calls: calls.map(|calls| named(calls.call.1)) }
}

/// Memory.
struct Bytes<'m> {
    at: u64,
    bytes: &'m [u8],
    /// How many of them something else took the place of.
    from: u64,
}

impl Bytes<'_> {
    /// Does what these writes leave stand there, from so many bytes on? Of two writes to a place, the last one counts.
    fn has(&self, writes: &[Write], from: u64) -> bool {
        let mut left: BTreeMap<u64, u8> = BTreeMap::new();
        for Write { at, bytes } in writes {
            left.extend(bytes.iter().enumerate().map(|(n, byte)| (at.wrapping_add(n as u64), *byte)));
        }
        left.retain(|at, _| at.wrapping_sub(self.at) >= from);
        let there = |(at, byte): (&u64, &u8)| {
            let offset = usize::try_from(at.wrapping_sub(self.at)).ok();
            offset.and_then(|offset| self.bytes.get(offset)) == Some(byte)
        };
        !left.is_empty() && left.iter().all(there)
    }
}
