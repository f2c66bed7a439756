//! `gen`: trampolines as text, object, flat bytes and manifest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use codegen::code::{Assembly, RelocTarget};
use codegen::contract::Contract;
use codegen::cost::Cost;
use codegen::error::{Error, Result};
use codegen::isa::Backend;
use codegen::obj;
use codegen::spec::Spec;
use codegen::target::Target;
use serde::Serialize;
use tramptool::request::{DirectArgs, Request, TargetArgs, all, export, trampoline};

use super::DONE;
use super::output::{self, File};
use super::ui::Ui;

/// Arguments of `gen`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GenArgs {
    /// Trampolines by name, or `direct`, `around` or `programs`
    #[arg(value_name = "TRAMPOLINE", required_unless_present = "all")]
    trampolines: Vec<String>,
    /// All trampolines that have a name
    #[arg(long, conflicts_with = "trampolines")]
    all: bool,
    #[command(flatten)]
    target: TargetArgs,
    /// What to write, one file each [default: asm]
    #[arg(long, value_name = "KIND,...", value_enum, value_delimiter = ',')]
    emit: Vec<Emit>,
    /// Directory to write to, or - for stdout [default: . with --emit, - without]
    #[arg(short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Name of the files, without what follows the dot [default: the architecture's]
    #[arg(long, value_name = "NAME")]
    stem: Option<String>,
    /// Another name for a trampoline, which a kernel's modules may link to: _mcount=ftrace_stub, __fentry__=ftrace_stub
    #[arg(long, value_name = "SYMBOL=TRAMPOLINE")]
    export: Vec<String>,
    /// Put one fault of `tramptool mutate` into a trampoline, to try somebody else's judge: ftrace_caller:DROP_RESTORE(a1)
    #[arg(long, value_name = "TRAMPOLINE:MUTANT")]
    fault: Option<String>,
    #[command(flatten)]
    direct: DirectArgs,
}

const EXAMPLES: &str = "\
Files: DIR/<arch>.S, .o, .bin, .json with arch x86_64, arm64 or riscv64.

With --kernel-build or --config, stderr says which option comes from where; what a kernel has that is not supported is
refused by name.

Examples:
  tramptool gen ftrace_caller --arch x86_64
  tramptool gen ftrace_caller ftrace_stub_direct_tramp --kernel-build ../linux --emit obj -o out
  tramptool gen --all --arch arm64 --set call-ops=off --emit asm,obj,bin,json -o out
  tramptool gen direct --args 3 --call my_func --arch riscv64 --emit obj --stem my
  tramptool gen direct --sig 'void kfree_skb(struct sk_buff *skb)' --call my_func --arch x86_64
  tramptool gen direct --sig 'double f(double x)' --call my_func --handler my.o --arch arm64
  tramptool gen around --sig 'int f(long a)' --call on_entry --exit on_exit --function f --arch x86_64
  tramptool gen around --form fregs --call on_entry --exit on_exit --function vfs_read --arch x86_64
  tramptool gen programs --sig 'int f(long a)' --fentry before:7 --fexit after --function f --arch riscv64
  tramptool gen ftrace_caller --arch arm64 --set FTRACE_OPS_DIRECT_CALL=272";

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// A .S file for GNU as
    Asm,
    /// An ELF64 relocatable object
    Obj,
    /// The bytes of .text, relocated fields not filled in
    Bin,
    /// A manifest: symbols, relocations, frames, contracts, cost
    Json,
}

impl Emit {
    fn extension(self) -> &'static str {
        match self {
            Emit::Asm => "S",
            Emit::Obj => "o",
            Emit::Bin => "bin",
            Emit::Json => "json",
        }
    }
}

