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
fn direct_specs(target: &Target) -> Vec<(String, Direct)> {
    let most = target.facts.abi.args.len() as u8;
    let all = (0..=most).flat_map(|args| [Direct { args, ip: false }, Direct { args, ip: true }]);
    all.filter(|&d| target.frame(Kind::Direct(d)).is_ok())
        .map(|d| (format!("direct_{}{}", d.args, if d.ip { "_ip" } else { "" }), d))
        .collect()
}

/// Generate everything for `target` and describe it for [`emu_tests::check`].
///
/// # Errors
/// What generation refuses.
pub fn suite(backend: &'static dyn Backend, target: &Target) -> Result<Suite> {
    let direct = direct_specs(target);
    let named = NAMED.iter().map(|&kind| Spec::named(kind));
    let specs: Vec<Spec> = named.chain(direct.iter().map(|(name, d)| Spec::direct(name, *d, CALLEE))).collect();
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
    let options = target.facts.options;
    let set = options.iter().enumerate().map(|(i, o)| format!(" --set {}={}", o.name, o.values[target.choices.get(i)]));
    Ok(Suite {
        backend,
        objects: vec![("trampolines".to_owned(), object)],
        contracts,
        deviations: Vec::new(),
        slots,
        stubs: false,
        options: target.choices.describe(options),
        replay: format!("tramptool check TRAMPOLINE --arch {}{}", target.facts.name, set.collect::<String>()),
        op_offsets: (target.number("FTRACE_OPS_FUNC") as u64, target.number("FTRACE_OPS_DIRECT_CALL") as u64),
        notes,
    })
}
