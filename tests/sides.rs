//! What can stand on a side of a comparison: what a file does not say of itself is found out or asked for, and what is no side is
//! refused.
#![cfg(feature = "judge")]

mod common;

use std::fs;
use std::path::Path;

use common::{Bench, arches, tools_of};

/// A source of `tests/observe`, if there is one for the architecture.
fn source(arch: &str, name: &str) -> Option<String> {
    let path = format!("{}/tests/observe/{arch}/{name}.s", env!("CARGO_MANIFEST_DIR"));
    Path::new(&path).is_file().then_some(path)
}

/// Assemble it with these symbols.
fn assemble(b: &Bench, arch: &str, source: &str, symbols: &[(&str, u32)], object: &str) {
    let mut args = vec![source.to_owned(), "-o".to_owned(), object.to_owned()];
    args.extend(symbols.iter().flat_map(|(name, value)| ["--defsym".to_owned(), format!("{name}={value}")]));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    b.tool(&format!("{}as", tools_of(arch)), &args);
}

/// The number of SP in each form, with the profile that names it and its place among the headers.
const FORMS: [(u32, &str, u32); 2] = [(5, "linux-6.12", 1), (3, "linux-7.3", 2)];

/// Architectures with a table of objtool's, with the source that has one.
fn with_orc() -> impl Iterator<Item = (&'static str, String)> {
    let all = tool::BACKENDS.iter().filter(|backend| !backend.machine().orc.is_empty());
    all.map(|backend| (backend.facts().name, source(backend.facts().name, "orc").unwrap()))
}

/// An object without `.orc_header` is read in the form in which its table is, whatever is on the other side.
#[test]
fn the_table_shows_its_form() {
    for (arch, source) in with_orc() {
        let b = Bench::new();
        for (sp, _, header) in FORMS {
            let of = |header| [("SP", sp), ("FIRST", 8), ("HEADER", header)];
            assemble(&b, arch, &source, &of(0), &format!("open{header}.o"));
            assemble(&b, arch, &source, &of(header), &format!("right{header}.o"));
            assemble(&b, arch, &source, &of(3 - header), &format!("wrong{header}.o"));
        }
        for (_, other, header) in FORMS {
            let [open, right, wrong] = ["open", "right", "wrong"].map(|name| format!("{name}{header}.o"));
            for left in [&open, &right] {
                let same = b.ok(&["diff", left, &open, "--exact"]);
                assert!(same.contains("\nthe same, in "), "{same}");
            }
            let differs = b.ends(1, &["diff", &open, &wrong]);
            assert!(differs.contains("\nbreaks tools\n"), "{differs}");
            // A profile that is stated does not make another table of it.
            for profile in ["linux-6.12", "linux-7.3"] {
                let same = b.ok(&["diff", &open, &right, "--exact", "--profile", profile]);
                assert!(same.contains("\nthe same, in "), "{same}");
            }
            let one = b.ok(&["contract", "observe", &open]);
            assert_eq!(one, b.ok(&["contract", "observe", &right, "--profile", other]));
            assert_ne!(one, b.ok(&["contract", "observe", &wrong]));
        }
        b.ok(&["diff", "open1.o", "open2.o", "--exact"]);
    }
}

