//! P16 at the edge: a trampoline at the last place that a site reaches, on both sides; one step further, the site is refused.

use codegen::error::Result;
use codegen::patch::SiteState;
use link::{Image, SiteEntry};

use crate::case::Handler;
use crate::cases::cases;
use crate::compare::{enabled, reference};
use crate::explain::explain;
use crate::filter::Filter;
use crate::fixture::Setup;
use crate::place::{Direction, Place};
use crate::report::Clause;
use crate::rig::{Away, Rig};
use crate::situation::Situation;
use crate::size::count;
use crate::tally::Tally;
use crate::trace::{At, Finding};

/// Steps in which the trampolines are moved, if no section of theirs is aligned to more.
const STEP: u64 = 64;

/// Of a site's reach, what an immediate of 12 bits that is added with its sign may take away or add.
const SLACK: u64 = 4096;

/// A site, and the trampoline that is to be as far from it as can be.
pub(crate) struct Edge {
    attach: usize,
    site: SiteEntry,
    filter: Filter,
}

/// What is put at the edge: the first trampoline at a site, in a plain case of the first function that fits.
pub(crate) fn edge(rig: &Rig, filter: &Filter) -> Option<Edge> {
    // Sites that are laid out before anything is attached are all of them laid out towards one place.
    if !rig.suite.convention.site.protocol.initial.is_empty() {
        return None;
    }
    let attach = rig.suite.contracts.iter().position(|c| c.kind.attaches() && filter.attaches(c))?;
    let filter = Filter {
        situation: Some(Situation::PLAIN),
        handler: Some(Handler::General),
        closely: Some(false),
        ..filter.clone()
    };
    let case = cases(rig, attach, &filter).into_iter().next()?;
    let start = rig.function(&rig.functions[case.function].name);
    let site = rig.image.sites.iter().find(|s| s.start == start)?.clone();
    Some(Edge { attach, site, filter: Filter { function: Some(rig.functions[case.function].name.clone()), ..filter } })
}

/// Judge both edges of the trampolines' image, which is beside the functions in `image`.
pub(crate) fn judge_edges(setup: Setup, edge: &Edge, image: &Image, tally: &mut Tally) -> Result<()> {
    for direction in [Direction::Up, Direction::Down] {
        let there = judge_edge(setup, edge, image, direction, tally)?;
        there.into_iter().for_each(|there| tally.absorb_moved(there));
    }
    Ok(())
}

/// What comes out at one edge; `None` if the objects cannot be linked there.
fn judge_edge(setup: Setup, edge: &Edge, image: &Image, direction: Direction, beside: &Tally) -> Result<Option<Tally>> {
    let (suite, site) = (setup.suite, &edge.site);
    let contract = &suite.contracts[edge.attach];
    let base = image.segments.first().map_or(0, |s| s.address);
    let Some(near) = image.symbol(&contract.name).map(|s| s.address) else { return Ok(None) };
    let step = image.sections.iter().map(|s| s.align).fold(STEP, u64::max);
    let at = |steps: u64| match direction {
        Direction::Up => near.checked_add(steps * step),
        Direction::Down => near.checked_sub(steps * step),
    };
    let reached = |steps: u64| {
        let state = |target| SiteState::Enabled { target, op: Some(0), jump: contract.kind.jumped_to() };
        at(steps).is_some_and(|target| suite.writes(site.spot(None), state(target)).is_ok())
    };
    let reach = suite.convention.site.reach as u64;
    // What is reached lies below what is not: beside the site, and at twice its reach.
    let (mut last, mut beyond) = (0, 2 * reach / step);
    while beyond - last > 1 {
        let middle = last.midpoint(beyond);
        *(if reached(middle) { &mut last } else { &mut beyond }) = middle;
    }
    let Some(target) = at(last) else { return Ok(None) };
    let first = target - (near - base);
    let away = Away { functions: image.clone(), bytes: first.wrapping_sub(base) as i64, copied: false, beside };
    let moved = Rig::moved(setup, away)?;
    let Some(mut rig) = moved.filter(|rig| rig.ranges[edge.attach].0 == target) else { return Ok(None) };
    let mut there = Tally::new(suite);
    rig.patch_all(SiteState::Disabled, None)?;
    let Some(case) = cases(&rig, edge.attach, &edge.filter).into_iter().next() else { return Ok(None) };
    let ends = target.abs_diff(site.ip);
    let at = At { clause: Clause::P16, trampoline: edge.attach, pc: site.ip };
    let found = if ends.abs_diff(reach) <= SLACK + step { reach } else { ends };
    let expected = reference(&mut rig, &case)?;
    rig.aim(edge.attach, case.function)?;
    rig.patch_all(rig.on(edge.attach), Some(case.function))?;
    enabled(&mut rig, &case, &expected, &mut there)?;
    count(&mut rig, &mut there)?;
    there.judged(&case, Finding::new(at, Place::Reach { direction }, reach, found));
    explain(&mut rig, &mut there, &edge.filter)?;
    Ok(Some(there))
}
