//! Trampolines that others wrote: objects and a contract from files, put before the judge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::contract::stated::Next;
use codegen::profile::{Convention, Profile};
use codegen::words::error::{Error, Result};
use link::{ALTERNATIVES, Input, examine, mark, relocatable, with_alternatives};
use serde::Deserialize;

use crate::contract::config::Configuration;
use crate::contract::file::{FileIn, Reader, TrampolineIn, WayIn};
use crate::contract::slots::slots;
use crate::contract::written::first_size;
use crate::engine::emulator::Emulator;
use crate::judge::cells::extent;
use crate::judge::suite::{BY_THE_PROFILE, Deviation, Missing, Stretch, Suite};
use crate::report::reason::Reason;
use crate::run::raw::{Dump, Named, address_of, texts, wrap};
use crate::run::replay::{Chosen, Source};

/// Objects with trampolines, and their contract.
#[derive(Clone)]
pub struct Foreign<'a> {
    /// The contract's name in messages.
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
    /// Put every alternative of the objects in its place first.
    pub alternatives: bool,
    /// The configuration of the kernel that they are of, if it is known.
    pub config: Option<&'a Configuration>,
    /// The arguments that choose them again, if these files and this contract do not.
    pub again: Option<Vec<String>>,
}

impl<'a> Foreign<'a> {
    /// Objects as they are, of the architecture that the contract is for.
    pub fn new(
        contract_name: &'a str,
        contract: &'a str,
        objects: Vec<(String, Vec<u8>)>,
        profile: &'static Profile,
    ) -> Foreign<'a> {
        Foreign {
            contract_name,
            contract,
            objects,
            arch: None,
            profile,
            dump: None,
            alternatives: false,
            config: None,
            again: None,
        }
    }
}

/// The profile that a contract names, if it does. What is wrong with it, [`suites`] says.
pub fn contract_profile(contract: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        profile: Option<String>,
    }
    toml::from_str::<Head>(contract).ok()?.profile
}

