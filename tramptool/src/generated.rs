//! Generated trampolines, and what is known of them.

use codegen::arch::patch::Relocation as Applied;
use codegen::ask::frame::Stores;
use codegen::ask::spec::Spec as Planned;
use codegen::contract::Contract as Promise;
use codegen::out::assembly::Assembly;
use codegen::out::obj;
use codegen::out::template::{Filled as Depends, FixUp as Field, Template as Made};
use codegen::out::text::TextListing;
use codegen::words::error::{Error, Result};
use codegen::words::proto::Prototype;
use codegen::words::reloc::{Reloc, RelocTarget};

use crate::internal::request::Request;
use crate::spec::Spec;
use crate::target::Target;

/// Generated trampolines.
pub struct Trampolines {
    target: Target,
    assembly: Assembly,
    requests: Vec<Request>,
    /// The prototypes, as they were given, of those whose callee has the same.
    prototypes: Vec<Option<String>>,
}

/// What a trampoline promises.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Contract {
    /// The function that it calls; empty if none, or if these are programs.
    pub calls: String,
    /// Registers that have their value again when the traced function goes on.
    pub kept: Vec<&'static str>,
    /// Registers that may have any value then.
    pub clobbered: Vec<&'static str>,
    /// Whether the flags have their value again.
    pub flags_kept: bool,
    /// Bytes to which the stack pointer is aligned at its call.
    pub stack_align: u32,
    /// The structure that its callback gets a pointer to, and its slots.
    pub frame: Vec<Slot>,
    /// All of it in sentences, as they stand above the trampoline in the text.
    pub sentences: Vec<String>,
}

/// A slot of the structure that a callback gets a pointer to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Slot {
    /// The member.
    pub member: &'static str,
    /// Bytes from the start of the structure.
    pub offset: i32,
    /// Whether what the callback stores there takes effect.
    pub stores_take_effect: bool,
}

/// A trampoline as bytes that a program copies, with fields that it fills in for each function at run time. Who fills them in
/// does what a linker does with relocations.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Template {
    /// The trampoline's symbol.
    pub name: String,
    /// Bytes to whose multiple a copy is aligned.
    pub align: u32,
    /// Offset of its first instruction.
    pub entry: u32,
    /// The bytes. Fields are as in an object, and numbers those of the trampoline itself.
    pub bytes: Vec<u8>,
    /// The fields, lowest offset first.
    pub fixups: Vec<FixUp>,
}

/// A field of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FixUp {
    /// Offset of the field.
    pub offset: u32,
    /// ELF relocation type.
    pub r_type: u32,
    /// The psABI's name of that.
    pub name: Option<String>,
    /// What S of the psABI's formulas is.
    pub symbol: Filled,
    /// Offset of P. For the low part of a distance, that is where its high part is.
    pub place: u32,
    /// A.
    pub addend: i64,
}

/// What a field of a template depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Filled {
    /// The number of the function, shifted left by 8 bits.
    Id,
    /// The address of the function.
    Function,
    /// The address of the variable that has the time.
    Clock,
    /// The address of the routine that makes room.
    Refill,
    /// The address of the C function that a sled calls.
    Callee,
    /// The offset of the thread's words from the thread pointer.
    Tls,
}

/// What a copy of a template is for: what S is in its fields. An address that the template has no field for is not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Filling {
    /// The function's number, below [`Filling::IDS`].
    pub id: u32,
    /// The function's address.
    pub function: u64,
    /// The address of the variable that has the time.
    pub clock: u64,
    /// The address of the routine that makes room.
    pub refill: u64,
    /// The address of the C function that a sled calls.
    pub callee: u64,
    /// Of [`Spec::tls`]: the offset of the variable with the thread's words from the thread pointer.
    pub tls: i64,
}

/// A relocation of [`Trampolines::bytes`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Relocation {
    /// Offset of the field.
    pub offset: u32,
    /// ELF relocation type.
    pub r_type: u32,
    /// The psABI's name of that.
    pub name: Option<String>,
    /// What it refers to.
    pub to: Referent,
    /// What is added.
    pub addend: i64,
}

/// What a relocation refers to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Referent {
    /// A symbol, one of the trampolines' own among them.
    Symbol(String),
    /// A place in the bytes themselves.
    Offset(u32),
}

/// What a trampoline costs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Cost {
    /// Bytes of code.
    pub bytes: u32,
    /// Instructions in the code.
    pub instructions: u32,
    /// Most bytes of stack, without what the functions that it calls use.
    pub stack: u32,
    /// The ways through it.
    pub paths: Vec<Path>,
}

/// A way through a trampoline. The instructions of what it calls are not counted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Path {
    /// `plain`, or what the branch is for that leads here.
    pub name: &'static str,
    /// Instructions executed.
    pub executed: u32,
    /// Words read.
    pub loads: u32,
    /// Words written.
    pub stores: u32,
    /// Times that the CPU's clock is read.
    pub clock: u32,
}

/// Generate trampolines for one target, into one object.
///
/// # Errors
/// A spec that the target cannot have; a symbol that two of them define. The message names it.
pub fn generate(target: &Target, specs: &[Spec]) -> Result<Trampolines> {
    let requests = specs.iter().map(|spec| spec.request(target)).collect::<Result<Vec<_>>>()?;
    let planned: Vec<_> = requests.iter().map(Request::spec).collect();
    let assembly = target.backend().assemble(&planned, target.resolved())?;
    let prototypes = specs.iter().map(|spec| spec.prototype().map(str::to_owned)).collect();
    Ok(Trampolines { target: target.clone(), assembly, requests, prototypes })
}

