// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's packages, through apt's own lists in a directory of the cache: nothing of the host changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::tools::{call, write};

/// Where this machine's Debian packages come from: the first of these that there is.
const SOURCES: [&str; 2] = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];

/// Where packages come from.
pub enum Archive<'a> {
    /// The archives of this machine.
    Host,
    /// One suite of Debian's own archive.
    Suite(&'a str),
}

/// apt, with lists and files of its own.
pub struct Apt {
    dir: PathBuf,
    arch: String,
    /// What Debian calls this machine's architecture.
    pub host: String,
    sources: PathBuf,
}

impl Apt {
    /// The packages of `archive` for `arch` (this machine's if there is none), with their lists read anew into `dir`.
    pub fn new(dir: &Path, archive: &Archive, arch: Option<&str>) -> Result<Apt, Failure> {
        for made in [dir.join("lists/partial"), dir.join("archives/partial")] {
            fs::create_dir_all(&made).map_err(|e| Failure::at(&made, e, "make room for the cache"))?;
        }
        let sources = match archive {
            Archive::Host => SOURCES.map(PathBuf::from).into_iter().find(|file| file.exists()).ok_or_else(|| {
                Failure::new("apt-get", "has no list of Debian's packages", "install Debian 12's apt sources")
            })?,
            Archive::Suite(suite) => {
                let file = dir.join("sources.list");
                let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
                let line = format!("deb [signed-by={keys}] http://deb.debian.org/debian {suite} main\n");
                write(&file, line.as_bytes())?;
                file
            }
        };
        write(&dir.join("status"), b"")?;
        let host = call(Command::new("dpkg").arg("--print-architecture"))?.out.trim().to_owned();
        let apt = Apt { dir: dir.to_path_buf(), arch: arch.unwrap_or(&host).to_owned(), host, sources };
        call(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let (at, sources) = (self.dir.display(), self.sources.display());
        let state = [format!("Dir::State={at}"), format!("Dir::State::status={at}/status"), format!("Dir::Cache={at}")];
        let lists = [format!("Dir::Etc::sourcelist={sources}"), "Dir::Etc::sourceparts=-".to_owned()];
        let of =
            [format!("APT::Architecture={}", self.arch), format!("APT::Architectures={},{}", self.arch, self.host)];
        let how = ["Acquire::Languages=none", "APT::Sandbox::User=root"].map(str::to_owned);
        command.args(state.into_iter().chain(lists).chain(of).chain(how).flat_map(|o| ["-o".to_owned(), o]));
        command
    }

    /// The names of all packages that begin so.
    pub fn names(&self, beginning: &str) -> Result<Vec<String>, Failure> {
        let known = call(self.command("apt-cache").args(["pkgnames", beginning]))?.out;
        Ok(known.lines().map(str::to_owned).collect())
    }

    /// Is there a package of this name for the architecture itself? A release may have it for others alone.
    pub fn has(&self, package: &str) -> bool {
        // It fails where nothing has the name, and says nothing where another architecture has it.
        let shown = call(self.command("apt-cache").args(["show", &format!("{package}:{}", self.arch)]));
        shown.is_ok_and(|shown| !shown.out.is_empty())
    }

    /// The packages that these depend on, and those that those do; of alternatives, the first. What `without` says is left out, with
    /// what it alone depends on.
    pub fn dependencies(&self, packages: &[String], without: &[String]) -> Result<Vec<String>, Failure> {
        let mut all = packages.to_vec();
        let mut asked = 0;
        while asked < all.len() {
            let told = call(self.command("apt-cache").args(["depends", "--important"]).args(&all[asked..]))?.out;
            asked = all.len();
            let mut is_alternative = false;
            for line in told.lines() {
                let Some((how, package)) = line.split_once("Depends: ") else { continue };
                let is_first = !std::mem::replace(&mut is_alternative, how.contains('|'));
                let package = package.trim().to_owned();
                // One in angle brackets is no package, but what some provide: the lines below it say which.
                if is_first && !package.starts_with('<') && !without.contains(&package) && !all.contains(&package) {
                    all.push(package);
                }
            }
        }
        Ok(all)
    }

    /// Download a package into a file.
    pub fn download(&self, package: &str, file: &Path) -> Result<(), Failure> {
        let dir = self.dir.join("packages");
        let refused = |e: std::io::Error| Failure::at(&dir, e, "make room for the cache");
        fs::create_dir_all(&dir).map_err(refused)?;
        call(self.command("apt-get").args(["-qq", "download", package]).current_dir(&dir))?;
        let found = fs::read_dir(&dir).map_err(refused)?.next().transpose().map_err(refused)?;
        let found = found.ok_or_else(|| Failure::at(&dir, "has no package", "see what apt-get says"))?;
        fs::rename(found.path(), file).map_err(refused)
    }

    /// Download these packages, and unpack them in `to`.
    pub fn unpack(&self, packages: &[String], to: &Path) -> Result<(), Failure> {
        let files = self.dir.join("packages");
        // Of a try that came to nothing.
        for old in [files.as_path(), to].into_iter().filter(|dir| dir.exists()) {
            fs::remove_dir_all(old).map_err(|e| Failure::at(old, e, "remove it"))?;
        }
        for made in [files.as_path(), to] {
            fs::create_dir_all(made).map_err(|e| Failure::at(made, e, "make room for the cache"))?;
        }
        call(self.command("apt-get").args(["-qq", "download"]).args(packages).current_dir(&files))?;
        let found = fs::read_dir(&files).map_err(|e| Failure::at(&files, e, "make room for the cache"))?;
        for file in found.filter_map(|e| Some(e.ok()?.path())) {
            call(Command::new("dpkg").arg("-x").arg(&file).arg(to))?;
        }
        fs::remove_dir_all(&files).map_err(|e| Failure::at(&files, e, "remove it"))
    }
}
