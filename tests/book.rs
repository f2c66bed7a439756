//! README.md and the book in docs/: their commands are run, what they show of the tool is what it prints, their lines fit a
//! terminal, and nothing is left out of the book.
//!
//! `<!-- begin: COMMAND -->` stands before a block with what the command prints; `cargo xtask bless book` writes it.
//! `<!-- file: NAME -->` stands before a block that is written to a file for the commands behind it. A line of a block of
//! commands may say `# exit code N`, or why it is not run here.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::blessed;

/// Columns of a terminal.
const WIDTH: usize = 80;
/// Pages with blocks that are indented and not in a fence, and why nobody here runs them.
const INDENTED: &[(&str, &str)] =
    &[("adding-a-backend.md", "lists of files"), ("findings.md", "lines of the kernel's source")];
/// The note behind commands that this test does not run. Tests that have the kernel's objects run them.
const ELSEWHERE: [&str; 3] = ["# needs the kernel's objects", "# needs a kernel", "# needs QEMU or Bochs"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The names of the book's pages.
fn chapters() -> BTreeSet<String> {
    let files = fs::read_dir(root().join("docs")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    files.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect()
}

/// README.md and all pages.
fn pages() -> Vec<String> {
    let pages: Vec<String> = chapters().iter().map(|name| format!("docs/{name}")).collect();
    assert!(pages.len() > 10);
    [vec!["README.md".to_owned()], pages].concat()
}

/// A block that is a file of the repository too; its commands are among those of the page that are run.
#[test]
fn files_of_the_repository_are_as_pages_show_them() {
    let mut seen = 0;
    for name in pages() {
        let text = read(&name);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let run: Vec<String> = blocks.flat_map(commands).map(|line| words(&line)).collect();
        for rest in text.split("<!-- same: ").skip(1) {
            let (file, rest) = rest.split_once(" -->\n```").unwrap();
            let block = rest.split_once('\n').unwrap().1.split("```").next().unwrap();
            blessed(file, block);
            for step in block.lines().filter_map(|line| line.trim().strip_prefix("- run: tramptool ")) {
                // The page takes one architecture.
                let step = words(step);
                let all = common::arches();
                let mut any = all.iter().map(|(arch, _)| format!("tramptool {}", step.replace("$arch", arch)));
                assert!(any.any(|step| run.contains(&step)), "{name}: nobody runs: tramptool {step}");
            }
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// A directory for the commands of one page, in which its files are left.
struct Page {
    name: String,
    dir: tempfile::TempDir,
}

impl Page {
    fn shell(&self, command: &str) -> Output {
        let tool = Path::new(env!("CARGO_BIN_EXE_tramptool")).parent().unwrap();
        let path = std::env::join_paths(
            [tool.to_owned()]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect::<Vec<PathBuf>>()),
        );
        let mut sh = Command::new("sh");
        sh.args(["-c", command]).current_dir(self.dir.path()).env("PATH", path.unwrap());
        sh.output().unwrap()
    }

    /// Run a command of a block, or know who does.
    fn run(&self, line: &str) {
        let (command, note) = line.split_once(" # ").map_or((line, ""), |(c, n)| (c.trim_end(), n));
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            _ if ELSEWHERE.iter().any(|note| line.ends_with(note)) => {}
            // What compiles for minutes, boots kernels or installs: one command of a script or of cargo xtask, which CI runs.
            ["./x", verb, ..] => {
                assert!(read("x").contains(&format!("\n  {verb} ")), "{}: ./x {verb}", self.name);
            }
            ["cargo", "xtask", verb, ..] => {
                let verbs = read("lab/xtask/src/main.rs");
                assert!(verbs.contains(&format!("name: \"{verb}\"")), "{}: cargo xtask {verb}", self.name);
            }
            ["tramptool" | "grep" | "gcc" | "env", ..] => {
                let wanted = note.strip_prefix("exit code ").map_or(0, |code| code.parse().unwrap());
                let ran = self.shell(command);
                let message = String::from_utf8_lossy(&ran.stderr);
                assert_eq!(ran.status.code(), Some(wanted), "{}: {command}: {message}", self.name);
            }
            _ => panic!("{}: nobody runs: {line}", self.name),
        }
    }
}

/// The commands of a block, each in a line.
fn commands(text: &str) -> Vec<String> {
    text.replace("\\\n", " ").lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

/// The page as it should be: its commands are run in their order.
fn followed(name: &str) -> String {
    let page = Page { name: name.to_owned(), dir: tempfile::tempdir().unwrap() };
    let text = read(name);
    let (mut out, mut lines) = (String::new(), text.lines());
    let (mut begin, mut file) = (None, None);
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let marker = |kind: &str| line.strip_prefix(kind).and_then(|l| l.strip_suffix(" -->")).map(str::to_owned);
        begin = begin.or(marker("<!-- begin: "));
        file = file.or(marker("<!-- file: "));
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: String = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect();
        match (begin.take(), file.take()) {
            (Some(command), _) => {
                let ran = page.shell(&command);
                let printed = String::from_utf8(ran.stdout).unwrap();
                assert!(!printed.is_empty(), "{name}: {command}: {}", String::from_utf8_lossy(&ran.stderr));
                out.extend(printed.lines().map(|l| l.trim_end().to_owned() + "\n"));
            }
            (None, to) => {
                if let Some(to) = to {
                    fs::write(page.dir.path().join(to), &block).unwrap();
                }
                if language == "sh" {
                    commands(&block).iter().for_each(|command| page.run(command));
                }
                out.push_str(&block);
            }
        }
        out.push_str("```\n");
    }
    out
}

#[test]
fn the_pages_are_true() {
    // Each has a directory of its own, so several can be followed at once.
    let (pages, next) = (pages(), AtomicUsize::new(0));
    let follow = || {
        while let Some(name) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            blessed(name, &followed(name));
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(follow)))
    });
}

