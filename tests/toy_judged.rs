//! `docs/adding-a-backend.md` to its end: a backend that no other file knows is judged as all others are. A machine that runs
//! must be one that the emulator has, so this is a second description of a sibling's: instructions, lowering and frames are
//! its own; psABI, relocations and what the emulator must know are the sibling's.

#[path = "common/toy.rs"]
mod toy;

use std::convert::Infallible;
use std::fmt;

use arch_riscv::regs::{RA, SP, T0, ZERO};
use arch_riscv::{Riscv64, abi::ABI, emu::MACHINE as SIBLING, reloc};
use codegen::arch::facts::Facts;
use codegen::arch::harden::Harden;
use codegen::arch::machine::Machine;
use codegen::arch::patch::{Branch, Patch, Relocation, SiteForm};
use codegen::ask::option::Choices;
use codegen::ask::spec::{Direct, Kind, Spec};
use codegen::backend::Backend;
use codegen::effect::effects::{CfiEntry, Effects};
use codegen::listing::Lowering;
use codegen::listing::code::{CodeBuf, Ref};
use codegen::listing::isa::{Architecture, Instruction, Labels, Lower};
use codegen::listing::names::Names;
use codegen::mutate::Mutable;
use codegen::profile::Convention;
use codegen::profile::target::{Layouts, Own, Target};
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use codegen::words::step::Step;
use emu_tests::{Clause, Filter, Foreign, Report, Suite, Verdict};
use profiles::Source;
use toy::Op;

struct Toy;
static TOY: Toy = Toy;

static FACTS: Facts = Facts { name: "toy", aliases: &[], options: &[], assembler: "toy-as", ..arch_riscv::FACTS };
static MACHINE: Machine = SIBLING;

#[derive(Clone, Copy, Debug)]
struct Insn(Op);

impl From<Op> for Insn {
    fn from(op: Op) -> Insn {
        Insn(op)
    }
}

impl Architecture for Toy {
    const FACTS: &'static Facts = &FACTS;
    const MACHINE: &'static Machine = &MACHINE;

    fn target(convention: &'static Convention, choices: Choices) -> Result<Target> {
        let layouts = Layouts::direct(|live, _| toy::frame(live, &ABI));
        let own = Own {
            e_flags: 0,
            harden: Harden::NONE,
            direct_test: Reg(0),
            stack_align: 16,
            resume: 8,
            pad: 0,
            lead: (&[], &[]),
            layouts,
            places: None,
        };
        Ok(Target::plain(convention, choices, own))
    }

    fn cfi_entry(_kind: Kind) -> CfiEntry {
        CfiEntry { column: T0.0.into(), cfa_offset: 0, moved: &[], undefined: false, signal: true }
    }
}

impl Lower for Toy {
    type Insn = Insn;

    fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
        toy::lower(step, cx, T0, RA)
    }
}

/// RISC-V unprivileged manual, "RV32/64G Instruction Set Listings": I-type and S-type.
fn i_type(opcode: u32, funct: u32, rd: Reg, rs: Reg, imm: i32) -> u32 {
    (imm as u32) << 20 | u32::from(rs.0) << 15 | funct << 12 | u32::from(rd.0) << 7 | opcode
}

fn s_type(opcode: u32, funct: u32, base: Reg, src: Reg, imm: i32) -> u32 {
    let imm = imm as u32;
    (imm >> 5) << 25 | u32::from(src.0) << 20 | u32::from(base.0) << 15 | funct << 12 | (imm & 31) << 7 | opcode
}

impl Instruction for Insn {
    fn encode(self, _target: &Target, out: &mut CodeBuf) -> Result<()> {
        let word = match self.0 {
            Op::AddSp(by) => i_type(0x13, 0, SP, SP, by),
            Op::Store(reg, at) => s_type(0x23, 3, SP, reg, at.value),
            Op::Load(reg, at) => i_type(0x03, 3, reg, SP, at.value),
            // AUIPC ra, and then JALR ra.
            Op::Call(_) => 0x17 | u32::from(RA.0) << 7,
            Op::Jump(reg) => i_type(0x67, 0, ZERO, reg, 0),
        };
        out.bytes.extend_from_slice(&word.to_le_bytes());
        if let Op::Call(sym) = self.0 {
            out.bytes.extend_from_slice(&i_type(0x67, 0, RA, RA, 0).to_le_bytes());
            out.fixup(8, reloc::CALL_PLT, Ref::Symbol(sym), 0);
        }
        Ok(())
    }

    fn text(self, names: &Names, out: &mut dyn fmt::Write) -> fmt::Result {
        self.0.text(&ABI, names, out)
    }

    fn effects(self) -> Effects {
        let executed = if let Op::Call(_) = self.0 { 2 } else { 1 };
        Effects { executed, ..self.0.effects() }
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

    fn relocate(&self, rel: &Relocation, field: &mut [u8]) -> Result<()> {
        Riscv64.relocate(rel, field)
    }

    fn refers_to_high(&self, r_type: u32) -> bool {
        Riscv64.refers_to_high(r_type)
    }

    fn is_padding(&self, r_type: u32) -> bool {
        Riscv64.is_padding(r_type)
    }

    fn site_ip(&self, entry: u64, word: &dyn Fn(u64) -> Option<u32>) -> u64 {
        Riscv64.site_ip(entry, word)
    }

    fn site_forms(&self) -> &'static [SiteForm] {
        Riscv64.site_forms()
    }

