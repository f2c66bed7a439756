//! `docs/adding-a-backend.md`, followed with an imaginary machine: 8 registers, instructions of 4 bytes.

#[path = "common/toy.rs"]
mod toy;

use std::convert::Infallible;
use std::fmt;

use codegen::arch::facts::{Cie, EFlags, Facts, NumberOf};
use codegen::arch::harden::Harden;
use codegen::arch::machine::{Goes, Lent, Machine, SystemCall, WideVectors};
use codegen::arch::patch::{Branch, Patch, Relocation};
use codegen::ask::option::Choices;
use codegen::ask::spec::{Around, Direct, Form, Kind, Programs, Spec};
use codegen::backend::Backend;
use codegen::effect::effects::{CfiEntry, Effects};
use codegen::listing::Lowering;
use codegen::listing::code::{CodeBuf, Ref};
use codegen::listing::isa::{Architecture, Instruction, Labels, Lower};
use codegen::listing::names::Names;
use codegen::mutate::Mutable;
use codegen::profile::Convention;
use codegen::profile::target::{Layouts, Own, Target};
use codegen::words::abi::{Abi, Reg, RegInfo, RegSet, SyscallRegs};
use codegen::words::error::{Error, Result};
use codegen::words::step::{Local, Step};
use profiles::Source;
use toy::Op;

struct Toy;

/// Before a call of this symbol, an instruction refers to a label that is put nowhere.
const FORGOTTEN: &str = "forgotten";

codegen::options! {
    Slack = "slack" { None = "none", Word = "word" }
        "what stands before the jump out of a trampoline",
        applies: |_, _| true, apart: false;
}

const R0: Reg = Reg(0);
const PC: Reg = Reg(4);
const LINK: Reg = Reg(5);
const FP: Reg = Reg(6);
const SP: Reg = Reg(7);

const fn row(name: &'static str, dwarf: u16) -> RegInfo {
    RegInfo { name, dwarf, emu: 0 }
}

static REGS: [RegInfo; 8] =
    [row("r0", 0), row("r1", 1), row("r2", 2), row("r3", 3), row("pc", 4), row("lr", 5), row("fp", 6), row("sp", 7)];

static FACTS: Facts = Facts {
    name: "toy",
    aliases: &[],
    machine: 0xfeed,
    e_flags: EFlags::NONE,
    unwinders_jump: false,
    comment: ";",
    function_type: "@function",
    progbits: "@progbits",
    reg_prefix: "",
    assembler: "toy-as",
    align: 4,
    guards: &[],
    marks: None,
    fill: (&[0, 0, 0, 0], ""),
    fill_end: false,
    options: OPTIONS,
    abi: Abi {
        regs: &REGS,
        args: &[R0, Reg(1)],
        rets: &[R0],
        syscall: SyscallRegs { number: Reg(0), args: &[] },
        exit_rets: &[R0],
        sret: R0,
        hidden: RegSet::EMPTY,
        live: &[],
        callee_saved: RegSet::of(&[FP]),
        caller_saved: RegSet::of(&[R0, Reg(1), Reg(2), Reg(3), PC, LINK]),
        linkage: RegSet::EMPTY,
        platform: RegSet::EMPTY,
        zero: None,
        sp: SP,
        fp: FP,
        link: Some(LINK),
        vectors: 0,
        vector_bytes: 8,
        vector_column: 64,
        vector_args: &[],
        vector_rets: &[],
        vector_callee_saved: &[],
        vector_function_saved: &[],
        sp_align: 8,
        widens: false,
        scs: None,
        return_columns: &[],
    },
    patched: &[],
    flags: "",
    mapping: "",
    dynamic: [0; 4],
    relocations: ("R_TOY_", &[(1, "CALL")]),
    lengths: None,
    objtool: None,
    cie: Cie {
        version: 1,
        column: 5,
        code_align: 4,
        data_align: -8,
        initial: &[0x0c, 7, 0],
        cfa_offset: 0,
        pcrel32: 2,
    },
    threads: &[],
    clock: ("", &[]),
    number: &[],
    low_parts: &[],
};

