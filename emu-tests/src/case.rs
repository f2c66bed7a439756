//! One run of one function: with which handler, in which situation, from which registers; and what it leaves behind.

use codegen::abi::{Abi, Reg, RegSet};
use codegen::contract::Contract;
use codegen::frame::{Back, Content};
use codegen::spec::{Attach, Form, Kind};

use crate::cpu::Snapshot;

/// The class of handler.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Handler {
    /// Overwrites general registers only, as kernel C does.
    #[default]
    General,
    /// Overwrites vector registers too.
    Any,
}

/// What the callback does besides overwriting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Situation {
    pub args: bool,
    pub ip: bool,
    pub direct: bool,
    pub early: bool,
    pub parent: bool,
    /// The return is hooked as for a kretprobe.
    pub rethook: bool,
    pub results: bool,
    /// A program decides the result in the function's place.
    pub skip: bool,
    /// The last that may does so.
    pub skip_last: bool,
    /// Behind the traced function stands a jump past the programs that come after it.
    pub retired: bool,
    /// No callback is attached: the slot calls this stub.
    pub stub: Option<Kind>,
}

impl Situation {
    /// The traced function does not run.
    pub(crate) fn skips(self) -> bool {
        self.skip || self.skip_last
    }

    pub(crate) fn name(self) -> String {
        let parts = [
            (self.args, "args"),
            (self.ip, "ip"),
            (self.direct, "direct"),
            (self.early, "early-direct"),
            (self.parent && !self.rethook, "parent"),
            (self.rethook, "rethook"),
            (self.results, "results"),
            (self.skip, "skip"),
            (self.skip_last, "skip-last"),
            (self.retired, "retired"),
            (self.stub == Some(Kind::Stub), "stub"),
            (self.stub == Some(Kind::StubGraph), "stub-graph"),
        ];
        let on: Vec<&str> = parts.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        if on.is_empty() { "plain".to_owned() } else { on.join("+") }
    }

    /// The situations that this kind of trampoline can be in.
    pub(crate) fn all(contract: &Contract) -> Vec<Situation> {
        let plain = Situation::default();
        if let Kind::Around(around) = contract.kind {
            let changed = [plain, Situation { args: true, ..plain }, Situation { results: true, ..plain }];
            return if around.form == Form::Frame { vec![plain] } else { changed.to_vec() };
        }
        if let Kind::Programs(programs) = contract.kind {
            let attached = |attach| contract.programs.iter().filter(|p| p.attach == attach).count();
            let before = attached(Attach::Fentry) + attached(Attach::FmodRet) > 0;
            let after = attached(Attach::Fexit) > 0 && programs.result.regs != RegSet::EMPTY;
            let can = [
                (true, plain),
                (before, Situation { args: true, ..plain }),
                (attached(Attach::FmodRet) > 0, Situation { skip: true, ..plain }),
                (attached(Attach::FmodRet) > 1, Situation { skip_last: true, ..plain }),
                (programs.call_orig, Situation { retired: true, ..plain }),
                (after, Situation { results: true, ..plain }),
            ];
            return can.into_iter().filter(|(can, _)| *can).map(|(_, situation)| situation).collect();
        }
        let Kind::Entry(_) = contract.kind else { return vec![plain] };
        let stores = |content| contract.frame.fields.iter().any(|f| (f.content, f.back) == (content, Back::Written));
        // Without a link register, the return address lies where callbacks find it without the frame's help.
        let hooks = stores(Content::ParentIp) || contract.facts.abi.link.is_none();
        let can =
            |s: &Situation| (!s.ip || stores(Content::Pc)) && (!s.direct || contract.direct) && (!s.parent || hooks);
        let mut all = Vec::new();
        for bits in 0..16 {
            all.push(Situation {
                args: bits & 1 != 0,
                ip: bits & 2 != 0,
                direct: bits & 4 != 0,
                parent: bits & 8 != 0,
                ..plain
            });
        }
        for (rethook, results) in [(false, true), (true, false), (true, true)] {
            all.push(Situation { parent: true, rethook, results, ..plain });
        }
        all.extend([Kind::Stub, Kind::StubGraph].map(|k| Situation { stub: Some(k), ..plain }));
        if contract.early_direct {
            all.push(Situation { early: true, ..plain });
        }
        all.retain(can);
        all
    }
}

/// One run of one function.
#[derive(Clone, Default, Debug)]
pub(crate) struct Case {
    /// The trampoline at the site.
    pub attach: usize,
    pub function: usize,
    pub situation: Situation,
    pub handler: Handler,
    pub seed: u64,
    pub sret: bool,
    /// Before every instruction of a trampoline, compare the unwind table with the CPU, and let an interrupt happen.
    pub closely: bool,
    /// What the callback writes to registers, by register.
    pub new_registers: [u64; 32],
    /// What the exit handler writes to registers.
    pub new_results: Vec<(Reg, u64)>,
    /// Registers and stack at the function's entry.
    pub initial: Initial,
}

/// Registers, SP, and the stack from there up, when a function is called.
#[derive(Clone, Default, Debug)]
pub(crate) struct Initial {
    pub registers: Snapshot,
    pub(crate) sp: u64,
    pub(crate) above: Vec<u8>,
}

impl Case {
    /// The callback does nothing besides overwriting.
    pub fn is_plain(&self) -> bool {
        self.situation == Situation::default()
    }

    /// The registers that the callback rewrites, with their new values: all to which the contract lets it.
    pub fn rewritten<'c>(&'c self, contract: &'c Contract, abi: &'c Abi) -> impl Iterator<Item = (Reg, u64)> + 'c {
        contract.frame.fields.iter().filter_map(move |f| match (f.content, f.back) {
            (Content::Reg(r), Back::Written) if !(f.in_record || self.sret && r == abi.sret) => {
                Some((r, self.new_registers[r.0 as usize]))
            }
            _ => None,
        })
    }
}

/// What a run leaves behind.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outcome {
    pub(crate) registers: Snapshot,
    pub(crate) above: Vec<u8>,
    pub(crate) result: Vec<u8>,
}
