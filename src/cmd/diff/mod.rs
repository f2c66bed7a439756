//! `diff`: what two trampolines do differently.

#[cfg(feature = "judge")]
mod compare;
#[cfg(feature = "judge")]
pub mod comparison;
pub mod how;
#[cfg(feature = "judge")]
mod outside;
#[cfg(feature = "judge")]
mod page;
mod side;
#[cfg(feature = "judge")]
pub mod sides;

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use codegen::out::cost::Cost;
use codegen::out::diff::{Row, Side, lines, roles};
use codegen::out::text::{LineKind, TextLine};
use codegen::words::error::Result;

#[cfg(not(feature = "judge"))]
use crate::cmd::absent::compare;
use crate::cmd::shared::exit::{DIFFERS, DONE};
#[cfg(feature = "judge")]
use crate::cmd::shared::sandbox::SandboxArg;
use crate::cmd::shared::ui::{Style, Ui};
use crate::cmd::shared::values::one_of;
use how::{Form, How};
use side::{Subject, is_generated, is_profile, subject};

/// Arguments of `diff`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DiffArgs {
    /// ARCH:TRAMPOLINE[,OPTION=VALUE...], FILE[:SYMBOL], FILE@BASE:ENTRY, a directory of objects, a profile, ARCH:PROFILE,
    /// REVISION:PATH[:SYMBOL], a report of `check`, or - for stdin
    #[arg(value_name = "LEFT")]
    left: String,
    /// The same, for the other column
    #[arg(value_name = "RIGHT")]
    right: String,
    /// The architecture of files that do not say it: sources and dumps
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// The profile of sides that name none: a profile of `tramptool list`, or your own file [default: linux-7.3]
    #[arg(long, value_name = "NAME|FILE.toml")]
    profile: Option<String>,
    /// Ask for the same cost and layout too, not only the same behaviour
    #[arg(long)]
    exact: bool,
    /// One line a trampoline
    #[arg(long)]
    brief: bool,
    /// Compare only what has this id, or an id that begins with it; more than once for several
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Leave out what has this id, or an id that begins with it: cost, call1, leave.rax
    #[arg(long, value_name = "ID")]
    ignore: Vec<String>,
    /// Leave out what this file accepts; what it accepts and is gone counts as a difference
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Print the ids of each difference
    #[arg(long)]
    ids: bool,
    /// Judge both sides by a contract too: one that comes with the tool, or a file
    #[arg(long, value_name = "NAME|FILE")]
    contract: Option<String>,
    #[cfg(feature = "judge")]
    #[command(flatten)]
    sandbox: SandboxArg,
    /// How the comparison is written
    #[arg(long, value_parser = one_of(Form::ALL), default_value = "human")]
    format: Form,
}

const EXAMPLES: &str = "\
Both sides are run in the emulator, without a contract, with a value of its own in each register and each word of memory, and \
once more for each thing that may matter. What they do is compared: what they call and with what, what a handler finds and may \
change, what is kept and lost, what an unwinder finds. Each difference comes with whom it concerns, the case that shows it, \
and the instruction on each side. Two architectures are compared by role. Where both sides are generated, plans and listings \
follow.
A trampoline for one function is written ARCH:direct,args=N,call=SYMBOL[,name=SYMBOL][,ip], and so on with the other options \
of `tramptool gen`; lists are joined by +. ARCH:PROFILE[,OPTION=VALUE...] is everything of a profile on one architecture. Of two profiles, directories, kernel build trees or git revisions of such, all that \
both have is compared. With a contract, the verdicts on both sides come first.
With --ids, each difference has ids that stay the same from one build to the next: leave.rax, call1.frame+0x78. \
--only and --ignore choose by them; --format baseline writes a file that accepts all that differs, for you to give the reasons, \
and --baseline reads it.
Where an object does not show in which form its .orc_unwind is, and for the pc and parent_ip of two architectures, the profile \
says it: that of --profile, of the contract, of a build tree's version.
Exit code: 0 the same in behaviour (with --exact: the same), 1 different, or something that the contract promises or the \
baseline accepts is gone, 2 trouble, or what could not be run to an end on either side and so was not compared.

