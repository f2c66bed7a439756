//! `gen`: trampolines as text, object, flat bytes and manifest.

mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use codegen::ask::spec::{Kind, Spec};
use codegen::backend::{Artifact, Backend};
use codegen::contract::Contract;
#[cfg(feature = "judge")]
use codegen::mutate::Mutant;
use codegen::out::assembly::Assembly;
use codegen::out::cost::Cost;
use codegen::out::obj;
use codegen::out::template::Template;
use codegen::out::text::TextListing;
use codegen::profile::lsda;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use codegen::words::input;
use codegen::words::proto::{Prototype, Type};
use codegen::words::reloc::RelocTarget;
use codegen::words::shell::shell;
use serde::Serialize;
use templates::Kmod;
use tool::kernel::Configured;
use tool::printed::printable;
use tool::request::{Request, all, export, trampoline};

use crate::cmd::shared::args::{DirectArgs, TargetArgs};
use crate::cmd::shared::exit::{DONE, note};
use crate::cmd::shared::output::{self, Contents, File};
use crate::cmd::shared::ui::Ui;

/// Arguments of `gen`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GenArgs {
    /// Trampolines by name, or `direct`, `around`, `programs`, `record` or `sled`
    #[arg(value_name = "TRAMPOLINE", required_unless_present = "all")]
    trampolines: Vec<String>,
    /// All trampolines that have a name
    #[arg(long, conflicts_with = "trampolines")]
    all: bool,
    #[command(flatten)]
    target: TargetArgs,
    /// What to write: one file for each kind, several for kmod and template [default: asm]
    #[arg(long, value_name = "KIND,...", value_enum, value_delimiter = ',')]
    emit: Vec<Emit>,
    /// A directory; or one file whose name ends in .S, .o, .bin, .h, .json or .toml; or - for stdout [default: . with --emit, -
    /// without]
    #[arg(short, value_name = "DIR|FILE")]
    output: Option<PathBuf>,
    /// The files' name without its extension [default: the architecture's name]
    #[arg(long, value_name = "NAME")]
    stem: Option<String>,
    /// Another name for a trampoline, exported to modules: _mcount=ftrace_stub, __fentry__=ftrace_stub
    #[arg(long, value_name = "SYMBOL=TRAMPOLINE")]
    export: Vec<String>,
    /// Inject one fault of `tramptool mutate`, to try another test: ftrace_caller:DROP_RESTORE(a1)
    #[arg(long, value_name = "TRAMPOLINE:MUTANT")]
    fault: Option<String>,
    #[command(flatten)]
    direct: DirectArgs,
}

const EXAMPLES: &str = "\
Files: DIR/ARCH.S, .o, .bin, .h, .json, .toml, with ARCH x86_64, arm64 or riscv64. For kmod: Kbuild, Makefile, \
NAME_main.c and NAME_tramp.S; with --kernel-build also NAME_tramp.o_shipped, which the module then links. NAME is the \
called function, or that of --stem. Build it with `make -C KERNEL M=DIR modules`. For template: ARCH.template.json and \
ARCH.template.h.

With --kernel-build or --config, stderr lists where each option comes from. If the kernel needs something that is not \
supported, an error names it.

Examples:
  tramptool gen ftrace_caller --arch x86_64
  tramptool gen ftrace_caller --arch x86_64 -o my.S
  tramptool gen ftrace_caller ftrace_stub_direct_tramp --kernel-build ../linux --emit obj -o out
  tramptool gen --all --arch arm64 --set call-ops=off --emit asm,obj,bin,json -o out
  tramptool gen direct --args 3 --call my_func --arch riscv64 --emit obj,contract --stem my
  tramptool check --object my.o --contract my.toml
  tramptool gen direct --sig 'void kfree_skb(struct sk_buff *skb)' --call my_func --arch x86_64
  tramptool gen direct --sig 'double f(double x)' --call my_func --handler my.o --arch arm64
  tramptool gen direct --sig 'int wake_up_process(struct task_struct *p)' --call my_func \\
      --kernel-build ../linux --emit kmod -o module
  tramptool gen around --sig 'int f(long a)' --call on_entry --exit on_exit --function f --arch x86_64
  tramptool gen around --form fregs --call on_entry --exit on_exit --function vfs_read --arch x86_64
  tramptool gen programs --sig 'int f(long a)' --fentry before:7 --fexit after --function f --arch riscv64
  tramptool gen record --sig 'int f(long a)' --events both --clock none --function f --profile bare --arch arm64
  tramptool gen record --sig 'int f(long a)' --events both --clock tsc --function f --profile bare --emit template -o out
  tramptool gen sled --call my_new_buffer --profile bare --arch x86_64
  tramptool gen ftrace_caller --arch arm64 --set FTRACE_OPS_DIRECT_CALL=272";

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// A .S file for GNU as
    Asm,
    /// An ELF64 relocatable object
    Obj,
    /// The bytes of .text, without relocations applied
    Bin,
    /// A manifest: symbols, relocations, frames, contracts, cost
    Json,
    /// A C header: trampolines, the functions they call, labels, frame offsets
    #[value(name = "h")]
    Header,
    /// The contract as TOML, for `tramptool check --object` of the same object
    Contract,
    /// The source of a kernel module that registers one direct-call trampoline
    Kmod,
    /// The bytes of one trampoline that records, and a table of the fields that differ from function to function, as JSON and
    /// as a C header: to make trampolines at run time
    Template,
}