static MACHINE: Machine = Machine {
    bare: None,
    arch: 0,
    mode: 0,
    cpu_model: 0,
    init: &[],
    pc: 0,
    flags: None,
    clear_flags: &[],
    pt_regs: &[],
    threads: &[],
    control: &[],
    sp_access_align: 1,
    accesses_by_sp: |_| false,
    vectors: &[],
    wide: WideVectors { name: "none", changes: |_, _| false, stores: |_, _| false },
    is_vector: |_, _| false,
    lent: Lent::NONE,
    reserved: RegSet::EMPTY,
    exclusive: (&[], &[]),
    trap: &[],
    short_trap: &[],
    step_trap: &[],
    ret: &[],
    system_call: SystemCall { bytes: &[], lost: RegSet::EMPTY },
    return_thunk: "",
    disassembler: ("", "", &[]),
    calls: &[],
    branch: |_, _| None,
    goes: |_, _| Goes::On,
    moves: |_, _| Vec::new(),
    stripped: |address| address,
    unnamed: &[],
    jumps: &[],
    relative: false,
    pads: &[],
    orc: &[],
    record: 0,
    e_flags_abi: 0,
    red_zone: 0,
    millicode: &[],
    kept_by_platform: RegSet::EMPTY,
    entry_sp: &[0],
};

#[derive(Clone, Copy, Debug)]
enum Insn {
    Op(Op),
    Near(Local),
}

impl From<Op> for Insn {
    fn from(op: Op) -> Insn {
        Insn::Op(op)
    }
}

impl Architecture for Toy {
    const FACTS: &'static Facts = &FACTS;
    const MACHINE: &'static Machine = &MACHINE;

    fn target(convention: &'static Convention, choices: Choices) -> Result<Target> {
        let layouts = Layouts::direct(|live, _| toy::frame(live, &FACTS.abi));
        let own = Own {
            e_flags: 0,
            harden: Harden::NONE,
            direct_test: R0,
            stack_align: 8,
            resume: 8,
            pad: 0,
            lead: (&[], &[]),
            layouts,
            places: None,
        };
        Ok(Target::plain(convention, choices, own))
    }

    fn cfi_entry(_kind: Kind) -> CfiEntry {
        CfiEntry { column: 5, cfa_offset: 0, moved: &[], undefined: false, signal: false }
    }
}

impl Lower for Toy {
    type Insn = Insn;

    fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
        match step {
            Step::Call(_) if cx.spec.callee == FORGOTTEN => cx.insn(Insn::Near(Local::Anchor)),
            Step::Leave(_) if cx.target.option::<Slack>() == Slack::Word => cx.insn(Op::AddSp(0).into()),
            _ => {}
        }
        toy::lower(step, cx, PC, LINK)
    }
}

impl Instruction for Insn {
    fn encode(self, _target: &Target, out: &mut CodeBuf) -> Result<()> {
        let (bytes, to) = match self {
            Insn::Op(Op::AddSp(by)) => ([1, by as u8, 0, 0], None),
            Insn::Op(Op::Store(reg, at)) => ([2, reg.0, at.value as u8, 0], None),
            Insn::Op(Op::Load(reg, at)) => ([3, reg.0, at.value as u8, 0], None),
            Insn::Op(Op::Call(sym)) => ([4, 0, 0, 0], Some(Ref::Symbol(sym))),
            Insn::Op(Op::Jump(reg)) => ([5, reg.0, 0, 0], None),
            Insn::Near(local) => ([6, 0, 0, 0], Some(Ref::Local(local))),
        };
        out.bytes.extend_from_slice(&bytes);
        if let Some(to) = to {
            out.fixup(4, 1, to, 0);
        }
        Ok(())
    }

