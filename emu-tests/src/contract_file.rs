//! Contracts in files: what may stand in them, and the [`Contract`] that it means. `docs/contracts.md` describes the format.

use std::collections::BTreeMap;

use codegen::abi::RegSet;
use codegen::contract::{Contract, promised};
use codegen::error::{Error, Result};
use codegen::facts::Facts;
use codegen::frame::{self, Content, Field, FrameLayout, Record};
use codegen::intern::intern;
use codegen::profile::Convention;
use codegen::spec::{Direct, Kind, Regs};
use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;
use toml::Spanned;

use crate::report::Clause;

/// What trampolines that others wrote promise. See docs/contracts.md.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "tramptool contract")]
pub(crate) struct FileIn {
    /// The architecture by its name in `tramptool list`.
    #[schemars(with = "String")]
    pub(crate) arch: Spanned<String>,
    /// What this is the contract of, in a sentence.
    #[serde(rename = "about")]
    _about: String,
    /// Where the trampolines find what they need in `struct ftrace_ops`.
    #[serde(default)]
    pub(crate) ftrace_ops: OpsIn,
    /// Layouts of what callbacks are given a pointer to, by name.
    #[serde(default)]
    pub(crate) frame: BTreeMap<String, FrameIn>,
    /// The trampolines, in the order of the report.
    pub(crate) trampoline: Vec<TrampolineIn>,
}

/// Bytes of the largest frame. The checker reads all of it whenever a callback is called.
const LARGEST: i32 = 4096;

/// Offsets of members of `struct ftrace_ops`, in bytes.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OpsIn {
    /// `ops->func`.
    pub(crate) func: u64,
    /// `ops->direct_call`.
    pub(crate) direct_call: u64,
}

/// A structure on the stack.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FrameIn {
    /// The C name.
    pub(crate) r#struct: String,
    /// `sizeof`, in bytes.
    #[schemars(with = "i32")]
    pub(crate) size: Spanned<i32>,
    /// The fields that a callback may rely on.
    pub(crate) field: Vec<FieldIn>,
}