/// What a function of a program needs to know where nobody has said that it is one: it takes or returns floating point.
fn less_aligned(args: &GenArgs, target: &Target) -> Result<Option<String>> {
    let Some(proto) = args.direct.sig.as_deref().map(Prototype::parse).transpose()? else { return Ok(None) };
    let floats = proto.args.iter().chain(&proto.result).flat_map(Type::members).any(|(_, m)| m.is_float());
    let (has, wants) = (target.stack_align, target.facts.abi.sp_align);
    Ok((floats && has < wants).then(|| {
        format!(
            "{} has floating point, as functions of programs have, and profile {} aligns SP to {has} bytes alone at calls, as the \
             kernel does; for a program, which wants {wants}: --profile {}",
            proto.name,
            target.convention.profile,
            profiles::USER,
        )
    }))
}

impl Emit {
    /// The kind of the file that a name ending in this has.
    fn by_extension(extension: &str) -> Option<Emit> {
        let known = [
            ("S", Emit::Asm),
            ("o", Emit::Obj),
            ("bin", Emit::Bin),
            ("h", Emit::Header),
            ("json", Emit::Json),
            ("toml", Emit::Contract),
        ];
        known.into_iter().find(|(name, _)| *name == extension).map(|(_, kind)| kind)
    }

    /// Is it made of the text of each trampoline?
    fn has_text(self) -> bool {
        matches!(self, Emit::Asm | Emit::Json | Emit::Header | Emit::Kmod)
    }
}

