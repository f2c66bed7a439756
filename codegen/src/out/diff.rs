//! The differences between two trampolines: role by role in words, and line by line.

use std::collections::BTreeMap;

use crate::ask::frame::{Content, Field};
use crate::contract::Contract;
use crate::out::text::{LineKind, TextLine, TextListing};
use crate::profile::target::Target;
use crate::words::abi::Reg;
use crate::words::recorder::Event;
use crate::words::step::{Callee, ExitPath, Local, RecordStep, Role, Step, Value};

/// One row of two columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Row<T> {
    /// Equal items on both sides.
    Both(T, T),
    /// On the left only.
    Left(T),
    /// On the right only.
    Right(T),
}

/// The steps of two trampolines in one role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleDiff {
    /// The role.
    pub role: Role,
    /// The steps, in words.
    pub rows: Vec<Row<String>>,
}

impl RoleDiff {
    /// Both do the same.
    pub fn same(&self) -> bool {
        self.rows.iter().all(|r| matches!(r, Row::Both(..)))
    }
}

/// A trampoline to compare.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The architecture with its options.
    pub target: &'a Target,
    /// The trampoline.
    pub listing: &'a TextListing,
}

impl Side<'_> {
    /// The plan in words, role by role. `names` says whether registers and offsets are named, or only what they
    /// are for, as it makes sense between architectures.
    pub fn plan(&self, names: bool) -> Vec<(Role, Vec<String>)> {
        let mut roles: Vec<(Role, Vec<String>)> = Role::ALL.map(|r| (r, Vec::new())).into();
        let mut role = Role::Entry;
        for &step in &self.listing.steps {
            if let Step::Block(new, _) = step {
                role = new;
            }
            if let Some((_, words)) = roles.iter_mut().find(|(r, _)| *r == role) {
                self.words(step, names, words);
            }
        }
        roles
    }

    fn words(&self, step: Step, names: bool, out: &mut Vec<String>) {
        let contract = &self.listing.contract;
        let frame = &contract.frame;
        let cell = frame.find(Content::Direct).and_then(|i| frame.fields.get(i)).filter(|_| names);
        let cell = cell.map_or("the direct-call cell", |f| f.member);
        match step {
            Step::Block(..) | Step::Path(_) | Step::LoadDirect => {}
            Step::Record(step) => out.extend(record_words(step)),
            Step::AllocReturn | Step::Mark(_) | Step::SaveState | Step::RestoreState => out.extend(fixed_words(step)),
            Step::StackArgs | Step::ClearResult | Step::ExceptionPad => out.extend(fixed_words(step)),
            Step::BranchIfNoRoomToReturn | Step::PassOver => out.extend(fixed_words(step)),
            Step::PushReturn | Step::FindReturn | Step::PopReturn => out.extend(fixed_words(step)),
            Step::GuardReturn | Step::CheckReturn => out.extend(fixed_words(step)),
            Step::LandingPad | Step::Authenticate | Step::LoadOp | Step::PushFlags => out.extend(fixed_words(step)),
            Step::BranchIfEarlyDirect => out.push("if op->direct_call is set: to that direct trampoline".into()),
            Step::Alloc => {
                out.extend((frame.size > 0).then(|| format!("{} bytes of stack", frame.size)));
                let named = !frame.c_struct.is_empty();
                out.extend(named.then(|| format!("{} of {} bytes", frame.c_struct, frame.c_size)));
            }
            Step::Link(i) => {
                let ret = frame.records.get(i as usize).map(|r| r.ret);
                out.push(format!("frame record with {}", if ret == Some(Content::Pc) { "pc" } else { "parent_ip" }));
            }
            Step::Save => {
                let later =
                    |f: &Field| matches!(f.content, Content::Result(_) | Content::VectorResult(_) | Content::Cookie);
                let saved = |f: &&Field| !f.in_record && f.content != Content::Unfilled && !later(f);
                self.slots(frame.fields.iter().filter(saved), names, out);
            }
            Step::Restore => {
                let loaded = |f: &&Field| matches!(f.content, Content::Reg(_) | Content::Vector(_)) && f.reloaded();
                self.slots(frame.fields.iter().filter(loaded), names, out);
            }
            Step::LoadBody => out.push("pc = behind the site".into()),
            Step::SaveResults | Step::RestoreResults => {
                let result = |f: &&Field| matches!(f.content, Content::Result(_) | Content::VectorResult(_));
                self.slots(frame.fields.iter().filter(result), names, out);
            }
            Step::MarkRegs => out.push("frame pointer = pt_regs, marked".into()),
            Step::Arg(n, value) => out.push(format!("argument {n} = {}", value_words(value))),
            Step::Realign => out.push(format!("sp aligned to {} bytes", contract.stack_align)),
            Step::Unalign => out.push("sp as it was".into()),
            Step::KernelLabel(label) => {
                if self.target.convention.has_label(label) {
                    out.push(format!(
                        "label {}",
                        contract.convention.label(label, &contract.name, contract.kind).concat()
                    ));
                }
            }
            Step::Call(callee) => out.push(call_words(callee, contract)),
            Step::Cookie(cookie) => out.push(format!("cookie = {cookie}")),
            Step::BranchIfResult => out.push("if the result is not 0: past the function".into()),
            Step::Gap => out.push("gap for a jump".into()),
            Step::SaveCounted | Step::RestoreCounted => out.push("what counts tail calls".into()),
            Step::KeepStart | Step::LoadDecision => out.extend(fixed_words(step)),
            Step::BranchIfRefused(_) | Step::Refused(_) | Step::RestoreOwn => out.extend(fixed_words(step)),
            Step::SaveDecision => out.push("the result is what it returned".into()),
            Step::Meta(word) => out.push(format!("what the context says of itself = {word:#x}")),
            Step::Detach => out.push("room for a jump past the program".into()),
            Step::TakeResult => out.push("the result is where to go on".into()),
            Step::RestoreSite(way) => out.push(way_words(way).into()),
            Step::BranchIfDirect => out.push(format!("if {cell} is set: to that direct trampoline")),
            Step::BranchIfJump => out.push(format!("if bit 0 of {cell} is set: as if the site jumped there")),
            Step::FreeWithReturn => out.push("frame and return address released".into()),
            Step::AllocWithReturn => out.push(format!("{} bytes of stack, and the return address", frame.size)),
            Step::Free(_) => {
                if frame.size > 0 {
                    out.push("frame released".into());
                }
            }
            Step::PopFlags => {
                if self.target.pushes_flags {
                    out.push("flags popped".into());
                }
            }
            Step::Leave(way) => out.push(format!("to {}", exit_words(way))),
        }
    }

    fn slots<'f>(&self, fields: impl Iterator<Item = &'f Field>, names: bool, out: &mut Vec<String>) {
        if names {
            out.extend(fields.map(|f| {
                let slot = if f.member.is_empty() { f.symbol } else { f.member };
                format!("{} at {slot} ({})", self.content(f.content, true), f.offset)
            }));
            return;
        }
        let mut counted: BTreeMap<String, u32> = BTreeMap::new();
        fields.for_each(|f| *counted.entry(self.content(f.content, false)).or_default() += 1);
        out.extend(counted.into_iter().map(|(what, n)| match n {
            1 => what,
            _ => format!("{n} times {what}"),
        }));
    }

    fn content(&self, content: Content, names: bool) -> String {
        match content {
            Content::Reg(reg) if names => self.target.facts.abi.name(reg).to_owned(),
            Content::Reg(reg) => self.register(reg),
            Content::Own(reg) => self.register(reg),
            Content::Result(reg) if names => format!("result {}", self.target.facts.abi.name(reg)),
            Content::Result(_) => "result".into(),
            Content::Pc => "pc".into(),
            Content::ParentIp => "parent_ip".into(),
            Content::Vector(_) => "vector argument register".into(),
            Content::VectorResult(_) => "vector result register".into(),
            Content::StackWord(_) => "stack argument".into(),
            Content::Cookie => "cookie".into(),
            Content::Session(_) => "0 as the word of a session".into(),
            Content::Ip => "ip".into(),
            Content::SiteSp => "sp at the site".into(),
            Content::ExitSp => "sp at the return".into(),
            Content::Flags => "flags".into(),
            Content::Const(n) if names => format!("{n:#x}"),
            Content::Const(_) => "constant".into(),
            Content::Direct => "0 as the direct-call cell".into(),
            Content::Unfilled => "nothing".into(),
        }
    }

    /// The purpose of a register, in words.
    fn register(&self, reg: Reg) -> String {
        let abi = &self.target.facts.abi;
        let position = |set: &[Reg]| set.iter().position(|&r| r == reg);
        let result = if self.listing.contract.kind.returned_to() { position(abi.exit_rets) } else { None };
        if let Some(n) = result {
            format!("result {n}")
        } else if let Some(n) = position(abi.args) {
            format!("argument {n}")
        } else if reg == abi.sret {
            "result address".into()
        } else if reg == abi.fp {
            "frame pointer".into()
        } else if abi.hidden.contains(reg) {
            "hidden argument".into()
        } else if abi.platform.contains(reg) {
            "platform register".into()
        } else if abi.callee_saved.contains(reg) {
            "callee-saved register".into()
        } else {
            "scratch register".into()
        }
    }
}