/// Who opens README.md sees what it is, for whom, how to install it, and a check that fails, without scrolling; and nothing about the
/// machines on which somebody measured.
#[test]
fn the_readme_begins_with_one_screen() {
    const SCREEN: usize = 50;
    let text = read("README.md");
    let place = |what: &str| text.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}"));
    let order = ["# tramptool", "It is for people who", "## Install", "./x install", "## Sixty seconds", "FAIL P1 of "];
    let lines = order.map(place);
    assert!(lines.is_sorted() && lines[5] + 10 < SCREEN, "{lines:?}");
    let mut parts = text.split("```").step_by(2).flat_map(|prose| prose.split_whitespace());
    let machine =
        |word: &&str| ["AMD", "EPYC", "Intel", "Xeon", "GHz", "cores", "vCPU"].iter().any(|w| word.contains(w));
    assert_eq!(parts.find(machine), None, "docs/install.md and results/speed.md say on what was measured");
}

/// Every block is one of which the other tests know what to do with it: none has commands that nobody runs, and none shows what a
/// tool prints without the tool being asked.
#[test]
fn blocks_are_run_compared_or_files() {
    let known = ["sh", "text", "toml", "rust", "rust,no_run", "c", "yaml", "cmake", "meson"];
    let mut seen = 0;
    for name in pages() {
        let (mut language, mut before) = (None, String::new());
        for (n, line) in read(&name).lines().enumerate() {
            let place = format!("{name}:{}", n + 1);
            match (line.trim_start().strip_prefix("```"), language.is_some()) {
                (Some(rest), inside) => {
                    assert!(line.starts_with("```"), "{place}: a fence that is indented is not seen");
                    language = (!inside).then(|| rest.to_owned());
                    if inside {
                        assert!(rest.is_empty(), "{place}: one block begins in another");
                        before.clear();
                        continue;
                    }
                    seen += 1;
                    assert!(known.contains(&rest), "{place}: blocks of `{rest}` are run by nobody");
                    let marked =
                        ["<!-- begin: ", "<!-- file: ", "<!-- drawing -->"].iter().any(|m| before.starts_with(m));
                    assert!(rest != "text" || marked, "{place}: nobody says where this text is from");
                    continue;
                }
                (None, true) => {
                    let typed = ["tramptool ", "$ ", "./x ", "cargo "].iter().any(|begin| line.starts_with(begin));
                    // `tramptool = "0.1"` is a dependency.
                    let typed = typed && !line.contains(" = ") && !before.starts_with("<!-- begin: ");
                    assert!(!typed || language.as_deref() == Some("sh"), "{place}: a command that nobody runs");
                    continue;
                }
                (None, false) if INDENTED.iter().any(|(page, _)| name.ends_with(page)) => {}
                (None, false) => assert!(!line.starts_with("    "), "{place}: a block without a fence is not seen"),
            }
            if !line.is_empty() {
                before = line.to_owned();
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

/// Blocks of text and of commands, in fences or indented, that somebody sees in a terminal.
#[test]
fn what_a_terminal_shows_fits_it() {
    for name in pages() {
        let mut language = None;
        for (n, line) in read(&name).lines().enumerate() {
            match (line.strip_prefix("```"), language.is_some()) {
                (Some(_), true) => language = None,
                (Some(begins), false) => language = Some(begins.to_owned()),
                (None, _) => {
                    let fenced = matches!(language.as_deref(), Some("text" | "sh" | ""));
                    let indented = language.is_none() && line.starts_with("    ") && !name.contains("adding-a-backend");
                    let width = line.chars().count();
                    assert!(!(fenced || indented) || width <= WIDTH, "{name}:{}: {width} columns", n + 1);
                }
            }
        }
    }
}

/// Commands in running text: there is such a command, and it has these options.
#[test]
fn commands_in_the_text_exist() {
    let page = Page { name: String::new(), dir: tempfile::tempdir().unwrap() };
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut seen = 0;
    for name in pages() {
        let text = read(&name);
        // Every second part is in backquotes; what is in a fence has lines of its own.
        for span in text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2)) {
            let words: Vec<&str> = span.split_whitespace().collect();
            let ["tramptool", command, rest @ ..] = words.as_slice() else { continue };
            if !command.starts_with(|c: char| c.is_ascii_lowercase()) {
                continue;
            }
            let sub = match (*command, rest.first()) {
                ("report" | "contract" | "trace", Some(sub)) if !sub.starts_with('-') => format!("{command} {sub}"),
                _ => (*command).to_owned(),
            };
            let help = helps.entry(sub.clone()).or_insert_with(|| {
                let help = page.shell(&format!("tramptool {sub} --help"));
                assert!(help.status.success(), "{name}: `{span}`");
                String::from_utf8(help.stdout).unwrap()
            });
            for option in rest.iter().filter(|w| w.starts_with("--")) {
                let option = option.split('=').next().unwrap();
                assert!(help.contains(option), "{name}: `{span}` has no {option}");
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// The book has all pages, its links lead to files, and nothing is fetched to build it.
#[test]
fn the_book_is_whole() {
    let summary = read("docs/SUMMARY.md");
    let listed: Vec<&str> = summary.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "a page is listed twice");
    assert_eq!(listed.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), chapters());
    let book: toml::Table = read("book.toml").parse().unwrap();
    assert_eq!(book["book"]["src"].as_str(), Some("docs"));
    assert!(!read("book.toml").contains("http"));
    for name in pages() {
        let folder = root().join(&name).parent().unwrap().to_owned();
        for link in read(&name).split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()) {
            let file = link.split('#').next().unwrap();
            let web = file.contains("://") || file.is_empty();
            assert!(web || folder.join(file).exists(), "{name}: {link}");
        }
    }
}