Examples:
  tramptool diff old.o:ftrace_caller new.o:ftrace_caller
  tramptool diff ftrace_64.o:ftrace_caller x86_64:ftrace_caller
  tramptool diff linux-6.12 linux-7.3 --brief
  tramptool diff x86_64:ftrace_caller x86_64:ftrace_caller,unwinder=fp
  tramptool diff riscv64:ftrace_caller arm64:ftrace_caller,call-ops=off
  tramptool diff arm64:direct,args=2,call=f arm64:direct,args=2,call=f,ip
  tramptool diff old.o:t new.o:t --ignore cost --baseline accepted.toml
  tramptool diff HEAD~1:objects objects --format markdown
  tramptool diff old.o:t new.o:t --format html > diff.html";

/// Compare.
///
/// # Errors
/// One side does not exist or cannot be generated.
pub fn run(args: &DiffArgs, ui: &Ui) -> Result<u8> {
    let texts = [args.left.as_str(), args.right.as_str()];
    let contract = args.contract.as_deref();
    let how = How {
        arch: args.arch.as_deref(),
        profile: args.profile.as_deref(),
        exact: args.exact,
        brief: args.brief,
        format: args.format,
        contract,
        only: &args.only,
        ignore: &args.ignore,
        baseline: args.baseline.as_deref(),
        ids: args.ids,
        #[cfg(feature = "judge")]
        sandbox: &args.sandbox,
    };
    // A directory or a file with such a name goes before.
    let one = |text: &str| is_generated(text) && !is_profile(text) && !std::path::Path::new(text).exists();
    let generated = texts.iter().all(|text| one(text));
    if !generated {
        return compare::run(texts, &how, ui);
    }
    let chosen = !args.only.is_empty() || !args.ignore.is_empty() || args.baseline.is_some() || args.ids;
    if args.brief || args.format != Form::Human || contract.is_some() || chosen {
        return compare::run(texts, &how, ui);
    }
    let profile = how.profile.map(tool::profile).transpose()?;
    let (left, right) = (subject(&args.left, profile)?, subject(&args.right, profile)?);
    let (l, r) = (left.side(), right.side());
    let one_arch = left.target.facts.name == right.target.facts.name;
    let mut out = format!(
        "{}\n{}\n\n",
        ui.paint(Style::Left, &format!("- {}", left.title)),
        ui.paint(Style::Right, &format!("+ {}", right.title))
    );
    let behaviour = if one_arch { compare::behaviour(texts, &how, ui, &mut out)? } else { None };
    let mut same = true;
    for role in roles(l, r, one_arch).iter().filter(|role| !role.rows.is_empty()) {
        same &= role.same();
        section(role.role.name(), &role.rows, ui, &mut out);
    }
    if one_arch {
        let object = object_rows(&left, &right);
        if !object.iter().all(|row| matches!(row, Row::Both(..))) {
            same = false;
            section("object file", &object, ui, &mut out);
        }
    }
    cost(&left.listing.cost, &right.listing.cost, ui, &mut out);
    if one_arch {
        same &= listings(l, r, ui, &mut out);
    } else {
        plans(l, r, ui, &mut out);
    }
    ui.out(out)?;
    // Who runs them knows better than who reads them.
    let same = if args.exact { same } else { behaviour.unwrap_or(same) };
    Ok(if same { DONE } else { DIFFERS })
}

/// A role's heading and what differs in it.
fn section(name: &str, rows: &[Row<String>], ui: &Ui, out: &mut String) {
    let alike = rows.iter().filter(|r| matches!(r, Row::Both(..))).count();
    let rest = match alike {
        _ if alike == rows.len() => "same".to_owned(),
        0 => "nothing alike".to_owned(),
        n => format!("{n} alike"),
    };
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(out, "{} {rest}", ui.paint(Style::Heading, &format!("{name}:")));
    for row in rows {
        let line = match row {
            Row::Both(..) => continue,
            Row::Left(text) => ui.paint(Style::Left, &format!("  - {text}")),
            Row::Right(text) => ui.paint(Style::Right, &format!("  + {text}")),
        };
        let _ = writeln!(out, "{line}");
    }
}

/// What is said of the whole object.
fn object_rows(left: &Subject, right: &Subject) -> Vec<Row<String>> {
    let mut rows = Vec::new();
    let facts = |s: &Subject| {
        let mut all = s.target.prologue.clone();
        all.push(format!("e_flags {:#x}", s.target.e_flags));
        all
    };
    let (l, r) = (facts(left), facts(right));
    for (l, r) in l.into_iter().zip(r) {
        if l == r {
            rows.push(Row::Both(l, r));
        } else {
            rows.extend([Row::Left(l), Row::Right(r)]);
        }
    }
    rows
}

