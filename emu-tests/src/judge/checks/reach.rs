//! P16 at the edge: a trampoline at the last place that a site reaches, on both sides; one step further, the site is refused.

use codegen::arch::patch::SiteState;
use codegen::words::error::Result;
use link::{Image, SiteEntry};

use crate::judge::cases::cases;
use crate::judge::checks::compare::{enabled, reference};
use crate::judge::checks::size::count;
use crate::judge::explain::explain;
use crate::judge::fixture::Setup;
use crate::judge::rig::{Away, Rig};
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::{Direction, Place};
use crate::run::case::Handler;
use crate::run::filter::Filter;
use crate::run::situation::Situation;

/// Steps in which the trampolines are moved where they cannot be put at any instruction, if no section of theirs is aligned
/// to more.
const STEP: u64 = 64;

/// Of a site's reach, what an immediate of 12 bits that is added with its sign may take away or add, and where in the site the
/// branch is.
const SLACK: u64 = 2048 + 16;

/// A site, and the trampoline that is to be as far from it as can be.
pub(crate) struct Edge {
    attach: usize,
    /// From the first to behind the last of the trampolines, which are linked together.
    bytes: u64,
    site: SiteEntry,
    filter: Filter,
}

/// What is put at the edge: the first trampoline at a site, in a plain case of the first function that fits; where sites are laid
/// out before anything is attached, the first that they are laid out towards.
pub(crate) fn edge(rig: &Rig, filter: &Filter) -> Option<Edge> {
    let laid_out = !rig.suite.convention.site.protocol.initial.is_empty();
    let aimed = |i: usize| !laid_out || rig.laid_out(i) == rig.ranges.get(i).map(|(at, _)| *at);
    let mut contracts = rig.suite.contracts.iter().enumerate();
    let (attach, _) =
        contracts.find(|(i, c)| c.kind.attaches() && filter.attaches(&rig.suite.contracts, c) && aimed(*i))?;
    let filter = Filter {
        situation: Some(Situation::PLAIN),
        handler: Some(Handler::General),
        closely: Some(false),
        ..filter.clone()
    };
    let case = cases(rig, attach, &filter).into_iter().next()?;
    let start = rig.function(&rig.functions[case.function].name);
    let site = rig.image.sites.iter().find(|s| s.start == start)?.clone();
    let from = rig.ranges.iter().map(|(at, _)| *at).min()?;
    let to = rig.ranges.iter().map(|(at, bytes)| at + bytes).max()?;
    Some(Edge {
        attach,
        bytes: to - from,
        site,
        filter: Filter { function: Some(rig.functions[case.function].name.clone()), ..filter },
    })
}

/// Judge both edges of the trampolines' image, which is beside the functions in `image`.
pub(crate) fn judge_edges(setup: Setup, edge: &Edge, image: &Image, tally: &mut Tally) -> Result<()> {
    for direction in [Direction::Up, Direction::Down] {
        let there = judge_edge(setup, edge, image, direction, tally)?;
        there.into_iter().for_each(|there| tally.absorb_moved(there));
    }
    Ok(())
}

/// What comes out at one edge, to the instruction if the objects can be put there; `None` if they cannot be linked at all.
fn judge_edge(setup: Setup, edge: &Edge, image: &Image, direction: Direction, beside: &Tally) -> Result<Option<Tally>> {
    let nops = setup.suite.backend.patterns().nops;
    let unit = nops.iter().map(|nop| nop.len() as u64).min();
    if let Some(unit) = unit
        && let Some(there) = judge_at(setup, edge, image, (direction, Some(unit)), beside)?
    {
        return Ok(Some(there));
    }
    judge_at(setup, edge, image, (direction, None), beside)
}

