//! How compilers are asked for functions with sites.

use crate::chance::Chance;
use crate::place::Isa;

/// How the functions of a batch are compiled.
pub struct Flags {
    pub clang: bool,
    pub options: Vec<String>,
    /// Whether the function begins with a landing pad.
    pub pad: bool,
    /// Whether a literal fits before it.
    pub literal: bool,
    /// Bytes to behind the site.
    pub behind: usize,
}

impl Flags {
    pub fn random(isa: Isa, chance: &mut Chance) -> Flags {
        let clang = chance.once_in(2);
        let mut options = vec![chance.pick(&["-O0", "-O1", "-O2", "-O3", "-Os"]).to_owned()];
        let frame_pointer = chance.pick(&["-fno-omit-frame-pointer", "-fomit-frame-pointer"]);
        let before = chance.pick(&[0, 0, 2, 3, 11, 16]);
        let (mut pad, mut literal) = (false, false);
        // More NOPs than the site takes stay behind it, if each is an instruction of its own.
        let spare = if clang && isa == Isa::X86 { 0 } else { chance.pick(&[0, 0, 1, 3]) };
        let mut patchable = |site: usize, before: usize| {
            options.push(format!("-fpatchable-function-entry={},{before}", site + before + spare));
        };
        let behind = match isa {
            Isa::X86 => {
                match chance.below(4) {
                    0 => options.extend(["-pg", "-mfentry", "-fno-pie"].map(String::from)),
                    1 if !clang => options.extend(["-pg", "-mfentry", "-mnop-mcount", "-fno-pie"].map(String::from)),
                    _ => patchable(5, before),
                }
                pad = chance.once_in(2);
                options.push(format!("-fcf-protection={}", if pad { "branch" } else { "none" }));
                5 + 4 * usize::from(pad)
            }
            Isa::Arm => {
                let protection = chance.pick(&["none", "standard", "bti", "pac-ret"]);
                pad = matches!(protection, "standard" | "bti");
                literal = chance.once_in(2);
                patchable(2, if literal { 2 } else { before.min(3) });
                options.push(format!("-mbranch-protection={protection}"));
                8 + 4 * usize::from(pad)
            }
            Isa::Riscv => {
                let compressed = chance.once_in(2);
                patchable(if compressed { 4 } else { 2 }, before);
                options.push(format!("-march=rv64g{}", if compressed { "c" } else { "" }));
                options.push("-mabi=lp64d".to_owned());
                8
            }
        };
        // With -pg, gcc does not leave it out.
        if !options.contains(&"-pg".to_owned()) {
            options.push(frame_pointer.to_owned());
        }
        Flags { clang, options, pad, literal, behind }
    }

    /// The same of a probe: its site is as the tests write it.
    pub fn probe_behind(&self, isa: Isa) -> usize {
        (if isa == Isa::X86 { 5 } else { 8 }) + 4 * usize::from(self.pad)
    }
}
