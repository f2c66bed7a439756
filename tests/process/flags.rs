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
    /// Of a program at any address, whose text is never written by the loader; without one it is static.
    pub linker: Option<&'static str>,
}

impl Flags {
    /// Batches have the linkers in turns.
    pub fn random(isa: Isa, batch: u64, chance: &mut Chance) -> Flags {
        // gold knows no RISC-V, and lld 14 not the relaxations of its libc.
        let linkers = if isa == Isa::Riscv { &["bfd", "mold"][..] } else { &["bfd", "gold", "lld", "mold"] };
        let linker =
            linkers.iter().cycle().nth(batch as usize - usize::from(batch > 0)).filter(|_| !batch.is_multiple_of(5));
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
                // In a program at any address, the call at the site would be longer than a jump.
                match if linker.is_some() { 3 } else { chance.below(3) } {
                    0 => options.extend(["-pg", "-mfentry"].map(String::from)),
                    1 if !clang => options.extend(["-pg", "-mfentry", "-mnop-mcount"].map(String::from)),
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
        options.push(if linker.is_some() { "-fPIE" } else { "-fno-pie" }.to_owned());
        Flags { clang, options, pad, literal, behind, linker: linker.copied() }
    }

    /// How gcc links a batch of them.
    pub fn linking(&self) -> Vec<String> {
        let Some(linker) = self.linker else {
            return ["-static", "-no-pie", "-Wl,--no-warn-rwx-segments"].map(String::from).into();
        };
        // Where those are found that have another name.
        ["-pie", "-B.", &format!("-fuse-ld={linker}"), "-Wl,-z,now,-z,text"].map(String::from).into()
    }

    /// The same of a probe: its site is as the tests write it.
    pub fn probe_behind(&self, isa: Isa) -> usize {
        (if isa == Isa::X86 { 5 } else { 8 }) + 4 * usize::from(self.pad)
    }
}
