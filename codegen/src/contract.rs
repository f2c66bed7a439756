//! What a trampoline promises: derived from the spec and the conventions, never from the plan or the listing.
//!
//! The emulator judges by it, the text above each function states it, the manifest carries it.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::abi::{Abi, Loc, Reg, RegSet};
use crate::error::Result;
use crate::frame::{Back, Content, FrameLayout};
use crate::live::Live;
use crate::spec::{Around, Attach, Direct, Form, Kind, Program, Programs, Regs, Spec};
use crate::target::{Facts, Target};

/// What a paired trampoline is built around.
#[derive(Clone, Debug, Serialize)]
pub struct Traced {
    /// The function.
    pub function: String,
    /// Bytes from its start to behind its site.
    pub resume: i32,
    /// The handler that is called when it has returned.
    pub exit: String,
}

/// The promise of one trampoline.
#[derive(Clone, Debug)]
pub struct Contract {
    /// The architecture.
    pub facts: &'static Facts,
    /// The symbol.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Of kind return: the handler is given all registers, as a kretprobe's is, and returns through the rethook core.
    pub rethook: bool,
    /// Of kind direct: called in the middle of a function, where everything is live, and returns there.
    pub sled: bool,
    /// The symbol that it calls; empty if none.
    pub callee: String,
    /// The traced function, if it calls that too.
    pub traced: Option<Traced>,
    /// The programs that it calls, in the order in which they were given.
    pub programs: Vec<Program>,
    /// The frame, by field.
    pub frame: FrameLayout,
    /// General registers that have their value again when the traced function goes on.
    pub kept: RegSet,
    /// General registers that may have any value then.
    pub clobbered: RegSet,
    /// The flags have their value again.
    pub flags_kept: bool,
    /// A callback may choose a direct trampoline.
    pub direct: bool,
    /// Registers that have any value in a direct trampoline, though they are kept otherwise.
    pub direct_lost: RegSet,
    /// The `ftrace_ops` may name a direct trampoline.
    pub early_direct: bool,
    /// Bytes to which SP is aligned at the call.
    pub stack_align: u32,
    /// That alignment holds whatever the site's stack was.
    pub realigned: bool,
    /// Indirect branches must reach landing pads. The entry is one, unless only returns come here.
    pub landing_pad: bool,
    /// Returns on the way out that have no call on the return-address stack.
    pub unpaired: u32,
    /// Returns that the return-address stack predicts wrong: where the traced function's return was redirected, or the call
    /// of the site is one that nothing returns to.
    pub mispredicted: u32,
    /// In the callback the frame pointer is the frame's address with bit 0 set.
    pub marks_regs: bool,
}

/// The general registers that a trampoline of this kind promises by the rules of C and ftrace: (those that have their
/// value again when the traced function goes on, those that may have any). SP and the registers that carry the way
/// back are in neither: what is in them afterwards is the site's convention.
pub fn promised(kind: Kind, facts: &Facts) -> (RegSet, RegSet) {
    let (abi, site) = (&facts.abi, &facts.site);
    let all = abi.callee_saved.union(abi.caller_saved).union(abi.platform);
    let c_rules = abi.callee_saved.union(abi.platform);
    let kept = match kind {
        Kind::Entry(Regs::Args) => c_rules.union(RegSet::of(abi.args)).union(abi.hidden),
        Kind::Entry(Regs::All) => all.minus(site.lost),
        Kind::Return => c_rules.union(RegSet::of(abi.exit_rets)),
        Kind::Direct(d) => {
            let live = d.live.unwrap_or_else(|| Live::first(d.args.into(), abi));
            c_rules.union(live.regs)
        }
        Kind::Around(around) => {
            let args = match around.form {
                Form::Fregs | Form::Shadow => RegSet::of(abi.args).union(abi.hidden),
                Form::Frame => {
                    let args = &abi.args[..usize::from(around.args).min(abi.args.len())];
                    RegSet::of(args).union(abi.hidden_for_direct())
                }
            };
            c_rules.union(args)
        }
        Kind::Programs(programs) => c_rules.union(programs.live.regs),
        Kind::Stub | Kind::StubGraph => all,
        Kind::StubDirect => all.minus(site.scratch),
    };
    let way: Vec<Reg> = match kind {
        Kind::Stub | Kind::StubGraph => Vec::new(),
        _ => [site.pc, site.parent_ip].into_iter().filter_map(Loc::reg).collect(),
    };
    let mut open = RegSet::of(&way).union(RegSet::of(&[abi.sp]));
    if kind.calls_body() && !kind.is_shadow() {
        // The frame pointer is at the frame while the function runs, and the parent's own again behind it.
        open = open.union(RegSet::of(&[abi.fp]));
    }
    let kept = kept.minus(open);
    (kept, all.minus(kept).minus(open))
}

