//! What an architecture provides ([`Isa`], static, with its own instruction type) and what the rest of the world
//! sees of it ([`Backend`], object safe). An architecture implements `Isa`; `Backend` follows.

use std::fmt;

use crate::abi::Reg;
use crate::assembly::Assembly;
use crate::code::CodeBuf;
use crate::cost::Cost;
use crate::effects::{CfiEntry, Effects};
use crate::error::Result;
use crate::form::Forms;
use crate::listing::{Listing, Lower};
use crate::machine::Machine;
use crate::mutate::{Faults, Mutant};
use crate::names::Names;
use crate::option::Choices;
use crate::patch::Patch;
use crate::place::Placement;
use crate::plan::Plan;
use crate::proto::Prototype;
use crate::spec::{Kind, Spec};
use crate::step::{Local, Step};
use crate::target::{Facts, Target};
use crate::text::TextListing;

/// An instruction set. One unit struct per architecture implements it.
pub trait Isa: Patch + 'static {
    /// An instruction. It is a value: comparing, copying, printing and encoding it needs nothing else but its target.
    type Insn: Copy + fmt::Debug + 'static;

    /// What is true under every choice.
    const FACTS: &'static Facts;

    /// What an emulator must know.
    const MACHINE: &'static Machine;

    /// Resolve options into a target.
    fn target(choices: Choices) -> Target;

    /// Where a call of this function has its arguments, and where its result is.
    ///
    /// # Errors
    /// A type that is passed in a way that is not known here.
    fn place(_target: &Target, proto: &Prototype) -> Result<Placement> {
        Err(proto.refuse(None, &format!("calling conventions of {} are not known", Self::FACTS.name)))
    }

    /// How unwinding starts at this kind of trampoline.
    fn cfi_entry(kind: Kind) -> CfiEntry;

    /// Append the instructions of one step. A step without an arm here cannot be generated for this architecture.
    fn lower(step: Step, cx: &mut Lower<Self::Insn>);

    /// Append the instruction's bytes and fixups.
    ///
    /// # Errors
    /// An operand that the instruction cannot hold.
    fn encode(insn: Self::Insn, target: &Target, out: &mut CodeBuf) -> Result<()>;

    /// Write the instruction as GNU as reads it.
    fn text(insn: Self::Insn, names: &Names, out: &mut dyn fmt::Write) -> fmt::Result;

    /// What the instruction does.
    fn effects(insn: Self::Insn) -> Effects;

    /// The instruction with other registers for those that it names. For mutants.
    fn with_registers(insn: Self::Insn, _r: &mut dyn FnMut(Reg) -> Reg) -> Self::Insn {
        insn
    }

    /// Faulty forms of the instruction, besides those that its effects tell. For mutants.
    fn faults(_insn: Self::Insn, _out: &mut Faults<Self::Insn>) {}

    /// Instructions of trampolines that others wrote. For mutants.
    const FORMS: Forms = Forms::NONE;

    /// Put the distance to a label of the same trampoline into the instruction at `at`. Returns whether GNU as
    /// leaves a relocation there all the same.
    ///
    /// # Errors
    /// The label is out of the instruction's reach.
    fn patch_local(r_type: u32, code: &mut [u8], at: usize, target: usize) -> Result<bool>;

    /// After this fixup, GNU as no longer knows the distance between two addresses at assembly time.
    fn opaque_after(_r_type: u32) -> bool {
        false
    }
}

/// An architecture as the rest of the world sees it. Nobody implements it by hand.
pub trait Backend: Patch {
    /// What an emulator must know.
    fn machine(&self) -> &'static Machine;
    /// Resolve options into a target.
    fn target(&self, choices: Choices) -> Target;
    /// See [`Isa::place`].
    ///
    /// # Errors
    /// As there.
    fn place(&self, target: &Target, proto: &Prototype) -> Result<Placement>;
    /// Generate trampolines, one after the other, into one assembly.
    ///
    /// # Errors
    /// What planning and encoding refuse; the message names the trampoline.
    fn assemble(&self, specs: &[Spec], target: &Target) -> Result<Assembly>;
    /// The faults that can be put into one trampoline.
    ///
    /// # Errors
    /// As [`Backend::assemble`].
    fn mutants(&self, spec: &Spec, target: &Target) -> Result<Vec<Mutant>>;
    /// As [`Backend::assemble`], with this fault in trampoline number `which`.
    ///
    /// # Errors
    /// As there, and a mutant of another target.
    fn assemble_mutant(&self, specs: &[Spec], target: &Target, which: usize, mutant: &Mutant) -> Result<Assembly>;
    /// See [`Isa::FORMS`].
    fn forms(&self) -> &'static Forms;
    /// Generate one trampoline as text with offsets and bytes.
    ///
    /// # Errors
    /// As [`Backend::assemble`].
    fn text(&self, spec: &Spec, target: &Target) -> Result<TextListing>;
    /// What one trampoline costs.
    ///
    /// # Errors
    /// As [`Backend::assemble`].
    fn cost(&self, spec: &Spec, target: &Target) -> Result<Cost>;
}