/// Read a contract and put the objects before the judge: those that the contract names each by itself, the others
/// together.
///
/// # Errors
/// A contract that does not parse or names what does not exist, with file, line and what would be valid. Objects of
/// which it says nothing.
pub fn suites(foreign: &Foreign, backends: &[&'static dyn Backend]) -> Result<Vec<Suite>> {
    let reader = Reader { name: foreign.contract_name, text: foreign.contract, config: foreign.config };
    let file = reader.file()?;
    let known = |b: &&&'static dyn Backend| b.facts().name == file.arch.get_ref();
    let backend = *backends.iter().find(known).ok_or_else(|| {
        let names = backends.iter().map(|b| b.facts().name);
        reader.at(file.arch.span().start, Error::unknown("architecture", file.arch.get_ref(), names))
    })?;
    let arch = backend.facts().name;
    if foreign.arch.is_some_and(|asked| asked != arch) {
        let message = format!("is for {arch}; give --arch {arch}, or another contract");
        return Err(reader.at(file.arch.span().start, message));
    }
    let foreign = &before_copies(foreign, backend, &reader, &file)?;
    let convention = foreign.profile.convention(arch)?;
    if let Some(wanted) = file.profile.as_ref().filter(|wanted| wanted.get_ref() != convention.argument) {
        let (wanted, at) = (wanted.get_ref(), wanted.span().start);
        let message = format!("is for profile {wanted}; give --profile {wanted}, or another contract");
        return Err(reader.at(at, message));
    }
    // Read all of it first: a mistake is a mistake whatever the objects are.
    let mut judged = Vec::new();
    for (n, trampoline) in file.trampoline.iter().enumerate() {
        let same = |other: &TrampolineIn| (&other.object, &other.symbol) == (&trampoline.object, &trampoline.symbol);
        if file.trampoline[..n].iter().any(same) {
            let message = format!("{} has a contract already", trampoline.symbol);
            return Err(reader.at(trampoline.stack_align.span().start, message));
        }
        judged.push((
            trampoline,
            with_copies(
                reader.contract(trampoline, &file.frame, (backend.facts(), backend.machine()), convention)?,
                foreign,
            ),
        ));
        reader.clauses(trampoline)?;
    }
    let mut suites = Vec::new();
    let apart = apart(&file, objects(foreign, (backend, convention), &reader, &file)?);
    let mut absent = not_given(&file, &apart);
    for (object, objects) in apart {
        let mine = judged.iter().filter(|(t, _)| t.object.as_deref() == object);
        let (mine, mut missing) = present(mine.cloned().collect(), backend, &objects, (&reader, &file))?;
        missing.append(&mut absent);
        let (trampolines, contracts): (Vec<_>, Vec<_>) = mine.into_iter().unzip();
        if trampolines.is_empty() {
            let named: Vec<&str> = file.trampoline.iter().filter_map(|t| t.object.as_deref()).collect();
            let path = objects.first().map_or("no object", |(path, _)| path);
            return Err(Error::new(format!("{} has nothing for {path}; valid: {}", reader.name, named.join(", "))));
        }
        let options = [Some(foreign.contract_name), object];
        suites.push(Suite {
            backend,
            convention,
            chosen: chosen(foreign, convention, backend, &objects),
            alternatives: alternatives(backend, &objects, &contracts)?,
            slots: slots(&reader, backend, &objects, &trampolines)?,
            objects,
            deviations: deviations(convention, &reader, &trampolines, &contracts)?,
            contracts,
            missing,
            stubs: true,
            options: options.into_iter().flatten().collect::<Vec<_>>().join(" "),
            op_offsets: file.ftrace_ops.as_ref().map(|op| (op.func, op.direct_call)),
            notes: BTreeMap::new(),
            written: written(foreign, backend, &reader, &file)?,
            engine: Emulator::default(),
            poke: BY_THE_PROFILE,
        });
    }
    Ok(suites)
}

/// Where a trampoline has copies of displaced instructions, its own code ends before them: they are code of a function.
fn before_copies<'a>(
    foreign: &Foreign<'a>,
    backend: &dyn Backend,
    reader: &Reader,
    file: &FileIn,
) -> Result<Foreign<'a>> {
    let displaced = file.trampoline.iter().find_map(|t| t.displaced.as_ref());
    let Some(displaced) = displaced else { return Ok(foreign.clone()) };
    let wrong = |what: String| Err(reader.at(displaced.span().start, what));
    let Some(dump) = &foreign.dump else {
        return wrong("kind displaced is for a dump (--raw), which has addresses".to_owned());
    };
    let [(_, entry)] = entries(dump, reader, file)?[..] else {
        return wrong("kind displaced stands alone; valid: one trampoline, one --entry".to_owned());
    };
    let code = foreign.objects.first().map_or(&[][..], |(_, code)| code);
    let there = |at: u64| usize::try_from(at.wrapping_sub(dump.base)).ok().and_then(|from| code.get(from..));
    let copies = displaced.get_ref().copies;
    if entry.checked_add(copies).and_then(there).is_none_or(<[u8]>::is_empty) {
        return wrong(format!("copies = {copies}; valid: the offset of an instruction that is in the dump"));
    }
    // What has no code of its own begins with them: the first one is looked at.
    let first = there(entry).filter(|_| copies == 0).map(|code| first_size(backend, code, entry)).transpose()?;
    let end = Some(entry.saturating_add(first.map_or(copies, |size| size as u64)));
    if let Some(given) = dump.end.filter(|_| dump.end != end) {
        return wrong(format!("--end {given:#x}; valid: none, as the code ends where the copies begin"));
    }
    Ok(Foreign { dump: Some(Dump { end, ..dump.clone() }), ..foreign.clone() })
}

/// Bytes that copies may have, with what follows them.
const MOST_COPIES: usize = 512;

/// The contract with the bytes of its copies.
fn with_copies(mut contract: Contract, foreign: &Foreign) -> Contract {
    if let (Some(displaced), Next::Copies(bytes)) = (&mut contract.stated.displaced, contract.stated.next)
        && let (Some(dump), [(_, code)]) = (&foreign.dump, &foreign.objects[..])
        && let [(_, entry)] = dump.entries[..]
    {
        displaced.copied_to = entry.saturating_add(bytes);
        let from = usize::try_from(displaced.copied_to.wrapping_sub(dump.base)).unwrap_or(usize::MAX);
        let rest = code.get(from..).unwrap_or_default();
        displaced.copies = rest.get(..MOST_COPIES).unwrap_or(rest).to_vec();
    }
    contract
}

