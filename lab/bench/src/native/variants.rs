//! Ways to trace a call: who does it, through which symbols, and what is claimed of them.

/// Programs, which differ in where their code lies.
pub const LAYOUTS: usize = 16;
/// Runs of each layout, of which the least disturbed counts.
pub const TRIES: usize = 4;
/// The loops over one function, then over so many; `cold` is the most, when other variants have had the caches.
pub const SHAPES: [&str; 5] = ["flat", "recursion", "nested", "work", "stores"];
pub const MANY: [&str; 5] = ["16", "256", "4096", "16384", "cold"];
pub const MOST: usize = 16384;

/// One way to trace.
pub struct Variant {
    pub name: &'static str,
    pub about: &'static str,
    /// Opcode at the site and where it goes, for the leaf and for the recursion; or nothing.
    pub goes: Option<(u8, &'static str, &'static str)>,
    /// A call slot, and what it calls.
    pub slot: Option<(&'static str, &'static str)>,
    /// Handlers that count: at entry and at exit.
    pub runs: (u8, u8),
    pub records: Records,
    /// Its functions are in `lab/bench/native/shapes.S`, or in another compiler's object.
    pub own_functions: bool,
    pub needs: Needs,
    /// Measured on many functions too, each with a trampoline of its own if the site jumps.
    pub many: bool,
}

/// What is in the thread's words and buffer after traced calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Records {
    Nothing,
    /// A counter.
    Count,
    /// A record of each entry and of each return.
    Both,
}

/// What is not everywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Kernel,
    Xray,
    Retour,
    Uftrace,
}

impl Needs {
    pub fn remedy(self) -> &'static str {
        match self {
            Needs::Nothing => "",
            Needs::Kernel => "`cargo xtask kernel-objects` unpacks the kernel's source",
            Needs::Xray => "apt-get install clang libclang-rt-dev",
            Needs::Uftrace => "apt-get install uftrace",
            Needs::Retour => {
                "cargo cannot build it: see cargo build --manifest-path lab/bench/native/retour/Cargo.toml"
            }
        }
    }
}

pub const CALL: u8 = 0xe8;
pub const JMP: u8 = 0xe9;

const fn variant(name: &'static str, about: &'static str) -> Variant {
    Variant {
        name,
        about,
        goes: None,
        slot: None,
        runs: (0, 0),
        records: Records::Nothing,
        own_functions: false,
        needs: Needs::Nothing,
        many: false,
    }
}

const fn called(name: &'static str, about: &'static str, to: &'static str) -> Variant {
    Variant { goes: Some((CALL, to, to)), ..variant(name, about) }
}

