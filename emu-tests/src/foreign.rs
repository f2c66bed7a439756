//! Trampolines that others wrote: their contract, read from a file. `docs/contracts.md` describes the format.

use std::collections::BTreeMap;

use codegen::abi::RegSet;
use codegen::backend::Backend;
use codegen::contract::{Contract, promised};
use codegen::error::{Error, Result};
use codegen::facts::Facts;
use codegen::frame::{Back, Content, Field, FrameLayout, Record};
use codegen::intern::intern;
use codegen::profile::{Convention, Profile};
use codegen::spec::{Direct, Kind, Regs};
use link::{Input, examine, relocatable};
use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;
use toml::Spanned;

use crate::marks::extent;
use crate::raw::{Dump, wrap};
use crate::report::Clause;
use crate::suite::{BY_THE_PROFILE, Deviation, Suite};

/// What trampolines that others wrote promise. See docs/contracts.md.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "tramptool contract")]
struct FileIn {
    /// The architecture by its name in `tramptool list`.
    #[schemars(with = "String")]
    arch: Spanned<String>,
    /// What this is the contract of, in a sentence.
    #[serde(rename = "about")]
    _about: String,
    /// Where the trampolines find what they need in `struct ftrace_ops`.
    #[serde(default)]
    ftrace_ops: OpsIn,
    /// Layouts of what callbacks are given a pointer to, by name.
    #[serde(default)]
    frame: BTreeMap<String, FrameIn>,
    /// The trampolines, in the order of the report.
    trampoline: Vec<TrampolineIn>,
}

/// Bytes of the largest frame. The checker reads all of it whenever a callback is called.
const LARGEST: i32 = 4096;

/// Offsets of members of `struct ftrace_ops`, in bytes.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
struct OpsIn {
    /// `ops->func`.
    func: u64,
    /// `ops->direct_call`.
    direct_call: u64,
}

/// A structure on the stack.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FrameIn {
    /// The C name.
    r#struct: String,
    /// `sizeof`, in bytes.
    #[schemars(with = "i32")]
    size: Spanned<i32>,
    /// The fields that a callback may rely on.
    field: Vec<FieldIn>,
}

