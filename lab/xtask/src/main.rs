// SPDX-License-Identifier: MIT OR Apache-2.0
//! The repository's own chores: `cargo xtask <verb>`.
//!
//! Each verb is a module with a `run` function, and has one row in [`VERBS`]. What several need is in `tools`, `tree`
//! (kernels being built), `qemu` (kernels running), `kernels` (which there are), `boot` (kernels built and run), `hook` (modules) and `document`.

mod apt;
mod audit_mutants;
mod bless;
mod boot;
mod checker;
mod configurations;
mod core_objects;
mod corpus;
#[path = "../../../fuzz/src/damage.rs"]
mod damage;
mod debian;
mod document;
mod enforced;
mod engines;
mod failure;
mod fixtures;
mod hook;
mod hostile;
mod kernel;
mod kernels;
mod listed;
mod modules;
mod objects;
mod packages;
mod peers;
mod prose;
mod qemu;
mod running;
mod selftests;
mod tools;
mod tree;
mod unwind_edit;
mod verb;
mod writers;

use std::process::ExitCode;

use verb::{Outcome, Verb};

/// All chores.
const VERBS: &[Verb] = &[
    Verb {
        name: "audit-corpus",
        usage: "[ARCH ...]  audit Debian's packages that have assembly, and write results/audit.md",
        run: corpus::run,
    },
    Verb {
        name: "audit-enforced",
        usage: "[ARCH ...]  run functions of Debian's packages that change stacks or return addresses where that is enforced, and write results/enforced.md",
        run: enforced::run,
    },
    Verb {
        name: "audit-mutants",
        usage: "[ARCH ...]  put faults into clean functions of Debian's packages, see which the audit claims, and write results/audit-mutants.md",
        run: audit_mutants::run,
    },
    Verb {
        name: "bless",
        usage: "[golden] [matrix] [api] [book] [mutants]  write again what tests compare: emu-tests/golden, tests/matrix, tramptool/api.txt, what README.md and docs show, tests/mutants.expected with docs/mutants.md",
        run: bless::run,
    },
    Verb {
        name: "checker",
        usage: "verify|judge [--file PART] [--sample N] [--from N] [--step N]  leave out each condition and statement of a checker in turn, and print those after which it notices the same N mutants of each operator, and tests pass as before",
        run: checker::run,
    },
    Verb {
        name: "engines",
        usage: "fetch QEMU with plugins, Bochs, and newer readers of recordings out of Debian's packages into the same cache, for `tramptool check --engine qemu` and `--enforce`, and for the tests of `trace`",
        run: engines::run,
    },
    Verb {
        name: "fixtures",
        usage: "[--check]  compile the objects of emu-tests/fixtures again, or only compare them",
        run: fixtures::run,
    },
    Verb {
        name: "core-objects",
        usage: "[DIR]  compile the runtime core for machines without an operating system, for `tramptool compose --arch`",
        run: core_objects::run,
    },
    Verb {
        name: "kernel-objects",
        usage: "[VERSION] [--linux DIR]  build the own trampolines of these kernels into a cache, for the tests that judge them",
        run: objects::run,
    },
    Verb {
        name: "configurations",
        usage: "[VERSION]  build the own trampolines of kernels as people configure them, and judge each with `check --kernel-build`",
        run: configurations::run,
    },
    Verb {
        name: "package-objects",
        usage: "take the trampolines of LLVM's XRay and of the GNU C library out of Debian's packages, into the same cache",
        run: packages::run,
    },
    Verb {
        name: "peers",
        usage: "[PROGRAM ...]  run hostile programs under tramptool, uftrace, XRay, retour and frida, and write results/peers.md",
        run: peers::run,
    },
    Verb {
        name: "kernel",
        usage: "[--profile NAME] [--quick | --selftests] [--anew] [--linux DIR] KERNEL  boot a kernel with generated trampolines in place of its own; KERNEL may be all, for one of each architecture",
        run: kernel::run,
    },
    Verb {
        name: "modules",
        usage: "[--profile NAME] [--fetch | --check] [KERNEL ...]  load a generated module into Debian's kernels for x86_64 and arm64, and into ours for riscv64",
        run: modules::run,
    },
    Verb {
        name: "running",
        usage: "[--profile NAME] [--built] [KERNEL ...]  boot Debian's kernels with BPF programs, tracers and probes, and judge the trampolines that they wrote; with --built, build those of Debian's source that Debian's archive does not give",
        run: running::run,
    },
    Verb {
        name: "hostile",
        usage: "[N] [--seed S] [--surface NAME]  give the commands N inputs that are nearly right, with 20 s of CPU and 1 GiB for each",
        run: hostile::run,
    },
    Verb {
        name: "writers",
        usage: "[VERSION ...] [WRITER ...] [--images N] [--faults N] [--seed S] [--fixes] [--subject TEXT]  have Linux's BPF JITs write trampolines for N (2,000) random functions and programs each, and its other writers write sites, copies of ftrace_caller, static calls and kprobes, judge them, and write results/writers.md; or take back public fixes of them, and say what is noticed",
        run: writers::run,
    },
    Verb {
        name: "prose",
        usage: "[SEED]  draw doc comments and sentences of the documents, to be read with fresh eyes",
        run: prose::run,
    },
];

/// The text for someone who typed something else than a verb.
fn usage() -> String {
    let mut text = String::from("usage: cargo xtask <verb>\n");
    for verb in VERBS {
        text.push_str(&format!("  {} {}\n", verb.name, verb.usage));
    }
    text
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let Some(name) = args.next() else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else {
        eprint!("error: there is no verb `{name}`\n{}", usage());
        return ExitCode::from(2);
    };
    let rest: Vec<String> = args.collect();
    match (verb.run)(&rest) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(2)
        }
    }
}