fn cost(left: &Cost, right: &Cost, ui: &Ui, out: &mut String) {
    let text = |c: &Cost| {
        let paths = c.paths.iter().map(|p| format!("{} {}", p.executed, p.path));
        let paths: Vec<String> = paths.collect();
        format!("{} bytes, {} of stack, instructions executed: {}", c.bytes, c.stack, paths.join(", "))
    };
    let (l, r) = (text(left), text(right));
    let rows = if l == r { vec![Row::Both(l, r)] } else { vec![Row::Left(l), Row::Right(r)] };
    section("cost", &rows, ui, out);
}

/// The listings side by side. Returns whether they are the same to the last byte.
fn listings(left: Side, right: Side, ui: &Ui, out: &mut String) -> bool {
    let show = |line: &TextLine| match line.kind {
        LineKind::Insn => {
            let (mnemonic, operands) = line.text.split_once('\t').unwrap_or((&line.text, ""));
            format!("{:4x}  {mnemonic:<7} {operands}", line.offset).trim_end().to_owned()
        }
        _ => format!("{}:", line.text),
    };
    let rows = lines(left, right);
    let mut same = left.listing.consts == right.listing.consts;
    let mut columns = Vec::new();
    for row in &rows {
        columns.push(match row {
            Row::Both(l, r) => {
                let mark = if l.bytes == r.bytes { ' ' } else { '~' };
                same &= mark == ' ';
                (mark, show(l), show(r))
            }
            Row::Left(l) => ('<', show(l), String::new()),
            Row::Right(r) => ('>', String::new(), show(r)),
        });
        same &= matches!(row, Row::Both(..));
    }
    // The names of offsets hide different values: those are told first.
    let values = |side: Side| side.listing.consts.iter().map(|(n, v)| format!("{n} = {v}")).collect::<Vec<_>>();
    let (l, r) = (values(left), values(right));
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|v| !those.contains(v)).cloned().collect()
    };
    let rows: Vec<Row<String>> =
        only(&l, &r).into_iter().map(Row::Left).chain(only(&r, &l).into_iter().map(Row::Right)).collect();
    if !rows.is_empty() {
        section("offsets", &rows, ui, out);
    }
    let legend = "  < left only, > right only, | changed, ~ other bytes\n";
    let _ = write!(out, "\n{}{}", ui.paint(Style::Heading, "listings"), ui.paint(Style::Quiet, legend));
    side_by_side(pair_up(columns), ui, out);
    same
}

/// A run of `<` with the run of `>` that follows it becomes rows of `|`.
fn pair_up(rows: Vec<(char, String, String)>) -> Vec<(char, String, String)> {
    let mut out: Vec<(char, String, String)> = Vec::new();
    // The first row of `out` that is still without a partner.
    let mut open = 0;
    for row in rows {
        match row.0 {
            '>' if open < out.len() => {
                if let Some(partner) = out.get_mut(open) {
                    (partner.0, partner.2) = ('|', row.2);
                }
                open += 1;
            }
            '<' => {
                // A new run after a run of pairs starts here.
                if out.last().is_none_or(|last| last.0 != '<') {
                    open = out.len();
                }
                out.push(row);
            }
            _ => {
                out.push(row);
                open = out.len();
            }
        }
    }
    out
}

/// The plans side by side, role by role.
fn plans(left: Side, right: Side, ui: &Ui, out: &mut String) {
    let _ = writeln!(out, "\n{}", ui.paint(Style::Heading, "plans"));
    let mut rows = Vec::new();
    for role in roles(left, right, false).into_iter().filter(|r| !r.rows.is_empty()) {
        let title = format!("-- {}", role.role.name());
        rows.push((' ', title.clone(), title));
        let row = |row| match row {
            Row::Both(l, r) => (' ', l, r),
            Row::Left(l) => ('<', l, String::new()),
            Row::Right(r) => ('>', String::new(), r),
        };
        rows.extend(pair_up(role.rows.into_iter().map(row).collect()));
    }
    side_by_side(rows, ui, out);
}

fn side_by_side(rows: Vec<(char, String, String)>, ui: &Ui, out: &mut String) {
    let width = rows.iter().map(|r| r.1.chars().count()).max().unwrap_or(0);
    for (mark, left, right) in rows {
        let pad = " ".repeat(width - left.chars().count());
        let line = if mark == ' ' {
            format!("{left}{pad}   {right}")
        } else {
            format!("{}{pad} {mark} {}", ui.paint(Style::Left, &left), ui.paint(Style::Right, &right))
        };
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
