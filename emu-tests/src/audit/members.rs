//! The objects of an archive: who wrote each, which functions C calls, and images of what is to be run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use codegen::arch::facts::Promise;
use codegen::backend::Backend;
use codegen::words::error::Result;
use link::origin::{Author, Origin, authors, noted, origin};
use link::{Access, Image, Input, Options, Runnable, Segment, Shared, SymbolKind, link, runnable};
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::Serialize;

use super::asked::Asked;
use super::claim::{Claim, Kind, Tier};
use super::never::Never;
use super::state::CHUNK;
use crate::engine::registers::Registers;
use crate::engine::unwind::{Table, functions};
use crate::marks::pads::has_pad;

/// Where images are: above 4 GiB, so that an address that is cut leads elsewhere.
const CODE: u64 = 0x5d_36c0_0000;

/// So many bytes of zeros are memory only where they are touched.
const MANY: u64 = 16 * CHUNK;

/// Of so many objects, most are not by hand: another compiler has made them.
const SEVERAL: usize = 5;

/// Why C's convention binds a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// Code of a compiler calls it.
    Called,
    /// A header declares it.
    Declared,
    /// It is global, and no compiler's code is there that could call it.
    Global,
    /// A shared library exports it.
    Exported,
    /// A shared library's unwind table has it and no symbol; it was asked for.
    Unnamed,
    /// It was asked for by name.
    Asked,
}

/// A function that is to be judged.
pub(super) struct Function {
    /// The object.
    pub member: String,
    pub symbol: link::Symbol,
    pub boundary: Boundary,
    /// The unwind table is to have rows for its calls: the compiler's objects have tables, or, without such, some object has one.
    pub wants_rows: bool,
    /// The marks of protection in the object's note.
    pub marks: u32,
    /// No person is known to have written it.
    pub compiled: bool,
}

impl Function {
    /// One of a library that has no name.
    fn unnamed(member: &str, symbol: link::Symbol, (wants_rows, marks): (bool, u32)) -> Function {
        let boundary = Boundary::Unnamed;
        Function { member: member.to_owned(), symbol, boundary, wants_rows, marks, compiled: true }
    }
}

/// What an object says of its protection.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Marked {
    /// The object.
    pub member: String,
    /// The claim.
    pub claim: Claim,
}

impl Marked {
    /// A function to which an indirect branch may go.
    fn without_pad(member: &str, function: &str) -> Marked {
        let place = format!("the landing pad of {function}");
        let claim = Claim::of(Kind::C8, Tier::Error, &place, ("a landing pad".to_owned(), "none".to_owned()), 0);
        Marked { member: member.to_owned(), claim: Claim { seed: None, callee: function.to_owned(), ..claim } }
    }
}

/// Objects that run together.
pub(super) struct Linked {
    pub image: Image,
    /// The ends of those functions that no person wrote.
    pub ends: FxHashSet<u64>,
    pub never: Never,
    /// Zeros that are no part of the image's segments.
    pub zeros: Vec<Range<u64>>,
}

/// The objects.
pub(super) struct Members {
    pub images: Vec<Linked>,
    /// Each with the number of its image.
    pub functions: Vec<(usize, Function)>,
    pub objects: usize,
    /// Those that a person wrote, by the signs of it.
    pub by_hand: BTreeMap<&'static str, usize>,
    pub libraries: usize,
    pub of_others: usize,
    pub other_compiler: bool,
    pub private: usize,
    pub address_taken: usize,
    pub unlinked: Vec<(String, String)>,
    pub marks: Vec<Marked>,
}