/// The words for a step that do not depend on the contract.
fn fixed_words(step: Step) -> Option<String> {
    Some(match step {
        Step::LandingPad => "landing pad".to_owned(),
        Step::GuardReturn => "the return address, guarded".to_owned(),
        Step::CheckReturn => "the return address, checked".to_owned(),
        Step::Authenticate => "the return address, authenticated".to_owned(),
        Step::LoadOp => "op = the literal before the function".to_owned(),
        Step::PushFlags => "flags pushed".to_owned(),
        Step::StackArgs => "the function's stack arguments once more".to_owned(),
        Step::ClearResult => "result = 0".to_owned(),
        Step::AllocReturn => "room for the return address".to_owned(),
        Step::SaveState => "all vector registers, at their full width".to_owned(),
        Step::RestoreState => "all vector registers".to_owned(),
        Step::ExceptionPad => "landing pad for exceptions".to_owned(),
        Step::BranchIfNoRoomToReturn => "if the shadow stack is full: the function alone".to_owned(),
        Step::PushReturn => "parent_ip and sp onto the shadow stack".to_owned(),
        Step::FindReturn => "the function's own entry of the shadow stack".to_owned(),
        Step::PopReturn => "parent_ip from the shadow stack".to_owned(),
        Step::KeepStart => "what it returned is kept".to_owned(),
        Step::BranchIfRefused(_) => "if that is 0: past the program".to_owned(),
        Step::LoadDecision => "the result so far".to_owned(),
        Step::RestoreOwn => "the registers that it used for itself".to_owned(),
        Step::PassOver => "entries of functions that did not return are passed over".to_owned(),
        _ => return None,
    })
}

