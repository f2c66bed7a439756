//! Contracts written as files, in the language that `file` reads.

use std::fmt::Write;

use codegen::arch::harden::ReturnStyle;
use codegen::arch::machine::Machine;
use codegen::ask::frame::{Content, FrameLayout, Stores};
use codegen::ask::kind::{Direct, Form};
use codegen::ask::live::{Live, Word};
use codegen::ask::spec::Bracket;
use codegen::contract::{Contract, promised};
use codegen::profile::Convention;
use codegen::words::abi::RegSet;
use codegen::words::error::{Error, Result};
use codegen::words::recorder::Events;

/// The columns in which a comment ends.
const WIDTH: usize = 120;

/// The parts of a contract file besides the contracts of its trampolines.
pub struct Head<'a> {
    /// The subject of the contract, in a sentence.
    pub about: &'a str,
    /// The profile under which they are judged.
    pub convention: &'a Convention,
    /// The names of vector registers and of flags.
    pub machine: &'a Machine,
    /// Offsets in what `op` points to, of the function to call and of the direct trampoline; where a trampoline reads them.
    pub op_offsets: Option<(u64, u64)>,
}

/// The file for these contracts, each with the label of its patchable call, if it has one.
///
/// # Errors
/// Contracts of two architectures, or what the language has no word for.
pub fn contract_text(head: &Head, contracts: &[(Contract, Option<String>)]) -> Result<String> {
    let Some((first, _)) = contracts.first() else { return Err(Error::new("a contract of no trampoline")) };
    let mut file = File { out: String::new(), frames: Vec::new() };
    file.say("", "Written by tramptool gen --emit contract: see docs/contracts.md for what else it may say.");
    file.key("arch", &quoted(first.facts.name));
    file.key("profile", &quoted(head.convention.argument));
    file.key("about", &quoted(head.about));
    if let Some((func, direct_call)) = head.op_offsets {
        let _ = write!(file.out, "\n[ftrace-ops]\nfunc = {func}\ndirect_call = {direct_call}\n");
    }
    let mut names = Vec::new();
    for (contract, _) in contracts {
        names.push(file.frame(contract)?);
    }
    for ((contract, slot), frame) in contracts.iter().zip(names) {
        file.trampoline(contract, (slot.as_deref(), frame.as_deref()), head.machine)?;
    }
    Ok(file.out)
}

/// The text so far.
struct File {
    out: String,
    /// Names and texts of the layouts.
    frames: Vec<(String, String)>,
}

