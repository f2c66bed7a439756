//! The image that is run: the objects that are judged, with our functions and callbacks.

use std::collections::BTreeSet;

use codegen::arch::harden::TypeWord;
use codegen::arch::patch::Write;
use codegen::contract::Contract;
use codegen::profile::lsda::{PERSONALITY, RESUME};
use codegen::words::error::Result;
use link::{Image, Input, Options, PAGE, link};
use rustc_hash::FxHashMap;

use crate::judge::cells::{Callees, callees};
use crate::judge::fixture::{
    CALLBACK, CALLEE, CLOCK, EXIT_HANDLER, Fixture, Function, NOP_OPS, NOTHING, OP, OPS, functions, is_wide,
};
use crate::judge::suite::Suite;
use crate::run::raw::address_of;
use crate::run::thread::VARIABLE;

/// Link a suite's objects with a fixture's functions and callbacks; the body of the function that paired trampolines are
/// for begins at `body`.
pub(crate) fn link_at(
    suite: &Suite,
    fixture: &Fixture,
    base: u64,
    body: u64,
    code_align: Option<u64>,
) -> Result<Image> {
    let name = |what: &str| format!("{}/{}/{what}", fixture.arch, fixture.variant);
    let judged = suite.objects.iter().map(|(name, bytes)| Input { name, bytes });
    let wide = is_wide(suite).then(|| (name("wide.o"), fixture.wide));
    let ours = [(name("functions.o"), fixture.functions)].into_iter().chain(wide);
    let ours: Vec<(String, &[u8])> = ours.chain([(name("callbacks.o"), fixture.callbacks)]).collect();
    let ours = ours.iter().map(|(name, bytes)| Input { name, bytes });
    // What others wrote comes first, and so wins where both define something. Ours comes last: the first symbols of
    // code and data must not have the same offset in their pages.
    let inputs: Vec<Input> = if suite.stubs { judged.chain(ours).collect() } else { ours.chain(judged).collect() };
    let stub = suite.stubs.then_some(suite.backend.machine().ret);
    let traced = suite.contracts.iter().filter_map(|c| c.traced.as_ref());
    let bodies = traced.map(|t| (t.function.clone(), body.wrapping_add_signed(-i64::from(t.resume))));
    let typed = suite.contracts.iter().filter(|c| c.type_before.is_some());
    let types = typed.map(|c| ([TypeWord::SYMBOL, &c.name].concat(), type_of(&c.name).into()));
    let variables = suite.contracts.iter().filter(|c| !c.tls.is_empty()).map(|c| (c.tls.clone(), VARIABLE));
    let define = bodies.chain(types).chain(variables).collect();
    let convention = suite.convention;
    // What the profile calls them; here they have the names of the fixtures.
    let mut alias = vec![(convention.callback.symbol, CALLBACK), (convention.exit_handler, EXIT_HANDLER)];
    alias.extend(Some(convention.rethook_handler).filter(|name| !name.is_empty()).map(|name| (name, EXIT_HANDLER)));
    alias.extend(convention.callback.op.map(|op| (op, OP)));
    alias.extend(convention.site.nop_op().map(|op| (op, NOP_OPS)));
    alias.extend(convention.clock.map(|clock| (clock, CLOCK)));
    alias.extend(convention.calls_through.map(|variable| (variable, CALLEE)));
    alias.extend(arguments(&suite.contracts)?);
    // What unwinders ask, and what they are handed exceptions back by: the judge stands in for both.
    alias.extend([(PERSONALITY, CALLBACK), (RESUME, NOTHING)]);
    let site = Some(&convention.site);
    let first = suite.first();
    // A trampoline that has lost its call is run too: what it should have called is there.
    let wanted =
        suite.contracts.iter().flat_map(named).filter(|callee| !callee.is_empty()).map(str::to_owned).collect();
    // Code may begin anywhere in a page.
    let (base, skip) = (base & !(PAGE - 1), base % PAGE);
    link(
        suite.backend,
        &inputs,
        &Options {
            base,
            skip,
            code_align,
            define,
            first,
            stub,
            site,
            alias: alias.into_iter().map(|(name, other)| (name.to_owned(), other)).collect(),
            wanted,
            references: convention.copies.is_some(),
            ..Options::default()
        },
    )
}

