//! An architecture as the rest of the world sees it: [`Backend`] follows from [`Mutable`], object safe.

use crate::arch::machine::Machine;
use crate::arch::patch::Patch;
use crate::ask::option::Choices;
use crate::ask::place::Placement;
use crate::ask::spec::Spec;
use crate::contract::Contract;
use crate::listing::Listing;
use crate::listing::generate::generate;
use crate::listing::isa::{Instruction, Isa};
use crate::listing::pattern::PatternTable;
use crate::mutate::{self, Mutable, Mutant};
use crate::out::assembly::Assembly;
use crate::out::shape::Shape;
use crate::out::text::{self, TextListing};
use crate::plan::Plan;
use crate::profile::Convention;
use crate::profile::target::Target;
use crate::verify::{self, Fault};
use crate::words::error::{Error, Result};
use crate::words::proto::Prototype;

/// Trampolines, from one plan and one listing each.
#[derive(Debug)]
pub struct Artifact {
    /// The code, relocations and symbols from which an object is made.
    pub assembly: Assembly,
    /// Each trampoline as text, with its contract and its cost.
    pub listings: Vec<TextListing>,
}

/// An architecture as the rest of the world sees it. Nobody implements it by hand.
pub trait Backend: Patch {
    /// The architecture's data for emulators.
    fn machine(&self) -> &'static Machine;
    /// Resolve options into a target.
    fn target(&self, convention: &'static Convention, choices: Choices) -> Result<Target>;
    /// See [`Target::place`].
    ///
    /// # Errors
    /// As [`Target::place`].
    fn place(&self, target: &Target, proto: &Prototype) -> Result<Placement> {
        target.place(proto)
    }
    /// Generate trampolines, one after the other, into one assembly.
    ///
    /// # Errors
    /// What planning and encoding refuse; the message names the trampoline.
    fn assemble(&self, specs: &[Spec], target: &Target) -> Result<Assembly>;
    /// Generate trampolines into one assembly, and each of them as text.
    ///
    /// # Errors
    /// As [`Backend::assemble`].
    fn generate(&self, specs: &[Spec], target: &Target) -> Result<Artifact>;
    /// The faults that can be put into one trampoline.
    ///
    /// # Errors
    /// As [`Backend::assemble`].
    fn mutants(&self, spec: &Spec, target: &Target) -> Result<Vec<Mutant>>;
    /// Assemble trampolines, with the fault `mutant` in trampoline number `which`.
    ///
    /// # Errors
    /// As [`Backend::assemble`], and a mutant of another target.
    fn assemble_mutant(&self, specs: &[Spec], target: &Target, which: usize, mutant: &Mutant) -> Result<Assembly>;
    /// See [`Mutable::PATTERNS`].
    fn patterns(&self) -> &'static PatternTable;
    /// Generate one trampoline as text with offsets and bytes, and compute its cost.
    ///
    /// # Errors
    /// As [`Backend::assemble`].
    fn text(&self, spec: &Spec, target: &Target) -> Result<TextListing>;
    /// The faults that the symbolic checker finds in one trampoline, after injecting `mutant` if it is given.
    ///
    /// # Errors
    /// As [`Backend::assemble`], and a mutant of another target.
    fn verify(&self, spec: &Spec, target: &Target, mutant: Option<&Mutant>) -> Result<Vec<Fault>>;
}

/// The faults that the symbolic checker finds in a trampoline, after `change` has edited its listing.
///
/// # Errors
/// As [`Backend::assemble`], and what `change` returns.
pub fn verify<'a, I: Isa>(
    spec: &Spec<'a>,
    target: &Target,
    change: impl FnOnce(&mut Listing<'a, I::Insn>) -> Result<()>,
) -> Result<Vec<Fault>> {
    let (mut plan, mut listing) = (Plan::default(), Listing::default());
    generate::<I>(spec, target, &mut plan, &mut listing)?;
    change(&mut listing)?;
    faults::<I>(spec, target, &plan, &listing)
}

fn faults<I: Isa>(
    spec: &Spec,
    target: &Target,
    plan: &Plan,
    listing: &Listing<impl Instruction>,
) -> Result<Vec<Fault>> {
    let contract = Contract::of(spec, target)?;
    let mut faults = verify::plan::plan(plan, &contract);
    faults.extend(verify::listing(listing, &contract, target, I::MACHINE)?);
    Ok(faults)
}

/// Check a listing against its contract. Debug builds do this for every trampoline that they generate.
///
/// # Errors
/// The listing breaks its contract.
fn checked<I: Isa>(spec: &Spec, target: &Target, plan: &Plan, listing: &Listing<I::Insn>) -> Result<()> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    let faults = faults::<I>(spec, target, plan, listing)?;
    match faults.first() {
        None => Ok(()),
        Some(first) => Err(Error::new(format!("the symbolic checker finds {} faults, first {first}", faults.len()))),
    }
}