impl Members {
    /// Read them, and link those that a person wrote.
    ///
    /// # Errors
    /// An object is damaged.
    pub fn of(objects: &[Input], backend: &'static dyn Backend, asked: &Asked) -> Result<Members> {
        let linkable = objects.iter().map(|object| runnable(backend, object)).collect::<Result<Vec<_>>>()?;
        let named = objects.iter().zip(&linkable);
        let inputs: Vec<Input> = named.map(|(object, of)| Input { name: object.name, bytes: &of.bytes }).collect();
        let triples = inputs.iter().zip(objects).zip(&linkable);
        let origins =
            triples.map(|((input, given), of)| signs_of(backend, input, given, of)).collect::<Result<Vec<_>>>()?;
        let authors = authors(&origins);
        let hand = |author: &Author| match author {
            Author::Person(_) | Author::Linker => true,
            Author::Compiler => asked.all,
            Author::Other | Author::Nobody => false,
        };
        let with_code = origins.iter().filter(|origin| origin.has_code).count();
        let by_hand = authors.iter().filter(|author| matches!(author, Author::Person(_))).count();
        let made = authors.contains(&Author::Compiler);
        let other_compiler = with_code >= SEVERAL && 10 * by_hand > 6 * with_code && !made && !asked.all;
        let chosen: Vec<usize> = (0..inputs.len()).filter(|n| hand(&authors[*n]) && !other_compiler).collect();
        let mut members = Members {
            images: Vec::new(),
            functions: Vec::new(),
            objects: with_code,
            by_hand: signs(&authors),
            libraries: authors.iter().filter(|author| **author == Author::Linker).count(),
            of_others: authors.iter().filter(|author| **author == Author::Other).count(),
            other_compiler,
            private: 0,
            address_taken: 0,
            unlinked: Vec::new(),
            marks: marks(&inputs, &origins, &authors),
        };
        let callers = Callers::of(&origins, &authors, asked);
        let wants_rows = wants_rows(&origins, &authors);
        let groups = members.linked(backend, (&inputs, &linkable), &chosen);
        for (mut image, of) in groups {
            let number = members.images.len();
            let is_library = of.first().is_some_and(|member| authors[*member] == Author::Linker);
            let wants_rows = if is_library { most_have_rows(backend, &image)? } else { wants_rows };
            let functions = image.symbols.iter().filter(|symbol| {
                let defined = symbol.input.and_then(|input| of.get(input));
                defined.is_some_and(|member| origins[*member].functions.contains(&symbol.name)) && !symbol.local
            });
            for symbol in functions.filter(|symbol| symbol.kind != SymbolKind::Object) {
                let Some(member) = symbol.input.and_then(|input| of.get(input)) else { continue };
                let marks = backend.facts().marks.as_ref();
                let bits = origins[*member].protection.unwrap_or(0);
                let has = |promise| marks.is_some_and(|marks| marks.bits(promise) & bits != 0);
                let is_led_to = symbol.kind == SymbolKind::Function && callers.taken.contains(symbol.name.as_str());
                if has(Promise::Pads) && is_led_to && !has_pad(backend, &image, symbol.address) {
                    members.marks.push(Marked::without_pad(inputs[*member].name, &symbol.name));
                }
                match callers.boundary(&symbol.name, authors[*member]) {
                    Ok(boundary) => {
                        let compiled = !matches!(authors[*member], Author::Person(_));
                        let (member, symbol) = (inputs[*member].name.to_owned(), symbol.clone());
                        let function = Function { member, symbol, boundary, wants_rows, marks: bits, compiled };
                        members.functions.push((number, function));
                    }
                    Err(_) if asked.only.is_some() => {}
                    Err(true) => members.address_taken += 1,
                    Err(false) => members.private += 1,
                }
            }
            if let [member] = of[..]
                && let Some(shared) = &linkable[member].shared
            {
                let marks = origins[member].protection.unwrap_or(0);
                let unnamed = unnamed(&image, shared, asked).into_iter();
                let of = |symbol| Function::unnamed(inputs[member].name, symbol, (wants_rows, marks));
                members.functions.extend(unnamed.map(|symbol| (number, of(symbol))));
            }
            let author = |symbol: &link::Symbol| symbol.input.and_then(|input| of.get(input)).map(|n| authors[*n]);
            let ends =
                image.symbols.iter().filter(|s| s.size > 0 && !matches!(author(s), Some(Author::Person(_)) | None));
            let ends = ends.map(|symbol| symbol.address.saturating_add(symbol.size)).collect();
            let zeros = without_zeros(&mut image);
            members.images.push(Linked { never: Never::of(&image), image, ends, zeros });
        }
        Ok(members)
    }

