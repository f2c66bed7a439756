//! A foreign decoder: instruction boundaries for coverage, lines for a failure's context.

use capstone::{Arch, Capstone, Endian, ExtraMode, Mode};
use codegen::error::{Error, Result};
use codegen::machine::{Branch, Machine};
use link::object_mutants::Line;

/// The instructions of a function, by their offsets in it.
///
/// # Errors
/// A disassembler that does not start.
pub fn disassemble(machine: &Machine, code: &[u8], offset: usize) -> Result<Vec<Line>> {
    let line =
        |d: Decoded| Line { offset: d.at as usize, size: d.size.into(), nop: d.text.starts_with("nop"), text: d.text };
    Ok(decode(machine, code, offset as u64)?.into_iter().map(line).collect())
}

/// One decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub at: u64,
    /// Bytes.
    pub size: u8,
    pub text: String,
    pub branch: Option<Branch>,
    /// It stops speculation, or fills the space behind the last instruction: never executed.
    pub filler: bool,
}

impl Decoded {
    /// The address at the end of its text: where it goes to, if it goes anywhere.
    pub fn target(&self) -> Option<u64> {
        // Capstone writes numbers below ten without 0x.
        let number = self.text.rsplit([' ', ',', '#']).next()?;
        match number.rsplit_once("0x") {
            Some((_, digits)) => u64::from_str_radix(digits, 16).ok(),
            None => number.parse().ok(),
        }
    }
}

/// Decode `code` at `base`; a byte that is no instruction ends it.
pub(crate) fn decode(machine: &Machine, code: &[u8], base: u64) -> Result<Vec<Decoded>> {
    let failed = |what: &str| Error::new(format!("disassembler: {what}"));
    let (arch, mode, extra) = machine.disassembler;
    let arch: Arch = arch.parse().map_err(failed)?;
    let mode: Mode = mode.parse().map_err(failed)?;
    let extra: Vec<ExtraMode> =
        extra.iter().map(|e| e.parse()).collect::<std::result::Result<_, _>>().map_err(failed)?;
    let capstone =
        Capstone::new_raw(arch, mode, extra.into_iter(), Some(Endian::Little)).map_err(|e| failed(&e.to_string()))?;
    let insns = capstone.disasm_all(code, base).map_err(|e| failed(&e.to_string()))?;
    let behind = insns.iter().rposition(|i| i.mnemonic() != Some("nop")).map_or(0, |last| last + 1);
    Ok(insns
        .iter()
        .enumerate()
        .map(|(n, i)| Decoded {
            at: i.address(),
            size: i.len() as u8,
            branch: (machine.branch)(i.mnemonic().unwrap_or(""), i.op_str().unwrap_or("")),
            text: format!("{:<7} {}", i.mnemonic().unwrap_or("?"), i.op_str().unwrap_or("")).trim_end().to_owned(),
            filler: n >= behind || i.bytes() == machine.trap,
        })
        .collect())
}