/// Generate.
///
/// # Errors
/// What was asked for does not exist or cannot be generated; a file cannot be written.
pub fn run(args: &GenArgs, ui: &Ui) -> Result<u8> {
    let (backend, target, kernel) = args.target.resolve()?;
    let asked = args.direct.asked();
    asked.refuse_without(&args.trampolines)?;
    let mut requests = if args.all {
        all(&target)
    } else {
        args.trampolines.iter().map(|name| trampoline(name, &asked, &target)).collect::<Result<_>>()?
    };
    args.export.iter().try_for_each(|pair| export(pair, &mut requests, &target))?;
    let Destination { kinds, to, file, stem } = Destination::of(args, target.facts.name)?;
    let stem = stem.as_str();
    let to_stdout = to == Path::new("-");

    let specs: Vec<Spec> = requests.iter().map(Request::spec).collect();
    // Whatever is to be written: a name that is defined twice is refused.
    let artifact = match &args.fault {
        None if kinds.iter().any(|kind| kind.has_text()) => backend.generate(&specs, &target)?,
        None => Artifact { assembly: backend.assemble(&specs, &target)?, listings: Vec::new() },
        Some(fault) if !kinds.iter().any(|k| k.has_text() || *k == Emit::Template) => {
            Artifact { assembly: faulty(fault, backend, &specs, &target)?, listings: Vec::new() }
        }
        Some(_) => return Err(Error::new("--fault changes code, not text; valid: with --emit obj, bin, contract")),
    };
    let generated = Generated { backend, target: &target, specs, artifact };
    let mut files = Vec::new();
    for kind in &kinds {
        let bytes = |name, bytes| (name, Contents::Bytes(bytes));
        let all = |files: Vec<(String, Vec<u8>)>| files.into_iter().map(|(name, made)| bytes(name, made)).collect();
        let made: Vec<(String, Contents)> = match kind {
            Emit::Asm => vec![bytes(format!("{stem}.S"), generated.text(&shell(&[stem]))?)],
            Emit::Obj => vec![(format!("{stem}.o"), Contents::Object(&generated.artifact.assembly, &target))],
            Emit::Bin => vec![bytes(format!("{stem}.bin"), generated.artifact.assembly.text().to_vec())],
            Emit::Json => {
                vec![bytes(format!("{stem}.json"), tool::printed::json(&generated.manifest())?.into_bytes())]
            }
            Emit::Header => {
                let sig = args.direct.sig.as_deref().map(Prototype::parse).transpose()?;
                vec![bytes(format!("{stem}.h"), generated.header(sig.as_ref(), stem)?)]
            }
            Emit::Contract => vec![bytes(format!("{stem}.toml"), generated.contract()?)],
            Emit::Template => all(template::files(&generated.template()?, &target, stem)?.into()),
            Emit::Kmod => all(generated.module(args, kernel.as_ref())?),
        };
        files.extend(made);
    }
    kernel.iter().flat_map(|k| &k.decisions).for_each(|line| note(line));
    requests.iter().filter_map(Request::unproven).for_each(|line| note(&line));
    if kernel.is_none() && !args.target.names_profile() {
        less_aligned(args, &target)?.iter().for_each(|line| note(line));
    }
    if to_stdout {
        let [(_, contents)] = <[_; 1]>::try_from(files).map_err(|files| {
            let remedy = "valid: -o - with one, or -o DIR";
            Error::new(format!("-o - takes one file, --emit makes {}; {remedy}", files.len()))
        })?;
        ui.raw(contents.bytes()?)?;
        return Ok(DONE);
    }
    let path = |name| if file { to.clone() } else { to.join(name) };
    let files: Vec<File> =
        files.into_iter().map(|(name, contents)| File { path: path(name), contents, executable: false }).collect();
    if kinds.contains(&Emit::Kmod) {
        keep_others(&files)?;
    }
    match file {
        true => output::write(&files)?,
        false => output::write_into(&to, &files)?,
    }
    Ok(DONE)
}

/// Where generated files go, and which they are.
struct Destination {
    kinds: Vec<Emit>,
    /// A directory, a file, or `-` for stdout.
    to: PathBuf,
    /// It is a file.
    file: bool,
    /// Name of the files without what follows the dot.
    stem: String,
}