impl Template {
    /// Make the copy that lies at `address` and is for what `filling` says. `copy` takes it, and is as long as the template's bytes.
    ///
    /// # Errors
    /// A field cannot hold what belongs there: an address out of reach, a number of [`Filling::IDS`] or more. `copy` has another length.
    pub fn copy_to(&self, target: &Target, address: u64, filling: &Filling, copy: &mut [u8]) -> Result<()> {
        if copy.len() != self.bytes.len() {
            let (has, room) = (self.bytes.len(), copy.len());
            return Err(Error::new(format!("{}: {has} bytes for room of {room}; valid: as much room", self.name)));
        }
        if filling.id >= Filling::IDS {
            let (id, last) = (filling.id, Filling::IDS - 1);
            return Err(Error::new(format!("{}: function number {id}; valid: 0 to {last}", self.name)));
        }
        copy.copy_from_slice(&self.bytes);
        for fixup in &self.fixups {
            let place = address.wrapping_add(fixup.offset.into());
            let value = filling.of(fixup.symbol).wrapping_add_signed(fixup.addend);
            let high = address.wrapping_add(fixup.place.into());
            let field = copy.get_mut(fixup.offset as usize..).unwrap_or_default();
            let relocation = Applied { r_type: fixup.r_type, place, value, high };
            self.place(target, &relocation, field)?;
        }
        Ok(())
    }

    fn place(&self, target: &Target, relocation: &Applied, field: &mut [u8]) -> Result<()> {
        let at = || format!("{} at {:#x}", self.name, relocation.place);
        target.backend().relocate(relocation, field).map_err(|e| e.at(at()))
    }
}

impl Filling {
    /// How many numbers of functions there are: a number, what stands below it and the rounding of RISC-V's LUI must fit a signed
    /// field of 32 bits.
    pub const IDS: u32 = (1 << 23) - 8;

    fn of(&self, symbol: Filled) -> u64 {
        match symbol {
            Filled::Id => u64::from(self.id) << 8,
            Filled::Function => self.function,
            Filled::Clock => self.clock,
            Filled::Refill => self.refill,
            Filled::Callee => self.callee,
            Filled::Tls => self.tls.cast_unsigned(),
        }
    }
}

impl Trampolines {
    /// Their symbols.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().map(|request| request.spec().name)
    }

    /// Text that GNU as assembles, with what each promises above it.
    ///
    /// # Errors
    /// None that a spec causes.
    pub fn text(&self) -> Result<String> {
        templates::asm(&self.listings()?, self.target.resolved(), self.target.arch())
    }

    /// A C header: the trampolines, the functions that they call, labels, and offsets in the callbacks' structures.
    ///
    /// # Errors
    /// None that a spec causes.
    pub fn header(&self) -> Result<String> {
        let parsed = |prototype: &Option<String>| prototype.as_deref().map(Prototype::parse).transpose();
        let prototypes = self.prototypes.iter().map(parsed).collect::<Result<Vec<_>>>()?;
        templates::header(&self.listings()?, &prototypes, self.target.resolved(), self.target.arch())
    }

    /// An ELF64 relocatable object, as GNU as makes it from the text.
    ///
    /// # Errors
    /// Too much for the format's 32-bit counts.
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
    /// None that a spec causes.
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

    /// The one of them, which records or is a sled, as a template: what `gen --emit template` writes.
    ///
    /// # Errors
    /// It is neither, or not the only one, or needs more than a function, a number, a clock and a routine.
    pub fn template(&self) -> Result<Template> {
        let (target, specs) = (self.target.resolved(), self.requests.iter().map(Request::spec).collect::<Vec<_>>());
        let template = Made::of(&self.assembly, &specs, target)?;
        let fix_up = |f: &Field| FixUp {
            offset: f.at,
            r_type: f.r_type,
            name: target.facts.relocation(f.r_type),
            symbol: match f.of {
                Depends::Id => Filled::Id,
                Depends::Function => Filled::Function,
                Depends::Clock => Filled::Clock,
                Depends::Refill => Filled::Refill,
                Depends::Callee => Filled::Callee,
                Depends::Tls => Filled::Tls,
            },
            place: f.place,
            addend: f.addend,
        };
        Ok(Template {
            name: template.name.to_owned(),
            align: target.facts.align,
            entry: template.entry,
            bytes: template.bytes.to_vec(),
            fixups: template.fix_ups.iter().map(fix_up).collect(),
        })
    }

    /// What one of them promises.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn contract(&self, name: &str) -> Result<Contract> {
        Ok(Contract::of(&Promise::of(&self.planned(name)?, self.target.resolved())?))
    }

    /// What one of them costs.
    ///
    /// # Errors
    /// There is none of that name.
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

    /// Each as text. An object needs none of it.
    fn listings(&self) -> Result<Vec<TextListing>> {
        let backend = self.target.backend();
        self.requests.iter().map(|request| backend.text(&request.spec(), self.target.resolved())).collect()
    }

    /// For what judges.
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
