//! What a refusal says is valid is accepted: each recommendation is followed, and the trampoline is generated.

#[path = "common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};

use codegen::ask::spec::Form;
use codegen::backend::Backend;
use codegen::profile::Convention;
use codegen::profile::target::Target;
use common::{Bench, tools_of};
use profiles::Source;
use tool::BACKENDS;
use tool::asked::{AROUND, Asked, DIRECT, PROGRAMS};
use tool::request::trampoline;

/// A function of which every form and `programs` keep everything.
const PLAIN: &str = "long f(long a)";

/// What is generated, for whom, and under which options.
#[derive(Clone)]
struct Wanted {
    what: &'static str,
    asked: Asked,
    set: Vec<(String, String)>,
}

impl Wanted {
    fn told(&self) -> String {
        let Asked { args, sig, form, handler, flags, .. } = &self.asked;
        format!("{} {args:?} {form:?} {sig:?} {handler:?} {flags:?} {:?}", self.what, self.set)
    }

    fn target(&self, backend: &dyn Backend, convention: &'static Convention) -> Target {
        let set: Vec<(&str, &str)> = self.set.iter().map(|(o, v)| (o.as_str(), v.as_str())).collect();
        tool::settings::target(backend, convention, &set).unwrap()
    }

    fn generate(&self, backend: &dyn Backend, convention: &'static Convention) -> Result<(), String> {
        let target = self.target(backend, convention);
        let request = trampoline(self.what, &self.asked, &target).map_err(|e| e.to_string())?;
        backend.assemble(&[request.spec()], &target).map(drop).map_err(|e| e.to_string())
    }

    fn set(&mut self, setting: &str) {
        let (option, value) = setting.split_once('=').unwrap();
        self.set.retain(|(o, _)| o != option);
        self.set.push((option.to_owned(), value.to_owned()));
    }

    /// What the message says would be accepted; `None` of one that says nothing of the command.
    fn follow(&self, recommended: &str, general: &Path) -> Option<Wanted> {
        let mut next = self.clone();
        let asked = &mut next.asked;
        let words: Vec<&str> = recommended.split([' ', ',']).collect();
        match words[..] {
            ["--form", form, ..] => asked.form = Some(Form::named(form).unwrap()),
            ["`programs`", ..] => next = programs(self, &[]),
            ["with", setting] | [setting] if setting.contains('=') => next.set(setting),
            ["--handler", ..] | ["a", "handler", ..] => asked.handler = Some(general.to_owned()),
            ["without", "--args"] | ["one", "of", "the", "two"] => asked.args = None,
            ["without", "--function"] => asked.function = None,
            ["--args", "0", "to", "--args", most, ..] => asked.args = Some(most.parse().unwrap()),
            ["with", "--sig"] | ["--sig", "with", "a", "prototype"] => asked.sig = Some(PLAIN.to_owned()),
            ["with", "--flags", flag] | ["the", "flag", flag, ..] => asked.flags.push(flag.to_owned()),
            ["both", "", "with", "--function"] => {
                asked.flags.push("CALL_ORIG".to_owned());
                asked.function = Some("f".to_owned());
            }
            ["arguments", "and", "a", "result", ..] | ["up", "to", "16", "bytes"] | ["an", "integer", ..] => {
                asked.sig = Some(PLAIN.to_owned());
            }
            ["a", "profile", ..] | ["--profile", ..] | ["an", "object", "for", "these", "options"] => return None,
            _ => panic!("{}: how is '{recommended}' followed?", self.told()),
        }
        Some(next)
    }
}

/// Who follows what refusals say soon has a trampoline, and is never sent back. Two mistakes may take two steps.
impl Wanted {
    fn ends(
        &self,
        backend: &dyn Backend,
        convention: &'static Convention,
        general: &Path,
        refused: &mut Vec<String>,
        followed: &mut usize,
    ) {
        let Err(why) = self.generate(backend, convention) else { return };
        let told = self.told();
        assert!(!refused.iter().any(|r| r.starts_with(&told)), "back again:\n{}\n{told}\n{why}", refused.join("\n"));
        refused.push(format!("{told}\n    {why}"));
        assert!(refused.len() < 4, "no end:\n{}", refused.join("\n"));
        let (_, valid) = why.rsplit_once("; valid: ").unwrap_or_else(|| panic!("{told}: {why}"));
        for profile in valid.split(", ").filter_map(|recommended| recommended.strip_prefix("--profile ")) {
            *followed += 1;
            let other = tool::profile(profile).unwrap().convention(backend.facts().name).unwrap();
            self.ends(backend, other, general, &mut Vec::new(), followed);
        }
        for next in valid.split(", or ").filter_map(|recommended| self.follow(recommended, general)) {
            *followed += 1;
            next.ends(backend, convention, general, refused, followed);
        }
        refused.pop();
    }
}

/// The same for programs.
fn programs(from: &Wanted, flags: &[&str]) -> Wanted {
    let Asked { sig, handler, .. } = &from.asked;
    let asked = Asked {
        sig: sig.clone(),
        handler: handler.clone(),
        fentry: vec!["on_entry".to_owned()],
        flags: flags.iter().map(|f| (*f).to_owned()).collect(),
        // The object has no functions around them.
        own_form: true,
        name: Some("tramp".to_owned()),
        ..Asked::default()
    };
    Wanted { what: PROGRAMS, asked, set: from.set.clone() }
}

