//! Files that are written whole or not at all.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::sync::{Arc, OnceLock};

use codegen::out::assembly::Assembly;
use codegen::out::obj;
use codegen::profile::target::Target;
use codegen::words;
use codegen::words::error::{Error, Result};
use tempfile::{Builder, NamedTempFile};
#[cfg(feature = "judge")]
use tool::printed::unmarked;

use super::input;
#[cfg(feature = "judge")]
use super::ui::Ui;
#[cfg(feature = "judge")]
use super::writer;

/// A file to write.
pub struct File<'a> {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub contents: Contents<'a>,
    /// It can be run.
    pub executable: bool,
}

/// What writes a file's contents.
pub type Made<'a> = &'a dyn Fn(&mut dyn Write) -> Result<()>;

/// What is in a file.
pub enum Contents<'a> {
    /// These bytes.
    Bytes(Vec<u8>),
    /// An object, made while it is written.
    Object(&'a Assembly, &'a Target),
    /// What this writes, which may be long.
    Made(Made<'a>),
}

impl Contents<'_> {
    /// All of it.
    ///
    /// # Errors
    /// The object would not fit its format.
    pub fn bytes(self) -> Result<Vec<u8>> {
        match self {
            Contents::Bytes(bytes) => Ok(bytes),
            Contents::Object(assembly, target) => obj::write(assembly, target),
            Contents::Made(write) => {
                let mut bytes = Vec::new();
                write(&mut bytes).map(|()| bytes)
            }
        }
    }

    /// Is it just this?
    pub fn is(&self, bytes: &[u8]) -> bool {
        match self {
            Contents::Bytes(made) => made == bytes,
            Contents::Object(assembly, target) => obj::write(assembly, target).is_ok_and(|made| made == bytes),
            Contents::Made(write) => {
                let mut made = Vec::new();
                write(&mut made).is_ok_and(|()| made == bytes)
            }
        }
    }
}

impl File<'_> {
    fn write_to(&self, mut to: impl Write) -> Result<()> {
        match &self.contents {
            Contents::Bytes(bytes) => to.write_all(bytes).map_err(|e| refused(&self.path, &e)),
            Contents::Object(assembly, target) => {
                obj::write_to(assembly, target, to).map_err(|e| refused(&self.path, &e))
            }
            Contents::Made(write) => {
                let mut to = BufWriter::new(to);
                write(&mut to)?;
                to.flush().map_err(|e| refused(&self.path, &e))
            }
        }
    }
}

/// The text of a file.
///
/// # Errors
/// There is none, or it is not text.
#[cfg(feature = "judge")]
pub fn read(path: &Path) -> Result<String> {
    let text = input::text(path);
    text.map_err(|e| Error::new(format!("cannot read {}: {e}; valid: a text file", path.display())))
}

/// A report goes to a file, or to stdout.
///
/// # Errors
/// It cannot be written.
#[cfg(feature = "judge")]
pub fn report(text: String, path: Option<&Path>, ui: &Ui) -> Result<()> {
    match path {
        Some(path) => {
            let text = unmarked(&text).into_owned().into_bytes();
            if let Some(written) = writer::hand_over(&text) {
                return written;
            }
            let contents = Contents::Bytes(text);
            write(&[File { path: path.to_owned(), contents, executable: false }])
        }
        None => ui.out(text),
    }
}

/// Write all of `files` into `dir`, which is made if only it is missing.
///
/// # Errors
/// As [`write`]; a directory that was made is gone again.
pub fn write_into(dir: &Path, files: &[File]) -> Result<()> {
    let made = directory(dir)?;
    write(files).inspect_err(|_| {
        if made {
            // Best effort, as in `write`.
            let _ = fs::remove_dir(dir);
        }
    })
}

/// Make a directory of what `write` puts into one: all of it, or there is none.
///
/// # Errors
/// Those of `write`, or there is a directory already with something in it.
pub fn directory_of(dir: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let refused = |why: &dyn std::fmt::Display| {
        Error::new(format!("cannot make directory {}: {why}; valid: a name that is not used yet", dir.display()))
    };
    let empty = fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
    if dir.exists() && !empty {
        return Err(refused(&"it is there already"));
    }
    unborn(|| {
        let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = Builder::new();
        builder.prefix(".tramptool");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o777));
        }
        let made = builder.tempdir_in(parent).map_err(|e| refused(&e.kind()))?;
        write(made.path())?;
        fs::rename(made.path(), dir).map_err(|e| refused(&e))?;
        let _ = made.keep();
        Ok(())
    })
}