/// Where the table leaves it open, nobody guesses: whoever knows says it, by a profile or by a contract that names one.
#[test]
fn a_table_that_leaves_it_open_is_asked_about() {
    for (arch, source) in with_orc() {
        let b = Bench::new();
        for (sp, _, header) in FORMS {
            for (name, header) in [("open", 0), ("headed", header)] {
                assemble(&b, arch, &source, &[("SP", sp), ("FIRST", 24), ("HEADER", header)], &format!("{name}{sp}.o"));
            }
        }
        for (sp, profile, _) in FORMS {
            let (open, headed) = (format!("open{sp}.o"), format!("headed{sp}.o"));
            let asked = [open.as_str(), ".orc_unwind has no .orc_header", "--profile with a profile that has orc = "];
            b.refuses(&["contract", "observe", &open], &asked);
            b.refuses(&["contract", "observe", &open, "-o", "observed.toml"], &asked);
            b.refuses(&["contract", "init", "--object", &open, "--symbol", "t"], &asked);
            b.refuses(&["diff", &open, &headed], &asked);
            b.refuses(&["diff", &headed, &open, "--format", "html"], &asked);
            b.refuses(&["diff", &open, &format!("{arch}:direct,args=1,call=handler,name=t,profile={profile}")], &asked);
            b.ok(&["diff", &open, &headed, "--exact", "--profile", profile]);
            let other = FORMS.iter().find(|(_, other, _)| *other != profile).unwrap().1;
            let differs = b.ends(1, &["diff", &headed, &open, "--profile", other]);
            assert!(differs.contains("\nbreaks tools\n"), "{differs}");
            let generate = ["gen", "direct", "--args", "1", "--call", "handler", "--name", "t", "--arch", arch];
            b.ok(&[&generate[..], &["--profile", profile, "--emit", "contract", "--stem", profile]].concat());
            let text = b.ok(&["diff", &open, &headed, "--contract", &format!("{profile}.toml")]);
            assert!(text.contains("\nthe same, in "), "{text}");
            // What comes on stdin is there for both who look at it.
            b.shell(0, &format!("cat {headed} | tramptool diff - {open} --contract {profile}.toml > text"));
        }
    }
}

/// The kernel's own objects: each shows its form, and that of no other kernel.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_kernels_tables_show_their_form() {
    let forms = tool::BACKENDS.iter().flat_map(|b| b.machine().orc);
    let forms: Vec<&codegen::arch::machine::Orc> = forms.filter(|form| form.header.is_some()).collect();
    let mut judged = 0;
    for dir in fs::read_dir(kernel_cache::directory().unwrap()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let Some(own) = forms.iter().position(|form| name.starts_with(&format!("linux-{}-", form.name))) else {
            continue;
        };
        for object in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
            let bytes = fs::read(&object).unwrap();
            let is = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
            if !is(b".orc_unwind_ip") || is(b".orc_header") {
                continue;
            }
            let b = Bench::new();
            let sides = ["open".to_owned()].into_iter().chain((0..forms.len()).map(|n| format!("as{n}")));
            for (n, side) in sides.enumerate() {
                fs::create_dir(b.path(&side)).unwrap();
                let there = b.path(&side).join("x.o").display().to_string();
                let Some(form) = n.checked_sub(1).map(|n| forms[n]) else {
                    fs::copy(&object, &there).unwrap();
                    continue;
                };
                fs::write(b.path("header"), form.header.unwrap()).unwrap();
                let add = ["--add-section", ".orc_header=header", "--set-section-flags", ".orc_header=alloc,readonly"];
                b.tool("objcopy", &[&add[..], &[&object.display().to_string(), &there]].concat());
            }
            for (n, form) in forms.iter().enumerate() {
                let text = b.run(&["diff", "open", &format!("as{n}"), "--brief"]);
                let (code, text) = (text.status.code(), String::from_utf8(text.stdout).unwrap());
                assert_eq!(code, Some(i32::from(n != own)), "{} as {}: {text}", object.display(), form.name);
            }
            judged += 1;
        }
    }
    assert!(judged > 7, "{judged}");
}

