//! Generated trampolines, put before the judge: the object, the contracts, and what a report needs to be read.

use std::collections::BTreeMap;

use codegen::contract::Contract;
use codegen::error::Result;
use codegen::isa::Backend;
use codegen::plan::Inner;
use codegen::spec::{Direct, Kind, NAMED, Spec};
use codegen::target::Target;
use codegen::{obj, text::LineKind};
use emu_tests::Suite;

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
    trampolines.iter().map(|(name, kind)| Spec { name, kind: *kind, callee: CALLEE }).collect()
}

/// The options of `target` as arguments on the command line, each after a blank.
pub fn settings(target: &Target) -> String {
    let options = target.facts.options;
    let set = options.iter().enumerate().map(|(i, o)| format!(" --set {}={}", o.name, o.values[target.choices.get(i)]));
    set.collect()
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
    let contracts = specs.iter().map(|s| Contract::of(s, target)).collect::<Result<_>>()?;
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
    Ok(Suite {
        backend,
        objects: vec![("trampolines".to_owned(), object)],
        contracts,
        deviations: Vec::new(),
        slots,
        stubs: false,
        alternatives: Vec::new(),
        options: target.choices.describe(target.facts.options),
        replay: format!("tramptool check TRAMPOLINE --arch {}{}", target.facts.name, settings(target)),
        op_offsets: (target.number("FTRACE_OPS_FUNC") as u64, target.number("FTRACE_OPS_DIRECT_CALL") as u64),
        notes,
    })
}
