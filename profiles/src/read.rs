//! Text to profile.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Table, Value as Toml};

use crate::line::{self, Step};
use crate::schema::{
    ArchIn, CallbackIn, FieldIn, FrameIn, KernelIn, ObjtoolIn, OfferIn, OptionIn, ProfileIn, ProgramsIn, RecordIn,
    StoresIn,
};
use codegen::arch::facts::{Facts, Number, NumberOf};
use codegen::arch::site::Site;
use codegen::ask::frame::{Content, Field, FrameLayout, Record, Stores, with_results};
use codegen::ask::kind::{Kind, Regs, TailCall};
use codegen::contract::promised;
use codegen::profile::{
    Callback, Convention, ExitConvention, FrameTable, FrameUse, FrameVariant, KINDS, Kernel, Objtool, Offer,
    OptionRule, Profile, ProgramsConvention, WrittenPrograms,
};
use codegen::words::abi::{Abi, Loc, RegSet};
use codegen::words::error::{Error, Result};
use codegen::words::intern::intern;
use codegen::words::program::Program;
use codegen::words::step::{KernelLabel, Value};

/// The text of a profile, and its name in messages.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// A file's name, or that of a profile that is compiled in.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
}

/// The JSON schema of profiles.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(ProfileIn)
}

/// The architectures for which a profile is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope<'a> {
    /// All architectures: a table for any other is an error.
    All(&'a [&'static Facts]),
    /// One architecture: tables for others are ignored.
    One(&'static Facts),
}

/// Read a profile for some architectures; `known` finds the text of a profile that it extends.
///
/// # Errors
/// Text that does not parse, unknown names, or missing values; the message has file, line, and valid values.
pub(crate) fn read<'a>(
    source: Source<'a>,
    known: &dyn Fn(&str) -> Result<Source<'a>>,
    scope: Scope,
) -> Result<Profile> {
    let mut reader = Reader { sources: Vec::new() };
    let own = reader.alone(source)?;
    if own.extends.is_none() {
        return reader.profile(&own, scope);
    }
    let table = reader.chain(source, own, known)?;
    let file = ProfileIn::deserialize(Toml::Table(table)).map_err(|e| Error::new(format!("{}: {e}", source.name)))?;
    reader.profile(&file, scope)
}

/// The texts of a profile and of those that it extends, the requested one first.
pub(crate) struct Reader<'a> {
    sources: Vec<Source<'a>>,
}

pub(crate) type Path<'p> = &'p [Step];

/// `keys![ "arch", name, "site" ]`.
macro_rules! keys {
    ($($step:expr),* $(,)?) => { &[$($crate::line::Step::from($step)),*][..] };
}
pub(crate) use keys;

pub(crate) fn join(path: Path, more: Path) -> Vec<Step> {
    [path, more].concat()
}

fn parse<T: serde::de::DeserializeOwned>(Source { name, text }: Source) -> Result<T> {
    toml::from_str(text).map_err(|e: toml::de::Error| {
        let line = line::line(text, e.span().map_or(0, |s| s.start));
        Error::new(format!("{name}:{line}: {}", e.message().replace('\n', " ")))
    })
}

impl<'a> Reader<'a> {
    /// Parse a profile without the one that it extends, so that messages have the line.
    fn alone(&mut self, source: Source<'a>) -> Result<ProfileIn> {
        let own = parse(source)?;
        self.sources.push(source);
        Ok(own)
    }

    /// The entries of a profile, over those of the profile that it extends.
    fn chain(
        &mut self,
        source: Source<'a>,
        own: ProfileIn,
        known: &dyn Fn(&str) -> Result<Source<'a>>,
    ) -> Result<Table> {
        /// The most profiles in a chain. A longer chain is a cycle.
        const DEEPEST: usize = 8;
        let table = parse(source)?;
        let Some(parent) = own.extends else { return Ok(table) };
        if self.sources.len() > DEEPEST {
            return Err(self.at(keys!["extends"], "extends itself, or too many; valid: up to 8 profiles"));
        }
        let parent = known(&parent).map_err(|e| self.at(keys!["extends"], e))?;
        let parents = self.alone(parent)?;
        let mut all = self.chain(parent, parents, known)?;
        merge(&mut all, table);
        Ok(all)
    }

