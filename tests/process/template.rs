//! Templates, in a process that makes thousands of trampolines from each: they have the bytes of those that are generated one
//! by one, and record the same.

use std::fmt::Write;
use std::fs;

use tramptool::{Clock, Events, Spec, Target, generate};

use crate::common::Bench;
use crate::common::expected::words;
use crate::machine::{Arch, for_each};

const SOURCE: &str = include_str!("template.c");
const SITE: &str = include_str!("site.h");
const FIXUPS: &str = include_str!("fixups.h");
const FUNCTIONS: usize = 3000;
/// The largest number of a function.
const LAST_ID: u32 = (1 << 23) - 1;

/// What is recorded: name, events with how many records they write, clock, arguments, result.
struct Kind {
    name: &'static str,
    events: (Events, &'static str, u8),
    clock: Option<(Clock, &'static str)>,
    args: u8,
    result: bool,
    /// Every register is kept.
    all: bool,
    /// The thread's words are in a variable.
    tls: bool,
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "both_word",
        events: (Events::Both, "both", 2),
        clock: Some((Clock::Word, "word")),
        args: 2,
        result: true,
        all: false,
        tls: false,
    },
    Kind {
        name: "both_tsc",
        events: (Events::Both, "both", 2),
        clock: Some((Clock::Tsc, "tsc")),
        args: 0,
        result: false,
        all: false,
        tls: false,
    },
    Kind {
        name: "entry_none",
        events: (Events::Entry, "entry", 1),
        clock: Some((Clock::None, "none")),
        args: 1,
        result: false,
        all: false,
        tls: false,
    },
    Kind {
        name: "entry_all",
        events: (Events::Entry, "entry", 1),
        clock: Some((Clock::Tsc, "tsc")),
        args: 2,
        result: false,
        all: true,
        tls: false,
    },
    Kind {
        name: "both_tls",
        events: (Events::Both, "both", 2),
        clock: Some((Clock::None, "none")),
        args: 0,
        result: true,
        all: false,
        tls: true,
    },
    Kind {
        name: "count_tls",
        events: (Events::Count, "count", 0),
        clock: None,
        args: 0,
        result: false,
        all: false,
        tls: true,
    },
    Kind {
        name: "count",
        events: (Events::Count, "count", 0),
        clock: None,
        args: 0,
        result: false,
        all: false,
        tls: false,
    },
];

/// Small and large ones, with each of the low bits, and the last.
fn id(function: usize) -> u32 {
    match function {
        0..1000 => function as u32,
        1000 => LAST_ID,
        n => n as u32 * 2741,
    }
}

impl Kind {
    /// Its template, and the trampolines that are generated one by one.
    fn generate(&self, b: &Bench, arch: &Arch, sets: &[(String, String)]) {
        let function = |name: &str| format!("{name}+{}", arch.with.site);
        let (name, any) = (self.name, function("f"));
        let mut command = vec!["gen", "record", "--events", self.events.1, "--function", &any, "--name", name];
        command.extend(["--profile", "bare", "--arch", arch.name, "--emit", "template", "--stem", name]);
        command.extend(["--id", "4711"].into_iter().filter(|_| self.clock.is_some()));
        let pairs: Vec<String> = sets.iter().map(|(name, value)| format!("{name}={value}")).collect();
        command.extend(pairs.iter().flat_map(|pair| ["--set", pair]));
        let (sig, args) = ("long f(long a, long b)", self.args.to_string());
        command.extend(["--args", &*args].into_iter().filter(|_| self.args > 0));
        command.extend(["--sig", sig].into_iter().filter(|_| self.events.2 == 2));
        command.extend(self.clock.iter().flat_map(|(_, clock)| ["--clock", clock]));
        command.extend(self.result.then_some("--result"));
        command.extend(["--live", "all"].into_iter().filter(|_| self.all));
        command.extend(["--tls", "far_words"].into_iter().filter(|_| self.tls));
        b.ok(&command);
        let mut target = Target::with_profile(arch.name, "bare").unwrap();
        for (name, value) in sets {
            target = target.set(name, value).unwrap();
        }
        let spec = |n: usize| {
            let mut spec = Spec::record(&function(&format!("f{n}")), self.events.0).name(&format!("{name}_{n}"));
            if let Some((clock, _)) = self.clock {
                spec = spec.clock(clock).id(id(n));
            }
            if self.args > 0 {
                spec = spec.args(self.args);
            }
            if self.events.2 == 2 {
                spec = spec.sig(sig);
            }
            if self.all {
                spec = spec.live_all();
            }
            if self.tls {
                spec = spec.tls("far_words");
            }
            if self.result { spec.result() } else { spec }
        };
        let specs: Vec<Spec> = (0..FUNCTIONS).map(spec).collect();
        fs::write(b.path(&format!("{name}.o")), generate(&target, &specs).unwrap().object().unwrap()).unwrap();
    }

