//! Figures as a table and as claims.

use std::collections::BTreeMap;

use serde::Serialize;

use super::variants::{JMP, LAYOUTS, MANY, Needs, PEERS, ROWS, SHAPES, TRIES, VARIANTS, Variant};

/// A row of the report.
#[derive(Serialize)]
struct Row {
    name: String,
    /// The median; nothing where `to` says what is not installed.
    ns: Option<f64>,
    /// The least of all.
    min: Option<f64>,
    ratio: Option<f64>,
    to: String,
}

/// Of each variant and kind of loop: the least and the median of each layout.
#[derive(Default)]
pub struct Figures(BTreeMap<(String, String), Vec<(f64, f64)>>);

impl Figures {
    /// One layout more.
    pub fn add(&mut self, of: (String, String), least_and_median: (f64, f64)) {
        self.0.entry(of).or_default().push(least_and_median);
    }

    fn all(&self, variant: &str, kind: &str) -> Option<&[(f64, f64)]> {
        self.0.get(&(variant.to_owned(), kind.to_owned())).map(Vec::as_slice)
    }

    /// The median of the layouts' medians.
    fn median(&self, variant: &str, kind: &str) -> Option<f64> {
        let mut medians: Vec<f64> = self.all(variant, kind)?.iter().map(|(_, median)| *median).collect();
        medians.sort_by(f64::total_cmp);
        Some(medians.get(medians.len() / 2).copied().unwrap_or(f64::NAN))
    }

    fn least(&self, variant: &str, kind: &str) -> Option<f64> {
        self.all(variant, kind).map(|all| all.iter().map(|(least, _)| *least).fold(f64::INFINITY, f64::min))
    }

    /// One variant beside another, `less` a time that is in both.
    fn row(&self, name: String, (variant, reference): (&str, &str), kind: &str, less: Option<f64>, to: String) -> Row {
        if let (Some(ns), Some(reference), Some(less)) =
            (self.median(variant, kind), self.median(reference, kind), less)
        {
            let (ns, reference) = (ns - less, reference - less);
            let min = self.least(variant, kind).map(|min| min - less);
            return Row { name, ns: Some(ns), min, ratio: Some(ns / reference), to };
        }
        let all = || VARIANTS.iter().map(|v| (v.name, v.needs)).chain(PEERS.iter().map(|p| (p.name, p.needs)));
        let needs = |name: &str| all().find(|(known, _)| *known == name).map_or(Needs::Nothing, |(_, needs)| needs);
        let missing = [variant, reference].map(needs).into_iter().find(|n| *n != Needs::Nothing);
        let remedy = missing.map_or("", Needs::remedy);
        Row { name, ns: None, min: None, ratio: None, to: format!("not installed: {remedy}") }
    }

    /// What is claimed.
    fn claims(&self) -> Vec<Row> {
        let claim = |&(name, kind, variant, to): &(&str, &str, &str, &str)| {
            // Below eight frames, what the frames cost is no part of it.
            let (less, what) = match kind {
                "nested" => (self.median("plain", kind), "nested, above plain"),
                _ => (Some(0.0), kind),
            };
            self.row(name.to_owned(), (variant, to), kind, less, format!("{to}, {what}"))
        };
        let mut rows: Vec<Row> = ROWS.iter().map(claim).collect();
        // What a traced call adds below eight frames, beside what a patched call takes alone.
        let (above, c) = (self.median("plain", "nested"), self.median("call_ret", "flat"));
        for (name, variant) in [("record-nested", "record"), ("record-pair-nested", "record_pair")] {
            if let (Some(nested), Some(plain), Some(c)) = (self.median(variant, "nested"), above, c) {
                let (name, to) = (name.to_owned(), "call_ret, flat; nested above plain".to_owned());
                let min = self.least(variant, "nested").map(|min| min - plain);
                rows.push(Row { name, ns: Some(nested - plain), min, ratio: Some((nested - plain) / c), to });
            }
        }
        rows
    }

