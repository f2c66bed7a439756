//! Formats that any reader of JSON or text can check.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::{Value, json};
use trace::export::{self, Files, Version};
use trace::filter::{Filter, Wanted};
use trace::tree::Tree;
use trace::view::{Key, Report};

use crate::made::{Story, bytes, file, follow, known, name, open, scripts};

/// Files in memory.
#[derive(Clone, Default)]
pub struct Memory(pub Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

struct InMemory(Memory, String);

impl Files for Memory {
    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write>> {
        assert!(!name.contains('/'), "{name}");
        self.0.lock().unwrap().insert(name.to_owned(), Vec::new());
        Ok(Box::new(InMemory(self.clone(), name.to_owned())))
    }
}

impl Write for InMemory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().unwrap().get_mut(&self.1).unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How often each function was called, and its time without callees, from the script.
pub fn sums(story: &Story) -> BTreeMap<String, (u64, u64)> {
    let time = |record: usize| story.records[record].time;
    let last = story.records.last().map_or(0, |record| record.time);
    let total = |call: &crate::made::True| call.exit.map_or(last, |(record, _)| time(record)) - time(call.entry);
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for call in &story.calls {
        let sum = sums.entry(name(call.function)).or_default();
        *sum = (sum.0 + 1, sum.1 + total(call));
    }
    for call in &story.calls {
        if let Some(caller) = call.caller.map(|caller| &story.calls[caller]) {
            sums.get_mut(&name(caller.function)).unwrap().1 -= total(call);
        }
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn report_and_formats_have_the_calls_and_times_of_the_script(script in scripts(false)) {
        let story = follow(&script, false);
        let sums = sums(&story);
        let file = file(&[vec![bytes(&story.records)]]);
        let recording = open(&file);
        let filter = Filter::new(&Wanted::default(), &recording).unwrap();
        let tree = Tree::of(&recording, &filter).unwrap();

        let report = Report::new(&recording, &filter, false, Key::Total).unwrap();
        let rows = report.rows.iter().map(|row| (row.function.clone(), (row.calls, row.own)));
        prop_assert_eq!(rows.collect::<BTreeMap<_, _>>(), sums.clone());

        let mut folded = Vec::new();
        export::folded(&recording, &tree, &mut folded).unwrap();
        let mut times: BTreeMap<String, u64> = BTreeMap::new();
        for line in String::from_utf8(folded).unwrap().lines() {
            let (path, time) = line.rsplit_once(' ').unwrap();
            *times.entry(path.rsplit(';').next().unwrap().to_owned()).or_default() += time.parse::<u64>().unwrap();
        }
        let own = sums.iter().map(|(name, (_, own))| (name.clone(), *own)).filter(|(_, own)| *own > 0);
        prop_assert_eq!(&times, &own.collect());

        let mut firefox = Vec::new();
        export::firefox(&recording, &filter, &mut firefox).unwrap();
        prop_assert_eq!(&samples(&serde_json::from_slice(&firefox).unwrap()), &times);

        let mut chrome = Vec::new();
        export::chrome(&recording, &filter, &mut chrome).unwrap();
        let chrome: Value = serde_json::from_slice(&chrome).unwrap();
        let events: Vec<(String, u64)> = story.records.iter().map(|r| (name(r.function), r.time)).collect();
        let open = story.calls.iter().filter(|call| call.exit.is_none()).count();
        let seen: Vec<(String, u64)> = chrome["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] != "M")
            .map(|e| (e["name"].as_str().unwrap().to_owned(), (e["ts"].as_f64().unwrap() * 1000.0).round() as u64)).collect();
        prop_assert_eq!(&seen[..seen.len() - open], &events[..]);

        let mut page = Vec::new();
        export::html(&recording, &tree, &report, &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        let data = page.split("<script id=\"data\" type=\"application/json\">").nth(1).unwrap().split("</script>").next();
        prop_assert_eq!(bars(&serde_json::from_str(data.unwrap()).unwrap()), sums);

        let mut ctf = Memory::default();
        export::ctf(&recording, &filter, Version::Two, &mut ctf).unwrap();
        let metadata = String::from_utf8(ctf.0.lock().unwrap()["metadata"].clone()).unwrap();
        for fragment in metadata.split('\u{1e}').skip(1) {
            let fragment: Value = serde_json::from_str(fragment).unwrap();
            prop_assert!(fragment["type"].is_string());
        }
    }
}

/// Nanoseconds of samples by their innermost function.
fn samples(profile: &Value) -> BTreeMap<String, u64> {
    let thread = &profile["threads"][0];
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let samples = &thread["samples"];
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, weight) in samples["stack"].as_array().unwrap().iter().zip(samples["weight"].as_array().unwrap()) {
        let frame = number(&thread["stackTable"]["frame"][number(stack)]);
        let function = number(&thread["frameTable"]["func"][frame]);
        let name = number(&thread["funcTable"]["name"][function]);
        let name = thread["stringArray"][name].as_str().unwrap().to_owned();
        *times.entry(name).or_default() += (weight.as_f64().unwrap() * 1e6).round() as u64;
    }
    assert_eq!(samples["length"].as_u64().unwrap() as usize, samples["time"].as_array().unwrap().len());
    times
}

/// Calls and own times of the page's tree.
fn bars(data: &Value) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let nodes: Vec<u64> = data["nodes"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    for node in nodes.chunks(5) {
        let sum = sums.entry(data["names"][node[1] as usize].as_str().unwrap().to_owned()).or_default();
        *sum = (sum.0 + node[2], sum.1 + node[4]);
    }
    sums
}

/// A name is never obeyed: not by the page, and not by the readers of lines.
#[test]
fn names_are_names_whatever_is_in_them() {
    use crate::made::Op::{Call, Return};
    let script: Vec<_> = [Call(0), Call(1), Return, Return].map(|op| (op, 10)).into();
    let plain = file(&[vec![bytes(&follow(&script, false).records)]]);
    // Of the same length.
    let (old, new) = (b"function_1\"", br#"</script>;""#);
    let at = plain.windows(old.len()).position(|bytes| bytes == old).unwrap();
    let mut odd = plain.clone();
    odd[at..at + new.len()].copy_from_slice(new);
    let written = |file: &[u8]| {
        let recording = open(file);
        let filter = Filter::new(&Wanted::default(), &recording).unwrap();
        let tree = Tree::of(&recording, &filter).unwrap();
        let report = Report::new(&recording, &filter, false, Key::Total).unwrap();
        let (mut page, mut folded) = (Vec::new(), Vec::new());
        export::html(&recording, &tree, &report, &mut page).unwrap();
        export::folded(&recording, &tree, &mut folded).unwrap();
        (String::from_utf8(page).unwrap(), String::from_utf8(folded).unwrap())
    };
    let (plain, odd) = (written(&plain), written(&odd));
    assert_eq!(odd.0.matches("</script>").count(), plain.0.matches("</script>").count());
    assert!(odd.0.contains("&#60;/script&#62;;") || odd.0.contains("&lt;/script&gt;;"));
    assert_eq!(odd.1, "function_0 20\nfunction_0;</script>: 10\n");
}

#[test]
fn chrome_has_arguments_and_results() {
    let file = known();
    let recording = open(&file);
    let mut chrome = Vec::new();
    export::chrome(&recording, &Filter::new(&Wanted::default(), &recording).unwrap(), &mut chrome).unwrap();
    let chrome: Value = serde_json::from_slice(&chrome).unwrap();
    let args: Vec<&Value> =
        chrome["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] != "M").map(|e| &e["args"]).collect();
    let first = json!({"n": "-2", "p": "0x7fff00000010", "word 3": "true", "m": "18446744073709551615"});
    assert_eq!(args, [&first, &json!({"result": "-32768"}), &Value::Null, &Value::Null]);
}

/// Calls with values are markers, and others are none.
#[test]
fn firefox_has_arguments_and_results() {
    let file = known();
    let recording = open(&file);
    let mut firefox = Vec::new();
    export::firefox(&recording, &Filter::new(&Wanted::default(), &recording).unwrap(), &mut firefox).unwrap();
    let firefox: Value = serde_json::from_slice(&firefox).unwrap();
    let thread = &firefox["threads"][0];
    let markers = &thread["markers"];
    let data = json!({"type": "call", "arguments": "n=-2, x=?, p=0x7fff00000010, true, m=18446744073709551615", "result": "-32768"});
    assert_eq!((&markers["data"], &markers["length"]), (&json!([data]), &json!(1)));
    let name = markers["name"][0].as_u64().unwrap() as usize;
    assert_eq!(thread["stringArray"][name], json!(crate::made::name(crate::made::KNOWN)));
    let milliseconds = |column: &str| markers[column][0].as_f64().unwrap();
    assert_eq!((milliseconds("startTime"), milliseconds("endTime")), (0.0002, 0.000205));
    assert_eq!(firefox["meta"]["markerSchema"][0]["name"], "call");
}
