//! How places are named: by ids in contracts, by sentences for people.

use arch::BACKENDS;
use tool::contracts::CONTRACTS;
use wildmatch::WildMatch;

use crate::case::{Case, TRAMPOLINE};
use crate::common::CONTRACT;

/// [`TRAMPOLINE`], with `instead` before its call.
fn with(instead: &str) -> String {
    TRAMPOLINE.replace("    call    other_helper\n", &format!("{instead}    call    other_helper\n"))
}

fn failure(out: &str, clause: &str) -> serde_json::Value {
    let report: serde_json::Value = serde_json::from_str(out).unwrap();
    let rows = report["results"].as_array().unwrap();
    rows.iter().find(|r| r["clause"] == clause).unwrap()["failures"][0].clone()
}

#[test]
fn a_contract_names_places_by_ids_and_for_one_more_release_by_sentences() {
    let broken =
        Case::new(&TRAMPOLINE.replace("call    my_direct_func", "inc     %rdi\n    call    my_direct_func"), CONTRACT);
    let (code, out, _) = broken.tool(&["check", "--object", "t.o", "--contract", "t.toml", "--format", "json"]);
    assert_eq!(code, Some(1));
    let failure = failure(&out, "P10");
    assert_eq!((&failure["place"], &failure["place_id"]), (&"argument in rdi".into(), &"argument:rdi".into()));
    let expecting = |place: &str| {
        let known = format!("deviation = [{{ clause = \"P10\", place = \"{place}\", reason = \"known\" }}]\n");
        broken.contract(&format!("{CONTRACT}{known}"));
        let (code, out, err) = broken.check();
        assert!(code == Some(0) && out.contains(&format!("my_tramp: {place}: known")), "{place}: {out}");
        err
    };
    for id in ["argument:rdi", "argument:*", "argument:rdi@*"] {
        assert_eq!(expecting(id), "", "{id}");
    }
    let warning = expecting("argument in *");
    assert!(warning.contains("warning: t.toml: P10: place = \"argument in *\" is a sentence"), "{warning}");
    assert!(warning.contains("write \"argument:rdi\""), "{warning}");
}

#[test]
fn contracts_that_come_with_the_tool_name_places_by_ids() {
    let ids: Vec<String> = emu_tests::places().into_iter().map(|(id, _)| id).filter(|id| id != "{name}").collect();
    // With the parts that vary as wildcards.
    let globs: Vec<String> = ids
        .iter()
        .map(|id| id.split('{').map(|part| part.rsplit('}').next().unwrap()).collect::<Vec<_>>().join("*"))
        .collect();
    assert!(globs.contains(&"slot:*:written".to_owned()), "{globs:?}");
    let mut named = 0;
    for (name, text) in CONTRACTS {
        let contract: toml::Table = text.parse().unwrap();
        let backend = BACKENDS.iter().find(|b| Some(b.facts().name) == contract["arch"].as_str()).unwrap();
        let deviations = contract["trampoline"].as_array().unwrap().iter().filter_map(|t| t.get("deviation"));
        for deviation in deviations.flat_map(|d| d.as_array().unwrap()) {
            let places = match &deviation["place"] {
                toml::Value::Array(places) => places.iter().map(|p| p.as_str().unwrap()).collect(),
                place => vec![place.as_str().unwrap()],
            };
            for place in places {
                let id = place.split('@').next().unwrap();
                let is_register = backend.facts().abi.find(id).is_some()
                    || backend.machine().vectors.iter().any(|vector| vector.name == id)
                    || backend.machine().flags.is_some_and(|(flags, _)| flags.name == id);
                let is_place = globs.iter().any(|g| WildMatch::new(g).matches(id) || WildMatch::new(id).matches(g));
                assert!(is_register || is_place, "{name}: {place}");
                named += 1;
            }
        }
    }
    assert!(named > 80, "{named}");
}

/// PINSRQ writes one half of a vector register and leaves the other.
#[test]
fn of_a_vector_register_the_half_is_told_that_differs() {
    let told = |half: &str| {
        let lost = format!("    movabs  $0x1122334455667788, %r11\n    pinsrq  ${half}, %r11, %xmm3\n");
        let case = Case::new(&with(&lost), CONTRACT);
        let (code, out, _) = case.tool(&["check", "--object", "t.o", "--contract", "t.toml", "--format", "json"]);
        assert_eq!(code, Some(1));
        let failure = failure(&out, "P2");
        assert_eq!((&failure["place"], &failure["place_id"]), (&"xmm3".into(), &"xmm3".into()), "{out}");
        (failure["expected"].as_str().unwrap().to_owned(), failure["found"].as_str().unwrap().to_owned())
    };
    let (expected, found) = told("0");
    assert_eq!(found, "0x1122334455667788");
    assert!(!expected.contains("bits"), "{expected}");
    let (expected, found) = told("1");
    assert_eq!(found, "0x1122334455667788 in bits 64 to 127");
    assert!(expected.ends_with(" in bits 64 to 127"), "{expected}");
}

#[test]
fn all_places_are_listed() {
    let (code, out, err) = Case::new(TRAMPOLINE, CONTRACT).tool(&["check", "--list-places"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let line = |id: &str| out.lines().find(|l| l.split_whitespace().next() == Some(id)).map(str::to_owned);
    assert!(line("sp-align").is_some_and(|l| l.ends_with("sp modulo the promised alignment, at the call")), "{out}");
    assert!(line("slot:{member}").is_some_and(|l| l.ends_with(" fregs->{member}")), "{out}");
}
