//! The C header of generated trampolines: what they are called, what they call, where things are in their frames.

use std::collections::BTreeSet;

use askama::Template;
use codegen::ask::spec::{Form, Kind};
use codegen::contract::Contract;
use codegen::contract::stated::Bracketed;
use codegen::out::text::{LineKind, TextListing};
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use codegen::words::proto::{Prototype, Type};
use codegen::words::step::Value;

#[derive(Template)]
#[template(path = "header.h", escape = "none")]
struct Header {
    version: &'static str,
    title: String,
    profile: &'static str,
    options: String,
    guard: String,
    tags: Vec<String>,
    functions: Vec<Function>,
    handlers: Vec<Handlers>,
}

/// Functions that are called, of which the same is true.
struct Handlers {
    about: Vec<String>,
    declarations: Vec<String>,
}

struct Function {
    name: String,
    about: String,
    labels: Vec<String>,
    offsets: Vec<String>,
}

/// Render the header of these trampolines, each with the prototype of the function that it calls, if one is known. `stem`
/// is the name of the files, and becomes the include guard.
///
/// # Errors
/// The template engine's; there is no input that causes one.
pub fn header(
    listings: &[TextListing],
    prototypes: &[Option<Prototype>],
    target: &Target,
    stem: &str,
) -> Result<String> {
    let names: BTreeSet<&str> = listings.iter().map(|l| &*l.name).collect();
    let mut handlers: Vec<Handlers> = Vec::new();
    for (listing, proto) in listings.iter().zip(prototypes) {
        for (name, declaration) in called(&listing.contract, proto.as_ref(), target) {
            // A trampoline can be what is called until a tracer puts its own function there.
            if names.contains(&*name) || handlers.iter().any(|h| h.declarations.contains(&declaration)) {
                continue;
            }
            let about = listing.contract.for_handlers();
            match handlers.iter_mut().find(|h| h.about == about) {
                Some(alike) => alike.declarations.push(declaration),
                None => handlers.push(Handlers { about, declarations: vec![declaration] }),
            }
        }
    }
    let protos = || prototypes.iter().flatten();
    let tags: BTreeSet<String> = protos()
        .flat_map(|p| {
            ["struct", "union"].into_iter().flat_map(|k| p.tags(k).into_iter().map(move |t| format!("{k} {t}")))
        })
        .collect();
    let guard: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    let title = match listings {
        [one] => format!("{} {}", target.facts.name, one.name),
        _ => format!("{}, {} trampolines", target.facts.name, listings.len()),
    };
    let header = Header {
        version: env!("CARGO_PKG_VERSION"),
        title,
        profile: target.convention.profile,
        options: target.describe(),
        guard: format!("TRAMPTOOL_{guard}_H"),
        tags: tags.into_iter().collect(),
        functions: listings.iter().map(|l| function(l, target)).collect(),
        handlers,
    };
    header.render().map(|text| text + "\n").map_err(|e| Error::new(format!("header.h: {e}")))
}

fn function(listing: &TextListing, target: &Target) -> Function {
    let contract = &listing.contract;
    let frame = &contract.frame;
    let prefix: String = listing.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let prefix = prefix.to_uppercase();
    let fields = frame.fields.iter().filter(|f| !f.member.is_empty());
    let mut offsets: Vec<String> = fields.map(|f| format!("{prefix}_{} {}", f.symbol, f.offset)).collect();
    if !offsets.is_empty() {
        offsets.push(format!("{prefix}_STRUCT_SIZE {}", frame.c_size));
    }
    let globals = listing.lines.iter().filter(|l| l.kind == LineKind::Global);
    Function {
        name: listing.name.clone(),
        about: target.convention.about(contract.kind),
        labels: globals.map(|l| l.text.clone()).collect(),
        offsets,
    }
}

/// The C functions that a trampoline calls: names, and their declarations.
fn called(contract: &Contract, proto: Option<&Prototype>, target: &Target) -> Vec<(String, String)> {
    let words = |name: &str, count: usize| (0..count).map(|n| format!("unsigned long {name}{n}")).collect::<Vec<_>>();
    let void = |name: &str, args: Vec<String>| {
        let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
        (name.to_owned(), format!("void {name}({args})"))
    };
    let abi = &target.facts.abi;
    match contract.kind {
        Kind::Direct(direct) => {
            let params = proto.filter(|p| plain(p)).map(Prototype::params);
            if let Some(params) = params {
                return vec![(contract.callee.clone(), format!("void {}{params}", contract.callee))];
            }
            let ip = direct.ip.then(|| "unsigned long ip".to_owned());
            vec![void(&contract.callee, ip.into_iter().chain(words("arg", direct.args.into())).collect())]
        }
        Kind::Record(_) => Vec::new(),
        Kind::Sled => vec![void(&contract.callee, Vec::new())],
        // Nothing generates them.
        Kind::Closure | Kind::Callback | Kind::Syscall(_) | Kind::Switch | Kind::Displaced => Vec::new(),
        Kind::Entry(_) => vec![void(&contract.callee, arguments(target))],
        Kind::Return => vec![(contract.callee.clone(), format!("unsigned long {}(void *fregs)", contract.callee))],
        Kind::Rethook => vec![(contract.callee.clone(), format!("unsigned long {}(void *regs)", contract.callee))],
        Kind::Around(around) => {
            let exit = contract.traced.as_ref().map(|t| &*t.exit).unwrap_or_default();
            let entry = match around.form {
                Form::Frame => words("arg", around.args.into()),
                Form::Fregs | Form::Shadow => arguments(target),
            };
            let exit = match around.form {
                Form::Frame => void(exit, words("result", abi.exit_rets.len())),
                Form::Fregs => void(exit, vec!["void *fregs".to_owned()]),
                Form::Shadow => (exit.to_owned(), format!("unsigned long {exit}(void *fregs)")),
            };
            vec![void(&contract.callee, entry), exit]
        }
        Kind::Programs(_) => {
            let word = "unsigned long";
            let cookie = if contract.stated.around_programs.is_empty() { ", unsigned long *cookie" } else { "" };
            let program = |name: &str| (name.to_owned(), format!("{word} {name}({word} *context{cookie})"));
            let each = contract.stated.around_programs.iter().flat_map(|Bracketed { around, .. }| {
                let (enter, exit) = (&around.enter, &around.exit);
                let before = format!("{word} {enter}(void *prog, {word} *run_context)");
                let after = format!("void {exit}(void *prog, {word} start, {word} *run_context)");
                [(enter.to_string(), before), (exit.to_string(), after)]
            });
            let all = contract.stated.around_function.iter().flat_map(|around| [&around.enter, &around.exit]);
            let all = all.map(|name| void(name, vec!["void *image".to_owned()]));
            contract.programs.iter().map(|p| program(&p.symbol)).chain(each).chain(all).collect()
        }
        Kind::Stub | Kind::StubGraph | Kind::StubDirect => Vec::new(),
    }
}

/// Can its parameters stand in a declaration as they are? Structs by value can be given by size alone, which is no C.
fn plain(proto: &Prototype) -> bool {
    !proto.params().contains('{') && !proto.args.iter().any(|t| matches!(t, Type::Struct(_)))
}

/// What a callback of the profile gets.
fn arguments(target: &Target) -> Vec<String> {
    let argument = |value: &Value| match value {
        Value::Ip => "unsigned long ip",
        Value::ParentIp => "unsigned long parent_ip",
        Value::Op => "void *op",
        _ => "void *fregs",
    };
    target.convention.callback.arguments.iter().map(|v| argument(v).to_owned()).collect()
}