    /// An error at this place of the first text that has it.
    pub(crate) fn at(&self, path: Path, what: impl Into<Error>) -> Error {
        let what = what.into();
        let places: Vec<_> = self.sources.iter().map(|s| (s.name, line::of(s.text, path))).collect();
        let whole = places.iter().find(|(_, place)| place.is_some_and(|(_, whole)| whole));
        let nearest = places.iter().find(|(_, place)| place.is_some());
        match whole.or(nearest).or(places.first()) {
            Some((name, Some((line, _)))) => what.at(format_args!("{name}:{line}")),
            Some((name, None)) => what.at(name),
            None => what,
        }
    }

    /// A required value, at the last step of the path.
    pub(crate) fn need<'v, T>(&self, value: &'v Option<T>, path: Path) -> Result<&'v T> {
        value.as_ref().ok_or_else(|| {
            let key = match path.last() {
                Some(Step::Key(key)) => key.as_str(),
                _ => "entry",
            };
            self.at(path, format!("`{key}` is missing"))
        })
    }

    /// One of a list of words.
    pub(crate) fn word<T: Copy>(&self, text: &str, words: &[(&str, T)], what: &str, path: Path) -> Result<T> {
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.ok_or_else(|| self.at(path, Error::unknown(what, text, words.iter().map(|(word, _)| *word))))
    }

    /// A symbol or name of the text, for the assembler.
    pub(crate) fn symbol(&self, text: &str, path: Path) -> Result<&'static str> {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
        let good = text.chars().all(word) && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        good.then(|| intern(text))
            .ok_or_else(|| self.at(path, format!("'{text}' is no symbol; valid: letters, digits, `_`, `.` and `$`")))
    }

    /// A sentence for the text: what a comment line can hold.
    pub(crate) fn sentence(&self, text: &str, path: Path) -> Result<&'static str> {
        match text.contains(|c: char| c.is_control()) || text.contains("*/") {
            false => Ok(intern(text)),
            true => Err(self.at(path, "has control characters or `*/`; valid: one line of text")),
        }
    }

    fn profile(&self, file: &ProfileIn, scope: Scope) -> Result<Profile> {
        let name = self.sentence(self.need(&file.name, keys!["name"])?, keys!["name"])?;
        let about = self.sentence(self.need(&file.about, keys!["about"])?, keys!["about"])?;
        let kernels = file.kernels.iter().map(|v| intern(v)).collect();
        let (mut conventions, mut refused) = (Vec::new(), Vec::new());
        for (arch, of) in &file.arch {
            let facts = match scope {
                Scope::All(facts) => facts,
                Scope::One(facts) if facts.name == arch => &[facts],
                Scope::One(_) => continue,
            };
            let valid = facts.iter().map(|f| f.name);
            let known = facts.iter().find(|f| f.name == arch);
            let facts =
                known.ok_or_else(|| self.at(keys!["arch", &**arch], Error::unknown("architecture", arch, valid)))?;
            match of.refused.as_deref().filter(|why| !why.is_empty()) {
                Some(why) => refused.push((facts.name, self.sentence(why, keys!["arch", &**arch, "refused"])?)),
                None => conventions.push(self.convention(name, file, of, facts)?),
            }
        }
        Ok(Profile { name, about, kernels, conventions, refused })
    }

    fn convention(
        &self,
        profile: &'static str,
        file: &ProfileIn,
        of: &ArchIn,
        facts: &'static Facts,
    ) -> Result<Convention> {
        let at = keys!["arch", facts.name];
        let callback = self.callback(file)?;
        let exit_handler = self.need(&file.exit_handler, keys!["exit-handler"])?;
        let rethook = file.trampoline.contains_key("rethook");
        let rethook_handler = match &file.rethook_handler {
            None if rethook => return Err(self.at(keys!["rethook-handler"], "needed by [trampoline.rethook]")),
            handler => handler.as_ref(),
        };
        let labels = of
            .labels
            .iter()
            .enumerate()
            .map(|(i, label)| self.word(label, &KernelLabel::WORDS, "label", &join(at, keys!["labels", i])));
        let unpadded = of
            .no_landing_pad
            .iter()
            .enumerate()
            .map(|(i, kind)| self.word(kind, &KINDS, "trampoline", &join(at, keys!["no-landing-pad", i])));
        let exit = join(at, keys!["exit", "arrives"]);
        let mut numbers = Vec::new();
        for (key, (symbol, value)) in &of.numbers {
            let path = join(at, keys!["numbers", &**key]);
            let of = self.word(key, &NumberOf::ALL, "number", &path)?;
            numbers.push(Number { of, symbol: self.symbol(symbol, &path)?, value: *value });
        }
        numbers.sort_by_key(|n| n.of);
        let mut options = Vec::new();
        for (name, rule) in &of.option {
            options.push(self.option(name, rule, facts)?);
        }
        options.sort_by_key(|o| o.index);
        let frames = self.frames(&of.frame, facts, &join(at, keys!["frame"]))?;
        let trampolines = self.offers(&file.trampoline, facts.name, &frames)?;
        let entry = trampolines.iter().find(|t| t.kind == Kind::Entry(Regs::Args)).map(|t| t.symbol);
        let site = self.site(&of.site, entry, facts, &join(at, keys!["site"]))?;
        self.keeps_live(&site, &frames, facts)?;
        Ok(Convention {
            profile,
            argument: self.sources.first().map_or(profile, |s| intern(s.name)),
            facts,
            exit_handler: self.symbol(exit_handler, keys!["exit-handler"])?,
            rethook_handler: rethook_handler.map_or(Ok(""), |name| self.symbol(name, keys!["rethook-handler"]))?,
            trampolines,
            no_landing_pad: unpadded.collect::<Result<_>>()?,
            labels: labels.collect::<Result<_>>()?,
            calls_through: match &of.calls_through {
                Some(name) => Some(self.symbol(name, &join(at, keys!["calls-through"]))?),
                None => None,
            },
            site,
            exit: ExitConvention {
                arrives: self.sentence(self.need(&of.exit.arrives, &exit)?, &exit)?,
                unpaired: of.exit.unpaired,
                mispredicted: of.exit.mispredicted,
            },
            programs: self.programs(&of.programs, &facts.abi, &join(at, keys!["programs"]))?,
            copies: of.copies.as_ref().map(|c| self.copies(c, facts, &join(at, keys!["copies"]))).transpose()?,
            alternatives: of
                .alternatives
                .map(|a| self.alternatives(a, &join(at, keys!["alternatives"])))
                .transpose()?,
            marks_regs: of.marks_regs,
            orc: of.orc.as_deref().map(intern),
            thread: of.thread.as_deref().map(|reg| self.thread(reg, facts)).transpose()?,
            clock: of.clock.as_deref().map(|name| self.symbol(name, &join(at, keys!["clock"]))).transpose()?,
            numbers,
            kernel: of.kernel.as_ref().map(|k| self.kernel(k, &join(at, keys!["kernel"]))).transpose()?,
            options,
            frames,
            callback,
        })
    }

    fn frames(
        &self,
        frames: &BTreeMap<String, FrameIn>,
        facts: &Facts,
        at: Path,
    ) -> Result<Vec<(FrameUse, FrameTable)>> {
        let read = |(name, frame): (&String, &FrameIn)| {
            let path = join(at, keys![&**name]);
            Ok((self.word(name, &FrameUse::ALL, "frame", &path)?, self.frame(frame, facts, &path)?))
        };
        frames.iter().map(read).collect()
    }

    /// The thread pointer, which must be one that instructions support.
    fn thread(&self, register: &str, facts: &Facts) -> Result<&'static str> {
        let known = facts.threads.iter().copied();
        known.clone().find(|known| *known == register).ok_or_else(|| {
            let what = format!("thread pointer of {}", facts.name);
            self.at(keys!["arch", facts.name, "thread"], Error::unknown(&what, register, known))
        })
    }

    fn callback(&self, file: &ProfileIn) -> Result<Callback> {
        const WORDS: [(&str, Value); 4] =
            [("ip", Value::Ip), ("parent-ip", Value::ParentIp), ("op", Value::Op), ("fregs", Value::Fregs)];
        let at = keys!["callback"];
        let CallbackIn { symbol, arguments, op, prototype } = &file.callback;
        let list = join(at, keys!["arguments"]);
        let mut values = Vec::new();
        for (i, argument) in arguments.iter().enumerate() {
            let path = join(&list, keys![i]);
            let value = self.word(argument, &WORDS, "argument", &path)?;
            if values.contains(&value) {
                return Err(self.at(&path, format!("`{argument}` is there twice; valid: each argument once")));
            }
            values.push(value);
        }
        let symbol_at = join(at, keys!["symbol"]);
        let op_at = join(at, keys!["op"]);
        let op = op.as_ref().map(|op| self.symbol(op, &op_at)).transpose()?;
        if values.contains(&Value::Op) && op.is_none() {
            return Err(self.at(&op_at, "`op` is missing: the variable for the argument `op`"));
        }
        let prototype_at = join(at, keys!["prototype"]);
        let prototype = self.sentence(self.need(prototype, &prototype_at)?, &prototype_at)?;
        let Some((_, parameters)) = prototype.split_once('(') else {
            return Err(self.at(&prototype_at, format!("'{prototype}' is no call; valid: as in `func(ip, fregs)`")));
        };
        Ok(Callback {
            symbol: self.symbol(self.need(symbol, &symbol_at)?, &symbol_at)?,
            arguments: values,
            op,
            prototype,
            entry: intern(&format!("entry({parameters}")),
            entry_that_keeps: intern(&format!("entry({parameters}, which keeps parent_ip")),
        })
    }

    fn offers(
        &self,
        offers: &BTreeMap<String, OfferIn>,
        arch: &str,
        frames: &[(FrameUse, FrameTable)],
    ) -> Result<Vec<Offer>> {
        let mut all = Vec::new();
        for (key, offer) in offers {
            let path = keys!["trampoline", &**key];
            let kind = self.word(key, &KINDS, "trampoline", path)?;
            if let Some((frame, of)) = FrameUse::of(kind)
                && !frames.iter().any(|(f, _)| *f == of)
            {
                // Kretprobes need not have one: on arm64, their return is a breakpoint.
                if kind == Kind::Rethook {
                    continue;
                }
                return Err(self.at(path, format!("needs [arch.{arch}.frame.{frame}]")));
            }
            let symbol_at = join(path, keys!["symbol"]);
            let symbol = self.symbol(self.need(&offer.symbol, &symbol_at)?, &symbol_at)?;
            let mut labels = Vec::new();
            for (label, name) in &offer.labels {
                let path = join(path, keys!["labels", &**label]);
                labels.push((self.word(label, &KernelLabel::WORDS, "label", &path)?, self.symbol(name, &path)?));
            }
            all.push(Offer { kind, symbol, labels });
        }
        all.sort_by_key(|o| KINDS.iter().position(|(_, kind)| *kind == o.kind));
        Ok(all)
    }

    pub(crate) fn register(&self, name: &str, abi: &Abi, at: Path) -> Result<codegen::words::abi::Reg> {
        let valid = abi.regs.iter().map(|r| r.name);
        abi.find(name).ok_or_else(|| self.at(at, Error::unknown("register", name, valid)))
    }

    pub(crate) fn registers(&self, names: &[String], abi: &Abi, at: Path) -> Result<RegSet> {
        let each = names.iter().enumerate().map(|(i, name)| self.register(name, abi, &join(at, keys![i])));
        Ok(RegSet::of(&each.collect::<Result<Vec<_>>>()?))
    }

    /// A register, or `sp+N`.
    pub(crate) fn loc(&self, text: &str, abi: &Abi, at: Path) -> Result<Loc> {
        match text.strip_prefix("sp+").map(str::parse) {
            Some(Ok(offset)) => Ok(Loc::Stack(offset)),
            Some(Err(_)) => Err(self.at(at, format!("'{text}': valid: a register, or sp+ and a number of bytes"))),
            None => self.register(text, abi, at).map(Loc::Reg),
        }
    }

    fn programs(&self, programs: &ProgramsIn, abi: &Abi, at: Path) -> Result<ProgramsConvention> {
        let (tail_call, most) = (join(at, keys!["tail-call"]), programs.most.unwrap_or(Program::MOST));
        if !(1..=Program::MOST).contains(&most) {
            return Err(self.at(&join(at, keys!["most"]), format!("most = {most}; valid: 1 to {}", Program::MOST)));
        }
        let counted = programs.tail_call.as_ref().map(|counted| -> Result<TailCall> {
            let reg = self.register(&counted.register, abi, &join(&tail_call, keys!["register"]))?;
            Ok(TailCall { reg, returned: counted.returned })
        });
        let tail_call = counted.transpose()?;
        let at = join(at, keys!["written"]);
        let align = programs.written.function_align;
        if align.is_some_and(|align| !align.is_power_of_two()) {
            let message = format!("function-align = {}; valid: a power of 2", align.unwrap_or_default());
            return Err(self.at(&join(&at, keys!["function-align"]), message));
        }
        let written = WrittenPrograms {
            own: self.registers(&programs.written.own, abi, &join(&at, keys!["own"]))?,
            body_align: align,
            body_by_return: programs.written.function_by_return,
        };
        Ok(ProgramsConvention { most, sessions: programs.sessions, tail_call, written })
    }

    fn kernel(&self, kernel: &KernelIn, at: Path) -> Result<Kernel> {
        let pairs = |list: &[(String, String)]| list.iter().map(|(a, b)| (intern(a), intern(b))).collect();
        let symbol = join(at, keys!["symbol"]);
        Ok(Kernel {
            arch: self.symbol(self.need(&kernel.symbol, &symbol)?, &symbol)?,
            needs: pairs(&kernel.needs),
            numbers: kernel.numbers,
            direct_calls: kernel.direct_calls.as_deref().map(intern),
            sources: kernel.sources.iter().map(|file| intern(file)).collect(),
            objtool: kernel.objtool.map(|ObjtoolIn { sp, types }| Objtool { sp, types }),
            refuses: pairs(&kernel.refuses),
            ignores: pairs(&kernel.ignores),
        })
    }

    /// The index of an option of the architecture, and of one of its values.
    fn choice(&self, option: &str, value: Option<&str>, facts: &Facts, at: Path) -> Result<(usize, usize)> {
        let names = facts.options.iter().map(|o| o.name);
        let what = format!("option of {}", facts.name);
        let index = facts.options.iter().position(|o| o.name == option);
        let index = index.ok_or_else(|| self.at(at, Error::unknown(&what, option, names)))?;
        let values = facts.options.get(index).map_or(&[][..], |o| o.values);
        let Some(value) = value else { return Ok((index, 0)) };
        let found = values.iter().position(|v| *v == value);
        let what = format!("value for {option} of {}", facts.name);
        let found = found.ok_or_else(|| self.at(at, Error::unknown(&what, value, values.iter().copied())))?;
        Ok((index, found))
    }

    fn option(&self, name: &str, rule: &OptionIn, facts: &Facts) -> Result<OptionRule> {
        let at = keys!["arch", facts.name, "option", name];
        let (index, default) = self.choice(name, rule.default.as_deref(), facts, at)?;
        let mut config = Vec::new();
        for (i, means) in rule.config.iter().enumerate() {
            let path = join(at, keys!["config", i]);
            self.choice(name, Some(&means.value), facts, &path)?;
            config.push((intern(&means.value), means.set.iter().map(|s| intern(s)).collect()));
        }
        let mut cflags = Vec::new();
        for (i, means) in rule.cflags.iter().enumerate() {
            let path = join(at, keys!["cflags", i]);
            self.choice(name, Some(&means.value), facts, &path)?;
            cflags.push((intern(&means.value), means.flags.iter().map(|flag| intern(flag)).collect()));
        }
        Ok(OptionRule { index, default, fixed: rule.fixed, config, cflags })
    }

    fn frame(&self, frame: &FrameIn, facts: &Facts, at: Path) -> Result<FrameTable> {
        let (c_struct, size) = (join(at, keys!["struct"]), join(at, keys!["size"]));
        let c_size = *self.need(&frame.size, &size)?;
        let stack = frame.stack.unwrap_or(c_size);
        /// Bytes of the largest frame. The checker reads all of it whenever a callback is called.
        const LARGEST: i32 = 4096;
        if !(8..=LARGEST).contains(&c_size) || c_size % 8 != 0 || !(c_size..=LARGEST).contains(&stack) || stack % 8 != 0
        {
            let valid = format!("valid: multiples of 8 up to {LARGEST}, `stack` no less than `size`");
            return Err(self.at(&size, format!("size = {c_size}, stack = {stack}; {valid}")));
        }
        let fields = self.fields(&frame.field, stack, facts, &join(at, keys!["field"]))?;
        let mut results = Vec::new();
        for (member, reg) in &frame.results {
            let path = join(at, keys!["results", &**member]);
            if !fields.iter().any(|f| f.member == member) {
                let members = fields.iter().map(|f| f.member);
                return Err(self.at(&path, Error::unknown("member", member, members)));
            }
            results.push((member, self.register(reg, &facts.abi, &path)?));
        }
        let result = |member: &str| results.iter().find(|(m, _)| *m == member).map(|(_, reg)| *reg);
        let symbol = join(at, keys!["size-symbol"]);
        let layout = FrameLayout {
            c_struct: self.sentence(self.need(&frame.r#struct, &c_struct)?, &c_struct)?,
            c_size,
            size_symbol: match &frame.size_symbol {
                Some(name) => self.symbol(name, &symbol)?,
                None => "FRAME_SIZE",
            },
            size: stack,
            fields: with_results(fields, result),
            records: self.records(&frame.record, stack, &join(at, keys!["record"]))?,
            pushed: false,
        };
        let mut variants = Vec::new();
        for (i, when) in frame.when.iter().enumerate() {
            let path = join(at, keys!["when", i]);
            let (c_size, stack) = (when.size.unwrap_or(c_size), when.stack.unwrap_or(stack));
            if c_size < 8 || c_size % 8 != 0 || stack < c_size || stack > LARGEST || stack % 8 != 0 {
                return Err(
                    self.at(&path, format!("stack = {stack}; valid: multiples of 8 from {c_size} to {LARGEST}"))
                );
            }
            let records = when.record.as_ref().map(|r| self.records(r, stack, &join(&path, keys!["record"])));
            variants.push(FrameVariant {
                when: std::iter::once((&when.option, &when.value))
                    .chain(&when.and)
                    .map(|(option, value)| self.choice(option, Some(value), facts, &path))
                    .collect::<Result<_>>()?,
                absent: when.absent,
                c_size: when.size,
                size: when.stack,
                fields: self.fields(&when.field, stack, facts, &join(&path, keys!["field"]))?,
                records: records.transpose()?,
            });
        }
        Ok(FrameTable { layout, variants })
    }

    /// Check that registers that a trampoline preserves and its callback may clobber have slots in its frame.
    fn keeps_live(&self, site: &Site, frames: &[(FrameUse, FrameTable)], facts: &Facts) -> Result<()> {
        for (of, table) in frames {
            let kind = of.kind();
            // `pc` and `parent_ip` describe how return addresses are kept.
            let way = RegSet::of(&facts.abi.link.into_iter().collect::<Vec<_>>());
            let due = promised(kind, facts, site, None).0.minus(site.c_keeps(&facts.abi)).minus(way);
            let held = |reg| table.layout.fields.iter().any(|f| f.reloaded() && f.content == Content::Reg(reg));
            if let Some(reg) = due.iter().find(|reg| !held(*reg)) {
                let name = facts.abi.name(reg);
                let live = if kind.returned_to() { "returns" } else { "sites" };
                let other = if site.live.contains(reg) {
                    format!(", or another `live` in [arch.{}.site]", facts.name)
                } else {
                    String::new()
                };
                return Err(self.at(
                    keys!["arch", facts.name, "frame", of.key(), "field"],
                    format!(
                        "{name} is live at {live}, and no slot keeps it; valid: a field with `holds = \"{name}\"` and \
                         `stores = \"cannot-happen\"` outside the structure, or `stores = \"take-effect\"` in it{other}"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn fields(&self, fields: &[FieldIn], stack: i32, facts: &Facts, at: Path) -> Result<Vec<Field>> {
        let mut all: Vec<Field> = Vec::with_capacity(fields.len());
        for (i, field) in fields.iter().enumerate() {
            let path = join(at, keys![i]);
            let offset = field.offset;
            if offset < 0 || offset % 8 != 0 || offset > stack - 8 {
                let valid = format!("a multiple of 8 from 0 to {}", stack - 8);
                return Err(self.at(&join(&path, keys!["offset"]), format!("offset = {offset}; valid: {valid}")));
            }
            if let Some(other) = all.iter().find(|f| f.offset == offset || f.symbol == field.symbol) {
                let (symbol, other) = (&field.symbol, other.symbol);
                return Err(
                    self.at(&path, format!("{symbol} is where {other} is; valid: a name and a place of its own"))
                );
            }
            if field.stores == StoresIn::CannotHappen && !field.member.is_empty() {
                let valid = "valid: without `member`, and outside the structure";
                return Err(
                    self.at(&path, format!("{} is a member: its callback can store to it; {valid}", field.symbol))
                );
            }
            all.push(Field {
                symbol: self.symbol(&field.symbol, &path)?,
                member: if field.member.is_empty() { "" } else { self.symbol(&field.member, &path)? },
                offset,
                content: Content::parse(&field.holds, &facts.abi)
                    .map_err(|e| self.at(&join(&path, keys!["holds"]), e))?,
                stores: match field.stores {
                    StoresIn::TakeEffect => Stores::TakeEffect,
                    StoresIn::AreIgnored => Stores::Ignored,
                    StoresIn::CannotHappen => Stores::Hidden,
                },
                in_record: false,
            });
        }
        Ok(all)
    }

    fn records(&self, records: &[RecordIn], stack: i32, at: Path) -> Result<Vec<Record>> {
        const WORDS: [(&str, Content); 2] = [("pc", Content::Pc), ("parent-ip", Content::ParentIp)];
        if records.len() > 2 {
            return Err(self.at(at, format!("{} frame records; valid: up to 2", records.len())));
        }
        let record = |(i, record): (usize, &RecordIn)| {
            let path = join(at, keys![i]);
            // The return address of the last one may be where a call pushed it.
            if record.offset < 0 || record.offset % 8 != 0 || record.offset > stack - 8 {
                let valid = format!("a multiple of 8 from 0 to {}", stack - 8);
                return Err(self.at(&path, format!("offset = {}; valid: {valid}", record.offset)));
            }
            Ok(Record {
                symbol: self.symbol(&record.symbol, &path)?,
                offset: record.offset,
                ret: self.word(&record.returns, &WORDS, "return address", &path)?,
            })
        };
        records.iter().enumerate().map(record).collect()
    }
}

/// The entries of `over` in `under`: tables are merged, everything else is replaced.
fn merge(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Toml::Table(below)), Toml::Table(above)) => merge(below, above),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}