pub const VARIANTS: &[Variant] = &[
    Variant { many: true, ..variant("plain", "the site does nothing") },
    Variant { many: true, ..called("call_ret", "patched call -> ret", "only_return") },
    Variant { runs: (1, 0), ..called("call_only", "trampoline that only calls", "only_call") },
    Variant { runs: (1, 0), many: true, ..called("tailored_1", "direct --args 1", "direct_1") },
    Variant {
        slot: Some(("k1_ftrace_call", "on_entry")),
        runs: (1, 0),
        needs: Needs::Kernel,
        many: true,
        ..called("kernel_args", "kernel's ftrace_caller", "k1_ftrace_caller")
    },
    Variant {
        slot: Some(("args_call", "on_entry")),
        runs: (1, 0),
        many: true,
        ..called("args", "ftrace_caller", "args")
    },
    Variant {
        slot: Some(("k2_ftrace_regs_call", "on_entry")),
        runs: (1, 0),
        needs: Needs::Kernel,
        ..called("kernel_regs", "kernel's ftrace_regs_caller", "k2_ftrace_regs_caller")
    },
    Variant { slot: Some(("regs_call", "on_entry")), runs: (1, 0), ..called("regs", "ftrace_regs_caller", "regs") },
    Variant {
        slot: Some(("regs_noflags_call", "on_entry")),
        runs: (1, 0),
        ..called("regs_noflags", "ftrace_regs_caller, restore-flags=off", "regs_noflags")
    },
    Variant {
        slot: Some(("k4_ftrace_regs_call", "ops_of_kernel")),
        runs: (1, 0),
        needs: Needs::Kernel,
        ..called("kernel_ops_direct", "kernel's ftrace_regs_caller, then a direct trampoline", "k4_ftrace_regs_caller")
    },
    Variant {
        slot: Some(("ops_direct_call", "ops_of_ours")),
        runs: (1, 0),
        ..called("ops_direct", "ftrace_caller, direct-way=jmp, then a direct trampoline", "ops_direct")
    },
    Variant {
        slot: Some(("k3_ftrace_call", "graph_entry")),
        runs: (1, 1),
        needs: Needs::Kernel,
        many: true,
        ..called("kernel_graph", "kernel's ftrace_caller + return_to_handler", "k3_ftrace_caller")
    },
    Variant {
        goes: Some((JMP, "graph_f", "graph_g")),
        runs: (1, 1),
        many: true,
        ..variant("graph", "around --form fregs")
    },
    Variant {
        slot: Some(("k5_ftrace_call", "kernel_graph_entry")),
        runs: (2, 2),
        needs: Needs::Kernel,
        many: true,
        ..called(
            "kernel_graph_two",
            "kernel's ftrace_caller + return_to_handler, C of its shape, two users with data",
            "k5_ftrace_caller",
        )
    },
    Variant {
        goes: Some((JMP, "core_f", "core_g")),
        runs: (2, 2),
        many: true,
        ..variant("graph_two", "around --form fregs, the runtime core, two users with data")
    },
    Variant {
        goes: Some((CALL, "fexit_6_12_f", "fexit_6_12_g")),
        runs: (0, 1),
        ..variant("fexit_6_12", "shape of 6.12's BPF trampoline: one fexit program, six arguments")
    },
    Variant {
        goes: Some((JMP, "fexit_f", "fexit_g")),
        runs: (0, 1),
        many: true,
        ..variant("fexit", "programs --fexit, six arguments")
    },
    Variant {
        goes: Some((CALL, "fexit_skip_f", "fexit_skip_g")),
        runs: (0, 1),
        ..variant("fexit_skip", "the same with --flags SKIP_FRAME")
    },
    Variant {
        goes: Some((CALL, "both_6_12_f", "both_6_12_g")),
        runs: (1, 1),
        ..variant("both_6_12", "shape of 6.12's BPF trampoline: an fentry and an fexit program, six arguments")
    },
    Variant {
        goes: Some((JMP, "around_frame_f", "around_frame_g")),
        runs: (1, 1),
        many: true,
        ..variant("around_frame", "around --form frame --args 6")
    },
    Variant {
        goes: Some((JMP, "count_f", "count_g")),
        records: Records::Count,
        many: true,
        ..variant("count", "record --events count")
    },
    Variant {
        goes: Some((JMP, "record_f", "record_g")),
        records: Records::Both,
        many: true,
        ..variant("record", "record --events both --clock none")
    },
    Variant {
        goes: Some((JMP, "record_pair_f", "record_pair_g")),
        records: Records::Both,
        many: true,
        ..variant("record_pair", "record --events both --pair --clock none")
    },
    Variant {
        goes: Some((JMP, "record_pair_tsc_f", "record_pair_tsc_g")),
        records: Records::Both,
        ..variant("record_pair_tsc", "record --events both --pair --clock tsc")
    },
    Variant {
        goes: Some((JMP, "record_stamp8_f", "record_stamp8_g")),
        records: Records::Both,
        ..variant("record_stamp8", "record --events both --clock stamp8")
    },
    Variant {
        goes: Some((JMP, "record_tsc_f", "record_tsc_g")),
        records: Records::Both,
        many: true,
        ..variant("record_tsc", "record --events both --clock tsc")
    },
    Variant { own_functions: true, ..variant("clock_twice", "a function that reads the clock twice, not traced") },
    Variant {
        records: Records::Both,
        many: true,
        ..called("replaced", "the same records without time, one trampoline for all, return replaced, RET", "replaced")
    },
    Variant { records: Records::Both, ..called("replaced_tsc", "the same with the clock", "replaced_tsc") },
    Variant {
        records: Records::Both,
        many: true,
        ..called("replaced_jmp", "as `replaced`, back by an indirect jump", "replaced_jmp")
    },
    Variant { records: Records::Both, ..called("replaced_jmp_tsc", "the same with the clock", "replaced_jmp_tsc") },
    Variant {
        runs: (1, 1),
        needs: Needs::Xray,
        own_functions: true,
        ..variant("xray", "LLVM XRay's sleds, and a handler that calls")
    },
    Variant {
        runs: (1, 0),
        needs: Needs::Retour,
        ..variant("retour", "the crate retour: a hook that calls the original")
    },
];