/// Generate.
///
/// # Errors
/// What was asked for does not exist or cannot be generated; a file cannot be written.
pub fn run(args: &GenArgs, ui: &Ui) -> Result<u8> {
    let (backend, target, told) = args.target.resolve()?;
    args.direct.refuse_without(&args.trampolines)?;
    let mut requests = if args.all {
        all()
    } else {
        args.trampolines.iter().map(|name| trampoline(name, &args.direct, &target)).collect::<Result<_>>()?
    };
    args.export.iter().try_for_each(|pair| export(pair, &mut requests, &target))?;
    let stem = args.stem.as_deref().unwrap_or(target.facts.name);
    if stem.is_empty() || stem == "." || stem == ".." || stem.contains(['/', '\\']) {
        return Err(Error::new(format!("--stem '{stem}' is no file name; valid: a name without /")));
    }
    let mut kinds: Vec<Emit> = Vec::new();
    for &kind in if args.emit.is_empty() { &[Emit::Asm][..] } else { &args.emit } {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let default = if args.emit.is_empty() { "-" } else { "." };
    let to = args.output.as_deref().unwrap_or(Path::new(default));
    let to_stdout = to == Path::new("-");
    if to_stdout && kinds.len() > 1 {
        return Err(Error::new(format!(
            "-o - takes one kind of file, --emit names {}; valid: -o - with one kind, or -o DIR",
            kinds.len()
        )));
    }

    let specs: Vec<Spec> = requests.iter().map(Request::spec).collect();
    // Whatever is to be written: a name that is defined twice is refused.
    let assembly = match &args.fault {
        None => backend.assemble(&specs, &target)?,
        Some(fault) if kinds.iter().all(|k| matches!(k, Emit::Obj | Emit::Bin)) => {
            faulty(fault, backend, &specs, &target)?
        }
        Some(_) => return Err(Error::new("--fault changes code, not text; valid: with --emit obj, bin or both")),
    };
    let generator = Generator { backend, target: &target, specs, assembly };
    told.iter().for_each(|line| eprintln!("tramptool: {line}"));
    if to_stdout {
        for kind in kinds {
            ui.out(generator.emit(kind, stem)?)?;
        }
        return Ok(DONE);
    }
    let file = |&kind: &Emit| {
        let path = to.join(format!("{stem}.{}", kind.extension()));
        Ok(File { path, bytes: generator.emit(kind, stem)?, executable: false })
    };
    let files = kinds.iter().map(file).collect::<Result<Vec<_>>>()?;
    output::write_into(to, &files)?;
    Ok(DONE)
}

/// The trampolines with a fault in one: `TRAMPOLINE:MUTANT`.
fn faulty(fault: &str, backend: &dyn Backend, specs: &[Spec], target: &Target) -> Result<Assembly> {
    let Some((name, pattern)) = fault.split_once(':') else {
        return Err(Error::new(format!("--fault '{fault}' is no pair; valid: --fault TRAMPOLINE:MUTANT")));
    };
    let Some((which, spec)) = specs.iter().enumerate().find(|(_, s)| s.name == name) else {
        return Err(Error::unknown("trampoline in --fault", name, specs.iter().map(|s| s.name)));
    };
    let mutants = backend.mutants(spec, target)?;
    let Some(mutant) = mutants.iter().find(|m| tramptool::mutate::named(pattern, m)) else {
        let valid: Vec<String> = mutants.iter().map(ToString::to_string).collect();
        return Err(Error::unknown(&format!("mutant of {name}"), pattern, valid.iter().map(String::as_str)));
    };
    backend.assemble_mutant(specs, target, which, mutant)
}

/// The trampolines that were asked for, assembled.
struct Generator<'r> {
    backend: &'static dyn Backend,
    target: &'r Target,
    specs: Vec<Spec<'r>>,
    assembly: Assembly,
}

