//! Probes by definition, in functions that gcc compiled for each architecture.

mod common;

use std::fs;

use common::{Bench, arches};

const SOURCE: &str = "\
#define TRACED __attribute__((noipa, used))
char greeting[] __attribute__((used)) = \"hello\";
struct { int small; unsigned short half; long pad; long last; } record __attribute__((used)) = { -5, 0x1234, 0, 99 };
long words[2] __attribute__((used));
TRACED long add(long a, long b) { return a + b; }
TRACED long tail(long a) { return add(a, 1); }
TRACED long caller(long a, long b) { return add(a, b) + tail(b); }
TRACED long deep(long n) { return n ? add(deep(n - 1), n) : 0; }
TRACED long fill(long n)
{
#ifdef __SSE2__
	long *to = words, left = n;
	__asm__ volatile(\"rep stosb\" : \"+D\"(to), \"+c\"(left) : \"a\"(1) : \"memory\");
#else
	for (long i = 0; i < n; i++)
		((volatile char *)words)[i] = 1;
#endif
	return words[0];
}
TRACED long swap(long from, long to)
{
	words[0] = from;
	__sync_bool_compare_and_swap(words, from, to);
	return words[0];
}
TRACED long spin(long n) { for (;;) words[0] += n; }
TRACED long load(long *from) { return *from; }
TRACED long many(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j) { return i * 100 + j; }
";

/// A bench with `f.o`.
fn compiled(prefix: &str) -> Bench {
    let b = Bench::new();
    fs::write(b.path("f.c"), SOURCE).unwrap();
    let more: &[&str] = match prefix {
        p if p.starts_with("riscv") => &["-mno-relax", "-mcmodel=medany"],
        // The object has all that its functions call.
        p if p.starts_with("aarch64") => &["-mno-outline-atomics"],
        _ => &[],
    };
    let flags = ["-O1", "-foptimize-sibling-calls", "-ffreestanding", "-fno-pic", "-fno-stack-protector", "-c", "f.c"];
    b.tool(&format!("{prefix}gcc"), &[&flags, more].concat());
    b
}

fn trace(b: &Bench, events: &str, calls: &[&str], form: &str) -> Vec<String> {
    fs::write(b.path("events"), events).unwrap();
    let calls = calls.iter().flat_map(|call| ["--call", call]);
    let args: Vec<&str> =
        ["probe", "--object", "f.o", "--events", "events", "--form", form].into_iter().chain(calls).collect();
    b.ok(&args).lines().map(str::to_owned).collect()
}

/// The size of a function, as nm has it.
fn size(b: &Bench, prefix: &str, name: &str) -> String {
    let out = b.tool(&format!("{prefix}nm"), &["-S", "f.o"]);
    let line = out.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    let size = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
    format!("{size:#x}")
}

#[test]
fn entries_and_returns_are_traced_in_both_forms() {
    let events = "\
# who calls whom
p add $arg1:s64 $arg2:u8
r add $retval:s32 first=$arg1   # kept from the entry
r:gone tail
f caller%return sum=$retval
p tail
-:gone
";
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let first = trace(&b, events, &["caller(3, 4)", "add(-2, 0x101)"], "first");
        let expected = [
            "add: @add+0 3 4",
            "caller: <-add+0 7 0x3",
            "tail: @tail+0",
            "add: @add+0 4 1",
            "caller: <-add+0 5 0x4",
            "0x6bb8520000: <-caller+0 0xc",
            "# caller(3, 4) = 0xc",
            "add: @add+0 -2 1",
            "0x6bb8520000: <-add+0 255 0xfffffffffffffffe",
            "# add(-2, 0x101) = 0xff",
        ];
        assert_eq!(first, expected, "{arch}");
        let today = trace(&b, events, &["add(-2, 0x101)"], "today");
        let add = size(&b, prefix, "add");
        let expected = [
            format!("p_add_0: (add+0x0/{add}) arg1=-2 arg2=1"),
            "r_add_0: (0x6bb8520000 <- add) arg1=255 first=0xfffffffffffffffe".to_owned(),
            "# add(-2, 0x101) = 0xff".to_owned(),
        ];
        assert_eq!(today, expected, "{arch}");
    }
}

