//! Tracers whose programs are their own: each runs one that has the leaf of the others and measures itself.

use std::path::Path;

use super::parts::{Tools, command};
use super::variants::{Needs, PEERS, Peer, TRIES};

const PEER: &str = include_str!("../../native/peer.c");
/// Calls of the leaf in a run: rounds, and calls in each.
const ROUNDS: u64 = 100;
const CALLS: u64 = 1500;

/// Compile the programs of those that are here.
pub fn build(dir: &Path, tools: &Tools) -> Result<(), String> {
    std::fs::write(dir.join("peer.c"), PEER).map_err(|e| format!("peer.c: {e}"))?;
    for peer in PEERS.iter().filter(|peer| tools.have(peer.needs)) {
        let compiler = if peer.needs == Needs::Xray { tools.clang.unwrap_or("clang") } else { "gcc" };
        let counts = [format!("-DROUNDS={ROUNDS}"), format!("-DCALLS={CALLS}")];
        let counts = counts.iter().map(String::as_str);
        let fixed = ["-O2", "-fno-pie", "-no-pie", "-w", "peer.c", "-o", peer.name];
        let args: Vec<&str> = fixed.into_iter().chain(counts).chain(peer.flags.iter().copied()).collect();
        command(dir, compiler, &args)?;
    }
    Ok(())
}

/// Run each that is here: (name, least, median) ns a call, of the run in which the median is least.
///
/// # Errors
/// One that did not record all calls.
pub fn measure(dir: &Path, tools: &Tools) -> Result<Vec<(&'static str, f64, f64)>, String> {
    let mut all = Vec::new();
    for peer in PEERS.iter().filter(|peer| tools.have(peer.needs)) {
        let runs = (0..TRIES).map(|_| once(dir, peer)).collect::<Result<Vec<_>, _>>()?;
        let best = runs.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((f64::NAN, f64::NAN));
        all.push((peer.name, best.0, best.1));
    }
    Ok(all)
}

fn once(dir: &Path, peer: &Peer) -> Result<(f64, f64), String> {
    let traces = dir.join("traces");
    // There is none before the first run.
    let _ = std::fs::remove_dir_all(&traces);
    let program = format!("./{}", peer.name);
    let out = match peer.needs {
        Needs::Uftrace => command(dir, "uftrace", &["record", "--no-libcall", "-d", "traces", &program])?,
        _ => {
            std::fs::create_dir(&traces).map_err(|e| format!("traces: {e}"))?;
            command(dir, "env", &["XRAY_OPTIONS=xray_logfile_base=traces/", &program])?
        }
    };
    let written: u64 = std::fs::read_dir(&traces)
        .map_err(|e| format!("traces: {e}"))?
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().contains(peer.trace))
        .filter_map(|file| file.metadata().ok())
        .map(|file| file.len())
        .sum();
    if written < ROUNDS * CALLS * peer.bytes {
        let calls = ROUNDS * CALLS;
        return Err(format!("{}: {written} bytes of records for {calls} calls: some are lost", peer.name));
    }
    let mut numbers = out.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(least)), Some(Ok(median))) => Ok((least, median)),
        _ => Err(format!("{}: the program says '{out}'", peer.name)),
    }
}
