// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract of an image: the words of the function's arguments by the psABI, and who is called with what.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::harness::{Written, around, code_of, lists};
use super::machine::Machine;
use super::model::{Model, Program};
use crate::failure::Failure;
use crate::tools::tramptool;

/// What the tool says of a prototype.
#[derive(Clone, Deserialize)]
struct Words {
    words: Vec<String>,
    live: toml::Table,
    result: Option<toml::Table>,
}

#[derive(Deserialize)]
struct Said {
    trampoline: Vec<Words>,
}

/// Prototypes that were asked for.
pub struct Placed<'m> {
    machine: &'m Machine,
    profile: String,
    known: BTreeMap<String, Words>,
}

impl Placed<'_> {
    pub fn new<'m>(machine: &'m Machine, version: &str) -> Placed<'m> {
        Placed { machine, profile: format!("linux-{version}"), known: BTreeMap::new() }
    }

    fn words(&mut self, signature: &str) -> Result<Words, Failure> {
        if let Some(words) = self.known.get(signature) {
            return Ok(words.clone());
        }
        let mut tool = tramptool();
        tool.args([
            "gen",
            "programs",
            "--arch",
            &self.machine.arch,
            "--profile",
            &self.profile,
            "--own-form",
            "--sig",
            signature,
        ]);
        tool.args(["--function", "f", "--fentry", "p", "--fexit", "q", "--emit", "contract", "-o", "-"]);
        let out = crate::tools::call(&mut tool)?.out;
        let said: Said = toml::from_str(&out).map_err(|e| Failure::new(signature, e.to_string(), "see the tool"))?;
        let words = said.trampoline.into_iter().next();
        let words = words.ok_or_else(|| Failure::new(signature, "no trampoline", "see the tool"))?;
        self.known.insert(signature.to_owned(), words.clone());
        Ok(words)
    }

    /// The contract of what a writer wrote for a model.
    pub fn contract(&mut self, model: &Model, written: &Written) -> Result<String, Failure> {
        let Words { words, mut live, mut result } = self.words(&model.places())?;
        if model.tail_calls {
            let counter = self.machine.counts.as_ref().map(|counts| counts.register.clone());
            with_registers(&mut live, counter);
            result.as_mut().into_iter().for_each(|result| with_registers(result, self.machine.program_result.clone()));
        }
        let (machine, here) = (self.machine, self.machine.here);
        let called = model.call_orig();
        let mut lines = vec![
            format!("arch = {:?}\nprofile = {:?}\nabout = \"an image\"\n", machine.arch, self.profile),
            machine.thunk.map_or(String::new(), |at| format!("addresses = {{ __x86_return_thunk = \"{at:#x}\" }}\n")),
            "[[trampoline]]\nsymbol = \"image\"\nkind = \"programs\"\ngeneral-handlers = true".to_owned(),
            format!("words = [{}]", sized(model, &words).join(", ")),
            format!("live = {}\nflags = {:?}", inline(&live), written.flags),
            format!("stack-align = {}", machine.stack_align),
            format!("programs = [\n    {},\n]", programs(model, written, machine).join(",\n    ")),
        ];
        if called || model.ip_arg {
            lines.push(format!("function = \"{:#x}\"\nresume = {}", here.function, machine.resume));
        }
        lines.extend(model.ip_arg.then(|| "ip-is-start = true".to_owned()));
        if called {
            let [enter, exit, im] = [written.tramp_enter, written.tramp_exit, written.im].map(|at| format!("{at:#x}"));
            lines.push(format!("around = {{ enter = {enter:?}, exit = {exit:?}, argument = {im:?} }}"));
            lines.push(format!("holds-own = {:?}", machine.own));
            lines.extend(machine.function_align.map(|align| format!("function-align = {align}")));
            lines.extend(machine.function_by_return.then(|| "function-by-return = true".to_owned()));
            lines.extend(
                result.as_ref().filter(|_| model.result.is_some()).map(|result| format!("result = {}", inline(result))),
            );
        }
        if let (true, Some(returned), Some(result)) = (model.struct_ops, model.result, result) {
            let register = machine.program_result.as_ref().map(|reg| format!(", register = {reg:?}"));
            let (bytes, signed, register) = (returned.size, returned.signed(), register.unwrap_or_default());
            lines.push(format!("result = {}", inline(&result)));
            lines.push(format!("program-result = {{ bytes = {bytes}, signed = {signed}{register} }}"));
        }
        lines.extend((machine.endbr && model.struct_ops).then(|| "landing-pad = true".to_owned()));
        if !machine.records.is_empty() {
            // Nothing returns to a site that is not there.
            let there = |record: &&String| !model.struct_ops || *record != "pc";
            lines.push(format!("records = {:?}", machine.records.iter().filter(there).collect::<Vec<_>>()));
        }
        if !written.labels.is_empty() {
            let label = |(name, at): &(String, u64)| format!("{name} = \"{at:#x}\"");
            let labels: Vec<String> = written.labels.iter().map(label).collect();
            lines.push(format!("labels = {{ {} }}", labels.join(", ")));
        }
        Ok(lines.join("\n") + "\n")
    }
}

/// The words of the context, those on the stack with their bytes.
fn sized(model: &Model, words: &[String]) -> Vec<String> {
    let sizes = model.args.iter().flat_map(|t| (0..t.size).step_by(8).map(|at| (t.size - at).min(8)));
    let word = |(at, bytes): (&String, u8)| match bytes < 8 && at.starts_with("stack+") {
        true => format!("{{ at = {at:?}, bytes = {bytes} }}"),
        false => format!("{at:?}"),
    };
    words.iter().zip(sizes).map(word).collect()
}

/// Registers beside those of the psABI.
fn with_registers(live: &mut toml::Table, more: Option<String>) {
    if let Some(registers) = live.get_mut("registers").and_then(toml::Value::as_array_mut) {
        registers.extend(more.map(toml::Value::String));
    }
}

/// A table in one line.
fn inline(table: &toml::Table) -> String {
    let pairs: Vec<String> = table.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// The programs, in an order in which those before the function and those after it are called.
fn programs(model: &Model, written: &Written, machine: &Machine) -> Vec<String> {
    let [before, after, instead] = lists(model);
    let one = |attach: &str, kind: usize, n: usize, program: &Program| {
        let [enter, exit] = around(machine.here, program.sleepable);
        let always = if model.may_refuse { "" } else { ", always = true" };
        let argument = written.programs[kind].get(n).copied().unwrap_or_default();
        format!(
            "{{ attach = {attach:?}, calls = \"{:#x}\", cookie = {}, around = {{ enter = \"{enter:#x}\", exit = \"{exit:#x}\", \
             argument = \"{argument:#x}\"{always} }} }}",
            code_of(machine.here, kind, n),
            program.cookie
        )
    };
    let fentry = before.iter().enumerate().map(|(n, p)| one(if p.session { "fsession" } else { "fentry" }, 0, n, p));
    let fmod_ret = instead.iter().enumerate().map(|(n, p)| one("fmod-ret", 2, n, p));
    // Sessions are told already.
    let fexit = after.iter().enumerate().filter(|(_, p)| !p.session).map(|(n, p)| one("fexit", 1, n, p));
    match model.late_sessions {
        true => fexit.chain(fentry).chain(fmod_ret).collect(),
        false => fentry.chain(fmod_ret).chain(fexit).collect(),
    }
}
