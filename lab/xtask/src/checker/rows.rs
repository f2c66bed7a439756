// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who judges, and by what it is seen.

/// One who judges.
pub struct Checker {
    pub name: &'static str,
    /// The folders with the checks.
    pub files: &'static [&'static str],
    /// Their crate's root.
    pub root: &'static str,
    /// Commands of the tool that show what is noticed: `SAMPLE` is a number of mutants.
    pub commands: &'static [&'static str],
    /// What `cargo test` compiles: these tests pass, and with a switch one of them should fail.
    pub tests: &'static [&'static str],
}

/// All of them.
pub const CHECKERS: [Checker; 2] = [
    Checker {
        name: "verify",
        files: &["codegen/src/verify"],
        root: "codegen/src/lib.rs",
        commands: &[
            "mutate --by verify --sample SAMPLE --format json",
            "mutate record_* around_* --profile bare --by verify --sample SAMPLE --format json",
        ],
        tests: &["-p tramptool-cli -p tramptool-x86_64 -p tramptool-arm64 -p tramptool-riscv --test verify"],
    },
    Checker {
        name: "judge",
        files: &["emu-tests/src/judge/checks", "emu-tests/src/judge/trace"],
        root: "emu-tests/src/lib.rs",
        commands: &[
            "mutate ftrace_* --sample SAMPLE --format json",
            "mutate ftrace_* --arch x86_64 --profile linux-7.2 --sample SAMPLE --format json",
            "mutate ftrace_* --arch x86_64 --profile linux-6.12 --set direct-way=jmp --sample SAMPLE --format json",
            "check ftrace_* --format json",
            "check ftrace_* arch_rethook_trampoline return_to_handler --arch riscv64 --format json",
            "check ftrace_* --arch x86_64 --profile linux-6.12 --set direct-way=jmp --format json",
            "mutate ftrace_stub* --arch x86_64 --set cfi=kcfi --set call-padding=on --set endbr=off --sample SAMPLE --format json",
            "mutate return_to_handler arch_rethook_trampoline --sample SAMPLE --format json",
            "mutate programs* --sample SAMPLE --format json",
            "mutate programs_fsession* --sample 12 --format json",
            "check programs_* --format json",
            "check direct --arch x86_64 --function recurse --format json",
            "check around_shadow --arch riscv64 --profile bare --format json",
            "cost ftrace_caller ftrace_regs_caller return_to_handler --format json",
            "cost record --events entry --clock none --function f --profile bare --format json",
            "mutate direct* --profile bare --sample SAMPLE --format json",
            "mutate around_* --profile bare --sample SAMPLE --format json",
            "mutate record_* --profile bare --sample SAMPLE --format json",
            "mutate trace_* --profile bare --sample SAMPLE --format json",
        ],
        tests: &[
            "-p tramptool-cli -p tramptool-emu-tests --test foreign --test guarded --test marks --test sides --test written \
             --test sites --lib --test site --test protocol --test hostile",
        ],
    },
];