/// Sites of two architectures are those of the profile of each side.
#[test]
fn roles_are_of_the_sites_own_profile() {
    let b = Bench::new();
    let [(one, _), (two, _)] = [arches()[0], arches()[1]];
    for (arch, _) in [arches()[0], arches()[1]] {
        assemble(&b, arch, &source(arch, "first").unwrap(), &[], &format!("{arch}.o"));
    }
    let [left, right] = [one, two].map(|arch| format!("{arch}.o"));
    let told = |text: &str| text.contains("pc and parent_ip are taken to be where linux-7.3 has them");
    let text = b.ends(1, &["diff", &left, &right]);
    assert!(told(&text.replace("\n", " ")), "{text}");
    // What was assumed is in every format.
    for format in ["markdown", "json", "html"] {
        let text = b.ends(1, &["diff", &left, &right, "--format", format]);
        assert!(told(&text.replace("\n", " ")), "{text}");
    }
    // A profile whose sites have pc in the register in which the first argument is.
    let argument = |arch| {
        let abi = &tool::backend(arch).unwrap().facts().abi;
        abi.name(abi.args[0])
    };
    let site = |arch| format!("[arch.{arch}.site]\npc = \"{}\"\n", argument(arch));
    let own =
        format!("name = \"own\"\nabout = \"sites of its own\"\nextends = \"linux-7.3\"\n{}{}", site(one), site(two));
    fs::write(b.path("own.toml"), own).unwrap();
    let of = |profile: &str| {
        let text = b.ends(1, &["diff", &left, &right, "--profile", profile, "--format", "json"]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(json["pairs"][0]["assumed"].is_null(), "{text}");
        text
    };
    let (plain, own) = (of("linux-7.3"), of("own.toml"));
    // By the right profile both return to pc; by the other one, to what nobody calls so.
    let goes = |text: &str| text.contains("\"role\": \"where it goes\"");
    assert!(!goes(&plain) && goes(&own), "{plain}\n{own}");
}

/// A tail is compared with what it goes to, whether the assembler knew where that is, the linker fills it in, or a register has it.
#[test]
fn far_tails_are_compared_as_near_ones() {
    for (arch, _) in arches() {
        let source = source(arch, "tail").unwrap();
        let b = Bench::new();
        for (name, far, by) in [("near", 0, 1), ("far", 1, 1), ("wrong", 1, 2)] {
            assemble(&b, arch, &source, &[("FAR", far), ("BY", by)], &format!("{name}.o"));
        }
        for (left, right) in [("near.o", "far.o"), ("far.o", "near.o")] {
            let text = b.ok(&["diff", &format!("{left}:t"), &format!("{right}:t")]);
            assert!(text.contains("\nthe same") && !text.contains("other: "), "{text}");
        }
        let text = b.ends(1, &["diff", "near.o:t", "wrong.o:t"]);
        let source = fs::read_to_string(&source).unwrap();
        let (_, expect) = source.lines().next().unwrap().split_once("expect: ").unwrap();
        assert!(text.contains("\nbreaks traced code\n") && text.contains(&format!("  other: {expect}")), "{text}");
    }
}

/// What is no side is refused with one message, and nothing is written.
#[test]
fn what_is_no_side_is_refused() {
    let b = Bench::new();
    let arch = common::any();
    assemble(&b, arch, &source(arch, "first").unwrap(), &[], "good.o");
    let bytes = fs::read(b.path("good.o")).unwrap();
    fs::write(b.path("archive.a"), "!<arch>\nfirst.o/        0           0     0     644     0         `\n").unwrap();
    fs::write(b.path("empty.o"), "").unwrap();
    fs::create_dir(b.path("nothing")).unwrap();
    fs::write(b.path("nothing/readme"), "no object\n").unwrap();
    b.shell(0, "git init -q . && git add good.o && git -c user.name=n -c user.email=e commit -qm one");
    let mut bad = vec![
        ("archive.a", vec!["archive.a: an archive", "ar x"]),
        ("archive.a:t", vec!["archive.a: an archive"]),
        ("empty.o", vec!["empty.o: empty"]),
        ("nothing", vec!["nothing: no object with a function", "a directory of objects"]),
        ("good.o:nosuch", vec!["good.o: unknown symbol 'nosuch'; valid: t"]),
        ("nosuch.o", vec!["'nosuch.o' names no file and no architecture", "REVISION:PATH"]),
        ("norevision:good.o", vec!["'norevision:good.o'", "git has no such path"]),
        ("HEAD:nosuch.o", vec!["'HEAD:nosuch.o'", "git has no such path"]),
        ("HEAD:nosuch.o:t", vec!["'HEAD:nosuch.o:t'", "git has no such path"]),
        ("HEAD:good.o:nosuch", vec!["HEAD:good.o: unknown symbol 'nosuch'; valid: t"]),
        ("HEAD:nothing", vec!["git has no such path"]),
    ];
    // Wherever it was cut off.
    let lengths: Vec<usize> = [1, 16, 63, 64, bytes.len() / 2, bytes.len() - 1].into();
    let names: Vec<String> = lengths.iter().map(|length| format!("cut{length}.o")).collect();
    for (name, length) in names.iter().zip(&lengths) {
        fs::write(b.path(name), &bytes[..*length]).unwrap();
        bad.push((name, vec![name]));
    }
    for (side, parts) in &bad {
        for format in ["human", "markdown", "json", "html"] {
            b.refuses(&["diff", side, "good.o", "--format", format], parts);
            b.refuses(&["diff", "good.o", side, "--format", format, "--brief"], parts);
        }
        b.refuses(&["contract", "observe", side, "-o", "observed.toml"], parts);
        let promises = ["--contract", "linux-6.12-x86_64-orc", "-o", "review.txt"];
        if !side.contains("nosuch") {
            b.refuses(&[&["review", side, "good.o"], &promises[..]].concat(), parts);
        }
    }
}

/// An object, a directory, and a symbol of an object, as git has them.
#[test]
fn a_revision_is_a_side() {
    for (arch, _) in arches() {
        let b = Bench::new();
        fs::create_dir(b.path("objects")).unwrap();
        let write = |name: &str| {
            assemble(&b, arch, &source(arch, name).unwrap(), &[], "objects/t.o");
        };
        write("first");
        b.shell(0, "git init -q . && git add objects && git -c user.name=n -c user.email=e commit -qm one");
        write("lost");
        b.shell(0, "git add objects && git -c user.name=n -c user.email=e commit -qm two");
        for [left, right] in [
            ["HEAD~1:objects/t.o:t", "HEAD:objects/t.o:t"],
            ["HEAD~1:objects/t.o:t", "objects/t.o:t"],
            ["HEAD~1:objects/t.o", "HEAD:objects/t.o:t"],
        ] {
            let text = b.ends(1, &["diff", left, right]);
            assert!(text.contains("\nbreaks traced code\n"), "{text}");
            let better = b.ends(1, &["diff", right, left]);
            assert!(better.contains("\nbetter for traced code\n"), "{better}");
        }
        let text = b.ends(1, &["diff", "HEAD~1:objects", "HEAD:objects", "--brief"]);
        assert!(text.ends_with(&format!("{arch}:t  1 difference of behaviour\n")), "{text}");
        b.ok(&["diff", "HEAD:objects/t.o:t", "objects/t.o:t", "--exact"]);
    }
}

/// A library has its instructions beside those of an object, also if it has lost all names but those that it exports, and its
/// unwind table.
#[test]
fn libraries_have_what_objects_have() {
    for (arch, tools) in arches() {
        let b = Bench::new();
        b.ok(&["gen", "direct", "--args=2", "--call=my_func", "--arch", arch, "--emit=obj", "-o=.", "--stem=t"]);
        for (strip, library) in [("--no-relax", "whole.so"), ("--strip-all", "stripped.so")] {
            b.tool(&format!("{tools}ld"), &["-shared", "--no-relax", strip, "t.o", "-o", library]);
            let side = format!("{library}:my_func_tramp");
            let differs = b.ends(1, &["diff", &side, "t.o"]);
            let listed = differs.split_once("\ninstructions that differ").map(|(_, listed)| listed).unwrap();
            // What they differ in is where the call goes.
            let signs: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
            assert!(signs.contains(&"-") && signs.contains(&"+") && signs.len() <= 4, "{library}: {differs}");
            // Its unwind table says the same.
            assert!(!differs.contains("unwind") && !differs.contains("tools\n"), "{library}: {differs}");
            let same = b.ok(&["diff", &side, &side, "--exact"]);
            assert!(same.contains("\nthe same, in "), "{same}");
        }
    }
}