    fn text(self, names: &Names, out: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            Insn::Op(op) => op.text(&FACTS.abi, names, out),
            Insn::Near(local) => write!(out, "near\t{}", names.local(local)),
        }
    }

    fn effects(self) -> Effects {
        match self {
            Insn::Op(op) => op.effects(),
            Insn::Near(_) => Effects::PLAIN,
        }
    }
}

impl Labels for Toy {
    fn patch_local(_: u32, _: &mut [u8], _: usize, _: usize) -> Result<bool> {
        Err(Error::new("toy: no branches"))
    }
}

impl Mutable for Toy {
    type Faulty = Infallible;
}

impl Patch for Toy {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn relocate(&self, _: &Relocation, _: &mut [u8]) -> Result<()> {
        Err(Error::new("toy: no linker"))
    }

    fn branch(&self, _: Branch, _: u64, _: u64) -> Result<Vec<u8>> {
        Err(Error::new("toy: no branches"))
    }
}

/// A profile for it alone.
const PROFILE: &str = r#"
name = "toy-1"
about = "The toy's tracer"
exit-handler = "on_exit"

[callback]
symbol = "on_entry"
arguments = ["ip"]
prototype = "on_entry(ip)"

[arch.toy.site]
arrives = "Reached from a patched function entry."
pc = "pc"
parent-ip = "lr"
ip-offset = 4
scratch = ["r2", "r3", "pc"]
reach = 0

[arch.toy.option.slack]

[arch.toy.exit]
arrives = "Reached by a return."
"#;

#[test]
fn a_backend_needs_no_more_than_the_page_says() {
    let profile = profiles::load(Source { name: "toy.toml", text: PROFILE }, &[&FACTS]).unwrap();
    let convention = profile.convention("toy").unwrap();
    let target = Toy.target(convention, convention.defaults()).unwrap();
    let spec = Spec::direct("tramp", Direct { args: 2, ..Direct::default() }, "callback");
    let assembly = Toy.assemble(&[spec], &target).unwrap();
    let expected: &[u8] = &[
        1, 0xe0, 0, 0, // addsp -32
        2, 0, 0, 0, 2, 1, 8, 0, 2, 4, 16, 0, 2, 5, 24, 0, // store r0, r1, pc, lr
        4, 0, 0, 0, // call
        3, 0, 0, 0, 3, 1, 8, 0, 3, 4, 16, 0, 3, 5, 24, 0, // load
        1, 32, 0, 0, // addsp 32
        5, 4, 0, 0, // jump pc
    ];
    assert_eq!(assembly.text(), expected);
    let listing = Toy.text(&spec, &target).unwrap();
    let cost = &listing.cost;
    assert_eq!((cost.instructions, cost.stack, cost.paths.len()), (12, 32, 1));
    assert!(templates::asm(&[listing], &target, "toy").unwrap().contains("store\tr0, ARG0"));
    let object = codegen::out::obj::write(&assembly, &target).unwrap();
    assert_eq!(u16::from_le_bytes([object[18], object[19]]), 0xfeed);
    assert!(Toy.assemble(&[Spec::direct("t", Direct { args: 3, ..Direct::default() }, "f")], &target).is_err());
    // It has no way to pass ip: that is refused, not left out.
    let with_ip = Spec::direct("t", Direct { args: 1, ip: true, ..Direct::default() }, "f");
    let refused = Toy.assemble(&[with_ip], &target).unwrap_err().to_string();
    assert!(refused.starts_with("toy: t: toy cannot do what profile toy-1 asks for here (Arg("), "{refused}");
    // It lays out no frame for the other kinds: no trampoline without one is made in place of them.
    let around = Kind::Around(Around { form: Form::Frame, args: 1, general_handlers: false });
    for kind in [around, Kind::Programs(Programs::default())] {
        let refused = target.frame(kind).unwrap_err();
        assert!(matches!(refused.kind(), Error::Unsupported { .. }), "{kind:?}: {refused}");
    }
}

