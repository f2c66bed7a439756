//! Generated trampolines, put before the judge: the object, the contracts, and what a report needs to be read.

use std::collections::BTreeMap;

use codegen::contract::Contract;
use codegen::error::Result;
use codegen::isa::Backend;
use codegen::plan::Inner;
use codegen::spec::{Direct, Kind, NAMED, Spec};
use codegen::target::Target;
use codegen::{obj, text::LineKind};
use emu_tests::{BY_THE_BACKEND, Deviation, Suite};

/// The function that the direct-call trampolines of a suite call.
const CALLEE: &str = "direct_func";

/// Every trampoline of `target`: the named ones, and a direct-call trampoline for each number of arguments, with and
/// without ip.
pub fn trampolines(target: &Target) -> Vec<(String, Kind)> {
    let most = target.facts.abi.args.len() as u8;
    let direct = (0..=most).flat_map(|args| [Direct { args, ip: false }, Direct { args, ip: true }]);
    let direct = direct.filter(|&d| target.frame(Kind::Direct(d)).is_ok());
    let direct = direct.map(|d| (format!("direct_{}{}", d.args, if d.ip { "_ip" } else { "" }), Kind::Direct(d)));
    NAMED.iter().map(|&kind| (kind.symbol().to_owned(), kind)).chain(direct).collect()
}

/// What to generate for [`trampolines`].
pub fn specs(trampolines: &[(String, Kind)]) -> Vec<Spec<'_>> {
    trampolines.iter().map(|(name, kind)| Spec { name, kind: *kind, callee: CALLEE, export: "" }).collect()
}

/// What chooses `target`, as `name=value`: every option, and what has another number or offset than the profile.
pub fn settings(backend: &dyn Backend, target: &Target) -> Vec<String> {
    let options = target.facts.options.iter().enumerate();
    let options = options.map(|(i, o)| format!("{}={}", o.name, o.values[target.choices.get(i)]));
    let profile = backend.target(target.choices);
    let changed = target.symbols().into_iter().filter(|s| target.value(s) != profile.value(s));
    options.chain(changed.filter_map(|s| Some(format!("{s}={}", target.value(s)?)))).collect()
}

/// The command that writes the text of a trampoline of [`specs`].
pub fn command(backend: &dyn Backend, spec: &Spec, target: &Target) -> String {
    let what = match spec.kind {
        Kind::Direct(Direct { args, ip }) => {
            let ip = if ip { " --ip" } else { "" };
            format!("direct --args {args}{ip} --call {} --name {}", spec.callee, spec.name)
        }
        _ => spec.name.to_owned(),
    };
    let set: String = settings(backend, target).iter().map(|s| format!(" --set {s}")).collect();
    format!("tramptool gen {what} --arch {}{set}", target.facts.name)
}

/// Generate everything for `target` and describe it for [`emu_tests::check`].
///
/// # Errors
/// What generation refuses.
pub fn suite(backend: &'static dyn Backend, target: &Target) -> Result<Suite> {
    let trampolines = trampolines(target);
    let specs = specs(&trampolines);
    let assembly = backend.assemble(&specs, target)?;
    let object = obj::write(&assembly, target)?;
    let contracts = specs.iter().map(|s| Contract::of(s, target)).collect::<Result<Vec<_>>>()?;
    let defined = |name: &String| assembly.globals.iter().any(|s| assembly.name(s) == name);
    let slots = specs.iter().map(|s| Inner::Call.symbol(s.name, s.kind).concat()).filter(defined).collect();
    let mut notes = BTreeMap::new();
    for spec in &specs {
        for line in backend.text(spec, target)?.lines {
            if line.kind == LineKind::Insn && !line.note.is_empty() {
                notes.insert((spec.name.to_owned(), line.offset as u64), line.note.to_owned());
            }
        }
    }
    let settings = settings(backend, target);
    Ok(Suite {
        backend,
        objects: vec![("trampolines".to_owned(), object)],
        deviations: Deviation::of_sites(backend, contracts.iter()).collect(),
        contracts,
        slots,
        pointers: Vec::new(),
        stubs: false,
        alternatives: Vec::new(),
        options: settings.join(" "),
        replay: format!(
            "tramptool check TRAMPOLINE --arch {}{}",
            target.facts.name,
            settings.iter().map(|s| format!(" --set {s}")).collect::<String>()
        ),
        op_offsets: (target.number("FTRACE_OPS_FUNC") as u64, target.number("FTRACE_OPS_DIRECT_CALL") as u64),
        notes,
        poke: BY_THE_BACKEND,
    })
}