impl Destination {
    fn of(args: &GenArgs, arch: &str) -> Result<Destination> {
        let given = args.output.as_deref();
        let named = given.and_then(Path::extension).and_then(|e| Emit::by_extension(&e.to_string_lossy()));
        // A directory may be called so too.
        let file =
            given.zip(named).filter(|(path, _)| !path.is_dir() && !path.as_os_str().as_encoded_bytes().ends_with(b"/"));
        let mut kinds: Vec<Emit> = Vec::new();
        let unnamed = [file.map_or(Emit::Asm, |(_, kind)| kind)];
        for &kind in if args.emit.is_empty() { &unnamed } else { &args.emit[..] } {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if let Some((path, kind)) = file {
            if kinds != [kind] {
                return Err(Error::new(format!(
                    "-o {}: --emit asks for something else than this file; valid: a file with the ending of the one kind, or \
                     a directory",
                    path.display()
                )));
            }
            if args.stem.is_some() {
                return Err(Error::new("-o is a file, and --stem is given; valid: one or the other"));
            }
        }
        let default = if args.emit.is_empty() { "-" } else { "." };
        let to = given.unwrap_or(Path::new(default)).to_owned();
        let stem = match file {
            Some((path, _)) => path.with_extension("").display().to_string(),
            None => args.stem.clone().unwrap_or_else(|| arch.to_owned()),
        };
        let separated =
            file.is_none() && (stem.is_empty() || stem == "." || stem == ".." || stem.contains(['/', '\\']));
        // It stands in a comment, of which a line break or a backslash would make something else.
        if separated || printable(&stem) != stem || stem.contains('\\') || stem.contains("*/") {
            let (option, remedy) = match file {
                Some(_) => ("-o", "a path without control characters and \\"),
                None => ("--stem", "a name without /, \\ and control characters"),
            };
            return Err(Error::new(format!("{option} '{stem}' is no name of a file; valid: {remedy}")));
        }
        Ok(Destination { kinds, to, file: file.is_some(), stem })
    }
}

/// Refuse to write a module over what somebody else wrote, or has changed since.
fn keep_others(files: &[File]) -> Result<()> {
    let made = |path: &Path| input::text(path).is_ok_and(|text| text.contains("Assembled by kbuild"));
    let assembly = files.iter().find(|f| f.path.extension().is_some_and(|e| e == "S"));
    let ours = assembly.is_some_and(|f| made(&f.path));
    for file in files {
        let follows = file.path.extension().is_some_and(|e| e == "S" || e == "o_shipped");
        let same = input::bytes(&file.path).is_ok_and(|bytes| file.contents.is(&bytes));
        if file.path.exists() && !same && !(follows && ours) {
            return Err(Error::new(format!(
                "--emit kmod: {} is there and is another; valid: a directory without it",
                file.path.display()
            )));
        }
    }
    Ok(())
}

/// Refuse `--fault`: what the names of mutants mean is the judge's.
#[cfg(not(feature = "judge"))]
fn faulty(_: &str, _: &dyn Backend, _: &[Spec], _: &Target) -> Result<Assembly> {
    Err(crate::cmd::absent::refusal("gen --fault"))
}

/// The trampolines with a fault in one: `TRAMPOLINE:MUTANT`.
#[cfg(feature = "judge")]
fn faulty(fault: &str, backend: &dyn Backend, specs: &[Spec], target: &Target) -> Result<Assembly> {
    let Some((name, pattern)) = fault.split_once(':') else {
        return Err(Error::new(format!("--fault '{fault}' is no pair; valid: --fault TRAMPOLINE:MUTANT")));
    };
    let Some((which, spec)) = specs.iter().enumerate().find(|(_, s)| s.name == name) else {
        return Err(Error::unknown("trampoline in --fault", name, specs.iter().map(|s| s.name)));
    };
    let mutants = backend.mutants(spec, target)?;
    let found: Vec<&Mutant> = mutants.iter().filter(|m| tool::mutate::bugs::named(pattern, m)).collect();
    let [mutant] = *found else {
        // Of several, an offset tells which.
        let valid = if found.is_empty() { mutants.iter().collect() } else { found };
        let valid: Vec<String> = valid.into_iter().map(ToString::to_string).collect();
        return Err(Error::unknown(&format!("mutant of {name}"), pattern, valid.iter().map(String::as_str)));
    };
    backend.assemble_mutant(specs, target, which, mutant)
}

/// The trampolines that were asked for. They have listings only if what is written needs text.
struct Generated<'r> {
    #[cfg_attr(not(feature = "judge"), allow(dead_code, reason = "contracts are the judge's"))]
    backend: &'static dyn Backend,
    target: &'r Target,
    specs: Vec<Spec<'r>>,
    artifact: Artifact,
}