/// Generate `specs` one after the other; `add` turns each listing into code.
fn assemble<'a, I: Isa>(
    specs: &[Spec<'a>],
    target: &Target,
    mut add: impl FnMut(usize, &Spec<'a>, &Plan, &Listing<'a, I::Insn>, &Shape, &mut Assembly) -> Result<()>,
) -> Result<Assembly> {
    let (mut plan, mut listing, mut assembly) = (Plan::default(), Listing::default(), Assembly::default());
    let mut shape = Shape::default();
    for (i, spec) in specs.iter().enumerate() {
        let mut made = || {
            generate::<I>(spec, target, &mut plan, &mut listing)?;
            checked::<I>(spec, target, &plan, &listing)?;
            shape.encode::<I>(spec, target, &listing, None)?;
            add(i, spec, &plan, &listing, &shape, &mut assembly)
        };
        made().map_err(|e| e.at(format_args!("{}: {}", target.facts.name, spec.name)))?;
        if i == 0 {
            assembly.reserve(specs.len(), target);
        }
    }
    assembly.finish(target);
    Ok(assembly)
}

impl<I: Mutable> Backend for I {
    fn machine(&self) -> &'static Machine {
        I::MACHINE
    }

    fn target(&self, convention: &'static Convention, choices: Choices) -> Result<Target> {
        I::target(convention, choices)
    }

    fn assemble(&self, specs: &[Spec], target: &Target) -> Result<Assembly> {
        assemble::<I>(specs, target, |_, spec, _, listing, shape, assembly| {
            assembly.add(spec, target, &listing.symbols, shape)
        })
    }

    fn generate(&self, specs: &[Spec], target: &Target) -> Result<Artifact> {
        let mut listings = Vec::with_capacity(specs.len());
        let assembly = assemble::<I>(specs, target, |_, spec, plan, listing, shape, assembly| {
            listings.push(text::render::<I>(spec, target, plan, listing)?);
            assembly.add(spec, target, &listing.symbols, shape)
        })?;
        Ok(Artifact { assembly, listings })
    }

    fn mutants(&self, spec: &Spec, target: &Target) -> Result<Vec<Mutant>> {
        mutate::mutants::<I>(spec, target).map_err(|e| e.at(format_args!("{}: {}", target.facts.name, spec.name)))
    }

    fn assemble_mutant(&self, specs: &[Spec], target: &Target, which: usize, mutant: &Mutant) -> Result<Assembly> {
        assemble::<I>(specs, target, |i, spec, _, listing, shape, assembly| {
            if i == which {
                return mutate::add::<I>(mutant, spec, target, listing, assembly);
            }
            assembly.add(spec, target, &listing.symbols, shape)
        })
    }

    fn patterns(&self) -> &'static PatternTable {
        &I::PATTERNS
    }

    fn text(&self, spec: &Spec, target: &Target) -> Result<TextListing> {
        let (mut plan, mut listing) = (Plan::default(), Listing::default());
        generate::<I>(spec, target, &mut plan, &mut listing)?;
        text::render::<I>(spec, target, &plan, &listing)
            .map_err(|e| e.at(format_args!("{}: {}", target.facts.name, spec.name)))
    }

    fn verify(&self, spec: &Spec, target: &Target, mutant: Option<&Mutant>) -> Result<Vec<Fault>> {
        let (mut plan, mut listing) = (Plan::default(), Listing::default());
        generate::<I>(spec, target, &mut plan, &mut listing)
            .and_then(|()| match mutant {
                None => faults::<I>(spec, target, &plan, &listing),
                Some(mutant) => faults::<I>(spec, target, &plan, &mutate::faulty::<I>(mutant, spec, target, &listing)?),
            })
            .map_err(|e| e.at(format_args!("{}: {}", target.facts.name, spec.name)))
    }
}
