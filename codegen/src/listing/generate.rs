//! Spec to listing: the plan's steps, lowered one after the other.

use crate::ask::spec::Spec;
use crate::listing::isa::Isa;
use crate::listing::{Line, Listing, Lowering};
use crate::plan::Plan;
use crate::profile::target::Target;
use crate::words::error::{Error, Result};
use crate::words::step::{Local, Mark, RecordStep, Step, Sym};

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
    let mut cx = Lowering { target, spec, frame: &frame, listing, depth: 0, anchor: None, pc_loaded: false };
    if spec.kind.recorder().is_some_and(|recorder| recorder.unwind) {
        cx.local(Local::Mark(Mark::Begin));
    }
    for &step in &plan.steps {
        match step {
            Step::Block(role, heading) => cx.listing.lines.push(Line::Block(role, heading)),
            Step::KernelLabel(label) => cx.kernel_label(label),
            Step::Path(way) => cx.local(Local::Path(way)),
            Step::Refused(n) => cx.local(Local::Refused(n)),
            Step::Record(RecordStep::Recorded(event)) => cx.local(Local::Recorded(event)),
            Step::Record(RecordStep::Room(event)) => cx.local(Local::Room(event)),
            Step::Mark(mark) => cx.local(Local::Mark(mark)),
            Step::Record(RecordStep::What(event)) => {
                cx.listing.lines.push(Line::Numbered(event));
                I::lower(step, &mut cx)?;
            }
            Step::Record(RecordStep::Refill(event)) => {
                cx.local(Local::Refill(event));
                I::lower(step, &mut cx)?;
            }
            Step::Record(RecordStep::Timed(event)) => {
                cx.local(Local::Timed(event));
                I::lower(step, &mut cx)?;
            }
            Step::FreeWithReturn => {
                I::lower(step, &mut cx)?;
                cx.return_lost();
                cx.depth = 0;
            }
            Step::Record(RecordStep::NoSlot) => {
                cx.local(Local::NoSlot);
                I::lower(step, &mut cx)?;
            }
            Step::PassOver => {
                cx.local(Local::PassOver);
                I::lower(step, &mut cx)?;
            }
            Step::ExceptionPad if target.harden.landing.is_none() || !target.facts.unwinders_jump => {}
            _ => I::lower(step, &mut cx)?,
        }
    }
    let symbols = listing.symbols.len();
    if symbols > Sym::MOST {
        return Err(Error::new(format!("it refers to {symbols} symbols; valid: up to {}", Sym::MOST)));
    }
    Ok(())
}