impl Contract {
    /// The contract of `spec`.
    ///
    /// # Errors
    /// More arguments than the architecture has registers.
    pub fn of(spec: &Spec, target: &Target) -> Result<Contract> {
        let frame = target.frame(spec.kind)?.into_owned();
        let (kept, clobbered) = promised(spec.kind, target.facts);
        let callee = match spec.kind {
            Kind::Entry(_) => "ftrace_stub".to_owned(),
            Kind::Return => "ftrace_return_to_handler".to_owned(),
            Kind::Direct(_) | Kind::Around(_) => spec.callee.to_owned(),
            _ => String::new(),
        };
        let direct = frame.fields.iter().any(|f| f.content == Content::Direct && f.back == Back::Written);
        Ok(Contract {
            facts: target.facts,
            name: spec.name.to_owned(),
            kind: spec.kind,
            rethook: false,
            sled: false,
            callee,
            traced: spec.kind.calls_body().then(|| Traced {
                function: spec.body.function.to_owned(),
                resume: spec.body.resume,
                exit: spec.body.exit.to_owned(),
            }),
            programs: spec.programs.to_vec(),
            frame,
            kept,
            clobbered,
            direct_lost: target.direct_jump.map_or(RegSet::EMPTY, |reg| RegSet::of(&[reg])),
            flags_kept: target.pushes_flags && target.restores_flags && spec.kind == Kind::Entry(Regs::All),
            direct,
            early_direct: target.op_from_site && spec.kind == Kind::Entry(Regs::Args),
            stack_align: target.stack_align,
            realigned: target.realign.is_some(),
            landing_pad: target.landing_pad,
            unpaired: if spec.kind == Kind::Return { target.facts.exit_unpaired } else { 0 },
            mispredicted: match spec.kind {
                Kind::Return => target.facts.exit_mispredicted,
                kind => u32::from(kind.calls_body() && !kind.jumped_to()),
            },
            marks_regs: target.marks_regs && spec.kind == Kind::Entry(Regs::All),
        })
    }

