//! What it takes to attach: to the functions of a program that `tramptool trace` starts, and to those of the process itself, by the
//! library for C of `tramptool-live`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::table::{Demand, Row};
use crate::took::{ROUNDS, told, took};

/// The functions of the generated program.
const FUNCTIONS: usize = 20_000;
/// How many of them are enabled at once.
const SITES: usize = 10_000;
/// The threads that call them meanwhile.
const THREADS: usize = 8;

/// The rows, from programs that are built in this directory.
pub fn run(dir: &Path, tool: &Path) -> Result<Vec<Row>, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = dir.join("table.c");
    std::fs::write(&table, generated()).map_err(|e| e.to_string())?;
    let object = compiled(&["-O1", "-fpatchable-function-entry=5", "-c"], &[table], &dir.join("table.o"))?;
    let main = |name: &str, text: &str| {
        let source = dir.join(format!("{name}.c"));
        std::fs::write(&source, text).map(|()| source).map_err(|e| e.to_string())
    };
    let nothing = main("nothing", "int main(void) { return 0; }\n")?;
    let few = compiled(&["-O1", "-fpatchable-function-entry=5"], std::slice::from_ref(&nothing), &dir.join("few"))?;
    let many = compiled(&["-O1"], &[nothing, object.clone()], &dir.join("many"))?;
    let include = format!("-I{}", here.join("../../live/include").display());
    let all = [here.join("live/attach.c"), object, library()?];
    let own = compiled(&["-O2", &include, "-pthread", "-ldl", "-lm"], &all, &dir.join("attach"))?;
    let mut rows = vec![traced(dir, tool, [&few, &many])?];
    let [attach, bytes, ..] = least(&own, FUNCTIONS, 0)?;
    let row =
        |name: String, value: f64, to: &str, most: f64| Row::new(name, value, to, most).demanded(Demand::AtLeast(1.0));
    rows.push(row(format!("live, {FUNCTIONS} functions attached, us each"), attach, "target, us", 1.0));
    rows.push(Row::new("live, memory of a function, bytes", bytes, "a KiB, bytes", 1024.0));
    for (threads, most) in [(0, 1.0), (THREADS, 50.0)] {
        let [_, _, enable, disable] = least(&own, SITES, threads)?;
        for (what, took) in [("enabled", enable), ("disabled", disable)] {
            let name = format!("live, {SITES} sites {what}, {threads} threads, ms");
            rows.push(row(name, took, "target, ms", most));
        }
    }
    Ok(rows)
}

/// A table of functions that nobody can leave out.
fn generated() -> String {
    let mut text = String::from("static volatile long word;\n");
    let function = |n: usize| format!("static __attribute__((noinline)) void f{n}(void) {{ word += {n}; }}\n");
    text.extend((0..FUNCTIONS).map(function));
    let _ = write!(text, "void (*const table[])(void) = {{");
    text.extend((0..FUNCTIONS).map(|n| format!("f{n},")));
    text + "};\n"
}

fn compiled(flags: &[&str], sources: &[PathBuf], to: &Path) -> Result<PathBuf, String> {
    // Libraries come behind whoever needs them.
    told(Command::new("gcc").arg("-w").args(sources).args(flags).arg("-o").arg(to))?;
    Ok(to.to_owned())
}

/// The library for C, with full optimisation.
fn library() -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["rustc", "--locked", "--release", "-p", "tramptool-live", "--lib", "--features", "c"]);
    cargo.args(["--crate-type", "staticlib", "--message-format", "json-render-diagnostics"]);
    let (text, _) = told(cargo.current_dir(env!("CARGO_MANIFEST_DIR")))?;
    let library = text.split('"').find(|word| word.ends_with("libtramptool_live.a"));
    Ok(library.ok_or("cargo makes no libtramptool_live.a")?.into())
}

/// CPU time of a function that `tramptool trace` attaches to: of a program that has them and does nothing, above one that has none.
fn traced(dir: &Path, tool: &Path, programs: [&Path; 2]) -> Result<Row, String> {
    let mut least = [f64::INFINITY; 2];
    for _ in 0..2 * ROUNDS {
        for (least, program) in least.iter_mut().zip(programs) {
            let args = ["trace", "-q", "-o"].map(str::to_owned).into_iter();
            let paths = [dir.join("attached"), "--".into(), program.to_owned()];
            let args: Vec<String> = args.chain(paths.map(|path| path.display().to_string())).collect();
            *least = least.min(took(tool, &args, 2)?.cpu);
        }
    }
    let [few, many] = least;
    let each = (many - few) * 1e3 / FUNCTIONS as f64;
    let name = format!("trace, {FUNCTIONS} functions attached, us each");
    Ok(Row::new(name, each, "target, us", 1.0).demanded(Demand::AtLeast(1.0)))
}

/// The least that the program tells: us and bytes of a function, ms to enable and to disable all.
fn least(program: &Path, functions: usize, threads: usize) -> Result<[f64; 4], String> {
    let mut least = [f64::INFINITY; 4];
    for _ in 0..ROUNDS {
        let (text, _) = told(Command::new(program).args([functions.to_string(), threads.to_string()]))?;
        for (least, name) in least.iter_mut().zip(["attach-us ", "bytes ", "enable-ms ", "disable-ms "]) {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok());
            *least = least.min(value.ok_or_else(|| format!("{}: no {name}", program.display()))?);
        }
    }
    Ok(least)
}
