//! What the fuzz targets do with their input: whatever it is, the answer is a value or an error, soon.
//!
//! `tests/robust.rs` of the root package does the same with damaged seeds, without a nightly compiler.

use std::io::{Cursor, sink};
use std::sync::OnceLock;

use clap::Parser;
use codegen::ask::spec::{Direct, Kind, Spec};
use codegen::backend::{Artifact, Backend};
use codegen::contract::Contract;
use codegen::out::{diff, obj};
use codegen::profile::target::Target;
use codegen::words::error::Result;
use codegen::words::proto::Prototype;
use emu_tests::Foreign;
use link::{Image, Input, Options};
use tool::BACKENDS;
use tool::accepted::Baseline;
use tool::kernel::{Tree, configured};
use tool::report::{Expectations, Format, Palette, Saved, Style, page, refuse_skips, render};
use tool::request::{Request, trampoline};
use trace::export;
use trace::filter::{Filter, Wanted};
use trace::recording::Recording;
use trace::tree::Tree as Calls;
use trace::view::{self, Key, Report};
use tramptool::{Clock, Events, Filling, Template};

use args::{DirectArgs, TargetArgs};

#[allow(dead_code, reason = "the commands use more of it")]
#[path = "../../src/cmd/shared/args.rs"]
mod args;
pub mod damage;
#[allow(dead_code, reason = "the commands use more of it")]
#[path = "../../src/cmd/shared/input.rs"]
mod input;

/// Where images are linked to: the default, and where not much room is left above.
const BASES: [u64; 2] = [0x40_0000, 0xffff_ffff_ffff_d000];

/// Link `bytes` as an object, for every architecture, as something to build and as something to judge; list its sites, and ask who
/// wrote it. Read them as an archive.
pub fn link(bytes: &[u8]) {
    let inputs = [Input { name: "input.o", bytes }];
    for &backend in BACKENDS {
        let _ = link::sites::sites(backend, &inputs[0]);
        let _ = link::origin::origin(backend, &inputs[0]);
        for base in BASES {
            for stub in [None, Some(backend.machine().ret)] {
                let options = Options { base, stub, ..Options::default() };
                let Ok(image) = link::link(backend, &inputs, &options) else { continue };
                let names = || image.symbols.iter().map(|s| s.name.clone());
                let patched = Options {
                    patch: image.sites.iter().map(|s| s.function.clone()).zip(names()).collect(),
                    ops: names().next(),
                    calls: names().zip(names().skip(1)).take(1).collect(),
                    ..options
                };
                let _ = link::link(backend, &inputs, &patched);
                if let Ok(file) = image.to_elf() {
                    assert!(Image::from_elf(&file).is_ok(), "an image that was written cannot be read");
                }
            }
        }
    }
    let _ = link::archive::members(&inputs[0]);
    let _ = Image::from_elf(bytes);
}

/// Read the unwind table of `bytes`, an image. Returns for how many addresses it says something.
pub fn cfi(bytes: &[u8]) -> usize {
    let Ok(image) = Image::from_elf(bytes) else { return 0 };
    // What a trampoline has at most, of the first functions.
    let starts = image.symbols.iter().filter(|s| s.size > 0).take(8).map(|s| s.address);
    let addresses = || starts.clone().flat_map(|at| (0..64).map(move |i| at.wrapping_add(4 * i)));
    BACKENDS.iter().map(|b| emu_tests::described(&image, *b, addresses())).sum()
}

/// Read `text` as a contract.
pub fn contract(text: &str) {
    let foreign = Foreign::new("contract", text, Vec::new(), tool::profile(profiles::DEFAULT).unwrap());
    let _ = emu_tests::foreign_suites(&foreign, BACKENDS);
}

/// Read `text` as a report, expectations of one and what it has differently, and write it in every form.
pub fn report(text: &str) {
    let expectations = Expectations::parse("input", text);
    let _ = Baseline::read("input", text);
    let _ = page::sheets(&[("input".to_owned(), text.to_owned())]).and_then(|sheets| page::together(&sheets));
    let Ok(Saved::Check(mut document)) = Saved::parse(text) else { return };
    refuse_skips(&mut document.report);
    if let Ok(expectations) = expectations {
        expectations.apply(&mut document.report);
    }
    for (_, _, format) in Format::ALL {
        let style = Style { palette: Palette { colour: false }, width: 80, verbose: true };
        let _ = render(&document, format, style);
    }
}

/// Read `text` as a kernel's configuration and, from a line `#define` on, as its numbers, for every profile.
pub fn config(text: &str) {
    let (config, offsets) = text.split_at(text.find("#define").unwrap_or(text.len()));
    let tree = Tree { config: (".config", config), version: None };
    let _ = tree.profile();
    for name in profiles::names() {
        let _ = configured(tool::profile(name).unwrap(), &tree, ("asm-offsets.h", offsets));
    }
}

