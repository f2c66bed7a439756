//! Witnesses for the list of demands: the symbolic checker, which reads the list, and faults, which break it.

mod common;

use std::collections::BTreeMap;

use codegen::ask::frame::Content;
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::contract::demand::{Demand, Spot};
use codegen::contract::sentences::About;
use codegen::out::text::TextListing;
use codegen::profile::target::Target;
use tool::suite;

/// Demands that no fault breaks, by the beginnings of their ids, behind the architecture if it is so on one alone, and why.
const UNBROKEN: &[(&str, &str)] = &[
    ("call1.vector", "vector arguments are restored behind the call, and nothing before it writes them"),
    ("call1.r10", "the static chain is restored behind the call, and nothing before it writes it"),
    ("call1.x8", "the address of a result is restored behind the call, and nothing before it writes it"),
    ("call1.x15", "the static chain, as r10"),
    ("call1.t2", "the static chain, as r10"),
    ("call2.rbp", "the shadow form stores it to fregs and never loads it"),
    ("call2.x29", "as rbp"),
    ("call3.slot:", "what was never stored breaks `call1.slot` first; then the handler's store counts"),
    ("call6.sp-align", "the frame of so many calls is a multiple of 16 bytes: without it SP is aligned all the same"),
    ("call7.sp-align", "as call6"),
    ("call9.sp-align", "as call6"),
    ("call10.sp-align", "as call6"),
    ("call12.sp-align", "as call6"),
    ("call13.sp-align", "as call6"),
    ("call14.sp-align", "as call6"),
    ("call15.sp-align", "as call6"),
    ("call16.sp-align", "as call6"),
    ("call17.sp-align", "as call6"),
    ("call18.sp-align", "as call6"),
    ("call13.slot:CTX_1", "behind the function it is as the programs before left it"),
    ("call16.slot:CTX_1", "as call13"),
    ("caller.next", "a stub is one return: a fault in it is found as another way out"),
    ("caller.sp", "as caller.next"),
    ("arm64 early-direct.x", "this way leaves before anything but scratch registers is written"),
    ("riscv64 early-direct.a", "as on arm64"),
    ("riscv64 early-direct.p", "pc and parent_ip come in registers, and stay there as the others"),
    ("early-direct.sp", "this way leaves before SP is moved"),
];

/// The demands on an architecture, by their ids, and whether a fault breaks them in some trampoline. Left out are those on registers
/// that no instruction of the trampoline names: a fault changes instructions, and overwrites no others.
fn demands(backend: &'static dyn Backend, target: &Target) -> BTreeMap<String, bool> {
    let trampolines = suite::trampolines(target).unwrap();
    let mut all = BTreeMap::new();
    for spec in suite::specs(&trampolines) {
        let contract = Contract::of(&spec, target).unwrap();
        let text = backend.text(&spec, target).unwrap();
        for demand in contract.demands().iter().filter(|demand| is_in_reach(demand, &contract, &text)) {
            all.entry(demand.id(&contract).to_string()).or_insert(false);
        }
        for mutant in backend.mutants(&spec, target).unwrap() {
            let faults = backend.verify(&spec, target, Some(&mutant)).unwrap();
            for broken in faults.iter().filter_map(|fault| fault.broken.as_ref()) {
                all.insert(broken.demand.id(&contract).to_string(), true);
            }
        }
    }
    all
}

fn is_in_reach(demand: &Demand, contract: &Contract, text: &TextListing) -> bool {
    let named = |name: &str| {
        let words = |line: &str| line.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name);
        text.lines.iter().any(|line| words(&line.text))
    };
    match demand.spot {
        Spot::Reg(reg) => named(contract.facts.abi.name(reg)),
        Spot::Vector(_) => contract.frame.fields.iter().any(|field| matches!(field.content, Content::Vector(_))),
        _ => true,
    }
}

