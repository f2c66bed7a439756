// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel's JIT in a program of its own: how it is made, and how it is asked. `kernel/writers/writers.h` has the layout of
//! requests and answers.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::link::{Program as Linked, command, compiled};
use super::machine::{Here, Machine};
use super::model::{Can, MOST_PROGRAMS, Model, Program};
use super::native::Place;
use crate::failure::Failure;
use crate::tools::{name, read, write};
use crate::tree::Tree;

/// Flags of a trampoline (kernel include/linux/bpf.h, BPF_TRAMP_F_).
const RESTORE_REGS: u32 = 1;
const CALL_ORIG: u32 = 1 << 1;
const SKIP_FRAME: u32 = 1 << 2;
const IP_ARG: u32 = 1 << 3;
const RET_FENTRY_RET: u32 = 1 << 4;
const ORIG_STACK: u32 = 1 << 5;
const TAIL_CALL_CTX: u32 = 1 << 7;
const INDIRECT: u32 = 1 << 8;

/// Where the description of an image is, as the kernel's allocator may have it.
const IM_IN_MEMORY: u64 = 0x6c0;

/// Where members of an answer begin, and the bytes of the whole.
const IM: usize = 8;
const PROGRAMS: usize = 48;
const SKIPS: usize = PROGRAMS + 8 * 3 * MOST_PROGRAMS;
const MOST_SKIPS: usize = 24;
const CODE: usize = SKIPS + 16 * MOST_SKIPS;
const ANSWER: usize = CODE + 4096;

/// The program, and what is known of its writer.
pub struct Harness<'m> {
    program: PathBuf,
    machine: &'m Machine,
    pub version: String,
    /// Sites of functions jump where the function is called from the trampoline.
    jumps: bool,
    /// Where the kernel's objects are.
    dir: PathBuf,
}

/// What a writer wrote.
#[derive(Clone)]
pub struct Written {
    /// Where it is to run.
    pub at: u64,
    pub code: Vec<u8>,
    pub flags: Vec<&'static str>,
    /// The addresses of programs' descriptions: fentry, fexit, fmod_ret.
    pub programs: [Vec<u64>; 3],
    pub im: u64,
    pub tramp_enter: u64,
    pub tramp_exit: u64,
    /// The names and addresses of labels.
    pub labels: Vec<(String, u64)>,
}

/// The address of what is called before a program, and of what is called after it.
pub fn around(here: Here, sleepable: bool) -> [u64; 2] {
    let at = here.around + 0x100 * u64::from(sleepable);
    [at, at + 0x200]
}

/// The address of a program's code, by the kernel's number of its kind and its own.
pub fn code_of(here: Here, kind: usize, n: usize) -> u64 {
    here.programs + 0x1000 * kind as u64 + 0x40 * n as u64
}

/// The programs by the kernel's numbers of kinds: fentry, fexit, fmod_ret.
pub fn lists(model: &Model) -> [Vec<Program>; 3] {
    let (sessions, others) = (model.sessions().copied().collect(), model.fexit.clone());
    let after = if model.late_sessions { [others, sessions] } else { [sessions, others] }.concat();
    [model.fentry.clone(), after, model.fmod_ret.clone()]
}

/// The text of errors of a program that answers otherwise than agreed.
fn odd(program: &Path, what: &str) -> Failure {
    Failure::at(program, what, "remove it, and have it made again")
}

