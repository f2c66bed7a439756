//! What was observed, without the names of an architecture: what a register is for, instead of which it is.

use std::collections::BTreeMap;

use codegen::arch::site::Site;
use codegen::words::abi::{Abi, Loc};

use super::observed::{Observed, Way};

/// What it does in each role, in words that have the same meaning on every architecture; the roles are always the same.
pub fn roles_of(observed: &Observed, abi: &Abi, site: &Site) -> Vec<(&'static str, Vec<String>)> {
    // The way on which most is called is what it is for.
    let most =
        observed.path.iter().filter(|way| way.leave.ends).max_by_key(|way| (way.call.len(), way.leave.kept.len()));
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
            let held = call.frame.iter().filter(|(at, word)| !at.starts_with('-') && *word != "older");
            // Which call it is goes without saying where there is one.
            let which = if way.call.len() == 1 { String::new() } else { format!("call {n}: ") };
            frame.extend(counted(held.map(|(_, word)| says.value(word))).map(|what| format!("{which}{what}")));
        }
    }
    let stores = observed.store.iter().flat_map(|store| &store.shows).map(|what| says.value(what));
    vec![
        ("what is called", called),
        ("what a handler finds in its frame", frame),
        ("what a handler's stores change", counted(stores).collect()),
        ("where it goes", says.leave(way)),
        ("what is kept", counted(way.leave.kept.iter().map(|name| says.value(name))).collect()),
        ("calls and returns", says.returns(way)),
    ]
}

struct Roles<'a> {
    abi: &'a Abi,
    site: &'a Site,
}

impl Roles<'_> {
    fn leave(&self, way: &Way) -> Vec<String> {
        let mut all = vec![format!("to {}, by {}", self.value(&way.leave.to), way.leave.by)];
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

    /// A value, with what its register or word is for.
    fn value(&self, text: &str) -> String {
        let end = text.find(['+', '-', ' ']).filter(|_| !text.starts_with('[')).unwrap_or(text.len());
        let end = if text.starts_with('[') { text.find(']').map_or(end, |at| at + 1) } else { end };
        let (name, rest) = text.split_at(end);
        let named = |loc: Loc| match loc {
            Loc::Reg(reg) => self.abi.name(reg).to_owned(),
            Loc::Stack(at) => format!("[stack+{at:#x}]"),
        };
        if name == named(self.site.pc) {
            return format!("pc{rest}");
        }
        if name == named(self.site.parent_ip) {
            return format!("parent_ip{rest}");
        }
        if name.starts_with("&frame") {
            return "the frame's address".to_owned();
        }
        let Some(reg) = self.abi.find(name) else { return text.to_owned() };
        let position = |set: &[codegen::words::abi::Reg]| set.iter().position(|r| *r == reg);
        let role = match (position(self.abi.args), rest.contains(" of call")) {
            (_, true) => {
                position(self.abi.rets).map_or_else(|| "scratch register".to_owned(), |n| format!("result {n}"))
            }
            (Some(n), false) => format!("argument {n}"),
            (None, false) if reg == self.abi.fp => "frame pointer".to_owned(),
            (None, false) if reg == self.abi.sret => "result address".to_owned(),
            (None, false) if self.abi.platform.contains(reg) => "platform register".to_owned(),
            (None, false) if self.abi.callee_saved.contains(reg) => "callee-saved register".to_owned(),
            (None, false) if Some(reg) == self.abi.link => "link register".to_owned(),
            (None, false) => "scratch register".to_owned(),
        };
        role + rest
    }
}

/// How often each is there.
fn counted(all: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    all.for_each(|what| *counts.entry(what).or_default() += 1);
    counts.into_iter().map(|(what, n)| if n == 1 { what } else { format!("{n} times {what}") })
}