    fn branch(&self, how: Branch, at: u64, target: u64) -> Result<Vec<u8>> {
        Riscv64.branch(how, at, target)
    }
}

/// A profile for it alone.
const PROFILE: &str = r#"
name = "toy-2"
about = "A second toy's tracer"
exit-handler = "on_exit"

[callback]
symbol = "on_entry"
arguments = ["ip"]
prototype = "on_entry(ip)"

[trampoline.stub-direct]
symbol = "toy_nothing"

[arch.toy.site]
arrives = "Reached from a patched function entry."
pc = "t0"
parent-ip = "ra"
ip-offset = 8
scratch = ["t0", "t1", "t2", "t3", "t4", "t5", "t6"]
lost = ["t0", "t1"]
reach = 0x80000000
between = "two instructions are written at once, with every CPU stopped"
disabled = [{ insns = ["nop", "nop"] }]
call = [{ branch = "call" }]
jump = [{ branch = "jump" }]

[arch.toy.exit]
arrives = "Reached by a return."
"#;

fn target() -> Target {
    let profile = profiles::load(Source { name: "toy.toml", text: PROFILE }, &[&FACTS]).unwrap();
    let convention = profile.convention("toy").unwrap();
    Toy.target(convention, convention.defaults()).unwrap()
}

const NAMES: [&str; 9] = ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"];

/// Direct-call trampolines for each number of arguments, and the one that does nothing.
fn specs(target: &Target) -> Vec<Spec<'static>> {
    let direct =
        |(args, name): (u8, &'static str)| Spec::direct(name, Direct { args, ..Direct::default() }, "direct_func");
    (0..).zip(NAMES).map(direct).chain(target.convention.specs()).collect()
}

fn judged(suite: Suite, filter: &Filter) -> Report {
    emu_tests::check(&[suite], filter, 1, &|_, _| {}).unwrap()
}

fn verdicts(report: &Report) -> Vec<(String, Clause, Verdict, u64)> {
    report.results.iter().map(|r| (r.trampoline.clone(), r.clause, r.verdict, r.checks)).collect()
}

#[test]
fn what_a_backend_of_its_own_generates_is_judged() {
    let target = target();
    let specs = specs(&target);
    let suite = tool::suite::suite_of_specs(&TOY, &target, &specs).unwrap();
    let objects = suite.objects.clone();
    let report = judged(suite, &Filter::default());
    let failed = report.results.iter().find(|r| r.verdict == Verdict::Fail);
    assert!(failed.is_none(), "{failed:#?}");
    // Each of them ran: registers, stack, way, calls and unwind table were looked at, and every instruction was executed.
    let reached = |name: &str, clause| {
        let row = report.results.iter().find(|r| r.trampoline == name && r.clause == clause).unwrap();
        assert!(row.verdict == Verdict::Pass && row.checks > 0, "{name}: {row:?}");
    };
    // The first has no arguments to keep.
    for name in &NAMES[1..] {
        let clauses =
            [Clause::P1, Clause::P5, Clause::P7, Clause::P8, Clause::P9, Clause::P10, Clause::P12, Clause::P17];
        clauses.into_iter().chain([Clause::Coverage]).for_each(|clause| reached(name, clause));
    }
    reached("toy_nothing", Clause::P9);

    // By the contract that is written beside the object, it is the same.
    let assembly = Toy.assemble(&specs, &target).unwrap();
    let contract = &tool::suite::contract_file(&Toy, &specs, &assembly, &target).unwrap();
    let (contract_name, profile) =
        ("toy-contract.toml", profiles::load(Source { name: "toy.toml", text: PROFILE }, &[&FACTS]).unwrap());
    let foreign = Foreign::new(contract_name, contract, objects, profile);
    let mut suites = emu_tests::foreign_suites(&foreign, &[&TOY]).unwrap();
    assert_eq!(verdicts(&judged(suites.remove(0), &Filter::default())), verdicts(&report));
}

#[test]
fn its_faults_are_noticed() {
    let target = target();
    let specs = specs(&target);
    let suite = tool::suite::suite_of_specs(&TOY, &target, &specs).unwrap();
    let which = 2;
    let mutants = Toy.mutants(&specs[which], &target).unwrap();
    assert!(mutants.len() > 10, "{mutants:?}");
    let filter = Filter { concerning: Some(NAMES[which].to_owned()), first_failure: true, ..Filter::default() };
    for mutant in mutants {
        let assembly = Toy.assemble_mutant(&specs, &target, which, &mutant).unwrap();
        let objects = vec![("mutant".to_owned(), codegen::out::obj::write(&assembly, &target).unwrap())];
        let report = judged(Suite { objects, ..suite.clone() }, &filter);
        assert!(report.results.iter().any(|r| r.verdict == Verdict::Fail), "{mutant} was not noticed");
    }
}