/// Make copies of templates: `bytes` are where each lies, and what is in its fields.
pub fn template(bytes: &[u8]) {
    let mut words = bytes.chunks(8).map(|word| word.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)));
    let mut word = || words.next().unwrap_or_default();
    let address = word();
    let filling = Filling {
        id: word() as u32,
        function: word(),
        clock: word(),
        refill: word(),
        callee: word(),
        tls: word().cast_signed(),
        personality: word(),
        resume: word(),
    };
    for (target, template) in templates() {
        let mut copy = vec![0; template.bytes.len()];
        let _ = template.copy_to(target, address, &filling, &mut copy);
    }
}

/// Recorders and a sled for each architecture.
fn templates() -> &'static [(tramptool::Target, Template)] {
    static TEMPLATES: OnceLock<Vec<(tramptool::Target, Template)>> = OnceLock::new();
    let specs = || {
        [
            tramptool::Spec::record("function", Events::Entry).clock(Clock::Word).refill("refill"),
            tramptool::Spec::record("function", Events::Both)
                .clock(Clock::None)
                .sig("long function(long a)")
                .tls("words")
                .unwind(),
            tramptool::Spec::sled("f"),
        ]
    };
    TEMPLATES.get_or_init(|| {
        let each = BACKENDS.iter().flat_map(|backend| specs().map(|spec| (backend.facts().name, spec)));
        let template = |(arch, spec)| {
            let target = tramptool::Target::with_profile(arch, profiles::USER).unwrap();
            let made = tramptool::generate(&target, &[spec]).unwrap().template().unwrap();
            (target, made)
        };
        each.map(template).collect()
    })
}

/// Read `bytes` as a recording, and show what it has. Returns whether all of it can be read.
pub fn trace(bytes: &[u8]) -> bool {
    shown(bytes).is_ok()
}

fn shown(bytes: &[u8]) -> Result<()> {
    let recording = Recording::open(Cursor::new(bytes))?;
    let filter = Filter::new(&Wanted::default(), &recording)?;
    let report = Report::new(&recording, &filter, true, Key::Own)?;
    report.text(&mut sink())?;
    view::replay(&recording, &filter, &mut sink())?;
    let tree = Calls::of(&recording, &filter)?;
    view::graph(&recording, &tree, &mut sink())?;
    export::html(&recording, &tree, &report, &mut sink())?;
    export::folded(&recording, &tree, &mut sink())?;
    export::perfetto(&recording, &filter, &mut sink())
}

/// The arguments of `gen` that say what to generate.
#[derive(Parser)]
struct Arguments {
    trampolines: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    direct: DirectArgs,
}

/// Place what `text` declares.
fn prototype(text: &str) {
    let Ok(proto) = Prototype::parse(text) else { return };
    for backend in BACKENDS {
        let target = tool::default_target(*backend).unwrap();
        if let Ok(placement) = target.place(&proto) {
            let kind = Kind::Direct(placement.direct(&backend.facts().abi, target.convention.site.live, false));
            let _ = generate(&[Spec { name: "t", callee: "f", ..Spec::of("t", kind) }], *backend, &target);
        }
    }
}

/// Generate what the words of `text` ask for, in every form.
pub fn spec(text: &str) {
    prototype(text);
    let Ok(arguments) = Arguments::try_parse_from(["gen"].into_iter().chain(text.split_whitespace())) else { return };
    let Ok((backend, target, _)) = arguments.target.resolve() else { return };
    let direct = &arguments.direct.asked();
    let requests = arguments.trampolines.iter().flat_map(|name| trampoline(name, direct, &target));
    let requests: Vec<Request> = requests.collect();
    let specs: Vec<Spec> = requests.iter().map(Request::spec).collect();
    let _ = generate(&specs, backend, &target);
    // The same without what the command line refuses: the libraries stand by themselves.
    if let (Some(args), Some(callee)) = (direct.args, &direct.call) {
        let name = direct.name.as_deref().unwrap_or_default();
        let _ = generate(
            &[Spec::direct(name, Direct { args, ip: direct.ip, ..Direct::default() }, callee)],
            backend,
            &target,
        );
    }
}

fn generate(specs: &[Spec], backend: &dyn Backend, target: &Target) -> Result<()> {
    let Artifact { assembly, listings } = backend.generate(specs, target)?;
    templates::asm(&listings, target, "stem")?;
    for (spec, listing) in specs.iter().zip(&listings) {
        templates::show(listing, target)?;
        Contract::of(spec, target)?.sentences();
        let side = |listing| diff::Side { target, listing };
        let _ = (diff::roles(side(listing), side(&listings[0]), true), diff::lines(side(listing), side(&listings[0])));
    }
    let object = obj::write(&assembly, target)?;
    let options = Options { stub: Some(backend.machine().ret), ..Options::default() };
    link::link(backend, &[Input { name: "generated.o", bytes: &object }], &options)?;
    Ok(())
}