/// Plan and lower `spec` into `listing`, reusing the buffers of `plan` and `listing`.
pub(crate) fn generate<'a, I: Isa>(
    spec: &Spec<'a>,
    target: &Target,
    plan: &mut Plan,
    listing: &mut Listing<'a, I::Insn>,
) -> Result<()> {
    plan.make(spec, target)?;
    listing.lines.clear();
    listing.symbols.clear();
    let frame = target.frame(spec.kind)?;
    let mut cx = Lower { target, spec, frame: &frame, listing, depth: 0, anchor: None, pc_loaded: false };
    for &step in &plan.steps {
        match step {
            Step::Block(role, heading) => cx.listing.lines.push(crate::listing::Line::Block(role, heading)),
            Step::Inner(inner) => cx.inner(inner),
            Step::Path(way) => cx.local(Local::Path(way)),
            Step::FreeWithReturn => {
                I::lower(step, &mut cx);
                cx.listing.lines.push(crate::listing::Line::ReturnLost);
                cx.depth = 0;
            }
            _ => I::lower(step, &mut cx),
        }
    }
    Ok(())
}

/// Generate `specs` one after the other; `change` sees each listing before it becomes code.
fn assemble<'a, I: Isa>(
    specs: &[Spec<'a>],
    target: &Target,
    change: impl Fn(usize, &Spec<'a>, &mut Listing<'a, I::Insn>) -> Result<()>,
) -> Result<Assembly> {
    let (mut plan, mut listing, mut assembly) = (Plan::default(), Listing::default(), Assembly::default());
    for (i, spec) in specs.iter().enumerate() {
        generate::<I>(spec, target, &mut plan, &mut listing)
            .and_then(|()| change(i, spec, &mut listing))
            .and_then(|()| assembly.add::<I>(spec, target, &listing))
            .map_err(|e| e.at(format_args!("{}: {}", target.facts.name, spec.name)))?;
        if i == 0 {
            assembly.reserve(specs.len());
        }
    }
    assembly.finish(target);
    Ok(assembly)
}

impl<I: Isa> Backend for I {
    fn machine(&self) -> &'static Machine {
        I::MACHINE
    }

    fn target(&self, choices: Choices) -> Target {
        I::target(choices)
    }

    fn place(&self, target: &Target, proto: &Prototype) -> Result<Placement> {
        I::place(target, proto)
    }

    fn assemble(&self, specs: &[Spec], target: &Target) -> Result<Assembly> {
        assemble::<I>(specs, target, |_, _, _| Ok(()))
    }

    fn mutants(&self, spec: &Spec, target: &Target) -> Result<Vec<Mutant>> {
        crate::mutate::mutants::<I>(spec, target)
            .map_err(|e| e.at(format_args!("{}: {}", target.facts.name, spec.name)))
    }

    fn assemble_mutant(&self, specs: &[Spec], target: &Target, which: usize, mutant: &Mutant) -> Result<Assembly> {
        assemble::<I>(specs, target, |i, spec, listing| {
            if i == which {
                *listing = crate::mutate::faulty::<I>(mutant, spec, target, listing)?;
            }
            Ok(())
        })
    }

    fn forms(&self) -> &'static Forms {
        &I::FORMS
    }

    fn text(&self, spec: &Spec, target: &Target) -> Result<TextListing> {
        let (mut plan, mut listing) = (Plan::default(), Listing::default());
        generate::<I>(spec, target, &mut plan, &mut listing)?;
        crate::text::render::<I>(spec, target, &plan, &listing)
            .map_err(|e| e.at(format_args!("{}: {}", target.facts.name, spec.name)))
    }

    fn cost(&self, spec: &Spec, target: &Target) -> Result<Cost> {
        let (mut plan, mut listing) = (Plan::default(), Listing::default());
        generate::<I>(spec, target, &mut plan, &mut listing)?;
        crate::cost::cost::<I>(spec, target, &listing)
            .map_err(|e| e.at(format_args!("{}: {}", target.facts.name, spec.name)))
    }
}