impl Generated<'_> {
    fn text(&self, stem: &str) -> Result<Vec<u8>> {
        templates::asm(&self.artifact.listings, self.target, stem).map(String::into_bytes)
    }

    /// The prototype is for what is made for one function.
    fn header(&self, sig: Option<&Prototype>, stem: &str) -> Result<Vec<u8>> {
        let listings = &self.artifact.listings;
        let of = |listing: &TextListing| sig.filter(|_| listing.contract.kind.direct().is_some()).cloned();
        let prototypes: Vec<_> = listings.iter().map(of).collect();
        let stem = Path::new(stem).file_name().unwrap_or_default().to_string_lossy();
        templates::header(listings, &prototypes, self.target, &stem).map(String::into_bytes)
    }

    #[cfg(feature = "judge")]
    fn contract(&self) -> Result<Vec<u8>> {
        let contract = tool::suite::contract_file(self.backend, &self.specs, &self.artifact.assembly, self.target);
        contract.map(String::into_bytes)
    }

    /// The format is that of the judge, who reads it.
    #[cfg(not(feature = "judge"))]
    fn contract(&self) -> Result<Vec<u8>> {
        Err(crate::cmd::absent::refusal("gen --emit contract"))
    }

    fn template(&self) -> Result<Template<'_>> {
        Template::of(&self.artifact.assembly, &self.specs, self.target)
    }

    /// The files of a module: what a prototype says is needed for the C of it too.
    fn module(&self, args: &GenArgs, kernel: Option<&Configured>) -> Result<Vec<(String, Vec<u8>)>> {
        let refuse = |what: &str, valid: &str| Err(Error::new(format!("--emit kmod: {what}; valid: {valid}")));
        let (Some(sig), [spec @ Spec { kind: Kind::Direct(_), .. }]) = (&args.direct.sig, &*self.specs) else {
            let example = "gen direct --sig 'void kfree_skb(struct sk_buff *skb)' --call my_func";
            return refuse("a module is for one direct-call trampoline with a prototype", example);
        };
        if let Some(name) = kernel.and_then(|k| k.no_direct_calls) {
            return refuse(&format!("in a kernel without CONFIG_{name} nothing registers it"), "a kernel with it");
        }
        let proto = Prototype::parse(sig)?;
        if proto.args.iter().flat_map(Type::members).any(|(_, m)| m.is_float()) {
            return refuse("an argument with a floating-point number", "what the kernel's own C has");
        }
        if proto.result.as_ref().is_some_and(|t| t.size() > 16) {
            return refuse("a result in memory", "a result of up to 16 bytes");
        }
        let by_value = proto.args.iter().any(|t| matches!(t, Type::Struct(_)));
        if by_value || proto.params().contains('{') || !proto.tags("enum").is_empty() {
            return refuse(
                "a type in --sig that the module's C does not know",
                "pointers and integers; int for an enum",
            );
        }
        let name = args.stem.as_deref().unwrap_or(spec.callee);
        for (what, name) in [("--stem", name), ("--call", spec.callee), ("--name", spec.name)] {
            if !templates::is_identifier(name) {
                return refuse(
                    &format!("'{name}' is no name for a module's C"),
                    &format!("{what} NAME, as C has names"),
                );
            }
        }
        let of_module = [
            "calls".to_owned(),
            "direct".to_owned(),
            "DIRECT".to_owned(),
            format!("{name}_init"),
            format!("{name}_exit"),
        ];
        if let Some(taken) = of_module.iter().find(|n| [spec.callee, spec.name].contains(&n.as_str())) {
            return refuse(&format!("the module has something called {taken}"), "--call and --name with other names");
        }
        let tags = ["struct", "union"].iter().flat_map(|k| proto.tags(k).into_iter().map(move |t| format!("{k} {t}")));
        let tree = match args.target.tree() {
            None => "/lib/modules/$(shell uname -r)/build".to_owned(),
            Some(dir) => dir.canonicalize().unwrap_or_else(|_| dir.to_owned()).display().to_string(),
        };
        let module = Kmod {
            version: env!("CARGO_PKG_VERSION"),
            name,
            callee: spec.callee,
            tramp: spec.name,
            jumped: spec.kind.jumped_to(),
            function: &proto.name,
            params: proto.params(),
            tags: &tags.collect::<Vec<_>>(),
        };
        let text = templates::preprocessed(&self.artifact.listings, self.target)?;
        // What else an object must be like is in the configuration.
        let object = kernel.is_some();
        let files = templates::kmod(&module, object, &tree)?.into_iter().chain([(format!("{name}_tramp.S"), text)]);
        let mut files: Vec<_> = files.map(|(name, text)| (name, text.into_bytes())).collect();
        if object {
            files.push((format!("{name}_tramp.o_shipped"), obj::write(&self.artifact.assembly, self.target)?));
        }
        Ok(files)
    }

    fn manifest(&self) -> Manifest<'_> {
        let (target, assembly) = (self.target, &self.artifact.assembly);
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
                RelocTarget::Personality => lsda::POINTER,
                RelocTarget::Table(_) | RelocTarget::Tables => lsda::TABLES,
            },
            addend: r.addend,
        });
        let trampolines = self.artifact.listings.iter().map(|listing| TrampolineOut {
            name: &listing.name,
            about: target.convention.about(listing.contract.kind),
            contract: &listing.contract,
            cost: &listing.cost,
        });
        Manifest {
            version: env!("CARGO_PKG_VERSION"),
            arch: facts.name,
            machine: facts.machine,
            e_flags: target.e_flags,
            profile: target.convention.profile,
            options: target.convention.chosen(target.choices).collect(),
            numbers: target.numbers.iter().map(|n| (n.symbol, n.value)).collect(),
            text_bytes: assembly.text().len(),
            symbols,
            labels,
            undefined,
            relocations: relocations.collect(),
            trampolines: trampolines.collect(),
        }
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
    about: String,
    contract: &'a Contract,
    cost: &'a Cost,
}