impl File {
    fn key(&mut self, key: &str, value: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "{key} = {value}");
    }

    fn when(&mut self, key: &str, value: bool) {
        if value {
            self.key(key, "true");
        }
    }

    fn list(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            self.key(key, &listed(values));
        }
    }

    /// A comment, broken into lines.
    fn say(&mut self, before: &str, text: &str) {
        let mut line = format!("#{before}");
        for word in text.split(' ') {
            if line.len() + 1 + word.len() > WIDTH {
                let _ = writeln!(self.out, "{line}");
                line = "#  ".to_owned();
            }
            line += " ";
            line += word;
        }
        let _ = writeln!(self.out, "{line}");
    }

    /// Write the structure that its callees are given a pointer to, unless it stands there already. Returns its name.
    fn frame(&mut self, contract: &Contract) -> Result<Option<String>> {
        let layout = &contract.frame;
        if layout.c_struct.is_empty() {
            return Ok(None);
        }
        let text = fields(contract, layout)?;
        if let Some((name, _)) = self.frames.iter().find(|(_, known)| *known == text) {
            return Ok(Some(name.clone()));
        }
        let word = contract.kind.traits().word;
        let of_form = contract.kind.around().map(|around| format!("{word}-{}", around.form.name()));
        let name = of_form.unwrap_or_else(|| word.to_owned());
        let _ = write!(self.out, "\n[frame.{name}]\n{text}");
        self.frames.push((name.clone(), text));
        Ok(Some(name))
    }

    fn trampoline(
        &mut self,
        contract: &Contract,
        (slot, frame): (Option<&str>, Option<&str>),
        machine: &Machine,
    ) -> Result<()> {
        let abi = &contract.facts.abi;
        let _ = writeln!(self.out);
        contract.sentences().iter().for_each(|sentence| self.say("", sentence));
        let _ = writeln!(self.out, "[[trampoline]]");
        self.key("symbol", &quoted(&contract.name));
        self.key("kind", &quoted(contract.kind.traits().word));
        self.what_it_is_for(contract);
        let by_name = !contract.kind.calls_back() || (slot.is_none() && !contract.early_direct);
        if !contract.callee.is_empty() && by_name {
            self.key("calls", &quoted(&contract.callee));
        }
        let through = contract.convention.calls_through.filter(|_| contract.kind.calls_back() && by_name);
        through.iter().for_each(|variable| self.key("calls-through", &quoted(variable)));
        self.called_around(contract);
        slot.iter().for_each(|slot| self.key("slot", &quoted(slot)));
        frame.iter().for_each(|frame| self.key("frame", &quoted(frame)));
        self.key("stack-align", &contract.stack_align.to_string());
        let (kept, _) = promised(contract.kind, contract.facts, &contract.convention.site, contract.guard);
        let names = |set: RegSet| set.iter().map(|reg| quoted(abi.name(reg))).collect::<Vec<_>>();
        let mut keeps = names(contract.kept.minus(kept));
        let vectors = machine.vectors.iter().enumerate().filter(|(i, _)| contract.vectors_kept >> i & 1 == 1);
        keeps.extend(vectors.map(|(_, vector)| quoted(vector.name)));
        self.list("keeps", &keeps);
        if contract.kind.is_in_the_middle() && !machine.clear_flags.is_empty() {
            let flags: Vec<String> = machine.clear_flags.iter().map(|(name, _)| quoted(name)).collect();
            self.key("site", &format!("{{ clear-flags = {} }}", listed(&flags)));
        }
        self.list("loses", &names(kept.minus(contract.kept)));
        self.when("keeps-flags", contract.flags_kept);
        self.when("early-direct", contract.early_direct);
        self.when("direct-jumps", contract.direct_jumps);
        if contract.direct {
            self.list("direct-loses", &names(contract.direct_lost));
        }
        self.when("landing-pad", contract.landing_pad);
        self.when("no-entry-pad", contract.landing_pad && !contract.entry_pad && !contract.kind.returned_to());
        if let Some(before) = contract.type_before {
            self.key("type-before", &before.to_string());
        }
        if let Some(guard) = contract.guard {
            self.key("guard", &quoted(guard.name()));
        }
        if let Some(returns) = contract.returns.and_then(ReturnStyle::name) {
            self.key("returns", &quoted(returns));
        }
        if contract.unpaired > 0 {
            self.key("unpaired", &contract.unpaired.to_string());
        }
        if contract.direct_mispredicted > 0 {
            self.key("direct-mispredicted", &contract.direct_mispredicted.to_string());
        }
        let mut records = Vec::new();
        for record in contract.frame.records.iter().rev() {
            records.push(quoted(&word(contract, record.ret)?));
        }
        self.list("records", &records);
        self.when("marks-regs", contract.marks_regs);
        Ok(())
    }

    /// The functions that the contract is for, and the arguments that it passes on.
    fn what_it_is_for(&mut self, contract: &Contract) {
        if let Some(around) = contract.kind.around() {
            self.key("form", &quoted(around.form.name()));
            if around.form == Form::Frame {
                self.key("args", &around.args.to_string());
            }
        }
        if let Some(recorder) = contract.kind.recorder() {
            if recorder.shadow {
                self.key("form", &quoted(Form::Shadow.name()));
            }
            self.key("events", &quoted(recorder.events.name()));
            if recorder.events != Events::Count {
                self.key("clock", &quoted(recorder.clock.name()));
                self.key("id", &recorder.id.to_string());
                if recorder.args > 0 {
                    self.key("args", &recorder.args.to_string());
                }
                self.when("with-result", recorder.result);
                self.when("unwind", recorder.unwind);
                self.when("pair", recorder.pair);
                self.when("every-register", recorder.keeps_all);
            }
            if recorder.tls {
                self.key("tls", &quoted(&contract.tls));
            }
        }
        if let Some(Direct { args, ip, jumped, .. }) = contract.kind.direct() {
            self.key("args", &args.to_string());
            self.when("ip", ip);
            self.when("jump", jumped);
        }
        if let Some(live) = contract.kind.live() {
            self.key("live", &carried(contract, live));
            self.when("general-handlers", live.general_callee);
        }
        if let Some(programs) = contract.kind.programs() {
            let word = |word: &Word| match word {
                Word::Reg(reg) => quoted(contract.facts.abi.name(*reg)),
                Word::Stack(n) => quoted(&format!("stack+{}", 8 * u32::from(*n))),
            };
            self.key("words", &listed(&programs.words.iter().flatten().map(word).collect::<Vec<_>>()));
            if programs.call_orig && programs.result != Live::default() {
                self.key("result", &carried(contract, programs.result));
            }
            let flags: Vec<String> = programs.flags().into_iter().map(quoted).collect();
            self.list("flags", &flags);
        }
    }

    /// The programs that it calls, and the function.
    fn called_around(&mut self, contract: &Contract) {
        if !contract.programs.is_empty() {
            let _ = writeln!(self.out, "programs = [");
            let mut brackets = contract.stated.brackets();
            for p in &contract.programs {
                let attach = p.attach.option().trim_start_matches('-');
                // A number in TOML has a sign.
                let cookie = match p.cookie {
                    0 if contract.stated.around_programs.is_empty() => String::new(),
                    0.. => format!(", cookie = {:#x}", p.cookie),
                    _ => format!(", cookie = {}", p.cookie),
                };
                let around = brackets.next().flatten().map(|around| format!(", around = {}", bracket(around)));
                let (calls, around) = (quoted(&p.symbol), around.unwrap_or_default());
                let _ = writeln!(self.out, "    {{ attach = {}, calls = {calls}{cookie}{around} }},", quoted(attach));
            }
            let _ = writeln!(self.out, "]");
        }
        if let Some(around) = &contract.stated.around_function {
            self.key("around", &bracket(around));
        }
        let own: Vec<String> = contract.stated.own.iter().map(|reg| quoted(contract.facts.abi.name(reg))).collect();
        self.list("holds-own", &own);
        self.when("ip-is-start", contract.stated.ip_is_start);
        if let Some(traced) = &contract.traced {
            self.key("function", &quoted(&traced.function));
            self.key("resume", &traced.resume.to_string());
            self.when("signed", traced.signed);
            if contract.kind.around().is_some() {
                self.key("exit", &quoted(&traced.exit));
            }
        }
    }
}

