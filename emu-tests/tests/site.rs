//! Sites that are patched wrongly must be noticed.

use arch::{BACKENDS, backend};
use codegen::arch::patch::{Patch, Poke, SiteState};
use codegen::arch::site::{Site, Spot};
use codegen::ask::spec::{Direct, Spec};
use codegen::out::obj;
use codegen::profile::Profile;
use codegen::words::error::Result;
use profiles::Source;
use tramptool_emu_tests::{BY_THE_PROFILE, Clause, Filter, Foreign, Poker, Report, Verdict, check, foreign_suites};

use common::expected::{contract, expected};
use common::{profile, target, target_under};

mod common;

/// One direct-call trampoline on the functions of a fixture, whose sites are patched by `poke`.
fn judged(arch: &str, fixture: &str, poke: Poker) -> Report {
    judged_under(profile(), arch, fixture, poke)
}

fn judged_under(profile: &'static Profile, arch: &str, fixture: &str, poke: Poker) -> Report {
    let backend = backend(arch).unwrap();
    let target = target_under(profile, backend);
    let spec = Spec::direct("my_tramp", Direct { args: 2, ..Direct::default() }, "direct_func");
    let object = obj::write(&backend.assemble(&[spec], &target).unwrap(), &target).unwrap();
    let contract = contract(backend);
    let objects = vec![("t.o".to_owned(), object)];
    let foreign = Foreign::new("t.toml", &contract, objects, profile);
    let mut suites = foreign_suites(&foreign, BACKENDS).unwrap();
    suites[0].poke = poke;
    let filter = Filter { fixture: Some(fixture.to_owned()), ..Filter::default() };
    check(&suites, &filter, 1, &|_, _| {}).unwrap()
}

/// As the backend has it, with a fault where the site is enabled.
fn enabling(
    site: &Site,
    b: &dyn Patch,
    spot: Spot,
    state: SiteState,
    fault: impl Fn(&mut Vec<Poke>),
) -> Result<Vec<Poke>> {
    let mut pokes = BY_THE_PROFILE(site, b, spot, state)?;
    if state != SiteState::Disabled {
        fault(&mut pokes);
    }
    Ok(pokes)
}

fn reason(report: &Report, clause: Clause) -> (Verdict, String) {
    let row = report.results.iter().find(|r| r.clause == clause).unwrap();
    let places = row.failures.iter().map(|f| f.place.as_str()).collect::<Vec<_>>().join("; ");
    (row.verdict, format!("{} {places}", row.reason))
}

fn fails(arch: &str, fixture: &str, poke: Poker, clause: Clause, part: &str) {
    let (verdict, reason) = reason(&judged(arch, fixture, poke), clause);
    assert!(verdict == Verdict::Fail && reason.contains(part), "{clause}: {verdict:?}, no '{part}' in {reason}");
}

#[test]
fn sound_ones_pass() {
    for backend in BACKENDS {
        let arch = backend.facts().name;
        let report = judged(arch, &expected(*backend).patched.fixture, BY_THE_PROFILE);
        for clause in [Clause::P16, Clause::P17, Clause::P18] {
            let (verdict, reason) = reason(&report, clause);
            let expected = if target(*backend).convention.site.between.is_none() || clause != Clause::P18 {
                Verdict::Pass
            } else {
                Verdict::Deviates
            };
            assert_eq!(verdict, expected, "{arch} {clause}: {reason}");
        }
    }
}

/// Of riscv64's sites as Linux 7.3 writes them a CPU sees one word or the other: nothing is wrong wherever it is.
#[test]
fn a_site_of_which_one_word_is_written() {
    let facts: Vec<_> = BACKENDS.iter().map(|b| b.facts()).collect();
    let text = include_str!("../../profiles/tests/one-word.toml");
    let profile = profiles::load(Source { name: "one-word.toml", text }, &facts).unwrap();
    for fixture in ["rvc", "norvc"] {
        let report = judged_under(profile, "riscv64", fixture, BY_THE_PROFILE);
        for clause in [Clause::P16, Clause::P17, Clause::P18] {
            let (verdict, reason) = reason(&report, clause);
            assert_eq!(verdict, Verdict::Pass, "{fixture} {clause}: {reason}");
        }
    }
}

/// Bug M1: more bytes are written than the site has.
#[test]
fn a_site_that_is_too_long() {
    fails(
        "x86_64",
        "plain",
        |site, b, spot, state| enabling(site, b, spot, state, |pokes| pokes[0].write.bytes.extend([0x90; 400])),
        Clause::P17,
        "the site ends in the function",
    );
}

/// Bugs I3 and I6: the landing pad is taken for the site.
#[test]
fn a_site_in_place_of_the_landing_pad() {
    const PAD: u64 = 4;
    fails(
        "x86_64",
        "ibt",
        |site, b, spot, state| {
            let pad = if state == SiteState::Disabled { 0 } else { PAD };
            BY_THE_PROFILE(site, b, Spot { ip: spot.ip - pad, ..spot }, state)
        },
        Clause::P17,
        "the site ends where an instruction does",
    );
}

#[test]
fn a_site_that_is_not_given_back() {
    let half: Poker = |site, b, spot, state| {
        let mut pokes = BY_THE_PROFILE(site, b, spot, state)?;
        if state == SiteState::Disabled {
            pokes[0].write.bytes.truncate(4);
        }
        Ok(pokes)
    };
    // The bytes show it, and so does the function when it runs.
    fails("riscv64", "rvc", half, Clause::P17, "byte after the site was disabled");
    fails("riscv64", "rvc", half, Clause::P9, "disabled again, the function behaves differently");
}