/// The same in steps of so many bytes; if none are said, in those of the objects' alignment.
fn judge_at(
    setup: Setup,
    edge: &Edge,
    image: &Image,
    (direction, unit): (Direction, Option<u64>),
    beside: &Tally,
) -> Result<Option<Tally>> {
    let (suite, site) = (setup.suite, &edge.site);
    let contract = &suite.contracts[edge.attach];
    let Some(near) = image.symbol(&contract.name).map(|s| s.address) else { return Ok(None) };
    let step = unit.unwrap_or_else(|| image.sections.iter().map(|s| s.align).fold(STEP, u64::max));
    let at = |steps: u64| match direction {
        Direction::Up => near.checked_add(steps * step),
        Direction::Down => near.checked_sub(steps * step),
    };
    let reached = |steps: u64| {
        let state = |target| SiteState::Enabled { target, op: Some(0), jump: contract.kind.jumped_to() };
        at(steps).is_some_and(|target| suite.writes(site.spot(Some(target), None), state(target)).is_ok())
    };
    let reach = suite.convention.site.reach as u64;
    // What is reached lies below what is not: beside the site, and at twice its reach.
    let (mut last, mut beyond) = (0, 2 * reach / step);
    while beyond - last > 1 {
        let middle = last.midpoint(beyond);
        *(if reached(middle) { &mut last } else { &mut beyond }) = middle;
    }
    // What goes on in the function by itself has to reach it from its last instruction, and so do those beside it. What an immediate adds on the way there,
    // it takes away on the way back.
    let own = if contract.kind.names_body() { edge.bytes + 2 * SLACK } else { 0 };
    let Some(target) = at(last.saturating_sub(own.div_ceil(step))) else { return Ok(None) };
    let Some(mut rig) = put_at(setup, edge, image, target, unit, beside)? else { return Ok(None) };
    let mut there = Tally::new(suite);
    let Some(case) = cases(&rig, edge.attach, &edge.filter).into_iter().next() else { return Ok(None) };
    rig.alone = Some(case.function);
    rig.lay_out(edge.attach)?;
    rig.patch_all(SiteState::Disabled, None)?;
    let ends = target.abs_diff(site.ip);
    let at = At { clause: Clause::P16, trampoline: edge.attach, pc: site.ip };
    let found = if ends.abs_diff(reach) <= SLACK + own + unit.map_or(step, |_| 0) { reach } else { ends };
    let expected = reference(&mut rig, &case)?;
    rig.aim(edge.attach, case.function)?;
    rig.attach(edge.attach, None)?;
    enabled(&mut rig, &case, &expected, &mut there)?;
    count(&mut rig, &mut there)?;
    there.judged(&case, Finding::new(at, Place::Reach { direction }, reach, found));
    there.judged(&case, Finding::new(at, Place::Beyond { direction }, false, reached(beyond)));
    explain(&mut rig, &mut there, &edge.filter)?;
    Ok(Some(there))
}

/// The image again, with the trampoline that is attached at `target`; `None` if it cannot be put there.
fn put_at<'s>(
    setup: Setup<'s>,
    edge: &Edge,
    image: &Image,
    target: u64,
    code_align: Option<u64>,
    beside: &'s Tally,
) -> Result<Option<Rig<'s>>> {
    let name = &setup.suite.contracts[edge.attach].name;
    let mut bytes = target.wrapping_sub(image.symbol(name).map_or(0, |s| s.address)) as i64;
    // What is aligned to less lies closer together: the first time tells how much.
    for _ in 0..2 {
        let away = Away { functions: image.clone(), bytes, copied: false, code_align, beside };
        let rig = match Rig::moved(setup, away) {
            // What says itself how it is aligned may not be put at any instruction.
            Err(_) if code_align.is_some() => None,
            rig => rig?,
        };
        let Some(rig) = rig else { return Ok(None) };
        let found = rig.ranges[edge.attach].0;
        if found == target {
            return Ok(Some(rig));
        }
        bytes = bytes.wrapping_add(target.wrapping_sub(found) as i64);
    }
    Ok(None)
}