/// The words for a step of trampolines that record.
fn record_words(step: RecordStep) -> Option<String> {
    Some(match step {
        RecordStep::Count => "the thread's counter goes up".to_owned(),
        RecordStep::SlotAgain(event) => format!("another slot for the {}", event_words(event)),
        RecordStep::Slot(event) => format!("slot of the thread's buffer for the {}", event_words(event)),
        RecordStep::BranchIfFull(event, Local::Refill(_)) => {
            format!("if the buffer is full: out of line for the {}", event_words(event))
        }
        RecordStep::BranchIfFull(event, _) => {
            format!("if the buffer is full: no record of the {}", event_words(event))
        }
        RecordStep::Refill(event) => format!("room is made for the {}", event_words(event)),
        RecordStep::ToRoom(event) => format!("the {} is recorded after all", event_words(event)),
        RecordStep::Time(_) => "time".to_owned(),
        RecordStep::Words(Event::Entry) => "the first arguments".to_owned(),
        RecordStep::Words(Event::Exit) => "the result".to_owned(),
        RecordStep::Resume => "the exception goes on".to_owned(),
        RecordStep::KeepSlot => "the slot, for the return".to_owned(),
        RecordStep::NoSlot => "no slot, for the return".to_owned(),
        RecordStep::What(event) => format!("what happened: {}", event_words(event)),
        _ => return None,
    })
}

fn event_words(event: Event) -> &'static str {
    match event {
        Event::Entry => "entry",
        Event::Exit => "return",
        Event::Unwound => "exception",
    }
}

fn value_words(value: Value) -> String {
    match value {
        Value::Ip => "ip".into(),
        Value::ParentIp => "parent_ip".into(),
        Value::Op => "op".into(),
        Value::Fregs => "fregs".into(),
        Value::Context => "the context".into(),
        Value::Cookie => "the cookie's address".into(),
        Value::Bracket(_) | Value::BracketAgain(_) => "what the functions around it are given".into(),
        Value::Start => "what the function before it returned".into(),
        Value::Argument(n) => format!("the function's argument {n}"),
        Value::Result(n) => format!("the function's result {n}"),
    }
}

