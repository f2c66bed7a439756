//! What was observed, without the names of an architecture: what a register is for, instead of which it is.

use std::collections::BTreeMap;

use codegen::arch::site::Site;
use codegen::words::abi::{Abi, Loc, Reg};
use codegen::words::term::{Part, Plus, Root, Term};

use super::observed::{End, Observed, Shows, Way};
use super::value::{Offset, Value};

/// What it does in each role, in words that have the same meaning on every architecture; the roles are always the same.
pub fn roles_of(observed: &Observed, abi: &Abi, site: &Site) -> Vec<(&'static str, Vec<String>)> {
    // The way on which most is called is what it is for.
    let most =
        observed.path.iter().filter(|way| way.leave.ends()).max_by_key(|way| (way.call.len(), way.leave.kept.len()));
    let Some(way) = most else { return Vec::new() };
    let says = Roles { abi, site };
    let (mut called, mut frame) = (Vec::new(), Vec::new());
    for (n, call) in (1..).zip(&way.call) {
        called.push(format!("call {n} of {}", says.value(&call.callee)));
        for (i, reg) in abi.args.iter().enumerate() {
            if let Some(value) = call.argument.get(abi.name(*reg)) {
                called.push(format!("call {n}, argument {i}: {}", says.value(value)));
            }
        }
        called.push(format!("call {n}, SP: a multiple of {}", call.aligned));
        if call.pointer.is_some() {
            let held = call.frame.range(Offset(0)..).filter(|(_, word)| !word.is_older());
            // Which call it is goes without saying where there is one.
            let which = if way.call.len() == 1 { String::new() } else { format!("call {n}: ") };
            frame.extend(counted(held.map(|(_, word)| says.value(word))).map(|what| format!("{which}{what}")));
        }
    }
    let stores = observed.store.iter().flat_map(|store| &store.shows).map(|what| says.shows(what));
    vec![
        ("what is called", called),
        ("what a handler finds in its frame", frame),
        ("what a handler's stores change", counted(stores).collect()),
        ("where it goes", says.leave(way)),
        ("what is kept", counted(way.leave.kept.iter().map(|name| says.named(name))).collect()),
        ("calls and returns", says.returns(way)),
    ]
}

struct Roles<'a> {
    abi: &'a Abi,
    site: &'a Site,
}

impl Roles<'_> {
    fn leave(&self, way: &Way) -> Vec<String> {
        let mut all = match &way.leave.end {
            End::Goes { to, by } => vec![format!("to {}, by {by}", self.value(to))],
            End::Never { never } => vec![never.clone()],
        };
        if !way.leave.flags {
            all.push("flags are lost".to_owned());
        }
        all
    }

    fn returns(&self, way: &Way) -> Vec<String> {
        let mut all = Vec::new();
        if !way.mispaired.is_empty() {
            all.push(format!("{} go elsewhere than behind their call", way.mispaired.len()));
        }
        if way.unreturned > 0 {
            all.push(format!("{} calls without a return", way.unreturned));
        }
        all
    }

    /// Where a stored word is found again.
    fn shows(&self, shows: &Shows) -> String {
        match shows {
            Shows::Register(name) => self.named(name),
            Shows::Argument(name, call) => format!("{} at call {call}", self.named(name)),
            Shows::To | Shows::CallerWord(_) | Shows::Callee(_) => shows.to_string(),
        }
    }

    fn named(&self, name: &str) -> String {
        self.abi.find(name).map_or_else(|| name.to_owned(), |reg| self.register(reg))
    }

    /// A value, with what its register or word is for.
    fn value(&self, value: &Value) -> String {
        let Term { root, add, part: Part::All } = value.term() else { return value.to_string() };
        let plus = Plus(*add);
        match root {
            Root::Reg(reg) if *reg != self.abi.sp => format!("{}{plus}", self.register(*reg)),
            Root::Content(_) if self.is_at(root, self.site.pc) => format!("pc{plus}"),
            Root::Content(_) if self.is_at(root, self.site.parent_ip) => format!("parent_ip{plus}"),
            Root::Frame => "the frame's address".to_owned(),
            Root::Left(call, reg) => match self.abi.rets.iter().position(|r| r == reg) {
                Some(n) => format!("result {n} of call {call}{plus}"),
                None => format!("{} as call {call} left it{plus}", self.register(*reg)),
            },
            _ => value.to_string(),
        }
    }

    /// Is it what is there at the entry?
    fn is_at(&self, root: &Root, loc: Loc) -> bool {
        match (root, loc) {
            (Root::Reg(reg), Loc::Reg(at)) => *reg == at,
            (Root::Content(at), Loc::Stack(off)) => **at == Term::from(Root::Reg(self.abi.sp)).plus(off.into()),
            _ => false,
        }
    }

    /// What a register is for.
    fn register(&self, reg: Reg) -> String {
        let abi = self.abi;
        match abi.args.iter().position(|r| *r == reg) {
            _ if self.is_at(&Root::Reg(reg), self.site.pc) => "pc".to_owned(),
            _ if self.is_at(&Root::Reg(reg), self.site.parent_ip) => "parent_ip".to_owned(),
            Some(n) => format!("argument {n}"),
            None if reg == abi.fp => "frame pointer".to_owned(),
            None if reg == abi.sret => "result address".to_owned(),
            None if abi.platform.contains(reg) => "platform register".to_owned(),
            None if abi.callee_saved.contains(reg) => "callee-saved register".to_owned(),
            None if Some(reg) == abi.link => "link register".to_owned(),
            None => "scratch register".to_owned(),
        }
    }
}

/// How often each is there.
fn counted(all: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    all.for_each(|what| *counts.entry(what).or_default() += 1);
    counts.into_iter().map(|(what, n)| if n == 1 { what } else { format!("{n} times {what}") })
}
