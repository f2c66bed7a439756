//! Definitions of probes: listing, deletion, and errors with their columns.

use tramptool_runtime::definition::{Base, Definitions, Done, Kind, Machine, ProbeKind, Problem, Refused, Symbol};

/// A function of 0x100 bytes with instructions of 4 bytes, and two with one name.
struct Toy;

impl Machine for Toy {
    fn symbol(&self, name: &str) -> Symbol {
        match name {
            "vfs_read" => Symbol::One(0x1000),
            "kfree" | "do_exit" | "kernel_clone" => Symbol::One(0x2000),
            "jiffies" => Symbol::One(0x8000),
            "twice" => Symbol::Many,
            _ => Symbol::None,
        }
    }
    fn is_function(&self, address: u64) -> bool {
        [0x1000, 0x2000].contains(&address)
    }
    fn is_instruction(&self, address: u64) -> bool {
        (0x1000..0x3000).contains(&address) && address.is_multiple_of(4)
    }
    fn is_traceable(&self, address: u64) -> bool {
        self.is_function(address)
    }
    fn is_register(&self, name: &str) -> bool {
        ["ax", "sp"].contains(&name)
    }
}

type List<'d> = Definitions<'d, 8>;

fn refused(line: &str) -> Refused {
    List::default().line(line, &Toy).expect_err(line)
}

fn listed(lines: &[&str]) -> Vec<String> {
    let mut list = List::default();
    for line in lines {
        list.line(line, &Toy).unwrap_or_else(|e| panic!("{line}\n{}", e.show(line)));
    }
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn probes_are_listed_as_they_were_written() {
    let lines = [
        "# all of them",
        "",
        "p vfs_read  # at its beginning",
        "p vfs_read+0x10 %ax $stack2:u32",
        "p:mine/back kernel_clone-4",
        "p 0x1004",
        "r10:ret vfs_read+0 $retval:s32",
        "p vfs_read%return",
        "f vfs_read a=+8(+0x10($arg1)):string",
        "f kfree $retval",
    ];
    let expected = [
        "p:kprobes/p_vfs_read_0 vfs_read",
        "p:kprobes/p_vfs_read_16 vfs_read+16 arg1=%ax arg2=$stack2:u32",
        "p:mine/back kernel_clone-4",
        "p:kprobes/p_0x1004 0x1004",
        "r10:kprobes/ret vfs_read arg1=$retval:s32",
        "r:kprobes/r_vfs_read_0 vfs_read",
        "f:fprobes/vfs_read__entry vfs_read a=+8(+0x10($arg1)):string",
        "f:fprobes/kfree__exit kfree%return arg1=$retval",
    ];
    assert_eq!(listed(&lines), expected);
    // What is listed can be written.
    assert_eq!(listed(&expected), expected);
}

#[test]
fn probes_are_deleted_by_event_by_group_and_all() {
    let mut list = List::default();
    for line in ["p:a/x vfs_read", "p:b/x vfs_read", "p:b/y kfree", "r:c/z kfree"] {
        list.line(line, &Toy).unwrap();
    }
    assert_eq!(list.line("-:a/x", &Toy), Ok(Done::Deleted(1)));
    assert_eq!(list.line("-:b/", &Toy), Ok(Done::Deleted(2)));
    assert_eq!(list.line("-:x", &Toy).unwrap_err().problem, Problem::UnknownEvent);
    assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>(), ["r:c/z kfree"]);
    list.clear();
    assert_eq!(list.iter().count(), 0);
    for _ in 0..3 {
        assert_eq!(list.line("-:", &Toy).unwrap_err(), Refused { problem: Problem::NoEventName, column: 2 });
    }
}

#[test]
fn arguments_are_read() {
    let mut list = List::default();
    let line = r#"r vfs_read n=-8(+u16(%ax)):x8[4] @jiffies+8 \-3:s8 \"text" $comm b=$arg3:b4@8/16"#;
    let Ok(Done::Defined(probe)) = list.line(line, &Toy) else { panic!("{line}") };
    assert_eq!(probe.kind, ProbeKind::Kretprobe(None));
    let args: Vec<_> = probe.arguments(&Toy).collect();
    assert_eq!(args.len(), 6);
    assert_eq!((args[0].base, args[0].offsets(), args[0].kind), (Base::Register("ax"), &[16, -8][..], Kind::Hex(8)));
    assert_eq!((args[0].name, args[0].array), (Some("n"), Some(4)));
    assert_eq!(args[1].base, Base::Memory(0x8008));
    assert_eq!((args[2].base, args[2].kind), (Base::Immediate(-3), Kind::Signed(8)));
    assert_eq!((args[3].base, args[3].kind), (Base::Text("text"), Kind::String));
    assert_eq!(args[4].kind, Kind::String);
    assert_eq!((args[5].base, args[5].kind), (Base::Arg(3), Kind::Bits(4, 8, 16)));
}