    fn reg_names(&self, set: RegSet) -> Vec<&'static str> {
        set.iter().filter_map(|r| self.facts.abi.regs.get(r.0 as usize)).map(|r| r.name).collect()
    }

    fn program_sentences(&self, programs: &Programs) -> Vec<String> {
        let called = |attach| {
            let names = self.programs.iter().filter(|p| p.attach == attach).map(|p| &*p.symbol);
            names.collect::<Vec<_>>().join(", ")
        };
        let function = self.traced.as_ref().map_or("", |t| &t.function);
        let [before, instead, after] = [Attach::Fentry, Attach::FmodRet, Attach::Fexit].map(called);
        let mut text = vec![
            match (programs.call_orig, programs.skip_frame) {
                (true, false) => {
                    "The site jumps here: the return address of the traced function is where its caller put it."
                }
                (true, true) => {
                    "The site calls: its return address is dropped, so the return from here is mispredicted once."
                }
                (false, _) => self.facts.site_text,
            }
            .to_owned(),
        ];
        let mut order = Vec::new();
        if !before.is_empty() {
            order.push(format!("Calls {before}."));
        }
        if !instead.is_empty() {
            order.push(format!(
                "Calls {instead}: the first that does not return 0 decides the result, in {function}'s place."
            ));
        }
        if programs.call_orig {
            order.push(format!("Calls {function} behind its site."));
        }
        if !after.is_empty() {
            order.push(format!("Calls {after}."));
        }
        text.extend(order);
        let words = count(programs.words.iter().flatten().count(), "word");
        let ip = if programs.ip_arg { ", ip before that" } else { "" };
        let (behind, and) = match programs.result.regs == RegSet::EMPTY || !programs.call_orig {
            true => ("", ""),
            false => ("the result behind, ", ", and to the result,"),
        };
        text.push(format!("Each gets (context, cookie): {words} of arguments, {behind}their number before{ip}."));
        text.push(format!("What they store to words that came in registers{and} takes effect."));
        if programs.call_orig && programs.live.stack > 0 {
            let words = count(programs.live.stack.into(), "word");
            text.push(format!("The function gets a copy of its {words} of stack arguments."));
        }
        let result = if programs.call_orig { programs.result.vectors } else { 0 };
        let of = match (programs.live.vectors > 0, result > 0) {
            (false, false) => return text,
            (true, true) => "arguments and result",
            (true, false) => "arguments",
            (false, true) => "the result",
        };
        text.push(match programs.live.saved_vectors() + programs.result.saved_vectors() {
            0 => format!("They must use general registers only: vector registers of {of} are not saved."),
            _ => format!("Vector registers of {of} are kept."),
        });
        text
    }

    /// What is called must leave the vector registers alone: some are live, and none is saved.
    fn general_only(&self) -> bool {
        match self.kind {
            Kind::Direct(Direct { live: Some(live), .. }) => live.vectors > 0 && live.saved_vectors() == 0,
            Kind::Programs(Programs { live, result, .. }) => {
                live.vectors + result.vectors > 0 && live.saved_vectors() + result.saved_vectors() == 0
            }
            _ => true,
        }
    }

    /// The contract in sentences, for a comment above the function.
    pub fn sentences(&self, target: &Target) -> Vec<String> {
        let facts = target.facts;
        let join = |set: RegSet| ranges(&self.reg_names(set));
        let kept_beyond_c = self.kept.minus(facts.abi.callee_saved).minus(facts.abi.platform);
        let mut text = Vec::new();
        match self.kind {
            Kind::Stub | Kind::StubGraph => {
                text.push(
                    "A C function that does nothing: what a call slot calls until a callback is attached.".into(),
                );
                return text;
            }
            Kind::StubDirect => {
                text.push(facts.site_text.to_owned());
                text.push("Goes straight back into the traced function. Everything live is kept.".into());
                return text;
            }
            Kind::Entry(_) => {
                text.push(facts.site_text.to_owned());
                text.push("Calls func(ip, parent_ip, op, fregs), which must use general registers only.".into());
                let mut written: Vec<&str> = Vec::new();
                let back = |c: Content| self.frame.fields.iter().find(|f| f.content == c && f.back == Back::Written);
                written.extend(back(Content::Pc).map(|f| f.member));
                written.extend(back(Content::ParentIp).map(|f| f.member));
                written.extend(back(Content::Flags).map(|f| f.member));
                let registers = RegSet::of(
                    &self
                        .frame
                        .fields
                        .iter()
                        .filter_map(|f| match f.content {
                            Content::Reg(r) if f.back == Back::Written => Some(r),
                            _ => None,
                        })
                        .collect::<Vec<_>>(),
                );
                text.push(format!(
                    "What func stores to {} and to the slots of {} takes effect.",
                    written.join(", "),
                    join(registers)
                ));
                if let Some(cell) = self.frame.fields.iter().find(|f| f.content == Content::Direct) {
                    text.push(if self.direct {
                        let lost = self.reg_names(self.direct_lost).join(" ");
                        let lost = if lost.is_empty() { lost } else { format!(", but for {lost}") };
                        format!(
                            "An address stored to {} sends us to that direct trampoline, as if the site had called \
                             it{lost}.",
                            cell.member
                        )
                    } else {
                        format!("A store to {} has no effect here.", cell.member)
                    });
                }
                if self.early_direct {
                    text.push("If op->direct_call is set, we go there at once with everything as at the site.".into());
                }
            }
            Kind::Return => {
                text.push(facts.exit_text.to_owned());
                text.push("Calls ftrace_return_to_handler(fregs), which returns the address to go on at.".into());
                text.push("What a handler stores to the result registers' slots takes effect.".into());
            }
            Kind::Around(Around { form, args }) => {
                text.push(
                    "The site jumps here: the return address of the traced function is where its caller put it.".into(),
                );
                let (function, exit) = self.traced.as_ref().map_or(("", ""), |t| (&t.function, &t.exit));
                let (entry_gets, exit_gets) = match form {
                    Form::Fregs | Form::Shadow => ("(ip, parent_ip, op, fregs)".to_owned(), "(fregs)"),
                    Form::Frame => {
                        let args = match args {
                            0 => " without arguments".to_owned(),
                            n => format!(" with the {}", first(n)),
                        };
                        (args, " with the result registers")
                    }
                };
                text.push(format!(
                    "Calls {}{entry_gets}, then {function} behind its site, then {exit}{exit_gets}.",
                    self.callee
                ));
                text.push(match form {
                    Form::Shadow => {
                        "The first keeps parent_ip, the second returns it; both must use general registers only.".into()
                    }
                    _ => "The handlers must use general registers only; what they return is ignored.".to_owned(),
                });
                text.push(match form {
                    Form::Fregs | Form::Shadow => {
                        "What they store to the slots of argument and result registers takes effect.".into()
                    }
                    Form::Frame => "Every return has its call: the return-address stack stays whole.".to_owned(),
                });
                text.push(match form {
                    Form::Shadow => {
                        "The function finds its stack arguments in place. Unwinding ends here: only the handlers know more."
                            .into()
                    }
                    _ => "The function finds the caller's stack a frame higher: not for functions with arguments there."
                        .to_owned(),
                });
            }
            Kind::Programs(programs) => text.extend(self.program_sentences(&programs)),
            Kind::Direct(d) => {
                text.push(facts.site_text.to_owned());
                let args = match (d.live, d.ip, d.args) {
                    (Some(_), ..) => "as the traced function was called".to_owned(),
                    (None, false, 0) => "without arguments".to_owned(),
                    (None, false, n) => format!("with the traced function's {}", first(n)),
                    (None, true, 0) => "with the traced function's ip".to_owned(),
                    (None, true, n) => format!("with the traced function's ip, then its {}", first(n)),
                };
                text.push(format!("Calls {} {args}.", self.callee));
                text.push(match d.live {
                    Some(Live { stack: n @ 1.., .. }) => {
                        let (words, are) = (count(n.into(), "word"), if n == 1 { "is" } else { "are" });
                        format!("Its {words} of stack arguments {are} a copy. Its result is ignored.")
                    }
                    Some(_) => "Its result is ignored.".into(),
                    None => "It must use general registers only; its result is ignored.".into(),
                });
                if let Some(live @ Live { vectors: 1.., .. }) = d.live {
                    text.push(match live.saved_vectors() {
                        0 => "It must use general registers only: vector arguments are not saved.".to_owned(),
                        n => format!("Vector argument registers are kept: {n}."),
                    });
                }
            }
        }
        if self.traced.is_some() {
            let results = match self.kind {
                Kind::Programs(p) if p.result.vectors > 0 && p.result.regs == RegSet::EMPTY => {
                    "vector registers".into()
                }
                Kind::Programs(p) if p.result.vectors > 0 => join(p.result.regs) + ", vector registers",
                Kind::Programs(p) => join(p.result.regs),
                _ => join(RegSet::of(facts.abi.rets)),
            };
            text.push(format!(
                "Kept until the function begins: {}, and what C keeps{}; behind it: its results ({}), and all that C keeps.",
                or_none(&join(kept_beyond_c)),
                if self.kind.is_shadow() { String::new() } else { format!(" but {}", facts.abi.name(facts.abi.fp)) },
                or_none(&results)
            ));
            text.push(format!(
                "Frame: {} bytes; sp is {}-byte aligned at the calls.",
                self.frame.size, self.stack_align
            ));
            return text;
        }
        let kept = join(kept_beyond_c);
        text.push(format!("Kept: {}, and what C keeps ({}).", or_none(&kept), join(facts.abi.callee_saved)));
        let flags = match (facts.flags.is_empty(), self.flags_kept) {
            (true, _) => String::new(),
            (false, true) => format!(" {} kept.", facts.flags),
            (false, false) => format!(" {} not kept.", facts.flags),
        };
        text.push(format!("Clobbered: {}.{flags}", or_none(&join(self.clobbered))));
        let site = if self.realigned { "whatever the site had" } else { "if the site's was" };
        let size = self.frame.size + if self.frame.find(Content::Flags).is_some() { 8 } else { 0 };
        text.push(format!("Frame: {size} bytes; sp is {}-byte aligned at the call, {site}.", self.stack_align));
        text
    }
}

