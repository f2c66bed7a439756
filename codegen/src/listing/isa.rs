//! The traits that an architecture implements, with its own instruction type.

use std::convert::Infallible;
use std::fmt;

use crate::arch::facts::Facts;
use crate::arch::machine::Machine;
use crate::arch::patch::Patch;
use crate::ask::option::Choices;
use crate::ask::spec::Kind;
use crate::effect::effects::{CfiEntry, Effects};
use crate::listing::Lowering;
use crate::listing::code::CodeBuf;
use crate::listing::names::Names;
use crate::profile::Convention;
use crate::profile::target::Target;
use crate::words::error::Result;
use crate::words::step::Step;

/// The facts about an architecture, and how C calls and sites work there. One unit struct implements this trait and those
/// below.
pub trait Architecture: Sync + 'static {
    /// The facts that hold under every option and profile.
    const FACTS: &'static Facts;

    /// The architecture's data for emulators.
    const MACHINE: &'static Machine;

    /// Resolve options into a target.
    fn target(convention: &'static Convention, choices: Choices) -> Result<Target>;

    /// The unwind rules at the first instruction of this kind of trampoline.
    fn cfi_entry(kind: Kind) -> CfiEntry;
}

/// An instruction in three columns: text, bytes, effects. [`rows`](crate::rows) implements it. It is a value: comparing,
/// copying, printing and encoding it needs nothing else but its target.
pub trait Instruction: Copy + fmt::Debug + 'static {
    /// Append the instruction's bytes and fixups.
    ///
    /// # Errors
    /// An operand that the instruction cannot hold.
    fn encode(self, target: &Target, out: &mut CodeBuf) -> Result<()>;

    /// Write the instruction as text for GNU as.
    fn text(self, names: &Names, out: &mut dyn fmt::Write) -> fmt::Result;

    /// The effects of the instruction.
    fn effects(self) -> Effects;
}

/// Where there are no instructions of a sort.
impl Instruction for Infallible {
    fn encode(self, _: &Target, _: &mut CodeBuf) -> Result<()> {
        match self {}
    }

    fn text(self, _: &Names, _: &mut dyn fmt::Write) -> fmt::Result {
        match self {}
    }

    fn effects(self) -> Effects {
        match self {}
    }
}

/// References to labels of the same trampoline.
pub trait Labels {
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

/// Lowering of steps to instructions.
pub trait Lower: Architecture {
    /// The type of the architecture's instructions.
    type Insn: Instruction;

    /// Append the instructions of one step. An unsupported step is an error, and is never left out.
    ///
    /// # Errors
    /// [`Lowering::unsupported`]: the architecture does not support the step.
    fn lower(step: Step, cx: &mut Lowering<Self::Insn>) -> Result<()>;
}

/// An instruction set: all traits needed for generating and patching.
pub trait Isa: Labels + Lower + Patch {}

impl<I: Labels + Lower + Patch> Isa for I {}

/// Implement [`Instruction`], one row per instruction: pattern `=>` text, bytes, effects.
///
/// The names before the rows are those of what they work with: a writer, the names for numbers, the buffer, the target, and
/// maybe what an option says, for all rows.
#[macro_export]
macro_rules! rows {
    (
        $insn:ident, $w:ident $names:ident $out:ident $target:ident $($option:ident = $value:expr)?;
        $($pattern:pat => $text:expr, $encode:block, $effects:expr;)*
    ) => {
        #[allow(unused_variables, reason = "a row's pattern binds what any of its three columns needs")]
        impl $crate::listing::isa::Instruction for $insn {
            fn text(self, $names: &$crate::listing::names::Names, $w: &mut dyn ::std::fmt::Write) -> ::std::fmt::Result {
                use $insn::*;
                match self { $($pattern => $text,)* }
            }

            #[allow(
                clippy::unnecessary_cast,
                clippy::identity_op,
                clippy::useless_conversion,
                clippy::precedence,
                clippy::erasing_op,
                reason = "what the dynasm macro expands to"
            )]
            fn encode(
                self,
                $target: &$crate::profile::target::Target,
                $out: &mut $crate::listing::code::CodeBuf,
            ) -> $crate::words::error::Result<()> {
                use $insn::*;
                $(let $option = $value;)?
                match self { $($pattern => $encode,)* }
                Ok(())
            }

            fn effects(self) -> $crate::effect::effects::Effects {
                use $insn::*;
                match self { $($pattern => $effects,)* }
            }
        }
    };
}