/// May an event show this?
fn is_register(b: &Bench, name: &str) -> bool {
    fs::write(b.path("events"), format!("p add %{name}\n")).unwrap();
    let out = b.run(&["probe", "--object", "f.o", "--events", "events", "--call", "add(1, 2)"]);
    let told = String::from_utf8(out.stderr).unwrap();
    assert_eq!(told.contains("events:1: BAD_REG_NAME: "), out.status.code() == Some(2), "{name}: {told}");
    out.status.success()
}

#[test]
fn registers_have_the_names_of_struct_pt_regs() {
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let [first, second, sp, unknown] = match arch {
            "x86_64" => ["di", "si", "sp", "rdi"],
            "arm64" => ["x0", "x1", "sp", "xzr"],
            _ => ["a0", "a1", "sp", "zero"],
        };
        let events = format!("p add first=%{first} second=%{second} same=%{sp}:x64 stack=$stack:x64\n");
        let lines = trace(&b, &events, &["add(3, 4)"], "today");
        let (shown, of_sp) = lines[0].split_once(" same=").unwrap();
        assert!(shown.ends_with("first=0x3 second=0x4"), "{arch}: {shown}");
        let (register, stack) = of_sp.split_once(" stack=").unwrap();
        assert_eq!(register, stack, "{arch}");
        assert!(!is_register(&b, unknown), "{arch}: {unknown}");
    }
}

/// The kernel's own tables have these names, and what only an exception has.
#[test]
#[ignore = "needs the kernel's sources: TRAMPTOOL_KERNEL_CACHE"]
fn the_kernels_own_registers_are_known() {
    const OTHERS: [&str; 15] = [
        "ip", "flags", "cs", "ss", "ds", "es", "fs", "gs", "orig_ax", "pc", "pstate", "epc", "status", "badaddr",
        "cause",
    ];
    let sources = kernel_cache::directory().unwrap().join("linux-source-7.3/arch");
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let directory = match arch {
            "x86_64" => "x86",
            "riscv64" => "riscv",
            other => other,
        };
        let path = sources.join(directory).join("kernel/ptrace.c");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let within =
            |line: &str, from: &str, to: char| Some(line.trim().strip_prefix(from)?.split_once(to)?.0.to_owned());
        // Macros have a # where they put names together.
        let names = text.lines().filter(|line| !line.contains('#')).filter_map(|line| {
            let numbered = || within(line, "GPR_OFFSET_NAME(", ')').map(|number| format!("x{number}"));
            let named = || within(line, "{.name = \"", '"');
            within(line, "REG_OFFSET_NAME(", ')').or_else(numbered).or_else(named)
        });
        let names: Vec<String> = names.collect();
        assert!(names.len() > 20, "{arch}: {names:?}");
        for name in names {
            let other = OTHERS.contains(&&*name) || name == "orig_a0";
            assert_eq!(is_register(&b, &name), !other, "{arch}: {name}");
        }
    }
}

#[test]
fn memory_and_arguments_on_the_stack_are_fetched() {
    let events = "\
p add text=@greeting:string c=@greeting:char all=@greeting:u8[3]
f many $arg9:s8 $arg10:u16 \\-3:s8 \\\"note\"
";
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let lines = trace(&b, events, &["add(1, 2)", "many(1,2,3,4,5,6,7,8,-9,10)"], "first");
        assert_eq!(lines[0], "add: @add+0 \"hello\" 'h' {104,101,108}", "{arch}");
        assert_eq!(lines[2], "many: @many+0 -9 10 -3 \"note\"", "{arch}");
        let memory = "p add s=@record:s32 u=@record+4:u16 b=@record+4:b4@4/16 deref=+16(@record+8) x=+16($arg1):s64\n";
        let lines = trace(&b, memory, &["add(8, 2)"], "today");
        assert!(lines[0].ends_with(" s=-5 u=4660 b=3 deref=(fault) x=(fault)"), "{arch}: {}", lines[0]);
    }
}