/// What functions around programs are given, if no object has it and it is no address, with a symbol of the fixtures in whose place it is:
/// that of all is another than those of programs.
fn arguments(contracts: &[Contract]) -> Result<Vec<(&str, &'static str)>> {
    let stated = || contracts.iter().map(|contract| &contract.stated);
    let each = stated().flat_map(|stated| &stated.around_programs).filter_map(|p| p.around.argument.as_deref());
    let all = stated().filter_map(|stated| stated.around_function.as_ref()?.argument.as_deref());
    let is_name = |name: &&str| address_of(name).is_none();
    let each: BTreeSet<&str> = each.filter(is_name).collect();
    let all = all.filter(is_name).map(|name| (name, NOP_OPS));
    let places = [OPS, CLOCK, OP, CALLEE].into_iter().chain(functions([])?.iter().map(|f| &*f.name));
    Ok(each.into_iter().zip(places.cycle()).chain(all).collect())
}

/// The functions that a contract names.
fn named(contract: &Contract) -> impl Iterator<Item = &str> {
    let through = contract.stated.through.iter().map(|variable| &variable.callee);
    let programs = contract.programs.iter().map(|program| &*program.symbol);
    let exit = contract.traced.iter().map(|traced| &traced.exit);
    let around = contract.stated.brackets().flatten().flat_map(|bracket| [&*bracket.enter, &*bracket.exit]);
    let ends = contract.stated.contexts.iter().filter_map(|contexts| contexts.fresh.as_ref()?.ends_in.as_ref());
    through.chain(exit).chain([&contract.callee]).chain(ends).map(String::as_str).chain(programs).chain(around)
}

/// The type of a function, where its callers look for one: what a compiler would make of the prototype. No two functions have
/// the same, and none has 0.
pub(crate) fn type_of(function: &str) -> u32 {
    // FNV-1a.
    function.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) | 1
}

/// The image as a file would say it, ready to be run: the C functions that others wrote return at once.
pub(crate) fn loadable(suite: &Suite, linked: &Image) -> Result<(Image, Callees)> {
    let mut image = Image::from_elf(&linked.to_elf()?)?;
    let first = suite.first();
    let judged = |at: u64| linked.symbols.iter().any(|s| s.address == at && s.input.is_some_and(|i| i < first));
    // The functions that are traced are ours. Those that others wrote only give their trampolines something to call.
    image.sites.retain(|site| !judged(site.start));
    let mut called = Vec::new();
    for contract in &suite.contracts {
        called.push(callees(&image, contract)?);
        for (at, _) in called.iter().flatten().filter(|(at, _)| *at != 0 && judged(*at)) {
            // Its body would want a kernel around it. What it may do, the hook on its first instruction does.
            image.write(&Write { at: *at, bytes: suite.backend.machine().ret.to_vec() })?;
        }
    }
    Ok((image, called))
}

/// Where functions begin, by name; and in their order, with those that they are redirected to.
pub(crate) type Starts = (FxHashMap<String, u64>, Vec<(u64, Option<u64>)>);

/// Those of an image.
pub(crate) fn starts(functions: &[Function], image: &Image) -> Starts {
    let start = |name: &String| image.symbol(name).map(|s| s.address);
    let entry = |f: &Function| (start(&f.name).unwrap_or(0), f.livepatch.as_ref().map(|name| start(name).unwrap_or(0)));
    let named = functions.iter().filter_map(|f| Some((f.name.clone(), start(&f.name)?)));
    (named.collect(), functions.iter().map(entry).collect())
}