/// Names and contents of objects.
type Objects = Vec<(String, Vec<u8>)>;

/// The objects, so that they can be linked; dumps as the objects that they are.
fn objects(
    foreign: &Foreign,
    (backend, convention): (&dyn Backend, &Convention),
    reader: &Reader,
    file: &FileIn,
) -> Result<Objects> {
    let Some(dump) = &foreign.dump else {
        if let Some((symbol, at)) = file.addresses.iter().next() {
            return Err(reader.at(at.span().start, format!("addresses of {symbol}: valid for a dump only (--raw)")));
        }
        let object = |(name, bytes): &(String, Vec<u8>)| {
            Ok((name.clone(), relocatable(backend, &Input { name, bytes })?.into_owned()))
        };
        let objects = foreign.objects.iter().map(object).collect::<Result<Objects>>()?;
        return if foreign.alternatives { replaced(objects, backend, convention) } else { Ok(objects) };
    };
    let entries = entries(dump, reader, file)?;
    let named = names(reader, file)?;
    let dump = &Dump { names: outside(dump, reader, file)?, ..dump.clone() };
    let wrap = |(path, code): &(String, Vec<u8>)| {
        let object = wrap(backend, dump, code, &entries, &named).map_err(|e| e.at(path))?;
        Ok((path.clone(), object))
    };
    foreign.objects.iter().map(wrap).collect()
}

/// The names of what is outside of a dump, by address.
fn outside(dump: &Dump, reader: &Reader, file: &FileIn) -> Result<BTreeMap<u64, String>> {
    let mut names = dump.names.clone();
    for (symbol, text) in &file.addresses {
        let at = address_of(text.get_ref()).ok_or_else(|| {
            let message = format!("addresses of {symbol}: {:?}; valid: an address as \"0x...\"", text.get_ref());
            reader.at(text.span().start, message)
        })?;
        names.insert(at, symbol.clone());
    }
    Ok(names)
}

/// What a contract for a dump names by its address.
fn names<'f>(reader: &Reader, file: &'f FileIn) -> Result<Named<'f>> {
    let mut named = Named::default();
    for t in &file.trampoline {
        named.labels.extend(t.slots().iter().chain([&t.calls]).map(String::as_str));
        named.functions.extend(t.function.iter().map(|function| function.get_ref().as_str()));
        for (label, at) in &t.labels {
            let at = address_of(at).ok_or_else(|| {
                let here = t.stack_align.span().start;
                reader.at(here, format!("labels of {}: {label} = {at:?}; valid: an address as \"0x...\"", t.symbol))
            })?;
            named.places.push((format!("{}_{label}", t.symbol), at));
        }
    }
    Ok(named)
}

/// The addresses of a dump's trampolines.
fn entries<'f>(dump: &Dump, reader: &Reader, file: &'f FileIn) -> Result<Vec<(&'f str, u64)>> {
    let symbols: Vec<&str> = file.trampoline.iter().map(|t| t.symbol.as_str()).collect();
    match (&symbols[..], &dump.entries[..]) {
        ([symbol], [(name, entry)]) if name.is_empty() => Ok(vec![(*symbol, *entry)]),
        _ => named(&symbols, &dump.entries).map_err(|e| reader.at(0, e)),
    }
}

/// What the instructions of a dump read there.
fn written(
    foreign: &Foreign,
    backend: &dyn Backend,
    reader: &Reader,
    file: &FileIn,
) -> Result<BTreeMap<(String, u64), Arc<str>>> {
    let Some(dump) = &foreign.dump else { return Ok(BTreeMap::new()) };
    let entries = entries(dump, reader, file)?;
    let mut all = BTreeMap::new();
    for (path, code) in &foreign.objects {
        all.extend(texts(backend, dump, code, &entries).map_err(|e| e.at(path))?);
    }
    Ok(all)
}