/// `direct`, `around` in each form and `programs` for this prototype, without and with an object of the handlers.
fn all(sig: &str, set: &[(String, String)], objects: &[PathBuf]) -> Vec<Wanted> {
    let mut all = Vec::new();
    for handler in objects.iter().cloned().map(Some).chain([None]) {
        let asked = Asked {
            sig: Some(sig.to_owned()),
            call: Some("on_entry".to_owned()),
            name: Some("tramp".to_owned()),
            handler,
            ..Asked::default()
        };
        let of = |what, asked| Wanted { what, asked, set: set.to_vec() };
        let direct = of(DIRECT, asked.clone());
        for form in Form::ALL {
            let (exit, function) = (Some("on_exit".to_owned()), Some("f".to_owned()));
            all.push(of(AROUND, Asked { form: Some(form), exit, function, ..asked.clone() }));
        }
        all.extend([&[][..], &["CALL_ORIG"]].map(|flags| programs(&direct, flags)));
        all.push(programs(&direct, &["SKIP_FRAME"]));
        all.push(of(DIRECT, Asked { sig: None, ..asked.clone() }));
        for programs in &mut all {
            let calls = programs.asked.flags.iter().any(|flag| flag == "CALL_ORIG");
            programs.asked.function = programs.asked.function.take().or(calls.then(|| "f".to_owned()));
        }
        all.extend([
            of(DIRECT, Asked { sig: None, handler: None, live: vec!["static-chain".to_owned()], ..asked.clone() }),
            direct,
        ]);
    }
    all
}

/// An object whose handlers touch no vector register, and one whose do.
fn handlers(bench: &Bench, arch: &str, abi: Option<&str>) -> [PathBuf; 2] {
    let gcc = format!("{}gcc", tools_of(arch));
    [("general", "static volatile long n; n = a;"), ("vector", "static volatile double d; d = d * 3;")].map(
        |(name, body)| {
            let of_abi = abi.unwrap_or_default();
            let (c, o) = (format!("{name}{of_abi}.c"), format!("{name}{of_abi}.o"));
            let handler = |symbol: &str| format!("long {symbol}(long a) {{ {body} return 0; }}\n");
            std::fs::write(bench.path(&c), handler("on_entry") + &handler("on_exit")).unwrap();
            let mut command = vec!["-fno-pic".to_owned(), "-c".to_owned(), c, "-o".to_owned(), o.clone()];
            command.extend(abi.map(|abi| format!("-mabi={abi}")));
            // Without registers for floating-point numbers.
            command.extend((abi == Some("lp64")).then(|| "-march=rv64imac".to_owned()));
            bench.tool(&gcc, &command.iter().map(String::as_str).collect::<Vec<_>>());
            bench.path(&o)
        },
    )
}

/// Follow what refusals of these say, on one architecture. Returns how many were followed.
fn followed(backend: &dyn Backend, convention: &'static Convention, bench: &Bench) -> usize {
    let prototypes = [
        PLAIN.to_owned(),
        "double f(double x)".to_owned(),
        "struct big { 24, 8 } f(double x)".to_owned(),
        format!("long f({})", ["long"; 9].join(", ")),
        format!("double f({})", ["long"; 9].join(", ")),
        format!("struct big {{ 24, 8 }} f({})", ["long"; 9].join(", ")),
        format!("long f(double, {})", ["long"; 9].join(", ")),
    ];
    let arch = backend.facts().name;
    let mut followed = 0;
    for setting in ["", "stack-align=8", "stack-align=16", "abi=lp64", "abi=lp64d"] {
        let known = setting.split_once('=').is_none_or(|(o, _)| convention.offered().any(|(_, known)| known.name == o));
        let set: Vec<_> = setting.split_once('=').map(|(o, v)| (o.to_owned(), v.to_owned())).into_iter().collect();
        if !known {
            continue;
        }
        let target = Wanted { what: DIRECT, asked: Asked::default(), set: set.clone() }.target(backend, convention);
        let options = target.describe();
        let abi = options.split(' ').find_map(|option| option.strip_prefix("abi="));
        let objects = handlers(bench, arch, abi);
        for wanted in prototypes.iter().flat_map(|sig| all(sig, &set, &objects)) {
            let mut refused = Vec::new();
            wanted.ends(backend, convention, &objects[0], &mut refused, &mut followed);
        }
    }
    followed
}

#[test]
fn what_a_refusal_recommends_is_accepted() {
    let facts: Vec<_> = BACKENDS.iter().map(|b| b.facts()).collect();
    let own = "name = \"own\"\nabout = \"callbacks without parent_ip\"\nextends = \"bare\"\n[callback]\n\
               arguments = [\"ip\", \"fregs\"]\nprototype = \"func(ip, regs)\"\n";
    let own = profiles::load(Source { name: "own.toml", text: own }, &facts).unwrap();
    let profiles = profiles::names().into_iter().map(|name| tool::profile(name).unwrap());
    let profiles: Vec<_> = profiles.chain([own]).collect();
    for backend in BACKENDS {
        let bench = Bench::new();
        let conventions = profiles.iter().filter_map(|profile| profile.convention(backend.facts().name).ok());
        let count: usize = conventions.map(|convention| followed(*backend, convention, &bench)).sum();
        assert!(count > 100, "{}: {count} recommendations", backend.facts().name);
    }
}
