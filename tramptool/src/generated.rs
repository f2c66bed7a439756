//! Generated trampolines, with their contracts and costs.

use codegen::ask::frame::Stores;
use codegen::ask::spec::Spec as Planned;
use codegen::contract::Contract as Promise;
use codegen::out::assembly::Assembly;
use codegen::out::obj;
use codegen::out::template::Template as Made;
use codegen::out::text::TextListing;
use codegen::words::error::{Error, Result};
use codegen::words::proto::Prototype;
use codegen::words::reloc::{Reloc, RelocTarget};

use crate::internal::request::Request;
use crate::spec::Spec;
use crate::target::Target;
use crate::template::Template;

/// Generated trampolines.
pub struct Trampolines {
    target: Target,
    assembly: Assembly,
    requests: Vec<Request>,
    /// For each trampoline, the prototype as given, if its callee has the same one.
    prototypes: Vec<Option<String>>,
}

/// The promises of a trampoline.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Contract {
    /// The function that the trampoline calls; empty if it calls none, or calls programs.
    pub calls: String,
    /// Registers that are preserved when the traced function goes on.
    pub kept: Vec<&'static str>,
    /// Registers that are clobbered when the traced function goes on.
    pub clobbered: Vec<&'static str>,
    /// The flags are preserved.
    pub flags_kept: bool,
    /// Bytes to which the stack pointer is aligned at the trampoline's call.
    pub stack_align: u32,
    /// The slots of the structure that the callback gets a pointer to.
    pub frame: Vec<Slot>,
    /// The whole contract in sentences, as in the comment above the trampoline in the text.
    pub sentences: Vec<String>,
}

/// A slot of the structure that a callback gets a pointer to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Slot {
    /// The member's name.
    pub member: &'static str,
    /// Bytes from the start of the structure.
    pub offset: i32,
    /// A store to the slot by the callback takes effect.
    pub stores_take_effect: bool,
}

/// A relocation of [`Trampolines::bytes`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Relocation {
    /// Offset of the field in the bytes.
    pub offset: u32,
    /// ELF relocation type.
    pub r_type: u32,
    /// The psABI's name of the relocation type.
    pub name: Option<String>,
    /// The symbol or place to which the relocation refers.
    pub to: Referent,
    /// The addend.
    pub addend: i64,
}

/// The symbol or place to which a relocation refers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Referent {
    /// A symbol, which may be one of the trampolines' own.
    Symbol(String),
    /// An offset in the bytes themselves.
    Offset(u32),
}

/// The cost of a trampoline.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Cost {
    /// Bytes of code.
    pub bytes: u32,
    /// Instructions in the code.
    pub instructions: u32,
    /// The most bytes of stack that the trampoline uses, without those of the functions that it calls.
    pub stack: u32,
    /// The paths through the trampoline.
    pub paths: Vec<Path>,
}

/// A path through a trampoline. Instructions of called functions are not counted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Path {
    /// `plain`, or the purpose of the branch that leads to this path.
    pub name: &'static str,
    /// Instructions executed.
    pub executed: u32,
    /// Words read.
    pub loads: u32,
    /// Words written.
    pub stores: u32,
    /// The number of reads of the CPU's clock.
    pub clock: u32,
}

/// Generate trampolines for one target, into one object.
///
/// # Errors
/// A spec that the target does not support; a symbol that two specs define. The message names it.
pub fn generate(target: &Target, specs: &[Spec]) -> Result<Trampolines> {
    let requests = specs.iter().map(|spec| spec.request(target)).collect::<Result<Vec<_>>>()?;
    let planned: Vec<_> = requests.iter().map(Request::spec).collect();
    let assembly = target.backend().assemble(&planned, target.resolved())?;
    let prototypes = specs.iter().map(|spec| spec.prototype().map(str::to_owned)).collect();
    Ok(Trampolines { target: target.clone(), assembly, requests, prototypes })
}