/// Two functions that are called around others.
fn bracket(around: &Bracket) -> String {
    let Bracket { enter, exit, argument, .. } = around;
    let argument = argument.as_ref().map(|argument| format!(", argument = {}", quoted(argument))).unwrap_or_default();
    format!("{{ enter = {}, exit = {}{argument} }}", quoted(enter), quoted(exit))
}

/// The text of a layout.
fn fields(contract: &Contract, layout: &FrameLayout) -> Result<String> {
    let mut out = format!("struct = {}\nsize = {}\nfield = [\n", quoted(layout.c_struct), layout.c_size);
    let is_result = |content| matches!(content, Content::Result(_));
    for f in layout.fields.iter().filter(|f| !f.member.is_empty() && !is_result(f.content)) {
        let holds = quoted(&word(contract, f.content)?);
        let _ = write!(out, "    {{ member = {}, offset = {}, holds = {holds}", quoted(f.member), f.offset);
        if f.stores == Stores::TakeEffect {
            out += ", stores = \"take-effect\"";
        }
        let result = layout.fields.iter().filter(|r| r.offset == f.offset).find_map(|r| match r.content {
            Content::Result(reg) => Some(reg),
            _ => None,
        });
        if let Some(result) = result {
            let _ = write!(out, ", result = {}", quoted(contract.facts.abi.name(result)));
        }
        out += " },\n";
    }
    Ok(out + "]\n")
}

fn word(contract: &Contract, content: Content) -> Result<String> {
    content.word(&contract.facts.abi).ok_or_else(|| {
        Error::new(format!("{}: contracts have no word for a frame that holds {content:?}", contract.name))
    })
}

/// The live registers, or those that come back.
fn carried(contract: &Contract, live: Live) -> String {
    let names: Vec<String> = live.regs.iter().map(|reg| quoted(contract.facts.abi.name(reg))).collect();
    let mut text = format!("{{ registers = {}", listed(&names));
    for (key, n) in [("vectors", live.vectors), ("stack", live.stack)] {
        if n > 0 {
            let _ = write!(text, ", {key} = {n}");
        }
    }
    text + " }"
}

fn listed(values: &[String]) -> String {
    format!("[{}]", values.join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
