//! The core for machines without an operating system, as objects: Rust's own library is compiled from Debian's source of it,
//! the functions under trace by gcc. Nothing is fetched, and nothing binary is in the repository.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A machine.
#[derive(Clone, Copy, Debug)]
pub struct Cross {
    /// The architecture.
    pub arch: &'static str,
    sites: &'static [Sites],
    target: &'static str,
    rust: &'static [&'static str],
    gcc: &'static str,
    flags: &'static [&'static str],
}

/// How gcc makes room for calls in functions under trace.
#[derive(Clone, Copy, Debug)]
struct Sites {
    /// The object's name.
    functions: &'static str,
    /// Before them, there is room for the address of an `ftrace_ops`.
    op: bool,
    flags: &'static [&'static str],
    /// Bytes behind a function's symbol where it goes on behind its site.
    resume: i32,
}

/// Those that there are. None of the targets has floating-point or vector registers.
pub const CROSS: [Cross; 3] = [
    Cross {
        arch: "x86_64",
        sites: &[Sites {
            functions: "functions",
            op: false,
            flags: &["-pg", "-mfentry", "-mrecord-mcount"],
            resume: 5,
        }],
        target: "x86_64-unknown-none",
        rust: &[],
        gcc: "x86_64-linux-gnu-gcc",
        flags: &["-m64", "-mcmodel=small", "-mno-red-zone", "-mgeneral-regs-only", "-fcf-protection=none"],
    },
    Cross {
        arch: "arm64",
        sites: &[Sites { functions: "functions", op: true, flags: &["-fpatchable-function-entry=4,2"], resume: 8 }],
        target: "aarch64-unknown-none-softfloat",
        // Whoever is interrupted may keep something in it: the platform register is not for code like this.
        rust: &["-Zfixed-x18"],
        gcc: "aarch64-linux-gnu-gcc",
        flags: &[
            "-march=armv8-a",
            "-mgeneral-regs-only",
            "-mno-outline-atomics",
            "-ffixed-x18",
            "-mbranch-protection=none",
            "-falign-functions=8",
        ],
    },
    Cross {
        arch: "riscv64",
        // Eight bytes in the function, which are aligned: AUIPC with JALR.
        sites: &[
            Sites { functions: "functions", op: true, flags: &["-fpatchable-function-entry=8,4"], resume: 8 },
            Sites { functions: "functions-alone", op: false, flags: &["-fpatchable-function-entry=4"], resume: 8 },
        ],
        target: "riscv64imac-unknown-none-elf",
        rust: &[],
        gcc: "riscv64-linux-gnu-gcc",
        flags: &[
            "-march=rv64imac",
            "-mabi=lp64",
            "-mno-relax",
            "-mcmodel=medany",
            "-msmall-data-limit=0",
            "-falign-functions=8",
        ],
    },
];

/// For all of gcc's objects.
const GCC: &[&str] = &[
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O2",
    "-ffreestanding",
    "-fno-pic",
    "-fno-pie",
    "-fno-common",
    "-fasynchronous-unwind-tables",
    "-fno-stack-protector",
    "-fno-tree-loop-distribute-patterns",
    "-g0",
    "-c",
];

/// Debian's compiler of Rust, with which its source of the library goes; rustup's would not do.
const RUSTC: &str = "/usr/bin/rustc";

/// Why there are no objects.
#[derive(Clone, Debug)]
pub enum Failed {
    /// A program or source is not installed.
    Missing(String),
    /// A compiler does not like what it is given, or a file cannot be written.
    Broken(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Missing(what) | Self::Broken(what) => f.write_str(what),
        }
    }
}

/// Where `cargo xtask core-objects` leaves them: `$TRAMPTOOL_CORE_OBJECTS`, or a directory in the user's cache.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/tramptool/core-objects"));
    std::env::var_os("TRAMPTOOL_CORE_OBJECTS").map(PathBuf::from).or_else(home)
}

fn broken(what: &Path, e: impl fmt::Display) -> Failed {
    Failed::Broken(format!("{}: {e}", what.display()))
}