/// Eight bytes of the structure.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FieldIn {
    /// The C name.
    member: String,
    /// `offsetof`, in bytes: a multiple of 8.
    #[schemars(with = "i32")]
    offset: Spanned<i32>,
    /// A register, `pc` (the ip that ftrace reports), `parent-ip`, `site-sp` (SP before the site was executed), `exit-sp`
    /// (SP when the function has returned), `flags`, `direct` (where to go on, 0 for the function), a number as `0x...`, or
    /// `nothing` (a word that must not be relied on).
    #[schemars(with = "String")]
    holds: Spanned<String>,
    /// What becomes of a store by the callback.
    #[serde(default)]
    stores: Stores,
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Stores {
    /// The register, the next hop or the return address is what was stored.
    TakeEffect,
    /// It is lost.
    #[default]
    AreIgnored,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TrampolineIn {
    /// The file that has it, where several files define the same symbol: each such file is judged by itself.
    #[serde(default)]
    object: Option<String>,
    /// Where it begins.
    symbol: String,
    /// How it is entered and left.
    kind: KindIn,
    /// `direct`: how many argument registers the traced function has.
    #[serde(default)]
    #[schemars(with = "Option<u8>")]
    args: Option<Spanned<u8>>,
    /// `direct`: the called function is given the address of the traced one, before the arguments.
    #[serde(default)]
    ip: bool,
    /// A call instruction that the kernel patches when tracing is switched on: the symbol of its address.
    #[serde(default)]
    slot: Option<String>,
    /// The C function that it calls.
    #[serde(default)]
    calls: String,
    /// The variable in which it finds that function's address: it is put there before anything runs.
    #[serde(default)]
    calls_through: Option<String>,
    /// What the callback is given a pointer to: a name under `frame`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    frame: Option<Spanned<String>>,
    /// Which registers survive.
    #[serde(default)]
    promises: Promise,
    /// Registers that survive besides: each by its name, or those that matter to `static-chain`, `varargs`, `sret` or
    /// `fastcc`, where the architecture has them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    keeps: Vec<Spanned<String>>,
    /// Registers that do not, all the same.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    loses: Vec<Spanned<String>>,
    /// The flags survive.
    #[serde(default)]
    keeps_flags: bool,
    /// A direct trampoline that is named by the site is entered before any callback (arm64 CALL_OPS).
    #[serde(default)]
    early_direct: bool,
    /// What SP is a multiple of where C code is called, in bytes.
    #[schemars(with = "u32")]
    stack_align: Spanned<u32>,
    /// Indirect branches must reach landing pads. The entry is one, unless only returns come here.
    #[serde(default)]
    landing_pad: bool,
    /// Returns on the way out that have no call on the return-address stack.
    #[serde(default)]
    unpaired: u32,
    /// The return addresses that a walk of frame records from the callback finds before those of the traced function's
    /// caller: `pc`, `parent-ip`.
    #[serde(default)]
    records: Vec<RecordIn>,
    /// In the callback the frame pointer is the frame's address with bit 0 set.
    #[serde(default)]
    marks_regs: bool,
    /// What is known not to hold.
    #[serde(default)]
    deviation: Vec<DeviationIn>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum KindIn {
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
enum RecordIn {
    /// The address where the traced function goes on.
    Pc,
    /// The return address of the traced function.
    ParentIp,
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Promise {
    /// Arguments and callee-saved registers, as at a call.
    #[default]
    Abi,
    /// Every general register but those that the site itself destroys.
    Transparent,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeviationIn {
    /// P1 to P23, as in `tramptool check --list-clauses`.
    #[schemars(with = "String")]
    clause: Spanned<String>,
    /// The register, field or place, as the report names it, or a list of them, each with or without ` at ` and the
    /// instruction as symbol+offset; `*` and `?` are wildcards.
    place: Places,
    /// Why.
    reason: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a place, or a list of places")]
enum Places {
    One(String),
    Each(Vec<String>),
}

impl Places {
    fn each(&self) -> &[String] {
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

/// Objects with trampolines, and their contract.
pub struct Foreign<'a> {
    /// What messages call the contract.
    pub contract_name: &'a str,
    /// The contract's text.
    pub contract: &'a str,
    /// Names and contents of the objects.
    pub objects: Vec<(String, Vec<u8>)>,
    /// The architecture that was asked for, if one was.
    pub arch: Option<&'a str>,
    /// The profile whose sites lead to them.
    pub profile: &'static Profile,
    /// They are not objects but dumps of this memory.
    pub dump: Option<Dump>,
}

/// Read a contract and put the objects before the judge: those that the contract names each by itself, the others
/// together.
///
/// # Errors
/// A contract that does not parse or names what does not exist, with file, line and what would be valid. Objects of
/// which it says nothing.
pub fn suites(foreign: &Foreign, backends: &[&'static dyn Backend]) -> Result<Vec<Suite>> {
    let reader = Reader { name: foreign.contract_name, text: foreign.contract };
    let file: FileIn = toml::from_str(foreign.contract).map_err(|e| {
        let message = e.message().replace('\n', " ");
        reader.at(e.span().map_or(0, |s| s.start), message)
    })?;
    let known = |b: &&&'static dyn Backend| b.facts().name == file.arch.get_ref();
    let backend = *backends.iter().find(known).ok_or_else(|| {
        let names = backends.iter().map(|b| b.facts().name);
        reader.at(file.arch.span().start, Error::unknown("architecture", file.arch.get_ref(), names))
    })?;
    if foreign.arch.is_some_and(|arch| arch != backend.facts().name) {
        let arch = backend.facts().name;
        return Err(
            reader.at(file.arch.span().start, format!("is for {arch}; give --arch {arch}, or another contract"))
        );
    }
    let convention = foreign.profile.convention(backend.facts().name)?;
    // Read all of it first: a mistake is a mistake whatever the objects are.
    let mut judged = Vec::new();
    for trampoline in &file.trampoline {
        judged.push((trampoline, reader.contract(trampoline, &file.frame, backend.facts(), convention)?));
        reader.clauses(trampoline)?;
    }
    let (mut apart, mut together) = (Vec::new(), Vec::new());
    let objects = match foreign.dump {
        None => {
            let object = |(name, bytes): &(String, Vec<u8>)| {
                Ok((name.clone(), relocatable(backend, &Input { name, bytes })?.into_owned()))
            };
            foreign.objects.iter().map(object).collect::<Result<Vec<_>>>()?
        }
        Some(dump) => {
            let [trampoline] = &file.trampoline[..] else {
                let n = file.trampoline.len();
                return Err(reader.at(0, format!("a dump has one trampoline, the contract has {n}; valid: 1")));
            };
            let labels = [trampoline.slot.as_deref().unwrap_or(""), &trampoline.calls];
            let wrap = |(path, code): &(String, Vec<u8>)| {
                let object = wrap(backend, dump, code, &trampoline.symbol, &labels).map_err(|e| e.at(path))?;
                Ok((path.clone(), object))
            };
            foreign.objects.iter().map(wrap).collect::<Result<Vec<_>>>()?
        }
    };
    for (path, bytes) in &objects {
        let name = path.rsplit('/').next().unwrap_or(path);
        match file.trampoline.iter().any(|t| t.object.as_deref() == Some(name)) {
            true => apart.push((Some(name), vec![(path.clone(), bytes.clone())])),
            false => together.push((path.clone(), bytes.clone())),
        }
    }
    if !together.is_empty() || apart.is_empty() {
        apart.push((None, together));
    }
    let mut suites = Vec::new();
    for (object, objects) in apart {
        let mine = judged.iter().filter(|(t, _)| t.object.as_deref() == object);
        let (trampolines, contracts): (Vec<_>, Vec<_>) = mine.cloned().unzip();
        if trampolines.is_empty() {
            let named: Vec<&str> = file.trampoline.iter().filter_map(|t| t.object.as_deref()).collect();
            let path = objects.first().map_or("no object", |(path, _)| path);
            let name = foreign.contract_name;
            return Err(Error::new(format!("{name} has nothing for {path}; valid: {}", named.join(", "))));
        }
        let mut deviations: Vec<_> = Deviation::of_sites(convention, contracts.iter()).collect();
        for (i, t) in trampolines.iter().enumerate() {
            for (d, clause) in t.deviation.iter().zip(reader.clauses(t)?) {
                let expected = |place: &String| {
                    let (place, reason) = (place.clone(), d.reason.clone());
                    Deviation { trampoline: i, clause, place, reason }
                };
                deviations.extend(d.place.each().iter().map(expected));
            }
        }
        let paths = objects.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>().join(" ");
        let options = [Some(foreign.contract_name), object];
        suites.push(Suite {
            backend,
            convention,
            replay: match foreign.dump {
                None => format!("tramptool check TRAMPOLINE --object {paths} --contract {}", foreign.contract_name),
                Some(Dump { base, entry }) => format!(
                    "tramptool check TRAMPOLINE --raw {paths} --base {base:#x} --entry {entry:#x} --arch {} --contract {}",
                    backend.facts().name,
                    foreign.contract_name
                ),
            },
            alternatives: alternatives(backend, &objects, &contracts)?,
            objects,
            contracts,
            deviations,
            slots: trampolines.iter().filter_map(|t| t.slot.clone()).collect(),
            pointers: trampolines.iter().filter_map(|t| Some((t.calls_through.clone()?, t.calls.clone()))).collect(),
            stubs: true,
            options: options.into_iter().flatten().collect::<Vec<_>>().join(" "),
            op_offsets: (file.ftrace_ops.func, file.ftrace_ops.direct_call),
            notes: BTreeMap::new(),
            poke: BY_THE_PROFILE,
        });
    }
    Ok(suites)
}

/// The list of instructions that the kernel may replace, whatever the architecture: it refers to each.
const ALTERNATIVES: &str = ".altinstructions";

/// Places of the trampolines that have alternatives.
fn alternatives(backend: &dyn Backend, objects: &[(String, Vec<u8>)], contracts: &[Contract]) -> Result<Vec<String>> {
    let mut places = Vec::new();
    for (name, bytes) in objects {
        let (image, references) = examine(backend, &Input { name, bytes }, backend.machine().ret)?;
        let Some(list) = image.sections.iter().find(|s| s.name == ALTERNATIVES) else { continue };
        for symbol in contracts.iter().filter_map(|c| image.symbol(&c.name).filter(|s| s.input.is_some())) {
            let inside = |at: u64, start: u64, size: u64| at.wrapping_sub(start) < size;
            let size = extent(&image, symbol);
            let mine = references.iter().filter(|r| inside(r.place, list.address, list.size));
            let mut offsets: Vec<u64> = mine.map(|r| r.value.wrapping_sub(symbol.address)).collect();
            offsets.retain(|offset| *offset < size);
            offsets.dedup();
            places.extend(offsets.iter().map(|offset| format!("{}+{offset:#x}", symbol.name)));
        }
    }
    Ok(places)
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn at(&self, offset: usize, message: impl std::fmt::Display) -> Error {
        let line = self.text.get(..offset).unwrap_or(self.text).matches('\n').count() + 1;
        Error::new(format!("{}:{line}: {message}", self.name))
    }

    fn contract(
        &self,
        t: &TrampolineIn,
        frames: &BTreeMap<String, FrameIn>,
        facts: &'static Facts,
        convention: &'static Convention,
    ) -> Result<Contract> {
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
        let kind = match t.kind {
            KindIn::Entry => Kind::Entry(Regs::Args),
            KindIn::Regs => Kind::Entry(Regs::All),
            KindIn::Direct => Kind::Direct(Direct { args, ip: t.ip, ..Direct::default() }),
            KindIn::Sled => Kind::Direct(Direct::default()),
            KindIn::Return | KindIn::Rethook => Kind::Return,
            KindIn::Stub => Kind::Stub,
            KindIn::StubGraph => Kind::StubGraph,
            KindIn::StubDirect => Kind::StubDirect,
        };
        let align = *t.stack_align.get_ref();
        if !align.is_power_of_two() || align > 64 {
            return Err(
                self.at(t.stack_align.span().start, format!("stack-align = {align}; valid: a power of 2 to 64"))
            );
        }
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
        let (abi_kept, abi_clobbered) = promised(kind, facts, &convention.site);
        let both = abi_kept.union(abi_clobbered);
        let abi = &facts.abi;
        let base = match (t.promises, t.kind) {
            // Only the way back is its own: everything else may be live, and a kprobe's handler may look at it.
            (_, KindIn::Rethook | KindIn::Sled) => {
                let way = [Some(abi.sp), abi.link].into_iter().flatten().collect::<Vec<_>>();
                abi.callee_saved.union(abi.caller_saved).union(abi.platform).minus(RegSet::of(&way))
            }
            (Promise::Transparent, _) => both,
            (Promise::Abi, _) => abi_kept,
        };
        let kept = base.union(self.registers(&t.keeps, facts)?).minus(self.registers(&t.loses, facts)?);
        let direct = frame.fields.iter().any(|f| f.content == Content::Direct && f.back == Back::Written);
        Ok(Contract {
            facts,
            convention,
            name: t.symbol.clone(),
            kind,
            rethook: t.kind == KindIn::Rethook,
            sled: t.kind == KindIn::Sled,
            callee: t.calls.clone(),
            frame,
            kept,
            clobbered: both.minus(kept),
            flags_kept: t.keeps_flags,
            direct,
            traced: None,
            direct_lost: RegSet::EMPTY,
            early_direct: t.early_direct,
            stack_align: align,
            realigned: false,
            landing_pad: t.landing_pad,
            mispredicted: 0,
            programs: Vec::new(),
            unpaired: t.unpaired,
            marks_regs: t.marks_regs,
        })
    }

    /// The clauses of the deviations, in order.
    fn clauses(&self, t: &TrampolineIn) -> Result<Vec<Clause>> {
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
            let back = match f.stores {
                Stores::TakeEffect => Back::Written,
                Stores::AreIgnored => Back::Ignored,
            };
            let member = intern(&f.member);
            fields.push(Field { symbol: member, member, offset, content, back, in_record: false });
        }
        fields.sort_by_key(|f| f.offset);
        let c_struct = intern(&frame.r#struct);
        Ok(FrameLayout { c_struct, c_size: size, size, fields, ..FrameLayout::empty() })
    }

    fn content(&self, holds: &Spanned<String>, facts: &Facts) -> Result<Content> {
        Content::parse(holds.get_ref(), &facts.abi).map_err(|e| self.at(holds.span().start, e))
    }
}