#[test]
fn without_a_breakpoint_half_an_instruction_is_executed() {
    fails(
        "x86_64",
        "plain",
        |site, b, spot, state| {
            let mut pokes = BY_THE_PROFILE(site, b, spot, state)?;
            pokes.remove(0);
            pokes[0].traps = false;
            Ok(pokes)
        },
        Clause::P18,
        "switched on, step 1 of 2, CPU at ip since step",
    );
}

/// What is there meanwhile comes back, with another value in a register of the function's caller.
#[test]
fn an_instruction_that_is_there_for_a_moment() {
    fails(
        "x86_64",
        "plain",
        |site, b, spot, state| {
            enabling(site, b, spot, state, |pokes| {
                let mut before = pokes[0].clone();
                // xor %ebx, %ebx; nopl (%rax)
                (before.write.bytes, before.traps) = (vec![0x31, 0xdb, 0x0f, 0x1f, 0x00], false);
                pokes.insert(0, before);
            })
        },
        Clause::P18,
        "rbx after the function",
    );
}

#[test]
fn a_breakpoint_that_is_none() {
    fails(
        "x86_64",
        "plain",
        |site, b, spot, state| enabling(site, b, spot, state, |pokes| pokes[0].write.bytes = vec![0x90]),
        Clause::P18,
        "the breakpoint",
    );
}

/// The halves of riscv64's pair, one after the other, in the order in which the first half is not there yet.
#[test]
fn halves_in_the_wrong_order() {
    fails(
        "riscv64",
        "rvc",
        |site, b, spot, state| {
            let mut pokes = BY_THE_PROFILE(site, b, spot, state)?;
            let mut second = pokes[0].clone();
            second.write.at += 4;
            second.write.bytes = pokes[0].write.bytes.split_off(4);
            pokes.insert(0, second);
            Ok(pokes)
        },
        Clause::P18,
        "switched on, step 1 of 2, CPU at ip since step 0",
    );
}

/// The last places that a site reaches: one that is refused though it is reached, and one that is not and goes elsewhere.
#[test]
fn a_reach_that_is_shorter_or_longer_than_the_sites() {
    for backend in BACKENDS {
        let refuses: Poker = |site, b, spot, state| match state {
            SiteState::Enabled { target, .. } if target.abs_diff(spot.ip) > site.reach as u64 - 0x2000 => {
                Err(codegen::words::error::Error::new("too far"))
            }
            _ => BY_THE_PROFILE(site, b, spot, state),
        };
        let fixture = expected(*backend).patched.fixture;
        fails(backend.facts().name, &fixture, refuses, Clause::P16, "how far a site reaches up");
    }
    let wraps: Poker = |site, b, spot, state| match state {
        SiteState::Enabled { target, op, jump } => {
            let behind = spot.ip.wrapping_add(5);
            let target = behind.wrapping_add_signed(target.wrapping_sub(behind) as i32 as i64);
            BY_THE_PROFILE(site, b, spot, SiteState::Enabled { target, op, jump })
        }
        SiteState::Disabled => BY_THE_PROFILE(site, b, spot, state),
    };
    fails("x86_64", "ibt", wraps, Clause::P16, "how far a site reaches up");
}

/// Of all that a site reaches, the last place alone, on either side: one instruction further there is none, and where trampolines
/// are aligned to more, none begins there.
#[test]
fn the_last_place_of_a_reach_that_goes_elsewhere() {
    const UP: [Poker; 3] = [beside::<1, true>, beside::<4, true>, beside::<2, true>];
    const DOWN: [Poker; 3] = [beside::<1, false>, beside::<4, false>, beside::<2, false>];
    let facts: Vec<_> = BACKENDS.iter().map(|b| b.facts()).collect();
    let newer = profiles::find("linux-7.3", &facts).unwrap();
    for (i, (arch, fixture)) in [("x86_64", "ibt"), ("arm64", "bti"), ("riscv64", "rvc")].into_iter().enumerate() {
        for (profile, poke) in [profile(), newer].into_iter().flat_map(|p| [(p, UP[i]), (p, DOWN[i])]) {
            let (verdict, reason) = reason(&judged_under(profile, arch, fixture, poke), Clause::P16);
            assert_eq!(verdict, Verdict::Fail, "{arch}, {:?}: {reason}", profile.name);
        }
    }
}

/// A site goes 64 bytes beside a target that has no reachable one `UNIT` bytes behind it, or before.
fn beside<const UNIT: i64, const UP: bool>(
    site: &Site,
    b: &dyn Patch,
    spot: Spot,
    state: SiteState,
) -> Result<Vec<Poke>> {
    let moved = |bytes: i64| {
        let to = |at: u64| at.wrapping_add_signed(if UP { bytes } else { -bytes });
        let SiteState::Enabled { target, op, jump } = state else { return BY_THE_PROFILE(site, b, spot, state) };
        let spot = Spot { toward: spot.toward.map(to), ..spot };
        BY_THE_PROFILE(site, b, spot, SiteState::Enabled { target: to(target), op, jump })
    };
    if moved(0).is_ok() && moved(UNIT).is_err() { moved(-64) } else { moved(0) }
}

/// Near the site, 24 bits of a distance are as good as 32.
#[test]
fn a_distance_that_is_cut_off() {
    fails(
        "x86_64",
        "plain",
        |site, b, spot, state| {
            enabling(site, b, spot, state, |pokes| {
                let distance = &mut pokes[1].write.bytes;
                distance[3] = if distance[2] & 0x80 == 0 { 0 } else { 0xff };
            })
        },
        Clause::P16,
        "MiB from the site, P9: the jump or call before this place goes where no code is",
    );
}