/// Run a compiler. Its first words are the message.
fn run(command: &mut Command, package: &str) -> Result<String, Failed> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output();
    let out = out.map_err(|_| Failed::Missing(format!("{name} is not installed (apt-get install {package})")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match out.status.success() {
        true => Ok(text(&out.stdout)),
        false => Err(Failed::Broken(format!("{name}: {}", text(&out.stderr)))),
    }
}

/// The source of the library that goes with the compiler.
fn rust_source() -> Result<(String, PathBuf), Failed> {
    const PACKAGES: &str = "rustc-web rust-web-src";
    let version = run(Command::new(RUSTC).arg("--version"), PACKAGES)?;
    let number = version.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let source = PathBuf::from(format!("/usr/src/rustc-{number}/library/core/src/lib.rs"));
    let minor = number.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    match source.exists() {
        // Older ones have panics that abort at once under another name.
        true if minor.is_none_or(|minor| minor < 96) => {
            Err(Failed::Missing(format!("{RUSTC} is {number}; valid: 1.96 or later (apt-get install {PACKAGES})")))
        }
        true => Ok((number, source)),
        false => Err(Failed::Missing(format!(
            "{}, of {RUSTC}, is not installed (apt-get install {PACKAGES})",
            source.display()
        ))),
    }
}

impl Cross {
    fn rustc(&self, library: &Path, name: &str, source: &Path) -> Command {
        let mut command = Command::new(RUSTC);
        // The library's own source wants what only its compiler may use.
        command.env("RUSTC_BOOTSTRAP", "1");
        command.args(["--edition=2024", "--crate-type=rlib", "--crate-name", name, "--target", self.target]);
        command.args(["-Zunstable-options", "-Cpanic=immediate-abort", "-Copt-level=2", "-Ccodegen-units=1"]);
        // Handlers ask who is up the stack.
        command.arg("-Cforce-unwind-tables=yes");
        // Whatever is called of a library is compiled into who calls it: there is no other object to link.
        command.args([
            "-Zcross-crate-inline-threshold=always",
            "-Zalways-encode-mir",
            "-Crelocation-model=static",
            "-Zplt=yes",
        ]);
        command
            .args(self.rust)
            .args(["--cap-lints=allow", "--out-dir"])
            .arg(library)
            .arg("-L")
            .arg(library)
            .arg(source);
        command
    }

    /// Rust's library, once for each version of the compiler.
    fn compiled_library(&self, dir: &Path) -> Result<PathBuf, Failed> {
        let (number, source) = rust_source()?;
        let made = dir.join(format!("rust-{number}-{}{}", self.target, self.rust.concat()));
        if made.join("libcompiler_builtins.rmeta").exists() {
            return Ok(made);
        }
        fs::create_dir_all(&made).map_err(|e| broken(&made, e))?;
        let empty = made.join("empty.rs");
        // What compilers call of their own accord is in `layer.c`.
        let text = "#![feature(compiler_builtins, no_core)]\n#![compiler_builtins]\n#![no_core]\n";
        fs::write(&empty, text).map_err(|e| broken(&empty, e))?;
        run(self.rustc(&made, "core", &source).args(["--emit=metadata"]), RUSTC)?;
        run(self.rustc(&made, "compiler_builtins", &empty).args(["--emit=metadata"]), RUSTC)?;
        Ok(made)
    }

    /// Compile the core of the repository at `root`, its layer and the functions under trace, into `dir`: the objects, by
    /// name.
    ///
    /// # Errors
    /// A compiler is missing, or fails.
    pub fn objects(&self, root: &Path, dir: &Path) -> Result<Vec<(String, Vec<u8>)>, Failed> {
        self.object("core", root, dir)?;
        let (alone, made) = (root.join("lab/compose/guest/alone.rs"), self.made("alone", dir));
        self.rust_object(&self.compiled_library(dir)?, "core_alone", &alone, &made)?;
        self.object("layer", root, dir)?;
        self.sites.iter().try_for_each(|sites| self.functions(sites, root, dir))?;
        self.read(true, dir)
    }

    /// Compile one of them anew: `core` or `layer`.
    ///
    /// # Errors
    /// A compiler is missing, or fails.
    pub fn object(&self, name: &str, root: &Path, dir: &Path) -> Result<(String, Vec<u8>), Failed> {
        let (guest, made) = (root.join("lab/compose/guest"), self.made(name, dir));
        if name == "core" {
            let library = self.compiled_library(dir)?;
            let runtime = root.join("runtime/src/lib.rs");
            run(self.rustc(&library, "tramptool_runtime", &runtime).arg("--emit=metadata"), RUSTC)?;
            self.rust_object(&library, "core_calls", &guest.join("core.rs"), &made)?;
        } else {
            // Of the layer's functions none is traced.
            self.compile(&guest.join(format!("{name}.c")), &[], &made)?;
        }
        read(&made)
    }

    fn functions(&self, sites: &Sites, root: &Path, dir: &Path) -> Result<(), Failed> {
        self.compile(&root.join("lab/compose/guest/functions.c"), sites.flags, &self.made(sites.functions, dir))
    }

    fn compile(&self, source: &Path, flags: &[&str], made: &Path) -> Result<(), Failed> {
        let mut gcc = Command::new(self.gcc);
        gcc.args(GCC).args(self.flags).args(flags).arg(source).arg("-o").arg(made);
        run(&mut gcc, &self.gcc.replace('_', "-")).map(drop)
    }

    /// How functions are made that have an op before them, or have none. Where there is one way, it serves both.
    fn sites(&self, op: bool) -> Sites {
        let fits = self.sites.iter().find(|sites| sites.op == op);
        *fits.unwrap_or(&self.sites[0])
    }

    /// Bytes behind a function's symbol where it goes on behind its site.
    #[must_use]
    pub fn resume(&self, op: bool) -> i32 {
        self.sites(op).resume
    }

    fn rust_object(&self, library: &Path, name: &str, source: &Path, made: &Path) -> Result<(), Failed> {
        let object = format!("--emit=obj={}", made.display());
        run(self.rustc(library, name, source).arg(object), RUSTC).map(drop)
    }

    /// The file of an object.
    fn made(&self, name: &str, dir: &Path) -> PathBuf {
        dir.join(format!("{}-{name}.o", self.arch))
    }

    /// The objects that were compiled into `dir`, by name, with functions that have an op before them or have none.
    ///
    /// # Errors
    /// They were not.
    pub fn read(&self, op: bool, dir: &Path) -> Result<Vec<(String, Vec<u8>)>, Failed> {
        [self.sites(op).functions, "layer", "core"].map(|name| read(&self.made(name, dir))).into_iter().collect()
    }
}

fn read(path: &Path) -> Result<(String, Vec<u8>), Failed> {
    let bytes = fs::read(path).map_err(|e| broken(path, e))?;
    Ok((path.display().to_string(), bytes))
}