impl Trampolines {
    /// The symbols of the trampolines.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().map(|request| request.spec().name)
    }

    /// Text that GNU as assembles, with the contract of each trampoline above it.
    ///
    /// # Errors
    /// No spec causes one.
    pub fn text(&self) -> Result<String> {
        templates::asm(&self.listings()?, self.target.resolved(), self.target.arch())
    }

    /// A C header: the trampolines, the functions that they call, labels, and offsets in the callbacks' structures.
    ///
    /// # Errors
    /// No spec causes one.
    pub fn header(&self) -> Result<String> {
        let parsed = |prototype: &Option<String>| prototype.as_deref().map(Prototype::parse).transpose();
        let prototypes = self.prototypes.iter().map(parsed).collect::<Result<Vec<_>>>()?;
        templates::header(&self.listings()?, &prototypes, self.target.resolved(), self.target.arch())
    }

    /// An ELF64 relocatable object, as GNU as makes it from the text.
    ///
    /// # Errors
    /// The object exceeds the format's 32-bit counts.
    pub fn object(&self) -> Result<Vec<u8>> {
        obj::write(&self.assembly, self.target.resolved())
    }

    /// The bytes of `.text`, with relocated fields not filled in.
    pub fn bytes(&self) -> &[u8] {
        self.assembly.text()
    }

    /// The relocations of [`Trampolines::bytes`], lowest offset first.
    ///
    /// # Errors
    /// No spec causes one.
    pub fn relocations(&self) -> Result<Vec<Relocation>> {
        let (assembly, facts) = (&self.assembly, self.target.resolved().facts);
        let no_place = |reloc: &Reloc| Error::Unpaired { high: reloc.at.into() };
        let found = assembly.relocs.iter().map(|reloc| {
            let to = match reloc.to {
                RelocTarget::Global(n) => {
                    let symbol = assembly.globals.get(n as usize).map(|s| assembly.name(s).to_owned());
                    symbol.map(Referent::Symbol)
                }
                RelocTarget::Local(n) => assembly.locals.get(n as usize).and_then(|s| s.offset).map(Referent::Offset),
                RelocTarget::Text => Some(Referent::Offset(0)),
                _ => None,
            };
            let Reloc { at, r_type, addend, .. } = *reloc;
            let to = to.ok_or_else(|| no_place(reloc))?;
            Ok(Relocation { offset: at, r_type, name: facts.relocation(r_type), to, addend })
        });
        let mut all = found.collect::<Result<Vec<_>>>()?;
        all.sort_by_key(|reloc| reloc.offset);
        Ok(all)
    }

    /// The only trampoline, which records or is a sled, as a template: the output of `gen --emit template`.
    ///
    /// # Errors
    /// The trampoline is of another kind, or not the only one, or refers to more than [`Filled`](crate::Filled) has.
    pub fn template(&self) -> Result<Template> {
        let (target, specs) = (self.target.resolved(), self.requests.iter().map(Request::spec).collect::<Vec<_>>());
        Ok(Template::new(&Made::of(&self.assembly, &specs, target)?, target.facts))
    }

    /// The contract of the trampoline called `name`.
    ///
    /// # Errors
    /// No trampoline has this name.
    pub fn contract(&self, name: &str) -> Result<Contract> {
        Ok(Contract::of(&Promise::of(&self.planned(name)?, self.target.resolved())?))
    }

    /// The cost of the trampoline called `name`.
    ///
    /// # Errors
    /// No trampoline has this name.
    pub fn cost(&self, name: &str) -> Result<Cost> {
        let cost = self.target.backend().text(&self.planned(name)?, self.target.resolved())?.cost;
        let paths = cost.paths.iter().map(|p| {
            let codegen::out::cost::PathCost { path, executed, loads, stores, clock } = *p;
            Path { name: path, executed, loads, stores, clock }
        });
        Ok(Cost {
            bytes: cost.bytes,
            instructions: cost.instructions,
            stack: cost.stack.unsigned_abs(),
            paths: paths.collect(),
        })
    }

    fn planned(&self, name: &str) -> Result<Planned<'_>> {
        let found = self.requests.iter().map(Request::spec).find(|spec| spec.name == name);
        found.ok_or_else(|| Error::unknown("generated trampoline", name, self.names()))
    }

    /// Each trampoline as text, made only if needed: an object needs no text.
    fn listings(&self) -> Result<Vec<TextListing>> {
        let backend = self.target.backend();
        self.requests.iter().map(|request| backend.text(&request.spec(), self.target.resolved())).collect()
    }

    /// The target and the requests, for the judge.
    #[cfg(feature = "judge")]
    pub(crate) fn parts(&self) -> (&Target, &[Request]) {
        (&self.target, &self.requests)
    }
}

impl Contract {
    fn of(promise: &Promise) -> Contract {
        let abi = &promise.facts.abi;
        let slots = promise.frame.fields.iter().filter(|field| !field.member.is_empty()).map(|field| Slot {
            member: field.member,
            offset: field.offset,
            stores_take_effect: field.stores == Stores::TakeEffect,
        });
        Contract {
            calls: promise.callee.clone(),
            kept: promise.kept.iter().map(|reg| abi.name(reg)).collect(),
            clobbered: promise.clobbered.iter().map(|reg| abi.name(reg)).collect(),
            flags_kept: promise.flags_kept,
            stack_align: promise.stack_align,
            frame: slots.collect(),
            sentences: promise.sentences(),
        }
    }
}