    /// Every variant and kind of loop, beside a call and a return.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for v in VARIANTS {
            let kinds = SHAPES.iter().chain(if v.many { &MANY[..] } else { &[] });
            for kind in kinds {
                let what = if kind.parse::<u32>().is_ok() { format!("{kind} functions") } else { (*kind).to_owned() };
                let (name, to) = (format!("{}, {what}", v.name), format!("call_ret, {what}"));
                rows.push(self.row(name, (v.name, "call_ret"), kind, Some(0.0), to));
            }
        }
        for peer in PEERS {
            let name = format!("{}, flat", peer.name);
            rows.push(self.row(name, (peer.name, "call_ret"), "flat", Some(0.0), "call_ret, flat".to_owned()));
        }
        rows
    }
}

/// Print what was measured of these variants; of the others, what they want.
pub fn report(variants: &[&Variant], figures: &Figures, json: bool) -> Result<(), String> {
    let claims = figures.claims();
    if json {
        let rows: Vec<Row> = claims.into_iter().chain(figures.rows()).collect();
        println!("{}", serde_json::to_string_pretty(&rows).map_err(|e| e.to_string())?);
        return Ok(());
    }
    print_one(variants, figures);
    print_peers(figures);
    print_many(variants, figures);
    for row in &claims {
        match (row.ns, row.ratio) {
            (Some(ns), Some(ratio)) => println!("{:<22} {ns:>7.2} ns   {ratio:>5.2} of {}", row.name, row.to),
            _ => println!("{:<22} {}", row.name, row.to),
        }
    }
    Ok(())
}

/// Loops over one function.
fn print_one(variants: &[&Variant], figures: &Figures) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':')).map_or("?", |(_, m)| m.trim());
    println!(
        "ns a call, median over {LAYOUTS} layouts of the median of the least disturbed of {TRIES} runs each; {model}"
    );
    println!(
        "\n{:<18} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "", "flat", "min", "/ c", "recurs.", "nested", "work", "stores"
    );
    for v in VARIANTS {
        if !variants.iter().any(|here| here.name == v.name) {
            println!("{:<18} not installed: {}", v.name, v.needs.remedy());
            continue;
        }
        let cell = |kind: &str, less: f64| figures.median(v.name, kind).map_or(f64::NAN, |ns| ns - less);
        let extra = |kind: &str| cell(kind, figures.median("plain", kind).unwrap_or(0.0));
        println!(
            "{:<18} {:>7.1} {:>7.1} {:>7.2} {:>7.1} {:>7.1} {:>7.1} {:>7.1}  {}",
            v.name,
            cell("flat", 0.0),
            figures.least(v.name, "flat").unwrap_or(f64::NAN),
            cell("flat", 0.0) / figures.median("call_ret", "flat").unwrap_or(f64::NAN),
            cell("recursion", 0.0),
            extra("nested"),
            extra("work"),
            extra("stores"),
            v.about
        );
    }
}

/// Tracers in programs of their own.
fn print_peers(figures: &Figures) {
    for peer in PEERS {
        let cells = [figures.median(peer.name, "flat"), figures.least(peer.name, "flat")];
        let ([Some(flat), Some(least)], Some(c)) = (cells, figures.median("call_ret", "flat")) else {
            println!("{:<18} not installed: {}", peer.name, peer.needs.remedy());
            continue;
        };
        println!("{:<18} {flat:>7.1} {least:>7.1} {:>7.2} {:>32}  {}", peer.name, flat / c, "", peer.about);
    }
}

/// Loops over many functions.
fn print_many(variants: &[&Variant], figures: &Figures) {
    println!("\nnested, work, stores: above plain. / c: against call_ret.\n");
    let heads: String = MANY.iter().map(|kind| format!(" {kind:>7}")).collect();
    println!("{:<18}{heads}  different functions, called in turn; cold: the most, after other variants", "");
    for v in variants.iter().filter(|v| v.many) {
        let of = |kind: &&str| format!(" {:>7.1}", figures.median(v.name, kind).unwrap_or(f64::NAN));
        let cells: String = MANY.iter().map(of).collect();
        let own = if matches!(v.goes, Some((JMP, ..))) { ", a trampoline for each" } else { "" };
        println!("{:<18}{cells}  {}{own}", v.name, v.about);
    }
    println!();
}