/// Eight bytes of the structure.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FieldIn {
    /// The C name.
    pub(crate) member: String,
    /// `offsetof`, in bytes: a multiple of 8.
    #[schemars(with = "i32")]
    pub(crate) offset: Spanned<i32>,
    /// A register, `pc` (the ip that ftrace reports), `parent-ip`, `site-sp` (SP before the site was executed), `exit-sp`
    /// (SP when the function has returned), `flags`, `direct` (where to go on, 0 for the function), a number as `0x...`, or
    /// `nothing` (a word that must not be relied on).
    #[schemars(with = "String")]
    pub(crate) holds: Spanned<String>,
    /// What becomes of a store by the callback.
    #[serde(default)]
    pub(crate) stores: Stores,
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stores {
    /// The register, the next hop or the return address is what was stored.
    TakeEffect,
    /// It is lost.
    #[default]
    AreIgnored,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TrampolineIn {
    /// The file that has it, where several files define the same symbol: each such file is judged by itself.
    #[serde(default)]
    pub(crate) object: Option<String>,
    /// Where it begins.
    pub(crate) symbol: String,
    /// How it is entered and left.
    pub(crate) kind: KindIn,
    /// `direct`: how many argument registers the traced function has.
    #[serde(default)]
    #[schemars(with = "Option<u8>")]
    pub(crate) args: Option<Spanned<u8>>,
    /// `direct`: the called function is given the address of the traced one, before the arguments.
    #[serde(default)]
    pub(crate) ip: bool,
    /// A call instruction that the kernel patches when tracing is switched on: the symbol of its address.
    #[serde(default)]
    pub(crate) slot: Option<String>,
    /// The C function that it calls.
    #[serde(default)]
    pub(crate) calls: String,
    /// The variable in which it finds that function's address: it is put there before anything runs.
    #[serde(default)]
    pub(crate) calls_through: Option<String>,
    /// What the callback is given a pointer to: a name under `frame`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) frame: Option<Spanned<String>>,
    /// Which registers survive.
    #[serde(default)]
    pub(crate) promises: Promise,
    /// Registers that survive besides: each by its name, or those that matter to `static-chain`, `varargs`, `sret` or
    /// `fastcc`, where the architecture has them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) keeps: Vec<Spanned<String>>,
    /// Registers that do not, all the same.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) loses: Vec<Spanned<String>>,
    /// The flags survive.
    #[serde(default)]
    pub(crate) keeps_flags: bool,
    /// A direct trampoline that is named by the site is entered before any callback (arm64 CALL_OPS).
    #[serde(default)]
    pub(crate) early_direct: bool,
    /// What SP is a multiple of where C code is called, in bytes.
    #[schemars(with = "u32")]
    pub(crate) stack_align: Spanned<u32>,
    /// Indirect branches must reach landing pads. The entry is one, unless only returns come here.
    #[serde(default)]
    pub(crate) landing_pad: bool,
    /// Returns on the way out that have no call on the return-address stack.
    #[serde(default)]
    pub(crate) unpaired: u32,
    /// The return addresses that a walk of frame records from the callback finds before those of the traced function's
    /// caller: `pc`, `parent-ip`.
    #[serde(default)]
    pub(crate) records: Vec<RecordIn>,
    /// In the callback the frame pointer is the frame's address with bit 0 set.
    #[serde(default)]
    pub(crate) marks_regs: bool,
    /// What is known not to hold.
    #[serde(default)]
    pub(crate) deviation: Vec<DeviationIn>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KindIn {
    /// `ftrace_caller`: calls back with the argument registers.
    Entry,
    /// `ftrace_regs_caller`: calls back with every register.
    Regs,
    /// A direct-call trampoline.
    Direct,
    /// `return_to_handler`: entered when the traced function returns.
    Return,
    /// `arch_rethook_trampoline`: the same for kretprobes, with every register.
    Rethook,
    /// Called by a sled in the middle of a function, at its tail call or its return: everything is live.
    Sled,
    /// `ftrace_stub`.
    Stub,
    /// `ftrace_stub_graph`.
    StubGraph,
    /// `ftrace_stub_direct_tramp`.
    StubDirect,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RecordIn {
    /// The address where the traced function goes on.
    Pc,
    /// The return address of the traced function.
    ParentIp,
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Promise {
    /// Arguments and callee-saved registers, as at a call.
    #[default]
    Abi,
    /// Every general register but those that the site itself destroys.
    Transparent,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviationIn {
    /// P1 to P23, as in `tramptool check --list-clauses`.
    #[schemars(with = "String")]
    pub(crate) clause: Spanned<String>,
    /// A place as `tramptool check --list-places` names it, or a list of them, each with or without `@` and the instruction
    /// as symbol+offset; `*` and `?` are wildcards.
    pub(crate) place: Places,
    /// Why.
    pub(crate) reason: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a place, or a list of places")]
pub(crate) enum Places {
    One(String),
    Each(Vec<String>),
}

impl Places {
    pub(crate) fn each(&self) -> &[String] {
        match self {
            Places::One(place) => std::slice::from_ref(place),
            Places::Each(places) => places,
        }
    }
}

/// The JSON schema of contracts.
pub fn contract_schema() -> Schema {
    schema_for!(FileIn)
}

impl RecordIn {
    fn content(self) -> Content {
        match self {
            RecordIn::Pc => Content::Pc,
            RecordIn::ParentIp => Content::ParentIp,
        }
    }
}

/// A contract file: its name, for messages, and its text.
pub(crate) struct Reader<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

impl Reader<'_> {
    /// A mistake at an offset of the text.
    pub(crate) fn at(&self, offset: usize, message: impl Into<Error>) -> Error {
        let line = self.text.get(..offset).unwrap_or(self.text).matches('\n').count() + 1;
        message.into().at(format_args!("{}:{line}", self.name))
    }

    /// What the file says.
    ///
    /// # Errors
    /// It is no TOML, or not of this form.
    pub(crate) fn file(&self) -> Result<FileIn> {
        toml::from_str(self.text).map_err(|e| {
            let message = e.message().replace('\n', " ");
            self.at(e.span().map_or(0, |s| s.start), message)
        })
    }

    /// What a trampoline promises.
    ///
    /// # Errors
    /// It names what does not exist, or says what cannot be.
    pub(crate) fn contract(
        &self,
        t: &TrampolineIn,
        frames: &BTreeMap<String, FrameIn>,
        facts: &'static Facts,
        convention: &'static Convention,
    ) -> Result<Contract> {
        let (kind, stack_align) = (self.kind(t, facts)?, self.stack_align(t)?);
        let frame = self.layout(t, frames, facts)?;
        let (kept, clobbered) = self.survivors(t, kind, facts, convention)?;
        let direct = frame.fields.iter().any(|f| f.content == Content::Direct && f.stores == frame::Stores::TakeEffect);
        Ok(Contract {
            facts,
            convention,
            name: t.symbol.clone(),
            kind,
            callee: t.calls.clone(),
            frame,
            kept,
            clobbered,
            flags_kept: t.keeps_flags,
            direct,
            traced: None,
            direct_lost: RegSet::EMPTY,
            early_direct: t.early_direct,
            stack_align,
            realigned: false,
            landing_pad: t.landing_pad,
            returns: None,
            mispredicted: 0,
            programs: Vec::new(),
            unpaired: t.unpaired,
            marks_regs: t.marks_regs,
        })
    }

    /// How it is entered and left, and with how many arguments.
    fn kind(&self, t: &TrampolineIn, facts: &Facts) -> Result<Kind> {
        let most = facts.abi.args.len() as u8 - u8::from(t.ip);
        let args = match (&t.args, t.kind) {
            (Some(n), KindIn::Direct) if *n.get_ref() > most => {
                return Err(self.at(n.span().start, format!("args = {}; valid: 0 to {most}", n.get_ref())));
            }
            (Some(n), KindIn::Direct) => *n.get_ref(),
            (None, KindIn::Direct) => {
                let at = t.stack_align.span().start;
                return Err(self.at(at, format!("{} is of kind direct: give args, 0 to {most}", t.symbol)));
            }
            (Some(n), _) => return Err(self.at(n.span().start, "args is for kind direct only")),
            (None, _) => 0,
        };
        Ok(match t.kind {
            KindIn::Entry => Kind::Entry(Regs::Args),
            KindIn::Regs => Kind::Entry(Regs::All),
            KindIn::Direct => Kind::Direct(Direct { args, ip: t.ip, ..Direct::default() }),
            KindIn::Sled => Kind::Sled,
            KindIn::Return => Kind::Return,
            KindIn::Rethook => Kind::Rethook,
            KindIn::Stub => Kind::Stub,
            KindIn::StubGraph => Kind::StubGraph,
            KindIn::StubDirect => Kind::StubDirect,
        })
    }

    fn stack_align(&self, t: &TrampolineIn) -> Result<u32> {
        let align = *t.stack_align.get_ref();
        if !align.is_power_of_two() || align > 64 {
            let message = format!("stack-align = {align}; valid: a power of 2 to 64");
            return Err(self.at(t.stack_align.span().start, message));
        }
        Ok(align)
    }

    /// What the callback is given a pointer to, and the frame records.
    fn layout(&self, t: &TrampolineIn, frames: &BTreeMap<String, FrameIn>, facts: &Facts) -> Result<FrameLayout> {
        let mut frame = match &t.frame {
            None => FrameLayout::empty(),
            Some(name) => match frames.get(name.get_ref()) {
                Some(frame) => self.frame(frame, facts)?,
                None => {
                    let known = frames.keys().map(String::as_str);
                    return Err(self.at(name.span().start, Error::unknown("frame", name.get_ref(), known)));
                }
            },
        };
        // A layout lists records in the order in which they are linked: the last one is found first.
        frame.records = t.records.iter().rev().map(|r| Record { symbol: "", offset: 0, ret: r.content() }).collect();
        Ok(frame)
    }

    /// The registers that survive, and those that need not.
    fn survivors(
        &self,
        t: &TrampolineIn,
        kind: Kind,
        facts: &Facts,
        convention: &Convention,
    ) -> Result<(RegSet, RegSet)> {
        let (abi_kept, abi_clobbered) = promised(kind, facts, &convention.site);
        let both = abi_kept.union(abi_clobbered);
        let base = match t.promises {
            Promise::Transparent => both,
            Promise::Abi => abi_kept,
        };
        let kept = base.union(self.registers(&t.keeps, facts)?).minus(self.registers(&t.loses, facts)?);
        Ok((kept, both.minus(kept)))
    }

    /// The clauses of the deviations, in order.
    pub(crate) fn clauses(&self, t: &TrampolineIn) -> Result<Vec<Clause>> {
        let clause = |d: &DeviationIn| {
            Clause::ALL.into_iter().find(|c| c.name() == d.clause.get_ref()).ok_or_else(|| {
                let names = Clause::ALL.iter().map(|c| c.name());
                self.at(d.clause.span().start, Error::unknown("clause", d.clause.get_ref(), names))
            })
        };
        t.deviation.iter().map(clause).collect()
    }

    fn registers(&self, names: &[Spanned<String>], facts: &Facts) -> Result<RegSet> {
        let mut set = RegSet::EMPTY;
        for name in names {
            let live = facts.abi.live.iter().find(|(who, _)| who == name.get_ref()).map(|(_, regs)| *regs);
            let named = live.or_else(|| facts.abi.find(name.get_ref()).map(|reg| RegSet::of(&[reg])));
            set = set.union(named.ok_or_else(|| {
                let known = facts.abi.regs.iter().map(|r| r.name).chain(facts.abi.live.iter().map(|(who, _)| *who));
                self.at(name.span().start, Error::unknown("register", name.get_ref(), known))
            })?);
        }
        Ok(set)
    }

    fn frame(&self, frame: &FrameIn, facts: &Facts) -> Result<FrameLayout> {
        let size = *frame.size.get_ref();
        if !(0..=LARGEST).contains(&size) {
            return Err(self.at(frame.size.span().start, format!("size = {size}; valid: 0 to {LARGEST}")));
        }
        let mut fields = Vec::new();
        for f in &frame.field {
            let offset = *f.offset.get_ref();
            if offset < 0 || offset % 8 != 0 || offset > size - 8 {
                let valid = format!("a multiple of 8 from 0 to {}", size - 8);
                return Err(self.at(f.offset.span().start, format!("offset = {offset}; valid: {valid}")));
            }
            let content = self.content(&f.holds, facts)?;
            let stores = match f.stores {
                Stores::TakeEffect => frame::Stores::TakeEffect,
                Stores::AreIgnored => frame::Stores::Ignored,
            };
            let member = intern(&f.member);
            fields.push(Field { symbol: member, member, offset, content, stores, in_record: false });
        }
        fields.sort_by_key(|f| f.offset);
        let c_struct = intern(&frame.r#struct);
        Ok(FrameLayout { c_struct, c_size: size, size, fields, ..FrameLayout::empty() })
    }

    fn content(&self, holds: &Spanned<String>, facts: &Facts) -> Result<Content> {
        Content::parse(holds.get_ref(), &facts.abi).map_err(|e| self.at(holds.span().start, e))
    }
}
