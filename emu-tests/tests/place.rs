//! Where a prototype's arguments and results are, compared with what gcc does: for generated prototypes, a compiled caller
//! runs to the function's entry, and a compiled function to its return, with different bytes in every value.
//!
//! `TRAMPTOOL_PLACE_CASES` is how many batches of prototypes are tried on each architecture and float ABI.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use codegen::ask::place::{Piece, Place, Returned};
use codegen::backend::Backend;
use codegen::profile::target::Target;
use codegen::words::abi::Reg;
use codegen::words::proto::Prototype;
use link::{Image, Input, Options, link};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use tramptool_emu_tests::{Cpu as Engine, Holds, engine};

use common::expected::{self, expected, tools, words};

mod common;

/// Prototypes that are compiled together.
const BATCH: usize = 150;
/// Bytes of data for each value.
const ROOM: usize = 64;
const STACK: u64 = 0x6d_c9a4_0000;
const EXIT: u64 = 0x6b_b852_0000;
const RESULT: u64 = EXIT + 0x800;

/// A type as C has it: for a struct, its members, each with a number of elements.
#[derive(Clone, Debug)]
enum Gen {
    Plain(&'static str),
    Array(&'static str),
    Struct(Vec<(&'static str, usize)>),
    Nested(Vec<(&'static str, usize)>, &'static str),
}

impl Gen {
    /// The struct's members, if it is one.
    fn body(&self) -> Option<String> {
        let list = |members: &[(&str, usize)]| {
            let member = |(i, (t, n)): (usize, &(&str, usize))| match n {
                1 => format!("{t} m{i}; "),
                n => format!("{t} m{i}[{n}]; "),
            };
            members.iter().enumerate().map(member).collect::<String>()
        };
        match self {
            Gen::Plain(_) | Gen::Array(_) => None,
            Gen::Struct(members) => Some(list(members)),
            Gen::Nested(inner, last) => Some(format!("struct {{ {}}} in; {last} last; ", list(inner))),
        }
    }

    /// As a parameter or result: `named` puts a struct's members elsewhere.
    fn declare(&self, tag: &str, name: &str, named: bool) -> String {
        match self {
            Gen::Plain(t) => format!("{t} {name}"),
            Gen::Array(t) => format!("{t} {name}[3]"),
            _ if named => format!("struct {tag} {name}"),
            _ => format!("struct {tag} {{ {}}} {name}", self.body().unwrap_or_default()),
        }
    }

    /// The type of a pointer to where its value is.
    fn cast(&self, tag: &str) -> String {
        match self {
            Gen::Plain(t) => format!("{t} *"),
            Gen::Array(t) => format!("{t} **"),
            _ => format!("struct {tag} *"),
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    result: Option<Gen>,
    args: Vec<Gen>,
}

impl Case {
    fn declare(&self, name: &str, named: bool) -> String {
        let args: Vec<String> = self
            .args
            .iter()
            .enumerate()
            .map(|(k, a)| a.declare(&format!("{name}_{k}"), &format!("a{k}"), named))
            .collect();
        let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
        let function = format!("{name}({args})");
        match &self.result {
            None => format!("void {function}"),
            Some(r) => r.declare(&format!("{name}_r"), &function, named),
        }
    }
}

fn value(long_double: bool) -> impl Strategy<Value = Gen> {
    let scalar = || {
        let all = ["char", "short", "int", "long", "unsigned char", "float", "double", "float", "void *", "__int128"];
        select(if long_double { [&all[..], &["long double"]].concat() } else { all.to_vec() })
    };
    let members = move || prop::collection::vec((scalar(), prop::sample::select(vec![1, 1, 1, 2, 3, 4])), 1..4);
    const PLAIN: &[&str] = &["signed char", "unsigned short", "u32", "size_t", "gfp_t", "enum e", "struct sk_buff *"];
    prop_oneof![
        4 => scalar().prop_map(Gen::Plain),
        1 => select(PLAIN).prop_map(Gen::Plain),
        1 => select(&["int", "struct list_head *"][..]).prop_map(Gen::Array),
        4 => members().prop_map(Gen::Struct),
        1 => (members(), scalar()).prop_map(|(inner, last)| Gen::Nested(inner, last)),
    ]
}

/// Structs that are too large as arguments lose members until they are not; results may be larger.
fn case(long_double: bool) -> impl Strategy<Value = Case> {
    let args = prop::collection::vec(value(long_double), 0..13);
    (prop::option::weighted(0.8, value(long_double)), args).prop_map(|(mut result, mut args)| {
        if let Some(Gen::Array(_)) = result {
            result = Some(Gen::Plain("void *"));
        }
        for arg in &mut args {
            let fits = |arg: &Gen| Prototype::parse(&format!("void f({})", arg.declare("s", "a", false))).is_ok();
            while !fits(arg) {
                *arg = match arg.clone() {
                    Gen::Nested(inner, _) => Gen::Struct(inner),
                    Gen::Struct(mut members) if members.len() > 1 => {
                        members.pop();
                        Gen::Struct(members)
                    }
                    Gen::Struct(members) if members[0].1 > 1 => Gen::Struct(vec![(members[0].0, 1)]),
                    other => panic!("{other:?} is refused"),
                };
            }
        }
        Case { result, args }
    })
}

/// The bytes of value number `k` of case `i`; the result is number 12.
fn bytes(i: usize, k: usize) -> Vec<u8> {
    // A generator's period is longer than all values together, so no two places agree by chance for more than a byte.
    let mut state = (i * 13 + k) as u32 + 1;
    let byte = || {
        state = state.wrapping_mul(0x9e37_79b1).rotate_left(13) ^ 0x85eb_ca6b;
        (state >> 11) as u8
    };
    std::iter::repeat_with(byte).take(ROOM).collect()
}

const PRELUDE: &str = "typedef unsigned u32, gfp_t;\ntypedef unsigned long size_t;\nenum e { E };\n\
                       struct sk_buff;\nstruct list_head;\n";

/// The callers and the functions, which must not see each other.
fn sources(cases: &[Case]) -> [String; 2] {
    let (mut callers, mut functions) = (PRELUDE.to_owned(), PRELUDE.to_owned());
    for (i, case) in cases.iter().enumerate() {
        let name = format!("f{i}");
        let mut both = String::new();
        let values = case.args.iter().enumerate().map(|(k, a)| (k.to_string(), a));
        for (k, t) in values.chain(case.result.iter().map(|r| ("r".to_owned(), r))) {
            if let Some(body) = t.body() {
                writeln!(both, "struct {name}_{k} {{ {body}}};").unwrap();
            }
        }
        writeln!(both, "{};", case.declare(&name, true)).unwrap();
        let data = |k: usize| {
            let list: Vec<String> = bytes(i, k).iter().map(u8::to_string).collect();
            format!("static const unsigned char v{i}_{k}[] __attribute__((aligned(16))) = {{ {} }};\n", list.join(","))
        };
        callers.push_str(&both);
        functions.push_str(&both);
        let mut args = Vec::new();
        for (k, a) in case.args.iter().enumerate() {
            callers.push_str(&data(k));
            args.push(format!("*({})v{i}_{k}", a.cast(&format!("{name}_{k}"))));
        }
        writeln!(callers, "void call{i}(void) {{ {name}({}); }}", args.join(", ")).unwrap();
        let body = match &case.result {
            None => String::new(),
            Some(r) => {
                functions.push_str(&data(12));
                format!("return *({})v{i}_12;", r.cast(&format!("{name}_r")))
            }
        };
        writeln!(functions, "{} {{ {body} }}", case.declare(&name, true)).unwrap();
    }
    [callers, functions]
}

fn compile(gcc: &[&str], dir: &Path, name: &str, source: &str) -> Vec<u8> {
    let (c, o) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.o")));
    std::fs::write(&c, source).unwrap();
    let flags = ["-O1", "-w", "-ffreestanding", "-fno-pic", "-fno-stack-protector", "-fno-asynchronous-unwind-tables"];
    let mut command = Command::new(gcc[0]);
    let run = command.args(&gcc[1..]).args(flags).args(["-fno-strict-aliasing", "-c", "-o"]).args([&o, &c]).output();
    let run = run.unwrap_or_else(|e| panic!("{}: {e}: install the compiler for this architecture", gcc[0]));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(o).unwrap()
}

struct Cpu<'b> {
    backend: &'b dyn Backend,
    uc: Box<Engine<'static, ()>>,
}

impl Cpu<'_> {
    fn new<'b>(backend: &'b dyn Backend, image: &Image) -> Cpu<'b> {
        let mut uc = engine(backend, ()).unwrap();
        for segment in &image.segments {
            let start = segment.address & !0xfff;
            let end = (segment.address + segment.mem_size).next_multiple_of(0x1000);
            uc.map(start, end - start, Holds::Code).unwrap();
            assert!(uc.store(segment.address, &segment.bytes));
        }
        uc.map(STACK - 0x1_0000, 0x1_1000, Holds::Data).unwrap();
        uc.map(EXIT, 0x1000, Holds::Code).unwrap();
        Cpu { backend, uc }
    }

    fn register(&self, reg: Reg) -> i32 {
        self.backend.facts().abi.regs[reg.0 as usize].emu
    }

    /// From a C function's entry to an address.
    fn run(&mut self, from: u64, until: u64) {
        let abi = &self.backend.facts().abi;
        let sp = match abi.link {
            Some(link) => {
                self.uc.write(self.register(link), EXIT).unwrap();
                STACK
            }
            None => {
                assert!(self.uc.store(STACK - 8, &EXIT.to_le_bytes()));
                STACK - 8
            }
        };
        self.uc.write(self.register(abi.sp), sp).unwrap();
        self.uc.write(self.register(abi.sret), RESULT).unwrap();
        self.uc.run_at_most(from, until, 100_000).unwrap();
        assert_eq!(self.uc.pc(), until);
    }

    fn at(&self, piece: &Piece) -> Vec<u8> {
        let (abi, machine) = (&self.backend.facts().abi, self.backend.machine());
        match piece.place {
            Place::Reg(reg) => self.uc.read(self.register(reg)).unwrap().to_le_bytes()[..piece.size as usize].to_vec(),
            Place::Vector(i) => {
                let mut bytes = vec![0; abi.vector_bytes];
                self.uc.read_bytes(machine.vectors[i as usize].id, &mut bytes).unwrap();
                bytes.truncate(piece.size as usize);
                bytes
            }
            Place::Stack(at) => {
                let sp = self.uc.read(self.register(abi.sp)).unwrap();
                self.memory(sp + abi.return_bytes() + u64::from(at), piece.size as usize)
            }
        }
    }

    fn memory(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        assert!(self.uc.load(at, &mut found));
        found
    }
}

/// Every byte of a value that is no padding is where a piece says, and no piece says more.
fn compare(cpu: &Cpu, pieces: &[Piece], members: &[(u32, u32)], want: &[u8], what: &str) -> Result<(), TestCaseError> {
    let mut covered = [false; ROOM];
    for piece in pieces {
        let found = cpu.at(piece);
        for (n, byte) in found.iter().enumerate() {
            let at = piece.offset as usize + n;
            let matters = members.iter().any(|(from, size)| (*from as usize..(from + size) as usize).contains(&at));
            prop_assert!(!covered[at], "{what}: byte {at} is in two pieces");
            covered[at] = true;
            prop_assert!(!matters || *byte == want[at], "{what}: {piece:?} holds {found:02x?} of {want:02x?}");
        }
    }
    for (from, size) in members {
        prop_assert!((*from..from + size).all(|b| covered[b as usize]), "{what}: not all of it is placed: {pieces:?}");
    }
    Ok(())
}

fn check(
    backend: &dyn Backend,
    target: &Target,
    gcc: &[&str],
    dir: &Path,
    cases: &[Case],
) -> Result<(), TestCaseError> {
    let [callers, functions] = sources(cases);
    let (callers, functions) = (compile(gcc, dir, "callers", &callers), compile(gcc, dir, "functions", &functions));
    let inputs = [Input { name: "callers", bytes: &callers }, Input { name: "functions", bytes: &functions }];
    let image = link(backend, &inputs, &Options::default()).unwrap();
    let mut cpu = Cpu::new(backend, &image);
    for (i, case) in cases.iter().enumerate() {
        let text = case.declare(&format!("f{i}"), false);
        let proto = Prototype::parse(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
        let placement = backend.place(target, &proto).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
        let members =
            |t: &codegen::words::proto::Type| t.members().iter().map(|(at, m)| (*at, m.size)).collect::<Vec<_>>();
        let function = image.symbol(&format!("f{i}")).unwrap().address;
        cpu.run(image.symbol(&format!("call{i}")).unwrap().address, function);
        prop_assert_eq!(placement.args.len(), proto.args.len());
        for (k, pieces) in placement.args.iter().enumerate() {
            let what = format!("{} {text}: argument {k}", target.facts.name);
            compare(&cpu, pieces, &members(&proto.args[k]), &bytes(i, k), &what)?;
        }
        cpu.run(function, EXIT);
        let what = format!("{} {text}: result", target.facts.name);
        match (&placement.returned, &proto.result) {
            (Returned::Nothing, None) => {}
            (Returned::Registers(pieces), Some(r)) => compare(&cpu, pieces, &members(r), &bytes(i, 12), &what)?,
            (Returned::Memory, Some(r)) => {
                let found = cpu.memory(RESULT, r.size() as usize);
                let whole = if r.size() > 64 { vec![(0, 64)] } else { members(r) };
                for (at, size) in whole {
                    let range = at as usize..(at + size) as usize;
                    prop_assert_eq!(&found[range.clone()], &bytes(i, 12)[range], "{}", what);
                }
            }
            other => prop_assert!(false, "{what}: {other:?}"),
        }
    }
    Ok(())
}

/// The same places under these settings as gcc has under these options.
fn agrees(backend: &dyn Backend, under: &expected::Place) {
    let facts = backend.facts();
    let convention = profiles::default_convention(facts).unwrap();
    let mut choices = convention.defaults();
    for (name, value) in under.set.iter().map(|s| s.split_once('=').unwrap()) {
        choices.set(facts.name, facts.options, name, value).unwrap();
    }
    let target = backend.target(convention, choices).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let batches = std::env::var("TRAMPTOOL_PLACE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let seed = if batches > 1 { RngSeed::Random } else { RngSeed::Fixed(1) };
    let config =
        Config { cases: batches, max_shrink_iters: 40, rng_seed: seed, failure_persistence: None, ..Config::default() };
    let long_double = under.long_double;
    let batch =
        prop::collection::vec(case(long_double), 1..=BATCH).prop_filter("few", move |b| batches > 1 || b.len() > 9);
    let compiler = format!("{}gcc", tools(backend));
    let gcc = [&[compiler.as_str()], &words(&under.gcc)[..]].concat();
    TestRunner::new(config).run(&batch, |cases| check(backend, &target, &gcc, dir.path(), &cases)).unwrap();
}

#[test]
fn every_architecture_agrees_with_gcc() {
    std::thread::scope(|scope| {
        for backend in arch::BACKENDS {
            scope.spawn(|| expected(*backend).place.iter().for_each(|under| agrees(*backend, under)));
        }
    });
}