/// What is claimed: row, kind of loop, of which variant, against which.
pub const ROWS: &[(&str, &str, &str, &str)] = &[
    ("graph-flat", "flat", "graph", "kernel_graph"),
    ("graph-nested", "nested", "graph", "kernel_graph"),
    ("graph-two-flat", "flat", "graph_two", "kernel_graph_two"),
    ("graph-two-nested", "nested", "graph_two", "kernel_graph_two"),
    ("graph-two-16384", "16384", "graph_two", "kernel_graph_two"),
    ("fexit-flat", "flat", "fexit", "fexit_6_12"),
    ("fexit-nested", "nested", "fexit", "fexit_6_12"),
    ("fexit-skip-nested", "nested", "fexit_skip", "fexit_6_12"),
    ("around-frame-flat", "flat", "around_frame", "both_6_12"),
    ("around-frame-nested", "nested", "around_frame", "both_6_12"),
    ("regs", "flat", "regs", "kernel_regs"),
    ("regs-noflags", "flat", "regs_noflags", "kernel_regs"),
    ("ops-direct", "flat", "ops_direct", "kernel_ops_direct"),
    ("args-frame", "flat", "args", "kernel_args"),
    ("tailored-1", "flat", "tailored_1", "call_only"),
    ("count", "flat", "count", "call_ret"),
    ("record-flat", "flat", "record", "call_ret"),
    ("record-pair-flat", "flat", "record_pair", "call_ret"),
    ("record-pair-tsc-flat", "flat", "record_pair_tsc", "replaced_tsc"),
    ("record-pair-16384", "16384", "record_pair", "replaced"),
    ("record-tsc-clock", "flat", "record_tsc", "clock_twice"),
    ("record-tsc-flat", "flat", "record_tsc", "replaced_tsc"),
    ("record-tsc-nested", "nested", "record_tsc", "replaced_tsc"),
    ("record-tsc-jmp-flat", "flat", "record_tsc", "replaced_jmp_tsc"),
    ("record-tsc-jmp-nested", "nested", "record_tsc", "replaced_jmp_tsc"),
    ("record-16384", "16384", "record", "replaced"),
    ("record-cold", "cold", "record", "replaced"),
    ("record-jmp-16384", "16384", "record", "replaced_jmp"),
    ("record-uftrace", "flat", "record_tsc", "uftrace"),
    ("record-xray-fdr", "flat", "record_tsc", "xray_fdr"),
];

/// A tracer that has a program of its own.
pub struct Peer {
    pub name: &'static str,
    pub about: &'static str,
    pub needs: Needs,
    /// How its program is compiled.
    pub flags: &'static [&'static str],
    /// What is in the names of the files with its records.
    pub trace: &'static str,
    /// Bytes of records of a call.
    pub bytes: u64,
}

pub const PEERS: &[Peer] = &[
    Peer {
        name: "uftrace",
        about: "uftrace record, in a program of its own",
        needs: Needs::Uftrace,
        flags: &["-pg", "-mfentry"],
        trace: ".dat",
        bytes: 32,
    },
    Peer {
        name: "xray_fdr",
        about: "LLVM XRay's flight data recorder, in a program of its own",
        needs: Needs::Xray,
        flags: &["-fxray-instrument", "-fxray-instruction-threshold=1"],
        trace: "xray_fdr",
        bytes: 16,
    },
];