impl Harness<'_> {
    /// Compile the kernel's objects and ours, and link them; from the cache if they are there.
    pub fn build<'m>(
        common: &[String],
        machine: &'m Machine,
        version: &str,
        linux: &Path,
        cache: &Path,
    ) -> Result<Harness<'m>, Failure> {
        let dir = cache.join("build").join(format!("writers-{version}-{}", machine.name));
        fs::create_dir_all(&dir).map_err(|e| Failure::at(&dir, e, "make room for the cache"))?;
        let tree = Tree { linux, dir: &dir, arch: &machine.make, cross: &machine.cross, compiler: None };
        let targets: Vec<&str> = machine.objects.iter().chain(&machine.others).map(String::as_str).collect();
        if !targets.iter().all(|object| dir.join(object).exists()) {
            eprintln!("building the writer of Linux {version} for {}", machine.name);
            let options = common.iter().chain(&machine.options).map(|option| format!("CONFIG_{option}\n"));
            tree.configure(&options.collect::<String>())?;
            tree.make(&["prepare"])?;
            let folders: Vec<&str> = machine.folders.iter().map(String::as_str).collect();
            if !folders.is_empty() {
                tree.make(&folders)?;
            }
            tree.make(&targets.into_iter().filter(|object| !dir.join(object).exists()).collect::<Vec<_>>())?;
        }
        let objects: Vec<PathBuf> = machine.objects.iter().map(|object| dir.join(object)).collect();
        let program = linked(machine, &dir, &objects, "writers")?;
        let jumps = read(&dir.join(".config"))?.contains("CONFIG_DYNAMIC_FTRACE_WITH_JMP=y");
        Ok(Harness { program, machine, version: version.to_owned(), jumps, dir })
    }

    /// Where programs for other writers are made.
    pub fn place(&self) -> Place<'_> {
        Place { dir: &self.dir, machine: self.machine, version: &self.version }
    }

    /// An object of the kernel from another text of its source.
    pub fn object(&self, file: &str, text: &str, linux: &Path) -> Result<PathBuf, Failure> {
        let source = self.dir.join("without").join(name(Path::new(file)));
        let parent = source.parent().unwrap_or(&self.dir);
        fs::create_dir_all(parent).map_err(|e| Failure::at(parent, e, "make room for the cache"))?;
        write(&source, text.as_bytes())?;
        let beside = linux.join(file);
        let include = beside.parent().unwrap_or(linux);
        compiled(&self.dir, &Path::new(file).with_extension("o"), &source, &[&format!("-I{}", include.display())])
    }

    /// The same with another object in place of one of the kernel's.
    pub fn with(&self, file: &str, made: &Path) -> Result<Harness<'_>, Failure> {
        let object = Path::new(file).with_extension("o");
        let one = |of: &String| if Path::new(of) == object { made.to_path_buf() } else { self.dir.join(of) };
        let theirs: Vec<PathBuf> = self.machine.objects.iter().map(one).collect();
        let program = linked(self.machine, &self.dir, &theirs, "writers-without")?;
        let (version, dir) = (self.version.clone(), self.dir.clone());
        Ok(Harness { program, machine: self.machine, version, jumps: self.jumps, dir })
    }

    /// What this kernel can do.
    pub fn can(&self) -> Can {
        let sessions = self.version.split('.').next().and_then(|n| n.parse().ok()).is_some_and(|major: u32| major >= 7);
        let redirects = self.machine.redirects;
        Can {
            sessions,
            redirects,
            far: self.machine.far.is_some(),
            tail_calls: self.machine.counts.as_ref().is_some_and(|c| c.versions.contains(&self.version)),
        }
    }

    fn flags(&self, model: &Model) -> Vec<(u32, &'static str)> {
        if model.struct_ops {
            let result = model.result.map(|_| (RET_FENTRY_RET, "RET_FENTRY_RET"));
            return [(INDIRECT, "INDIRECT")].into_iter().chain(result).collect();
        }
        let redirected = model.redirected && model.call_orig();
        let how = match (model.call_orig(), self.jumps && !redirected) {
            (false, _) => vec![(RESTORE_REGS, "RESTORE_REGS")],
            (true, true) => vec![(CALL_ORIG, "CALL_ORIG")],
            (true, false) => vec![(CALL_ORIG, "CALL_ORIG"), (SKIP_FRAME, "SKIP_FRAME")],
        };
        let ip = model.ip_arg.then_some((IP_ARG, "IP_ARG"));
        let counted = model.tail_calls.then_some((TAIL_CALL_CTX, "TAIL_CALL_CTX"));
        let redirected = redirected.then_some((ORIG_STACK, "ORIG_STACK"));
        how.into_iter().chain(ip).chain(counted).chain(redirected).collect()
    }

    /// Have images written, each with the kernel's error where it refuses.
    pub fn write(&self, models: &[Model]) -> Result<Vec<Result<Written, i32>>, Failure> {
        let requests: Vec<u8> = models.iter().flat_map(|model| self.request(model)).collect();
        let mut command = command(self.machine, &self.program);
        let trouble = |e: std::io::Error| Failure::at(&self.program, e, "on Debian: apt-get install qemu-user");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(trouble)?;
        let mut to = child.stdin.take().ok_or_else(|| odd(&self.program, "takes no requests"))?;
        let writer = std::thread::spawn(move || to.write_all(&requests));
        let answers = child.wait_with_output().map_err(trouble)?;
        let sent = writer.join().is_ok_and(|sent| sent.is_ok());
        if !sent || !answers.status.success() || answers.stdout.len() != ANSWER * models.len() {
            return Err(odd(&self.program, &format!("{}: not all requests are answered", answers.status)));
        }
        let pairs = models.iter().zip(answers.stdout.chunks_exact(ANSWER));
        Ok(pairs.map(|(model, answer)| self.answer(model, answer)).collect())
    }

    /// Where an image for this model is to run.
    fn image(&self, model: &Model) -> u64 {
        let far = self.machine.far.filter(|_| model.far).unwrap_or(0);
        self.machine.here.image + far
    }

    fn request(&self, model: &Model) -> Vec<u8> {
        let here = self.machine.here;
        let [enter, exit] = [0, 1].map(|which| [false, true].map(|sleepable| around(here, sleepable)[which]));
        let mut bytes = Vec::new();
        let im = (here.memory + IM_IN_MEMORY) | (self.machine.tag << 56);
        let places = [self.image(model), here.function, here.memory, im, self.machine.thunk.unwrap_or(0)];
        for word in places.into_iter().chain(enter).chain(exit) {
            bytes.extend(word.to_le_bytes());
        }
        let flags = self.flags(model).iter().fold(0, |flags, (bit, _)| flags | bit);
        bytes.extend(flags.to_le_bytes());
        let result = model.result.map_or([0; 2], |t| [t.size, t.flags]);
        bytes.extend([result[0], result[1], model.args.len() as u8, 0]);
        let of_args = |of: fn(&super::model::Type) -> u8| {
            let mut all = [0; 12];
            all.iter_mut().zip(&model.args).for_each(|(to, t)| *to = of(t));
            all
        };
        bytes.extend(of_args(|t| t.size));
        bytes.extend(of_args(|t| t.flags));
        let lists = lists(model);
        let endbr = u32::from(self.machine.endbr);
        lists.iter().map(|list| list.len() as u32).chain([endbr]).for_each(|count| bytes.extend(count.to_le_bytes()));
        for (kind, list) in lists.iter().enumerate() {
            for n in 0..MOST_PROGRAMS {
                let program = list.get(n);
                let session = program.is_some_and(|p| p.session);
                let (kind, n) = self.code_place(model, kind, n);
                bytes.extend(code_of(here, kind, n).to_le_bytes());
                bytes.extend(program.map_or(0, |p| p.cookie).to_le_bytes());
                bytes.extend(u32::from(session).to_le_bytes());
                bytes.extend(u32::from(program.is_some_and(|p| p.sleepable)).to_le_bytes());
            }
        }
        bytes
    }

    /// A session is the same program after the function as before it.
    fn code_place(&self, model: &Model, kind: usize, n: usize) -> (usize, usize) {
        let mut sessions = model.fentry.iter().enumerate().filter(|(_, p)| p.session).map(|(at, _)| at);
        let others = if model.late_sessions { model.fexit.len() } else { 0 };
        let session = n.checked_sub(others).filter(|_| kind == 1).and_then(|n| sessions.nth(n));
        session.map_or((kind, n), |at| (0, at))
    }

    fn answer(&self, model: &Model, answer: &[u8]) -> Result<Written, i32> {
        let word = |at: usize| u64::from_le_bytes(answer[at..at + 8].try_into().unwrap_or_default());
        let half = |at: usize| u32::from_le_bytes(answer[at..at + 4].try_into().unwrap_or_default());
        let size = half(0).cast_signed();
        let Ok(size) = usize::try_from(size) else { return Err(size) };
        let address = |at: usize| word(at) | self.machine.set << 48;
        let mut labels: Vec<(String, u64)> = (0..half(4) as usize)
            .flat_map(|n| {
                let at = SKIPS + 16 * n;
                [(format!("skip_{n}"), word(at)), (format!("skipped_{n}"), word(at + 8))]
            })
            .collect();
        // 6.12 has these, once it calls the function.
        let known = [("after_call", word(IM + 24)), ("epilogue", word(IM + 32))].into_iter().filter(|(_, at)| *at != 0);
        labels.extend(known.map(|(name, at)| (name.to_owned(), at)));
        let counts = lists(model).map(|list| list.len());
        let program = |kind: usize, n: usize| address(PROGRAMS + 8 * (MOST_PROGRAMS * kind + n));
        Ok(Written {
            at: self.image(model),
            code: answer[CODE..CODE + size.min(4096)].to_vec(),
            flags: self.flags(model).into_iter().map(|(_, name)| name).collect(),
            programs: [0, 1, 2].map(|kind| (0..counts[kind]).map(|n| program(kind, n)).collect()),
            im: word(IM),
            tramp_enter: address(IM + 8),
            tramp_exit: address(IM + 16),
            labels,
        })
    }
}

/// The program that writes images, in `dir` and of this name.
fn linked(machine: &Machine, dir: &Path, theirs: &[PathBuf], program: &str) -> Result<PathBuf, Failure> {
    let first = machine.objects.first().map_or("", String::as_str);
    // Where `.around` is does not depend on what is linked.
    let around = &["-Wl,--section-start=.around=0x28000000"];
    let kernel = Some(("kernel.c", first));
    Linked { machine, dir, name: program, kernel, user: "user.c", theirs, flags: &[], link: around }.linked()
}