    /// The chosen objects, linked together; or, where they do not fit together, each alone, as libraries are. With each image, its
    /// objects.
    fn linked(
        &mut self,
        backend: &dyn Backend,
        (inputs, of): (&[Input], &[Runnable]),
        chosen: &[usize],
    ) -> Vec<(Image, Vec<usize>)> {
        let image = |of: &[usize]| {
            let inputs: Vec<Input> = of.iter().map(|n| inputs[*n]).collect();
            let stub = Some(backend.machine().ret);
            let options = Options { base: CODE, stub, ..Options::default() };
            // Code for the lowest or the highest 2 GiB does not reach so far up.
            link(backend, &inputs, &options)
                .or_else(|_| link(backend, &inputs, &Options { stub, ..Options::default() }))
        };
        let mut alone = Vec::new();
        for n in chosen {
            match image(&[*n]) {
                Ok(mut image) => {
                    of[*n].shared.iter().for_each(|shared| shared.with_data(&mut image));
                    alone.push((image, vec![*n]));
                }
                Err(why) => self.unlinked.push((inputs[*n].name.to_owned(), why.to_string())),
            }
        }
        let all: Vec<usize> = alone.iter().flat_map(|(_, of)| of.clone()).collect();
        match image(&all) {
            Ok(together) if all.len() > 1 && !all.iter().any(|n| of[*n].shared.is_some()) => vec![(together, all)],
            _ => alone,
        }
    }
}

/// The functions that a library's unwind table has, and none of its symbols, where they were asked for. Stripping leaves no other trace of
/// them.
fn unnamed(image: &Image, shared: &Shared, asked: &Asked) -> Vec<link::Symbol> {
    let start = shared.start(image).unwrap_or(0);
    let is_wanted = |name: &str| asked.only.as_ref().map_or(asked.all, |only| only(name));
    let code = image.symbols.iter().filter(|symbol| symbol.kind != SymbolKind::Object);
    let known: HashSet<u64> = code.map(|symbol| symbol.address).collect();
    let is_code = |at: u64| {
        let mut code = image.segments.iter().filter(|segment| segment.access != Access::Write);
        code.any(|segment| at.wrapping_sub(segment.address) < segment.mem_size)
    };
    let all: BTreeMap<u64, u64> = functions(image).into_iter().collect();
    let all = all.into_iter().filter(|(address, _)| !known.contains(address) && is_code(*address));
    let symbol = |(address, size): (u64, u64)| link::Symbol {
        name: format!("unnamed_{:#x}", address.wrapping_sub(start)),
        address,
        size,
        kind: SymbolKind::Function,
        local: true,
        hidden: false,
        input: None,
    };
    all.map(symbol).filter(|symbol| is_wanted(&symbol.name)).collect()
}

/// Cut long zeros out of the image's segments.
fn without_zeros(image: &mut Image) -> Vec<Range<u64>> {
    let (mut zeros, mut tails) = (Vec::new(), Vec::new());
    for segment in image.segments.iter_mut().filter(|segment| segment.access == Access::Write) {
        let full = segment.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let start = (segment.address + full as u64).next_multiple_of(CHUNK);
        let end = segment.address.saturating_add(segment.mem_size);
        let cut = end & !(CHUNK - 1);
        if cut.saturating_sub(start) >= MANY {
            segment.mem_size = start - segment.address;
            segment.bytes.truncate((start - segment.address) as usize);
            zeros.push(start..cut);
            tails.push(Segment { address: cut, bytes: Vec::new(), mem_size: end - cut, access: Access::Write });
        }
    }
    image.segments.extend(tails.into_iter().filter(|tail| tail.mem_size > 0));
    image.segments.sort_by_key(|segment| segment.address);
    zeros
}

/// Who refers to a function.
struct Callers<'a> {
    called: HashSet<&'a str>,
    taken: HashSet<&'a str>,
    asked: &'a Asked,
    /// Some object is a compiler's.
    has_c: bool,
}

