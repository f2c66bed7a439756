//! How sites are written, judged by itself, for every profile that comes with the tool, and for some that are wrong.

use profiles::Source;
use tramptool_emu_tests::{Sites, judge_sites};

fn judged(text: &str, arch: &str) -> Sites {
    judged_with(text, arch, true)
}

fn judged_with(text: &str, arch: &str, op: bool) -> Sites {
    let facts: Vec<_> = arch::BACKENDS.iter().map(|b| b.facts()).collect();
    let profile = profiles::load(Source { name: "x.toml", text }, &facts).unwrap();
    judge_sites(arch::backend(arch).unwrap(), profile.convention(arch).unwrap(), op).unwrap()
}

/// The upper part of AUIPC's distance, for a JALR whose lower part has a sign (RISC-V unprivileged manual, 2.4).
fn upper(distance: i64) -> i64 {
    (distance + 0x800) >> 12
}

/// Where what is near the entry trampoline is gone to by half of a branch: see below.
const NEAR: [(&str, &str); 2] = [("linux-7.2", "riscv64"), ("linux-7.3", "riscv64")];

#[test]
fn sites_lead_where_they_should() {
    for (profile, backend) in profiles::names().into_iter().flat_map(|p| arch::BACKENDS.iter().map(move |b| (p, b))) {
        let arch = backend.facts().name;
        if NEAR.contains(&(profile, arch)) {
            continue;
        }
        for op in [true, false] {
            let sites = judged_with(&format!("name = \"x\"\nextends = \"{profile}\"\n"), arch, op);
            assert_eq!(sites.failed, 0, "{profile} {arch}: {:?}", sites.astray);
            assert!(sites.places > 50 && sites.refused < sites.places / 2, "{profile} {arch}: {sites:?}");
            assert!(sites.sequences > sites.places, "{profile} {arch}");
        }
    }
}

/// Linux 7.3 on riscv64 takes what is within 2047 bytes of ftrace_caller for something that the site's AUIPC leads to
/// (arch/riscv/kernel/ftrace.c, `ftrace_make_call`). AUIPC may need another upper part for it.
#[test]
fn what_is_near_the_entry_trampoline_may_be_behind_another_auipc() {
    let sites = judged("name = \"x\"\nextends = \"linux-7.3\"\n", "riscv64");
    assert!(sites.failed > 0 && !sites.astray.is_empty());
    for astray in &sites.astray {
        // From AUIPC, which is four bytes before ip.
        let entry = astray.entry + 4;
        assert!(astray.target.abs() <= 2047, "{astray:?}");
        assert_ne!(upper(entry), upper(entry + astray.target), "{astray:?}");
        // It leads to where the wrong upper part has it.
        let wrong = (upper(entry) - upper(entry + astray.target)) << 12;
        assert!(astray.expected.iter().any(|e| e.wrapping_add_signed(wrong) == astray.found), "{astray:?}");
    }
    // Where nothing but the entry trampoline is gone to, all is well.
    let none = judged("name = \"x\"\nextends = \"linux-7.3\"\n[arch.riscv64.site]\nnear = 0\n", "riscv64");
    assert_eq!(none.failed, 0, "{:?}", none.astray);
}

/// A second half in the place of the first, and a literal's place for a write: neither leads anywhere.
#[test]
fn wrong_protocols_are_found() {
    let site = |line: &str| {
        judged(&format!("name = \"x\"\nextends = \"linux-7.3\"\n[arch.riscv64.site]\nnear = 0\n{line}\n"), "riscv64")
    };
    assert!(site("initial = []").failed > 0);
    assert!(site("disabled = [{ at = -4, insns = [\"nop\"] }]").failed > 0);
    // Both halves of the pair of 6.12 in two writes, without a word about CPUs between them.
    let two = "call = [{ at = -4, branch = \"call\", half = \"first\" }, { branch = \"call\", half = \"second\" }]\ndisabled = [{ at = -4, insns = [\"nop\"] }, { insns = [\"nop\"] }]\ninitial = []";
    assert!(site(two).failed > 0);
    // The site first, and only then what the entry trampoline reads.
    let late = "call = [{ branch = \"call\", half = \"second\" }, { op = true }]";
    assert_eq!(site(late).failed, 0);
    let never = site(&format!("{late}\ndisabled = [{{ insns = [\"nop\"] }}]"));
    assert!(never.failed > 0 && never.astray[0].when.ends_with("no `ftrace_ops` named before the function"));
}