/// So many of them.
fn count(n: usize, of: &str) -> String {
    format!("{n} {of}{}", if n == 1 { "" } else { "s" })
}

/// The first so many argument registers.
fn first(n: u8) -> String {
    if n == 1 { "first argument register".to_owned() } else { format!("first {n} argument registers") }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

fn words(content: Content, abi: &Abi) -> String {
    match content {
        Content::Reg(r) => abi.name(r).to_owned(),
        Content::Result(r) => format!("{}, once the function has returned", abi.name(r)),
        Content::Vector(_) => "vector argument register".into(),
        Content::VectorResult(_) => "vector result register, once the function has returned".into(),
        Content::StackWord(n) => format!("word {n} of the function's stack arguments"),
        Content::Cookie => "cookie of the program that is called".into(),
        Content::Ip => "first byte of the site".into(),
        Content::Pc => "address where the traced function goes on".into(),
        Content::ParentIp => "return address of the traced function".into(),
        Content::SiteSp => "sp at the site".into(),
        Content::ExitSp => "sp when the return arrived".into(),
        Content::Flags => "flags".into(),
        Content::Const(n) => format!("{n:#x}"),
        Content::Direct => "0; a direct trampoline's address stored here is honoured".into(),
        Content::Unfilled => "not filled".into(),
    }
}

/// `x0 x1 x2 x8` as `x0-x2 x8`.
fn ranges(names: &[&str]) -> String {
    let split = |n: &str| {
        let at = n.find(|c: char| c.is_ascii_digit())?;
        Some((n[..at].to_owned(), n[at..].parse::<u32>().ok()?))
    };
    let mut out: Vec<String> = Vec::new();
    let mut run: Option<(String, u32, u32)> = None;
    let flush = |run: &mut Option<(String, u32, u32)>, out: &mut Vec<String>| {
        if let Some((p, a, b)) = run.take() {
            match b - a {
                0 => out.push(format!("{p}{a}")),
                1 => out.extend([format!("{p}{a}"), format!("{p}{b}")]),
                _ => out.push(format!("{p}{a}-{p}{b}")),
            }
        }
    };
    for name in names {
        match (split(name), &mut run) {
            (Some((p, n)), Some((q, _, b))) if p == *q && n == *b + 1 => *b = n,
            (Some((p, n)), _) => {
                flush(&mut run, &mut out);
                run = Some((p, n, n));
            }
            (None, _) => {
                flush(&mut run, &mut out);
                out.push((*name).to_owned());
            }
        }
    }
    flush(&mut run, &mut out);
    out.join(" ")
}

impl Serialize for Contract {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct FieldOut<'a> {
            symbol: &'a str,
            member: &'a str,
            offset: i32,
            holds: String,
            filled: bool,
            stores_take_effect: bool,
        }
        #[derive(Serialize)]
        struct ProgramOut<'a> {
            attach: &'static str,
            symbol: &'a str,
            cookie: i32,
        }
        let programs: Vec<ProgramOut> = self
            .programs
            .iter()
            .map(|p| ProgramOut {
                attach: p.attach.option().trim_start_matches('-'),
                symbol: &p.symbol,
                cookie: p.cookie,
            })
            .collect();
        let flags = if let Kind::Programs(programs) = self.kind { programs.flags() } else { Vec::new() };
        let fields: Vec<FieldOut> = self
            .frame
            .fields
            .iter()
            .map(|f| FieldOut {
                symbol: f.symbol,
                member: f.member,
                offset: f.offset,
                holds: words(f.content, &self.facts.abi),
                filled: f.content != Content::Unfilled,
                stores_take_effect: f.back == Back::Written,
            })
            .collect();
        let unfilled: Vec<&str> =
            self.frame.fields.iter().filter(|f| f.content == Content::Unfilled).map(|f| f.member).collect();
        let mut s = serializer.serialize_struct("Contract", 22)?;
        s.serialize_field("calls", &self.callee)?;
        s.serialize_field("programs", &programs)?;
        s.serialize_field("programs_flags", &flags)?;
        s.serialize_field("traced", &self.traced)?;
        s.serialize_field("handler", if self.general_only() { "general registers only" } else { "any registers" })?;
        s.serialize_field("kept", &self.reg_names(self.kept))?;
        s.serialize_field("clobbered", &self.reg_names(self.clobbered))?;
        s.serialize_field("flags_kept", &self.flags_kept)?;
        s.serialize_field("direct", &self.direct)?;
        s.serialize_field("early_direct", &self.early_direct)?;
        s.serialize_field("stack_align", &self.stack_align)?;
        s.serialize_field("stack_realigned", &self.realigned)?;
        s.serialize_field("landing_pad", &self.landing_pad)?;
        s.serialize_field("unpaired_returns", &self.unpaired)?;
        s.serialize_field("mispredicted_returns", &self.mispredicted)?;
        s.serialize_field("frame_pointer_marks_regs", &self.marks_regs)?;
        s.serialize_field("frame_struct", self.frame.c_struct)?;
        s.serialize_field("frame_struct_bytes", &self.frame.c_size)?;
        s.serialize_field("frame_bytes", &self.frame.size)?;
        s.serialize_field("frame", &fields)?;
        s.serialize_field("not_filled", &unfilled)?;
        s.end()
    }
}