/// Make sure that `dir` exists. Returns whether it was made; what is above it must exist.
fn directory(dir: &Path) -> Result<bool> {
    if dir.is_dir() {
        return Ok(false);
    }
    let refused = |why: &dyn std::fmt::Display| {
        Error::new(format!("cannot make directory {}: {why}; valid: a directory that can be written to", dir.display()))
    };
    if dir.exists() {
        return Err(refused(&"it is a file"));
    }
    fs::create_dir(dir).map_err(|e| refused(&e)).map(|()| true)
}

/// Could a file be written here? To be asked before long work.
///
/// # Errors
/// As [`write`].
pub fn probe(path: &Path) -> Result<()> {
    let file = File { path: path.to_owned(), contents: Contents::Bytes(Vec::new()), executable: false };
    let Place { path, device } = Place::of(&file)?;
    if device {
        return Ok(());
    }
    // Gone at once: a signal must not find it.
    unborn(|| temporary(&path).map(drop))
}

/// Write all of `files`. If one cannot be written, all others are as they were: what was there before is there again, and
/// nothing else.
///
/// # Errors
/// The first that cannot be written.
pub fn write(files: &[File]) -> Result<()> {
    let places = files.iter().map(|file| Ok((file, Place::of(file)?))).collect::<Result<Vec<_>>>()?;
    let (devices, regular): (Vec<_>, Vec<_>) = places.into_iter().partition(|(_, place)| place.device);
    // Could they be written? A device cannot take back what it got.
    regular.iter().try_for_each(|(file, _)| probe(&file.path))?;
    // A pipe may have no reader for long, so this comes before there are temporary files.
    for (file, _) in devices {
        let opened = fs::OpenOptions::new().write(true).open(&file.path);
        file.write_to(opened.map_err(|e| refused(&file.path, &e))?)?;
    }
    unborn(|| {
        let staged = regular.iter().map(|(file, place)| Staged::new(file, place)).collect::<Result<Vec<_>>>()?;
        put_all(staged)
    })
}