    /// Its row in the program's table.
    fn row(&self) -> String {
        let Kind { name, events: (_, _, records), args, result, .. } = self;
        let clock = self.clock.map_or("none", |(_, clock)| clock).chars().next().unwrap();
        let (result, tls) = (u8::from(*result), u8::from(self.tls));
        format!("    {{\"{name}\", &{name}_template, {records}, {args}, {result}, '{clock}', {tls}, {name}_linked}},\n")
    }
}

/// The functions, and all that the program is told of the trampolines.
fn tables() -> String {
    let mut text: String = KINDS.iter().map(|kind| format!("#include \"{}.template.h\"\n", kind.name)).collect();
    let all = |each: &dyn Fn(usize) -> String| (0..FUNCTIONS).map(each).collect::<String>();
    let _ = writeln!(text, "enum {{ FUNCTIONS = {FUNCTIONS}, KINDS = {} }};", KINDS.len());
    text += &all(&|n| format!("SITE long f{n}(long a, long b) {{ return a - b + {n}; }}\n"));
    text += &format!("static long (*const functions[])(long, long) = {{{}}};\n", all(&|n| format!("f{n}, ")));
    text += &format!("static const uint32_t ids[] = {{{}}};\n", all(&|n| format!("{}, ", id(n))));
    for Kind { name, .. } in &KINDS {
        text += &all(&|n| format!("void {name}_{n}(void);\n"));
        text += &format!("static void (*const {name}_linked[])(void) = {{{}}};\n", all(&|n| format!("{name}_{n}, ")));
    }
    text += "struct kind { const char *name; const struct tramptool_template *template; int records, args, result, clock, tls; \
             void (*const *linked)(void); };\nstatic const struct kind kinds[] = {\n";
    text += &KINDS.iter().map(Kind::row).collect::<String>();
    text + "};\n"
}

fn link(b: &Bench, arch: &Arch) {
    let (gcc, objects) = (arch.tool("gcc"), KINDS.map(|kind| format!("{}.o", kind.name)));
    let mut command: Vec<&str> = arch.with.flags.iter().map(String::as_str).collect();
    // No linker may make other instructions of those that were generated.
    command.extend(["-O1", "-static", "-Wl,--no-relax", "template.c", "-o", "program"]);
    command.extend(objects.iter().map(String::as_str));
    b.tool(&gcc, &command);
}

fn run(b: &Bench, arch: &Arch, args: &[&str]) -> String {
    let program = b.path("program").display().to_string();
    let command = [&["100"], &words(&arch.with.runner)[..], &[&*program], args].concat();
    b.tool("timeout", &command)
}

#[test]
fn copies_are_what_is_generated_one_by_one() {
    for_each(|arch| {
        let b = Bench::new();
        for (name, text) in [("template.c", SOURCE), ("site.h", SITE), ("fixups.h", FIXUPS), ("templates.h", &tables())]
        {
            fs::write(b.path(name), text).unwrap();
        }
        let abi = arch.with.set.iter().filter_map(|s| s.strip_prefix("abi=")).map(|v| ("abi".to_owned(), v.to_owned()));
        let mut sets: Vec<_> = abi.collect();
        KINDS.iter().for_each(|kind| kind.generate(&b, arch, &sets));
        link(&b, arch);
        let offsets = run(&b, arch, &["offsets"]);
        let names = ["RECORD_CURSOR", "RECORD_LIMIT", "RECORD_COUNT"].map(str::to_owned);
        sets.extend(names.into_iter().zip(offsets.split_whitespace().map(str::to_owned)));
        KINDS.iter().for_each(|kind| kind.generate(&b, arch, &sets));
        link(&b, arch);
        let wanted = |kind: &Kind| {
            let records = FUNCTIONS * usize::from(kind.events.2);
            format!("{}: {FUNCTIONS} equal, {records} records, 0 wrong\n", kind.name)
        };
        let wanted: String = KINDS.iter().map(wanted).collect();
        assert_eq!(run(&b, arch, &[]), wanted, "{}", arch.name);
    });
}