/// A row, the arm where it acts, and a line in the profile: command line, listing and report know it.
#[test]
fn an_option_is_a_row_and_an_arm() {
    let profile = profiles::load(Source { name: "toy.toml", text: PROFILE }, &[&FACTS]).unwrap();
    let convention = profile.convention("toy").unwrap();
    let chosen = |value| tool::settings::target(&Toy, convention, &[("slack", value)]);
    let spec = Spec::direct("tramp", Direct::default(), "callback");
    let size = |value| Toy.assemble(&[spec], &chosen(value).unwrap()).unwrap().text().len();
    assert_eq!(size("word"), size("none") + 4);
    assert_eq!(chosen("word").unwrap().describe(), "slack=word");
    let refused = chosen("zero").unwrap_err().to_string();
    assert_eq!(refused, "unknown value for slack of toy 'zero'; valid: none, word");
}

/// An instruction refers to a label that is put nowhere. That is no trampoline, as code or as text.
#[test]
fn a_forgotten_label_is_an_error() {
    let profile = profiles::load(Source { name: "toy.toml", text: PROFILE }, &[&FACTS]).unwrap();
    let convention = profile.convention("toy").unwrap();
    let target = Toy.target(convention, convention.defaults()).unwrap();
    let spec = Spec::direct("tramp", Direct::default(), FORGOTTEN);
    for e in [Toy.assemble(&[spec], &target).unwrap_err(), Toy.text(&spec, &target).unwrap_err()] {
        assert_eq!(*e.kind(), Error::Unbound { label: ".Ltramp_op".to_owned() });
        assert!(e.to_string().starts_with("toy: tramp: "), "{e}");
    }
}

/// A profile without a number is refused by what needs it: it is not taken for 0.
#[test]
fn a_number_that_is_not_there_is_an_error() {
    let profile = profiles::load(Source { name: "toy.toml", text: PROFILE }, &[&FACTS]).unwrap();
    let convention = profile.convention("toy").unwrap();
    let target = Toy.target(convention, convention.defaults()).unwrap();
    let e = target.number(NumberOf::OpFunc).unwrap_err();
    assert!(matches!(e.kind(), Error::Absent { .. }), "{e:?}");
    assert!(e.to_string().contains("no number `op-func` for toy; valid: one with it in [arch.toy.numbers]"), "{e}");
}

/// Everything between backquotes that looks like a file or a function of a trait exists, and no method is missing.
#[test]
fn the_page_names_what_exists() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = std::fs::read_to_string(format!("{root}/docs/adding-a-backend.md")).unwrap();
    let read = |file| std::fs::read_to_string(format!("{root}/codegen/src/{file}.rs")).unwrap();
    let of = |file, name| read(file).split(name).nth(1).unwrap().split("\n}").next().unwrap().to_owned();
    let traits = [
        ("listing/isa", "pub trait Architecture"),
        ("listing/isa", "pub trait Instruction"),
        ("listing/isa", "pub trait Labels"),
        ("listing/isa", "pub trait Lower"),
        ("arch/patch", "pub trait Patch"),
        ("mutate/mod", "pub trait Mutable"),
    ];
    let body = traits.map(|(file, name)| of(file, name)).concat();
    let methods: Vec<&str> =
        body.lines().filter_map(|l| l.trim().strip_prefix("fn ")).map(|l| l.split('(').next().unwrap()).collect();
    assert!(methods.len() > 8);
    for method in &methods {
        assert!(page.contains(&format!("`fn {method}`")), "the page does not mention fn {method}");
    }
    for quoted in page.split('`').skip(1).step_by(2) {
        if let Some(method) = quoted.strip_prefix("fn ") {
            assert!(methods.contains(&method), "there is no fn {method}");
        } else if quoted.ends_with(".rs") || quoted.ends_with(".toml") {
            let anywhere = [String::new(), "arch-riscv/src/".into()]
                .iter()
                .any(|d| std::path::Path::new(&format!("{root}/{d}{quoted}")).exists());
            assert!(anywhere, "there is no file {quoted}");
        }
    }
}