fn call_words(callee: Callee, contract: &Contract) -> String {
    match callee {
        Callee::Patchable => format!("patchable call of {}", contract.callee),
        Callee::OpFunc => "call of op->func".into(),
        Callee::Variable => "call through a variable".into(),
        Callee::ExitHandler | Callee::Named => format!("call of {}", contract.callee),
        Callee::Body => "call of the traced function, behind its site".into(),
        Callee::Program(n) => match contract.programs.get(usize::from(n)) {
            Some(program) => format!("call of {}", program.symbol),
            None => "call of a program".into(),
        },
        Callee::Before(n) | Callee::After(n) => {
            let around = contract.stated.brackets().nth(n.into()).flatten();
            let first = matches!(callee, Callee::Before(_));
            let name = around.map(|around| if first { &around.enter } else { &around.exit });
            format!("call of {}", name.map_or("a function around others", |name| name))
        }
        Callee::Exit => {
            format!("call of {}", contract.traced.as_ref().map_or("the exit handler", |t| &t.exit))
        }
    }
}

/// The words for a way out.
fn way_words(way: ExitPath) -> &'static str {
    match way {
        ExitPath::Direct => "pc and parent_ip as the site left them",
        ExitPath::DirectJump => "parent_ip as the site left it",
        ExitPath::Parent => "frame pointer and parent_ip from the record",
        _ => "pc and parent_ip from the frame",
    }
}

fn exit_words(way: ExitPath) -> &'static str {
    match way {
        ExitPath::Function => "the traced function",
        ExitPath::Direct | ExitPath::DirectJump => "the direct trampoline",
        ExitPath::EarlyDirect => "op's direct trampoline",
        ExitPath::Parent => "the traced function's parent",
        ExitPath::Skipped => "past the traced function",
        ExitPath::Caller => "the caller",
    }
}

/// The plans of two trampolines, role by role.
pub fn roles(left: Side, right: Side, names: bool) -> Vec<RoleDiff> {
    let pairs = left.plan(names).into_iter().zip(right.plan(names));
    pairs.map(|((role, l), (_, r))| RoleDiff { role, rows: align(l, r, |a, b| a == b) }).collect()
}

/// The listings line by line, without unwind directives and headings.
pub fn lines<'a>(left: Side<'a>, right: Side<'a>) -> Vec<Row<&'a TextLine>> {
    let code = |side: Side<'a>| -> Vec<(&'a TextLine, String)> {
        // Labels carry the trampoline's name; which name it is makes no difference.
        let own = format!(".L{}_", side.listing.name);
        let shown = side.listing.lines.iter().filter(|l| !matches!(l.kind, LineKind::Cfi | LineKind::Heading));
        shown.map(|l| (l, l.text.replace(&own, ".L"))).collect()
    };
    let strip = |row| match row {
        Row::Both((l, _), (r, _)) => Row::Both(l, r),
        Row::Left((l, _)) => Row::Left(l),
        Row::Right((r, _)) => Row::Right(r),
    };
    align(code(left), code(right), |a: &(&TextLine, String), b| a.1 == b.1).into_iter().map(strip).collect()
}

/// A longest common subsequence, as two columns. On a change, the left side comes first.
pub fn align<T>(left: Vec<T>, right: Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<Row<T>> {
    let (rows, columns) = (left.len(), right.len());
    // common[i][j]: the length for left[i..] and right[j..].
    let mut common = vec![vec![0_u32; columns + 1]; rows + 1];
    for (i, l) in left.iter().enumerate().rev() {
        for (j, r) in right.iter().enumerate().rev() {
            common[i][j] = if same(l, r) { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    loop {
        let both = left.peek().zip(right.peek()).map(|(l, r)| same(l, r));
        match both {
            Some(true) => {
                out.extend(left.next().zip(right.next()).map(|(l, r)| Row::Both(l, r)));
                (i, j) = (i + 1, j + 1);
            }
            Some(false) if common[i + 1][j] >= common[i][j + 1] => {
                out.extend(left.next().map(Row::Left));
                i += 1;
            }
            Some(false) => {
                out.extend(right.next().map(Row::Right));
                j += 1;
            }
            None => {
                out.extend(left.map(Row::Left));
                out.extend(right.map(Row::Right));
                return out;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_share_what_is_common() {
        let rows = align(vec![1, 2, 3, 4], vec![2, 5, 4, 6], |a, b| a == b);
        let expected = [Row::Left(1), Row::Both(2, 2), Row::Left(3), Row::Right(5), Row::Both(4, 4), Row::Right(6)];
        assert_eq!(rows, expected);
        assert_eq!(align(Vec::<u8>::new(), Vec::new(), |a, b| a == b), []);
    }
}