impl<'a> Callers<'a> {
    fn of(origins: &'a [Origin], authors: &[Author], asked: &'a Asked) -> Callers<'a> {
        let compiled = origins.iter().zip(authors).filter(|(_, author)| **author == Author::Compiler);
        let references: Vec<_> = compiled.clone().flat_map(|(origin, _)| &origin.references).collect();
        let those = |which: &dyn Fn(&link::origin::Reference) -> bool| {
            references.iter().filter(|r| which(r)).map(|r| r.symbol.as_str()).collect()
        };
        let called = those(&|reference| reference.is_call);
        let taken = those(&|reference| reference.is_address);
        Callers { called, taken, asked, has_c: compiled.count() > 0 }
    }

    /// Why C's convention binds a function; otherwise, is its address taken?
    fn boundary(&self, name: &str, author: Author) -> std::result::Result<Boundary, bool> {
        if let Some(only) = &self.asked.only {
            return if only(name) { Ok(Boundary::Asked) } else { Err(false) };
        }
        if author == Author::Linker {
            Ok(Boundary::Exported)
        } else if self.called.contains(name) || author == Author::Compiler {
            Ok(Boundary::Called)
        } else if self.asked.declared.contains(name) {
            Ok(Boundary::Declared)
        } else if !self.has_c {
            Ok(Boundary::Global)
        } else {
            Err(self.taken.contains(name))
        }
    }
}

/// The signs of an object. Those of a shared library are in the file that was given.
fn signs_of(backend: &dyn Backend, input: &Input, given: &Input, of: &Runnable) -> Result<Origin> {
    let mut origin = origin(backend, input)?;
    if let Some(shared) = &of.shared {
        origin.linked = true;
        origin.functions.retain(|name| shared.exported.contains(name));
        let marks = backend.facts().marks.as_ref();
        origin.protection = marks.map(|marks| noted(marks, given)).transpose()?.flatten();
    }
    Ok(origin)
}

/// Do the compiler's objects have unwind tables, or, without such, does some object?
fn wants_rows(origins: &[Origin], authors: &[Author]) -> bool {
    let compiled = || origins.iter().zip(authors).filter(|(_, author)| **author == Author::Compiler);
    let tables = compiled().filter(|(origin, _)| origin.has_table).count();
    match compiled().count() {
        0 => origins.iter().any(|origin| origin.has_table),
        count => 2 * tables >= count,
    }
}

/// Does the unwind table have most of a library's functions?
fn most_have_rows(backend: &dyn Backend, image: &Image) -> Result<bool> {
    let registers = Registers::of(backend.machine(), &backend.facts().abi)?;
    let functions = image.symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Function);
    let starts: Vec<u64> = functions.map(|function| function.address).collect();
    let table = Table::read(image, registers, None, starts.iter().copied())?;
    Ok(2 * starts.iter().filter(|start| table.row(**start).is_some()).count() >= starts.len())
}

/// How many objects have each sign of having been written by hand.
fn signs(authors: &[Author]) -> BTreeMap<&'static str, usize> {
    let mut signs = BTreeMap::new();
    for author in authors {
        if let Author::Person(sign) = author {
            *signs.entry(*sign).or_default() += 1;
        }
    }
    signs
}

/// The objects by hand that lack protection that the compiler's have.
fn marks(inputs: &[Input], origins: &[Origin], authors: &[Author]) -> Vec<Marked> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    let compiled = origins.iter().zip(authors).filter(|(_, author)| **author == Author::Compiler);
    for bits in compiled.map(|(origin, _)| origin.protection.unwrap_or(0)) {
        *counts.entry(bits).or_default() += 1;
    }
    let Some((usual, _)) = counts.into_iter().max_by_key(|(bits, count)| (*count, *bits)) else { return Vec::new() };
    let mut all = Vec::new();
    for ((input, origin), author) in inputs.iter().zip(origins).zip(authors) {
        let bits = origin.protection.unwrap_or(0);
        if matches!(author, Author::Person(_)) && usual & !bits != 0 {
            let values = (format!("{usual:#x}"), format!("{bits:#x}"));
            let claim = Claim { seed: None, ..Claim::of(Kind::C8, Tier::Warning, ".note.gnu.property", values, 0) };
            all.push(Marked { member: input.name.to_owned(), claim });
        }
    }
    all
}