/// Give all their names, or leave everything as it was.
fn put_all(staged: Vec<Staged>) -> Result<()> {
    let mut done = Vec::new();
    for file in staged {
        match file.put() {
            Ok(undo) => done.push(undo),
            Err(e) => {
                done.into_iter().rev().for_each(Undo::undo);
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Do `work`, which has temporary files. A signal that ends the process does so behind it: then they are gone.
#[cfg(unix)]
fn unborn(work: impl FnOnce() -> Result<()>) -> Result<()> {
    static SIGNALS: OnceLock<Signals> = OnceLock::new();
    let signals = SIGNALS.get_or_init(Signals::watched);
    signals.free.store(false, Ordering::SeqCst);
    let result = work();
    signals.free.store(true, Ordering::SeqCst);
    for (signal, _) in signals.came.iter().filter(|(_, came)| came.load(Ordering::SeqCst)) {
        let _ = signal_hook::low_level::emulate_default_handler(*signal);
    }
    result
}

/// The signals that people and terminals send to end a process.
#[cfg(unix)]
struct Signals {
    /// They do so at once.
    free: Arc<AtomicBool>,
    /// Those that came while they did not.
    came: Vec<(i32, Arc<AtomicBool>)>,
}

#[cfg(unix)]
impl Signals {
    fn watched() -> Signals {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
        use signal_hook::flag;

        // Linux, of a file that is longer than the user's limit: writing it then fails as on a full disk.
        const SIGXFSZ: i32 = 25;
        // One that is ignored, as by nohup, stays so.
        let status = words::input::text(Path::new("/proc/self/status")).unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        let free = Arc::new(AtomicBool::new(true));
        let watch = |signal: i32| {
            let came = Arc::new(AtomicBool::new(false));
            // Where one cannot be watched, it does as always.
            flag::register_conditional_default(signal, Arc::clone(&free)).ok()?;
            flag::register(signal, Arc::clone(&came)).ok()?;
            Some((signal, came))
        };
        let heeded = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
        let came = [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(heeded).filter_map(watch).collect();
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
        Signals { free, came }
    }
}

#[cfg(not(unix))]
fn unborn(work: impl FnOnce() -> Result<()>) -> Result<()> {
    work()
}

/// Where a file goes.
struct Place {
    /// Behind all links.
    path: PathBuf,
    /// A device or a pipe, which a file must not replace.
    device: bool,
}

impl Place {
    fn of(file: &File) -> Result<Place> {
        let path = behind_links(&file.path);
        if path.is_symlink() {
            return Err(refused(&file.path, &"its links are a circle"));
        }
        if path.is_dir() {
            return Err(refused(&file.path, &"it is a directory"));
        }
        if input::is_one(&path) {
            let name = file.path.display();
            return Err(Error::new(format!("cannot write {name}: this command reads it; valid: another name")));
        }
        let device = path.exists() && !path.is_file();
        Ok(Place { path, device })
    }
}

/// A link is followed, not replaced, also one to nothing.
fn behind_links(path: &Path) -> PathBuf {
    /// More is a circle.
    const MOST: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST {
        let Ok(to) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    path
}

fn temporary(path: &Path) -> Result<NamedTempFile> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = Builder::new();
    builder.prefix(".tramptool");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(parent).map_err(|e| refused(path, &e.kind()))
}

/// Contents on their way to their place: beside it, under another name.
struct Staged<'p> {
    contents: NamedTempFile,
    path: &'p Path,
    /// What was there, beside it too.
    before: Option<NamedTempFile>,
}

impl<'p> Staged<'p> {
    fn new(file: &File, place: &'p Place) -> Result<Staged<'p>> {
        let path = &place.path;
        let refused = |e: std::io::Error| refused(&file.path, &e);
        let mut contents = temporary(path)?;
        file.write_to(&mut contents)?;
        let mut before = None;
        let mut permissions = contents.as_file().metadata().map_err(refused)?.permissions();
        if let Ok(known) = fs::metadata(path) {
            let copy = temporary(path)?;
            fs::copy(path, copy.path()).map_err(refused)?;
            before = Some(copy);
            permissions = known.permissions();
        }
        #[cfg(unix)]
        if file.executable {
            use std::os::unix::fs::PermissionsExt;
            // For those who may read it.
            let mode = permissions.mode();
            permissions.set_mode(mode | (mode & 0o444) >> 2);
        }
        fs::set_permissions(contents.path(), permissions).map_err(refused)?;
        Ok(Staged { contents, path, before })
    }

    fn put(self) -> Result<Undo<'p>> {
        self.contents.persist(self.path).map_err(|e| refused(self.path, &e.error))?;
        Ok(Undo { path: self.path, before: self.before })
    }
}

/// What makes a written file be as it was.
struct Undo<'p> {
    path: &'p Path,
    before: Option<NamedTempFile>,
}

impl Undo<'_> {
    /// Best effort: what cannot be done now could not be a moment later either.
    fn undo(self) {
        match self.before {
            Some(before) => drop(before.persist(self.path)),
            None => drop(fs::remove_file(self.path)),
        }
    }
}

fn refused(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(format!("cannot write {}: {why}; valid: a file in a directory that can be written to", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever was asked before, the last file can still refuse its name.
    #[test]
    fn a_rename_that_fails_takes_the_others_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("older"), "as it was").unwrap();
        let files = ["older", "new", "last"].map(|name| File {
            path: path(name),
            contents: Contents::Bytes(b"new".into()),
            executable: false,
        });
        let places = files.each_ref().map(|file| Place::of(file).unwrap());
        let staged = files.iter().zip(&places).map(|(file, place)| Staged::new(file, place).unwrap()).collect();
        // Somebody makes a directory of that name in between.
        fs::create_dir(path("last")).unwrap();
        let refused = put_all(staged).unwrap_err().to_string();
        assert!(refused.contains("cannot write") && refused.contains("last"), "{refused}");
        assert_eq!(fs::read_to_string(path("older")).unwrap(), "as it was");
        let mut names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["last", "older"]);
    }
}
