// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the tool reads what others made.

use std::fs;
use std::path::Path;

use super::seeds::{Kind, Seeds};
use crate::damage::Rng;
use crate::failure::Failure;

/// A command and the one of its inputs that is damaged.
pub struct Surface {
    /// What `--surface` calls it.
    pub name: &'static str,
    /// What is damaged.
    kind: Kind,
    /// The command: `{}` is what is damaged, and `ARCH` the architecture of its seed.
    command: &'static str,
}

/// A row of [`SURFACES`].
const fn row(name: &'static str, kind: Kind, command: &'static str) -> Surface {
    Surface { name, kind, command }
}

/// In engines that are processes of their own: asked for by name alone, as they are not everywhere.
pub const ENFORCED: &[Surface] = &[
    row("enforced", Kind::Object, "check --object {} --contract ARCH.toml --function args2 --enforce"),
    row(
        "enforced-raw",
        Kind::Dump,
        "check --raw {} --base 0xa000000 --entry 0xa000000 --arch ARCH --contract ARCH.toml --function args2 --enforce",
    ),
];

/// All others.
pub const SURFACES: &[Surface] = &[
    row("check", Kind::Object, "check --object {} --contract ARCH.toml --function args2"),
    row("contract", Kind::Contract, "check --object ARCH.o --contract {} --function args2"),
    row(
        "raw",
        Kind::Dump,
        "check --raw {} --base 0xa000000 --entry 0xa000000 --arch ARCH --contract ARCH.toml --function args2",
    ),
    row("expect", Kind::Expected, "check ftrace_stub --arch ARCH --function args2 --expect {}"),
    row("diff", Kind::Object, "diff {} ARCH.o"),
    row("observe", Kind::Object, "contract observe {}"),
    row("init", Kind::Object, "contract init --object {} --symbol t"),
    row("review", Kind::Object, "review ARCH.o {} --contract ARCH.toml"),
    row("mutate", Kind::Object, "mutate --object {} --contract ARCH.toml --sample 1"),
    row("cost", Kind::Object, "cost --object {} --contract ARCH.toml"),
    row("link", Kind::Fixture, "link {} -o image"),
    row("sites", Kind::Fixture, "sites {}"),
    row("marks", Kind::Archive, "check --marks {}"),
    row("audit", Kind::Object, "audit {} --all --runs 4"),
    row("archive", Kind::Archive, "audit {} --all --runs 4"),
    row("compressed", Kind::Compressed, "sites {}"),
    row("functions", Kind::Fixture, "trace list --any {}"),
    row("probe", Kind::Plain, "probe --object {} --events ARCH.events --call args2(1,2)"),
    row("events", Kind::Events, "probe --object ARCH-plain.o --events {} --call args2(1,2)"),
    row("report", Kind::Report, "report write {} --format sarif"),
    row("page", Kind::Report, "report html {} -o page.html"),
    row("reports", Kind::Report, "diff {} ARCH.json"),
    row("baseline", Kind::Accepted, "diff ARCH.o ARCH-ip.o --baseline {}"),
    row("profile", Kind::Profile, "gen ftrace_caller --arch ARCH --profile {} --emit asm,obj,contract -o out"),
    row("config", Kind::Config, "gen ftrace_caller --config {} --asm-offsets {} --emit obj -o out"),
    row("words", Kind::Words, "gen {} --emit asm,obj,contract -o out"),
    row("template", Kind::Template, "gen {} --emit template -o out"),
    row("replay", Kind::Recording, "trace replay {}"),
    row("graph", Kind::Recording, "trace graph {}"),
    row("export", Kind::Recording, "trace export --format perfetto {} -o exported"),
];

impl Surface {
    /// The words of a command, with a damaged input in `dir`.
    pub fn words(&self, seeds: &Seeds, rng: &mut Rng, dir: &Path) -> Result<Vec<String>, Failure> {
        let (arch, bytes) = seeds.damaged(self.kind, rng);
        if self.kind.is_words() {
            let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
            let given = text.split_whitespace().map(str::to_owned);
            let (before, after) = self.command.split_once(" {} ").unwrap_or_default();
            let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
            return Ok(words(before).into_iter().chain(given).chain(words(after)).collect());
        }
        let name = format!("damaged{}", self.kind.ending());
        let path = dir.join(&name);
        fs::write(&path, bytes).map_err(|e| Failure::at(&path, e, "make room"))?;
        Ok(self.command.split(' ').map(|word| word.replace("{}", &name).replace("ARCH", &arch)).collect())
    }
}