#[test]
fn each_demand_is_broken_by_a_fault() {
    let mut excused = vec![false; UNBROKEN.len()];
    let mut dead = Vec::new();
    for backend in tool::BACKENDS {
        let target = tool::default_target(*backend).unwrap();
        assert_eq!(backend.machine().vectors.len(), usize::from(backend.facts().abi.vectors));
        let all = demands(*backend, &target);
        assert!(all.len() > 150, "{}: {} demands", backend.facts().name, all.len());
        for (id, _) in all.iter().filter(|(_, broken)| !**broken) {
            let named = format!("{} {id}", backend.facts().name);
            match UNBROKEN.iter().position(|(begin, _)| id.starts_with(begin) || named.starts_with(begin)) {
                Some(n) => excused[n] = true,
                None => dead.push(named),
            }
        }
    }
    assert!(dead.is_empty(), "no fault breaks these demands:\n{}", dead.join("\n"));
    let stale: Vec<&str> = UNBROKEN.iter().zip(excused).filter(|(_, needed)| !needed).map(|(row, _)| row.1).collect();
    assert!(stale.is_empty(), "excuses that nothing needs: {stale:?}");
}

/// Demands that no sentence states, by the beginnings of their ids behind what handlers are given, and why.
const UNSAID: &[(&str, &str)] = &[
    ("Frame call1.slot:", "a handler's frame is a struct of the profile, or a table of its own: no sentence lists it"),
    ("Frame call3.slot:", "as call1.slot"),
    ("Frame function.sp", "the traced function goes on with the SP of its site, as of every patched site"),
    (
        "Arguments function.",
        "only where it goes on, as the site's own call would: the sentence on how it arrives has the places",
    ),
    ("Context function.", "as Arguments"),
    ("Arguments caller.", "of a sled: that every register is live says it, and the function goes on behind its call"),
    ("Frame function.return-address", "as Arguments"),
];

/// Sentences that state no demand, by what they speak of, and why.
const STATES_NOTHING: &[(About, &str)] = &[
    (About::Arrival, "what holds before the trampoline runs is no promise of its own"),
    (About::Record, "records are followed by the cursor, and no list has them"),
    (About::Note, "what users must know"),
    (About::Call, "a call without arguments"),
    (About::Flags, "the registers and flags that are lost: what may have any value is no demand"),
    (About::Alignment, "the size of the frame of one that calls nothing: no demand has it"),
];

/// Every demand is in a sentence of the contract, and every sentence states one: with each option of each profile.
#[test]
fn each_sentence_states_demands_and_each_demand_is_stated() {
    let (mut unsaid, mut empty) = (BTreeMap::<String, String>::new(), BTreeMap::<String, String>::new());
    let (mut needed, mut nothing) = (vec![false; UNSAID.len()], vec![false; STATES_NOTHING.len()]);
    let mut stated = 0;
    for target in tool::BACKENDS.iter().flat_map(|backend| common::targets(*backend)) {
        for spec in suite::specs(&suite::trampolines(&target).unwrap()) {
            let contract = Contract::of(&spec, &target).unwrap();
            let sentences = contract.stating();
            for sentence in sentences.iter().filter(|sentence| sentence.states.is_empty()) {
                match STATES_NOTHING.iter().position(|(about, _)| sentence.about == [*about]) {
                    Some(n) => nothing[n] = true,
                    None => drop(empty.insert(sentence.text.clone(), format!("{} {}", target.facts.name, spec.name))),
                }
            }
            let demands = contract.demands();
            for demand in demands.iter().filter(|d| !sentences.iter().any(|s| s.states.contains(d))) {
                let id = format!("{:?} {}", contract.kind.traits().gives, demand.id(&contract));
                match UNSAID.iter().position(|(begin, _)| id.starts_with(begin)) {
                    Some(n) => needed[n] = true,
                    None => drop(unsaid.insert(id, format!("{} {}", target.facts.name, spec.name))),
                }
            }
            stated += demands.len();
        }
    }
    assert!(stated > 10_000, "{stated} demands");
    assert!(empty.is_empty(), "these sentences state no demand: {empty:#?}");
    assert!(unsaid.is_empty(), "no sentence states these demands: {unsaid:#?}");
    let stale: Vec<&str> = UNSAID.iter().zip(needed).filter(|(_, needed)| !needed).map(|(row, _)| row.0).collect();
    assert!(stale.is_empty(), "demands that need no excuse: {stale:?}");
    let stale: Vec<About> = STATES_NOTHING.iter().zip(nothing).filter(|(_, n)| !n).map(|(row, _)| row.0).collect();
    assert!(stale.is_empty(), "sentences that need no excuse: {stale:?}");
}