#[test]
fn recursion_returns_from_the_inside_and_maxactive_bounds_it() {
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let deep = trace(&b, "f deep%return $arg1 $retval\n", &["deep(3)"], "first");
        let expected = [
            "deep: <-deep+0 0x0 0x0",
            "deep: <-deep+0 0x1 0x1",
            "deep: <-deep+0 0x2 0x3",
            "0x6bb8520000: <-deep+0 0x3 0x6",
            "# deep(3) = 0x6",
        ];
        assert_eq!(deep, expected, "{arch}");
        assert_eq!(trace(&b, "r2 deep $arg1\n", &["deep(3)"], "first").len(), 3, "{arch}");
        // Deeper than the shadow stack: not traced, and the same result.
        let lines = trace(&b, "f deep%return\nr deep\n", &["deep(500)"], "first");
        assert_eq!(lines.last().unwrap(), "# deep(500) = 0x1e942", "{arch}");
    }
}

/// The instructions of a function, as objdump has them: offset and text.
fn instructions(b: &Bench, prefix: &str, function: &str) -> Vec<(u64, String)> {
    let disassemble = format!("--disassemble={function}");
    let out = b.tool(&format!("{prefix}objdump"), &["-dw", "--no-show-raw-insn", &disassemble, "f.o"]);
    let read = |line: &str| {
        let (address, text) = line.split_once(':')?;
        Some((u64::from_str_radix(address.trim(), 16).ok()?, text.trim().to_owned()))
    };
    let all: Vec<_> = out.lines().filter(|line| line.starts_with(' ')).filter_map(read).collect();
    let start = all[0].0;
    all.into_iter().map(|(at, text)| (at - start, text)).collect()
}

/// Every instruction has a breakpoint, and runs behind it as it does without.
#[test]
fn every_instruction_runs_behind_a_breakpoint() {
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let probes = |function: &str| -> Vec<String> {
            instructions(&b, prefix, function).iter().map(|(at, _)| format!("{function}+{at}")).collect()
        };
        for (functions, call, result) in [
            (&["add"][..], "add(2, 3)", "0x5"),
            (&["caller", "tail", "add"], "caller(3, 4)", "0xc"),
            (&["deep", "add"], "deep(3)", "0x6"),
            (&["many"], "many(1,2,3,4,5,6,7,8,9,10)", "0x38e"),
            (&["fill"], "fill(5)", "0x101010101"),
        ] {
            let at: Vec<String> = functions.iter().flat_map(|function| probes(function)).collect();
            let events: String = at.iter().map(|at| format!("p {at}\n")).collect();
            let lines = trace(&b, &events, &[call], "first");
            assert_eq!(lines.last().unwrap(), &format!("# {call} = {result}"), "{arch}");
            let of = |at: &str| lines.iter().filter(|line| line.ends_with(&format!(": @{at}"))).count();
            assert!(at.iter().all(|at| of(at) > 0), "{arch}: {lines:#?}");
            if functions == ["add"] {
                // It has no branches: each once, in order.
                let met: Vec<&str> = lines.iter().filter_map(|line| line.split_once(": @")).map(|(_, at)| at).collect();
                assert_eq!(met, at, "{arch}");
            }
        }
        // A string instruction is met once, however often it repeats.
        let repeats = instructions(&b, prefix, "fill").into_iter().find(|(_, text)| text.starts_with("rep"));
        if let Some((at, _)) = repeats {
            assert_eq!(trace(&b, &format!("p fill+{at}\n"), &["fill(5)"], "first").len(), 2, "{arch}");
        }
    }
}

/// From the instruction that takes a reservation to the one that uses it up, no probe can be.
#[test]
fn reservations_are_not_lost() {
    let (mut refused, of) = (0, ["ldxr", "ldaxr", "lr."]);
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let all = instructions(&b, prefix, "swap");
        let position = |of: &[&str]| all.iter().position(|(_, text)| of.iter().any(|name| text.starts_with(name)));
        let within = position(&of).zip(position(&["stxr", "stlxr", "sc."])).map(|(from, to)| from..=to);
        for (n, (at, _)) in all.iter().enumerate() {
            fs::write(b.path("events"), format!("p swap+{at}\n")).unwrap();
            let run = ["probe", "--object", "f.o", "--events", "events", "--call", "swap(5, 6)", "--form", "first"];
            if within.as_ref().is_some_and(|within| within.contains(&n)) {
                refused += 1;
                b.refuses(
                    &run,
                    &[&format!("swap+{at}: FAIL_REG_PROBE: "), "a reservation on memory", "behind the one"],
                );
            } else {
                assert_eq!(b.ok(&run), format!("swap: @swap+{at}\n# swap(5, 6) = 0x6\n"), "{arch}");
            }
        }
    }
    assert!(refused > 4, "{refused}");
}