impl Generator<'_> {
    fn emit(&self, kind: Emit, stem: &str) -> Result<Vec<u8>> {
        match kind {
            Emit::Asm => {
                let listings =
                    self.specs.iter().map(|s| self.backend.text(s, self.target)).collect::<Result<Vec<_>>>()?;
                templates::asm(&listings, self.target, stem).map(String::into_bytes)
            }
            Emit::Obj => obj::write(&self.assembly, self.target),
            Emit::Bin => Ok(self.assembly.text().to_vec()),
            Emit::Json => tramptool::report::json(&self.manifest()?).map(String::into_bytes),
        }
    }

    fn manifest(&self) -> Result<Manifest<'_>> {
        let (target, assembly) = (self.target, &self.assembly);
        let facts = target.facts;
        let (mut symbols, mut labels, mut undefined) = (Vec::new(), Vec::new(), Vec::new());
        for symbol in &assembly.globals {
            let name = assembly.name(symbol);
            match symbol.offset {
                Some(offset) if symbol.function => {
                    symbols.push(SymbolOut { name, offset, size: symbol.size, kind: "function" });
                }
                Some(offset) => labels.push(LabelOut { name, offset, global: true }),
                None => undefined.push(name),
            }
        }
        let locals = assembly.locals.iter();
        labels
            .extend(locals.filter_map(|s| Some(LabelOut { name: assembly.name(s), offset: s.offset?, global: false })));
        symbols.sort_by_key(|s| s.offset);
        labels.sort_by_key(|l| l.offset);
        let relocations = assembly.relocs.iter().map(|r| RelocationOut {
            offset: r.at,
            r_type: r.r_type,
            name: facts.relocation(r.r_type),
            symbol: match r.to {
                RelocTarget::Global(i) => assembly.globals.get(i as usize).map_or("", |s| assembly.name(s)),
                RelocTarget::Local(i) => assembly.locals.get(i as usize).map_or("", |s| assembly.name(s)),
                RelocTarget::Text | RelocTarget::Unwind(_) => ".text",
            },
            addend: r.addend,
        });
        let trampolines = self.specs.iter().map(|spec| {
            Ok(TrampolineOut {
                name: spec.name,
                about: spec.kind.about(),
                contract: Contract::of(spec, target)?,
                cost: self.backend.cost(spec, target)?,
            })
        });
        let value = |(i, o): (usize, &codegen::spec::OptionInfo)| {
            (o.name, o.values.get(target.choices.get(i)).copied().unwrap_or_default())
        };
        Ok(Manifest {
            version: env!("CARGO_PKG_VERSION"),
            arch: facts.name,
            machine: facts.machine,
            e_flags: target.e_flags,
            profile: target.profile,
            options: facts.options.iter().enumerate().map(value).collect(),
            numbers: target.numbers.iter().map(|n| (n.symbol, n.value)).collect(),
            text_bytes: assembly.text().len(),
            symbols,
            labels,
            undefined,
            relocations: relocations.collect(),
            trampolines: trampolines.collect::<Result<_>>()?,
        })
    }
}

#[derive(Serialize)]
struct Manifest<'a> {
    version: &'static str,
    arch: &'static str,
    machine: u16,
    e_flags: u32,
    profile: &'static str,
    options: BTreeMap<&'static str, &'static str>,
    numbers: BTreeMap<&'static str, i32>,
    text_bytes: usize,
    symbols: Vec<SymbolOut<'a>>,
    labels: Vec<LabelOut<'a>>,
    undefined: Vec<&'a str>,
    relocations: Vec<RelocationOut<'a>>,
    trampolines: Vec<TrampolineOut<'a>>,
}

#[derive(Serialize)]
struct SymbolOut<'a> {
    name: &'a str,
    offset: u32,
    size: u32,
    kind: &'static str,
}

#[derive(Serialize)]
struct LabelOut<'a> {
    name: &'a str,
    offset: u32,
    global: bool,
}

#[derive(Serialize)]
struct RelocationOut<'a> {
    offset: u32,
    #[serde(rename = "type")]
    r_type: u32,
    name: Option<String>,
    symbol: &'a str,
    addend: i64,
}

#[derive(Serialize)]
struct TrampolineOut<'a> {
    name: &'a str,
    about: &'static str,
    contract: Contract,
    cost: Cost,
}