/// The objects with every alternative in its place.
fn replaced(objects: Objects, backend: &dyn Backend, convention: &Convention) -> Result<Objects> {
    let Some(entry) = &convention.alternatives else {
        let (profile, arch) = (convention.profile, backend.facts().name);
        return Err(Error::new(format!(
            "profile {profile} does not say how {ALTERNATIVES} of {arch} is laid out; give it `alternatives`, or leave out \
             --alternatives"
        )));
    };
    let mut found = false;
    let replace = |(name, bytes): (String, Vec<u8>)| {
        let new = with_alternatives(&Input { name: &name, bytes: &bytes }, entry, backend.patterns())?;
        found |= new.is_some();
        Ok((name, new.unwrap_or(bytes)))
    };
    let objects = objects.into_iter().map(replace).collect::<Result<Objects>>()?;
    if !found {
        return Err(Error::new(format!("no object has {ALTERNATIVES}; leave out --alternatives")));
    }
    Ok(objects)
}

/// The address of each of a contract's trampolines in a dump.
fn named<'c>(symbols: &[&'c str], entries: &[(String, u64)]) -> Result<Vec<(&'c str, u64)>> {
    if let Some((name, _)) = entries.iter().find(|(name, _)| !symbols.contains(&name.as_str())) {
        return Err(Error::unknown("trampoline in --entry SYMBOL=ADDR", name, symbols.iter().copied()));
    }
    let entry = |symbol: &&'c str| {
        let found: Vec<_> = entries.iter().filter(|(name, _)| name == symbol).collect();
        match found[..] {
            [(_, at)] => Ok((*symbol, *at)),
            _ => Err(Error::new(format!("{} entries for {symbol}; valid: one --entry {symbol}=ADDR", found.len()))),
        }
    };
    symbols.iter().map(entry).collect()
}

/// The objects that are judged by themselves, by the name that the contract has for them, and the others together.
fn apart(file: &FileIn, objects: Objects) -> Vec<(Option<&str>, Objects)> {
    let (mut apart, mut together) = (Vec::new(), Vec::new());
    for (path, bytes) in objects {
        let name = path.rsplit('/').next().unwrap_or(&path);
        match file.trampoline.iter().filter_map(|t| t.object.as_deref()).find(|object| *object == name) {
            Some(object) => apart.push((Some(object), vec![(path, bytes)])),
            None => together.push((path, bytes)),
        }
    }
    if !together.is_empty() || apart.is_empty() {
        apart.push((None, together));
    }
    apart
}

/// A trampoline of a file, and its contract.
type Entry<'t> = (&'t TrampolineIn, Contract);

/// The trampolines of objects that the contract names and that are not given, where it does not say that this may be.
fn not_given(file: &FileIn, given: &[(Option<&str>, Objects)]) -> Vec<Missing> {
    let missing = |t: &TrampolineIn| {
        let object = t.object.as_deref().filter(|object| !given.iter().any(|(name, _)| *name == Some(*object)))?;
        let hint = format!(": {object}, which has it by the contract, is not given");
        Some(Missing { symbol: t.symbol.clone(), elsewhere: false, hint, reason: Reason::NotDefined })
    };
    file.trampoline.iter().filter(|_| !file.several_objects).filter_map(missing).collect()
}

/// Those trampolines that the objects define, and the others. Without objects it is not known which they are: all are wanted.
///
/// # Errors
/// There are only others: these are not the objects that the contract is for, or its names are not theirs.
fn present<'t>(
    mine: Vec<Entry<'t>>,
    backend: &dyn Backend,
    objects: &Objects,
    (reader, file): (&Reader, &FileIn),
) -> Result<(Vec<Entry<'t>>, Vec<Missing>)> {
    if objects.is_empty() {
        return Ok((mine, Vec::new()));
    }
    let mut defined = BTreeSet::new();
    for (name, bytes) in objects {
        let image = examine(backend, &Input { name, bytes }, backend.machine().ret)?;
        defined.extend(image.symbols.into_iter().filter(|s| s.input.is_some()).map(|s| s.name));
    }
    let (mine, others): (Vec<_>, Vec<_>) = mine.into_iter().partition(|(t, _)| defined.contains(&t.symbol));
    if let (true, Some((t, _))) = (mine.is_empty(), others.first()) {
        let (symbol, hint) = (&t.symbol, similar(&t.symbol, &defined));
        let message = format!("no object defines {symbol}{hint}; valid: the object that does, or another symbol");
        return Err(reader.at(t.stack_align.span().start, message));
    }
    let missing = |(t, _): Entry| Missing {
        symbol: t.symbol.clone(),
        elsewhere: file.several_objects && t.object.is_none(),
        hint: similar(&t.symbol, &defined),
        reason: Reason::NotDefined,
    };
    Ok((mine, others.into_iter().map(missing).collect()))
}