/// Instructions as objdump has them are those at which a probe may be.
#[test]
fn probes_are_on_instruction_boundaries() {
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let at: Vec<u64> = instructions(&b, prefix, "caller").into_iter().map(|(at, _)| at).collect();
        assert!(at.len() > 4, "{arch}: {at:?}");
        for offset in 0..=at[at.len() - 1] {
            fs::write(b.path("events"), format!("p caller+{offset}\n")).unwrap();
            let out =
                b.run(&["probe", "--object", "f.o", "--events", "events", "--call", "caller(1, 2)", "--form", "first"]);
            let stdout = String::from_utf8(out.stdout).unwrap();
            match at.contains(&offset) {
                // On the way through, it is met once.
                true => assert_eq!(stdout, format!("caller: @caller+{offset}\n# caller(1, 2) = 0x6\n"), "{arch}"),
                false => {
                    let message = String::from_utf8(out.stderr).unwrap();
                    assert!(message.contains("events:1: BAD_INSN_BNDRY: "), "{arch}: {offset}: {message}");
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let (arch, prefix) = arches()[0];
    let other = arches()[1].0;
    let b = compiled(prefix);
    fs::write(b.path("events"), "p add\n").unwrap();
    let probe = |more: &[&'static str]| [&["probe", "--object", "f.o", "--events", "events"][..], more].concat();
    b.ok(&probe(&["--call", "add(1, 2)", "--arch", arch]));
    b.refuses(&probe(&["--call", "add(1, 2)", "--arch", other]), &["f.o is for", arch]);
    b.refuses(&probe(&["--call", "ad(1, 2)"]), &["function", "ad", "add"]);
    for call in ["add", "add(1", "add(x)", "add(1,,2)", ""] {
        b.refuses(&probe(&["--call", call]), &["cannot read the call", "f(1, 0x2, -3)"]);
    }
    fs::write(b.path("events"), b"p add \xff\n").unwrap();
    b.refuses(&probe(&["--call", "add(1, 2)"]), &["events is no text"]);
    // An instruction that faults is named, with a breakpoint or without.
    let astray = ["load(8) goes astray at 0x", "READ_UNMAPPED"];
    fs::write(b.path("events"), "p add\n").unwrap();
    b.refuses(&probe(&["--call", "load(8)"]), &astray);
    let all: String = instructions(&b, prefix, "load").iter().map(|(at, _)| format!("p load+{at}\n")).collect();
    fs::write(b.path("events"), all).unwrap();
    b.refuses(&probe(&["--call", "load(8)"]), &astray);
    let nine: String = (1..=9).map(|n| format!(" $arg{n}")).collect();
    fs::write(b.path("events"), format!("r many{nine}\n")).unwrap();
    b.refuses(&probe(&["--call", "add(1, 2)"]), &["9 arguments are kept", "up to 8"]);
    let many: String = (0..65).map(|n| format!("p:e{n} add\n")).collect();
    fs::write(b.path("events"), many).unwrap();
    let out = b.run(&probe(&["--call", "add(1, 2)"]));
    assert!(String::from_utf8(out.stderr).unwrap().contains("events:65: TOO_MANY_PROBES"), "the table has an end");
}

/// One budget is for all of a call, its stops included, and one bound for what it writes.
#[test]
fn endless_loops_end_at_a_probe_too() {
    for (arch, prefix) in arches() {
        let b = compiled(prefix);
        let (last, _) = instructions(&b, prefix, "spin").pop().unwrap();
        let run = ["probe", "--object", "f.o", "--events", "events", "--call", "spin(1)"];
        for (probes, why) in
            [(0, "does not end; valid: "), (1, "does not end; valid: "), (60, "has more than 100000 events; ")]
        {
            let events: String = (0..probes).map(|n| format!("p:e{n} spin+{last}\n")).collect();
            fs::write(b.path("events"), events + "p load\n").unwrap();
            let begun = std::time::Instant::now();
            b.refuses(&run, &[&format!("spin(1) {why}")]);
            assert!(begun.elapsed().as_secs() < 120, "{arch}: {probes} probes");
        }
    }
}