#[test]
fn errors_have_the_kernels_names_and_columns() {
    // The caret stands before what is wrong, as in the kernel's own tests.
    let long = "1".repeat(65);
    let cases: [(&str, &str); 24] = [
        ("p^100 vfs_read", "BAD_MAXACT_TYPE"),
        ("r^1a111 vfs_read", "BAD_MAXACT"),
        ("r^100000 vfs_read", "MAXACT_TOO_BIG"),
        ("f^100 vfs_read", "BAD_MAXACT"),
        ("^x vfs_read", "NO_EVENT_TYPE"),
        ("p ^non_exist_func", "BAD_PROBE_ADDR"),
        ("p ^twice", "NON_UNIQ_SYMBOL"),
        ("p ^vfs_read+3", "BAD_INSN_BNDRY"),
        ("f ^vfs_read+4", "BAD_PROBE_ADDR"),
        ("p:  ^  vfs_read", "NO_EVENT_NAME"),
        ("r ^vfs_read+8", "BAD_RETPROBE"),
        ("p vfs_read+4 ^$arg1", "NOFENTRY_ARGS"),
        ("f vfs_read ^%ax", "BAD_VAR"),
        ("p vfs_read a=^&1", "BAD_FETCH_ARG"),
        ("p   vfs_read   +0(^$comm)", "COMM_CANT_DEREF"),
        ("p vfs_read $stack0:^string", "BAD_STRING"),
        ("p vfs_read %ax:^u8[2]", "BAD_ARRAY_SUFFIX"),
        ("p vfs_read ^common_pid=%ax", "USED_ARG_NAME"),
        ("p vfs_read %ax ^arg1=%ax", "USED_ARG_NAME"),
        ("p vfs_read ^$arg0", "BAD_ARG_NUM"),
        ("p vfs_read ^$retval", "RETVAL_ON_PROBE"),
        ("p vfs_read^%hoge", "BAD_ADDR_SUFFIX"),
        ("p^", "BAD_PROBE_ADDR"),
        ("p:^a.b.c/x vfs_read", "BAD_GROUP_NAME"),
    ];
    for (marked, name) in cases.into_iter().chain([(&*format!("p:^{long} vfs_read"), "EVENT_TOO_LONG")]) {
        let line = marked.replace('^', "");
        let problem = refused(&line);
        let joined = marked.split_whitespace().collect::<Vec<_>>().join(" ").replace(" ^ ", "^ ");
        let column = joined.find('^').unwrap();
        assert_eq!((problem.problem.name(), problem.column), (name, column), "{marked}");
    }
}

#[test]
fn limits_hold() {
    let many = |n: usize, arg: &str| format!("f vfs_read {}", vec![arg; n].join(" "));
    assert!(List::default().line(&many(128, "$stack"), &Toy).is_ok());
    assert_eq!(refused(&many(129, "$stack")), Refused { problem: Problem::TooManyArgs, column: 11 });
    let kept = |n: usize| format!("f vfs_read%return {}", (1..=n).map(|i| format!("$arg{i} ")).collect::<String>());
    assert!(List::default().line(&kept(15), &Toy).is_ok());
    assert_eq!(refused(&kept(16)), Refused { problem: Problem::TooManyEargs, column: 18 });
    let nested = |n: usize| format!("p vfs_read {}%ax{}", "+0(".repeat(n), ")".repeat(n));
    assert!(List::default().line(&nested(8), &Toy).is_ok());
    assert_eq!(refused(&nested(9)), Refused { problem: Problem::TooManyNested, column: 11 + 24 });
    let lines: Vec<String> = (0..9).map(|i| format!("p:e{i} vfs_read")).collect();
    let mut list = List::default();
    assert!(lines[..8].iter().all(|line| list.line(line, &Toy).is_ok()));
    assert_eq!(list.line(&lines[8], &Toy).unwrap_err().problem, Problem::TooManyDefinitions);
}

#[test]
fn one_event_has_probes_of_one_kind() {
    let with = |second: &str| {
        let mut list = List::default();
        list.line("p:g/e kernel_clone abcd=\\1", &Toy).unwrap();
        list.line(second, &Toy).map(|_| ()).map_err(|e| (e.problem, e.column))
    };
    assert_eq!(with("r:g/e do_exit abcd=\\1"), Err((Problem::DiffProbeType, 0)));
    assert_eq!(with("p:g/e vfs_read bcd=\\1"), Err((Problem::DiffArgType, 15)));
    assert_eq!(with("p:g/e vfs_read abcd=\\1:u8"), Err((Problem::DiffArgType, 15)));
    assert_eq!(with("p:g/e kernel_clone abcd=\\1"), Err((Problem::SameProbe, 0)));
    assert_eq!(with("p:g/e vfs_read abcd=\\1"), Ok(()));
    assert_eq!(with("p:g/e kernel_clone+4 abcd=\\1"), Ok(()));
}

#[test]
fn an_error_is_shown_as_the_kernels_log_shows_it() {
    let line = "p   vfs_read  $nothing # why not";
    let shown = refused(line).show(line).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("error: BAD_VAR: "), "{shown}");
    assert_eq!(lines[1..], ["  Command: p vfs_read $nothing", "                      ^"], "{shown}");
}