/// The names that are most like this one, to be put behind a sentence; nothing where none is.
fn similar(symbol: &str, defined: &BTreeSet<String>) -> String {
    /// The least similarity of a misspelt name.
    const LIKE: f64 = 0.85;
    /// So many are told.
    const MOST: usize = 3;
    let named = defined.iter().filter(|name| mark(name).is_none());
    let mut all: Vec<(f64, &String)> = named.map(|name| (strsim::jaro_winkler(symbol, name), name)).collect();
    all.retain(|(like, _)| *like >= LIKE);
    all.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let names: Vec<&str> = all.iter().take(MOST).map(|(_, name)| name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(": similar is {}", names.join(", ")) }
}

/// The expected deviations of these trampolines.
fn deviations(
    convention: &Convention,
    reader: &Reader,
    trampolines: &[&TrampolineIn],
    contracts: &[Contract],
) -> Result<Vec<Deviation>> {
    let mut all: Vec<_> = Deviation::of_sites(convention, contracts.iter()).collect();
    for (trampoline, t) in trampolines.iter().enumerate() {
        for (d, clause) in t.deviation.iter().zip(reader.clauses(t)?) {
            if reader.config.is_some_and(|config| !config.fits(&d.config)) {
                continue;
            }
            let perhaps = reader.config.is_none() && !d.config.is_empty();
            let stretch = d.behind.clone().map(|behind| Stretch { behind, until: d.until.clone() });
            if let (None, Some(until)) = (&stretch, &d.until) {
                return Err(reader.at(
                    d.clause.span().start,
                    format!("until = \"{until}\" says where a stretch ends; valid: with behind"),
                ));
            }
            let expected = |place: &String| {
                let (place, reason) = (place.clone(), d.reason.clone());
                Deviation {
                    trampoline,
                    clause,
                    place,
                    way: d.way.map(WayIn::path),
                    by: d.by,
                    stretch: stretch.clone(),
                    perhaps,
                    reason,
                }
            };
            all.extend(d.place.each().iter().map(expected));
        }
    }
    Ok(all)
}

/// The command-line arguments that choose these objects again.
fn chosen(foreign: &Foreign, convention: &Convention, backend: &dyn Backend, objects: &Objects) -> Chosen {
    let paths = objects.iter().map(|(path, _)| path.clone()).collect();
    let contract = foreign.contract_name.to_owned();
    let source = match foreign.dump.clone() {
        _ if foreign.again.is_some() => Source::Kernel { words: foreign.again.clone().unwrap_or_default(), contract },
        None => Source::Objects { paths, contract, alternatives: foreign.alternatives },
        Some(dump) => Source::Dump { paths, dump, arch: backend.facts().name, contract },
    };
    Chosen { profile: convention.argument, source }
}

/// Places of the trampolines that have alternatives.
fn alternatives(backend: &dyn Backend, objects: &[(String, Vec<u8>)], contracts: &[Contract]) -> Result<Vec<String>> {
    let mut places = Vec::new();
    for (name, bytes) in objects {
        let image = examine(backend, &Input { name, bytes }, backend.machine().ret)?;
        let Some(list) = image.sections.iter().find(|s| s.name == ALTERNATIVES) else { continue };
        for symbol in contracts.iter().filter_map(|c| image.symbol(&c.name).filter(|s| s.input.is_some())) {
            let inside = |at: u64, start: u64, size: u64| at.wrapping_sub(start) < size;
            let size = extent(&image, symbol);
            let mine = image.references.iter().filter(|r| inside(r.place, list.address, list.size));
            let mut offsets: Vec<u64> = mine.map(|r| r.value.wrapping_sub(symbol.address)).collect();
            offsets.retain(|offset| *offset < size);
            offsets.dedup();
            places.extend(offsets.iter().map(|offset| format!("{}+{offset:#x}", symbol.name)));
        }
    }
    Ok(places)
}
