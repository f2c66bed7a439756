//! Memory with code: room for trampolines, which are written once before they are first executed and stay for ever, and the
//! functions' own code, which is changed while threads execute it.
#![allow(unsafe_code, reason = "code is memory that the compiler knows nothing of")]

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use codegen::arch::patch::{Branch, Patch};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use crate::error::{Error, Result};
use crate::machine;

/// Whole pages under every configuration of Linux.
pub const PAGE: u64 = 1 << 16;

/// Room for code, at the same time writable elsewhere.
#[derive(Debug)]
pub struct Room {
    /// The address at which it is executed.
    at: u64,
    /// The address at which it is written.
    write: u64,
    bytes: u64,
    used: u64,
    /// The process whose it is: after `fork` both have it.
    pid: u32,
}

impl Room {
    /// Map so many bytes there, where nothing may be mapped yet.
    ///
    /// # Errors
    /// Something is, or the system refuses.
    pub fn new(at: u64, bytes: u64) -> io::Result<Room> {
        let pid = std::process::id();
        let flags = MapFlags::FIXED_NOREPLACE;
        let (code, size) = (ProtFlags::READ | ProtFlags::EXEC, bytes as usize);
        let place = at as *mut _;
        let file = memfd_create("tramptool-live", MemfdFlags::CLOEXEC);
        let Ok(file) = file else {
            // SAFETY: the mapping replaces none.
            let got = unsafe { mmap_anonymous(place, size, code | ProtFlags::WRITE, flags | MapFlags::PRIVATE) }?;
            there(got, at, size)?;
            return Ok(Room { at, write: at, bytes, used: 0, pid });
        };
        ftruncate(&file, bytes)?;
        let data = ProtFlags::READ | ProtFlags::WRITE;
        // This one first: the other one may be put where it is to be.
        // SAFETY: the mapping replaces none.
        let got = unsafe { mmap(place, size, code, flags | MapFlags::SHARED, &file, 0) }?;
        there(got, at, size)?;
        // SAFETY: a new mapping, of a file that nobody else has.
        let write = unsafe { mmap(ptr::null_mut(), size, data, MapFlags::SHARED, &file, 0) }? as u64;
        Ok(Room { at, write, bytes, used: 0, pid })
    }

    /// The address of the next piece of code, if there is room for so many bytes.
    pub fn next(&self, bytes: usize) -> Option<u64> {
        let at = self.at + self.used;
        (self.used + bytes as u64 <= self.bytes && self.pid == std::process::id()).then_some(at)
    }

    /// Put code where [`Room::next`] said; without effect if there is no room. The next piece begins at a multiple of 16.
    pub fn put(&mut self, code: &[u8]) {
        let Some(at) = self.next(code.len()) else { return };
        let to = (self.write + self.used) as *mut u8;
        // SAFETY: `next` has found these bytes inside of our own mapping, and nobody has been told of them yet.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), to, code.len()) };
        machine::flush(at, code.len());
        self.used = (self.used + code.len() as u64).next_multiple_of(16);
    }
}

/// Whether a mapping has the address that was asked for. Kernels before 4.17 and some emulators take the address as a hint.
fn there(got: *mut libc::c_void, at: u64, bytes: usize) -> io::Result<()> {
    if got as u64 == at {
        return Ok(());
    }
    // SAFETY: the mapping is new, and nobody knows it.
    unsafe { munmap(got, bytes) }?;
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A range of code in memory, and its protection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// The addresses of the range.
    pub range: Range<u64>,
    /// The protection bits, `PROT_READ` and others, including those of the machine.
    pub protection: i32,
}

/// How many objects the loader has loaded and unloaded so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loads {
    loaded: u64,
    unloaded: u64,
}

/// The loader's counts; `None` if it does not count.
pub fn loads() -> Option<Loads> {
    extern "C" fn first(info: *mut libc::dl_phdr_info, bytes: usize, to: *mut libc::c_void) -> libc::c_int {
        if bytes >= size_of::<libc::dl_phdr_info>() {
            // SAFETY: the loader gives as many bytes, and `to` is what is given to it below.
            let (info, to) = unsafe { (&*info, &mut *to.cast::<Option<Loads>>()) };
            *to = Some(Loads { loaded: info.dlpi_adds, unloaded: info.dlpi_subs });
        }
        1
    }
    let mut found: Option<Loads> = None;
    // SAFETY: the function is called before this returns.
    unsafe { libc::dl_iterate_phdr(Some(first), ptr::from_mut(&mut found).cast()) };
    found
}

/// The way in which code is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By stores, while its pages are writable.
    Store,
    /// By the kernel.
    File,
}

/// The writer of code.
pub struct Writer {
    /// `/proc/self/mem`.
    file: Option<File>,
    /// Whether what is written by the file is executed.
    works: OnceLock<std::result::Result<(), String>>,
}

/// Code that may be written, until this is dropped.
pub struct Window<'a> {
    writer: &'a Writer,
    way: Way,
    open: Vec<Text>,
}

impl Writer {
    /// Open what is needed, before the program may forbid it to itself.
    pub fn new() -> Writer {
        let file = OpenOptions::new().read(true).write(true).open("/proc/self/mem").ok();
        Writer { file, works: OnceLock::new() }
    }

    /// `/proc/self/mem`, as the system counts files; -1 without it.
    pub fn file(&self) -> i32 {
        self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// The bytes at an address; none if nothing is there.
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match &self.file {
            Some(file) => match file.read_exact_at(&mut bytes, at) {
                Ok(()) => bytes,
                Err(_) => Vec::new(),
            },
            None => {
                // SAFETY: addresses come from the list of what is mapped; without the file there is no better way.
                let byte = |n: usize| unsafe { ptr::read_volatile((at as *const u8).wrapping_add(n)) };
                (0..len).map(byte).collect()
            }
        }
    }

    /// The bytes at each of these ascending addresses, which may overlap, as [`Writer::read`] has them. Those that are near each other
    /// are read at once.
    pub fn read_all(&self, places: &[(u64, usize)]) -> Vec<Vec<u8>> {
        let end = |(at, len): &(u64, usize)| at.saturating_add(*len as u64);
        let near = |a: &(u64, usize), b: &(u64, usize)| a.0 / PAGE == b.0 / PAGE;
        let mut all = Vec::with_capacity(places.len());
        for part in places.chunk_by(near) {
            let from = part.first().map_or(0, |(at, _)| *at);
            let to = part.iter().map(end).max().unwrap_or_default();
            // Without the file, what lies in between may not be touched.
            let at_once = part.len() > 1 && self.file.is_some();
            let bytes = if at_once { self.read(from, to.saturating_sub(from) as usize) } else { Vec::new() };
            all.extend(part.iter().map(|(at, len)| {
                let found = bytes.get(at.saturating_sub(from) as usize..).and_then(|rest| rest.get(..*len));
                found.map_or_else(|| self.read(*at, *len), <[u8]>::to_vec)
            }));
        }
        all
    }

    /// Let these bytes be written, all in the same way.
    ///
    /// # Errors
    /// Neither way works.
    pub fn open(&self, code: &[(&Text, Range<u64>)]) -> Result<Window<'_>> {
        let mut pages: Vec<Text> = Vec::new();
        for (text, bytes) in code {
            let (from, to) = (bytes.start / PAGE * PAGE, bytes.end.next_multiple_of(PAGE));
            let range = from.max(text.range.start)..to.min(text.range.end);
            match pages.iter_mut().find(|page| text.range.contains(&page.range.start)) {
                Some(page) => page.range = page.range.start.min(range.start)..page.range.end.max(range.end),
                None => pages.push(Text { range, protection: text.protection }),
            }
        }
        let mut window = Window { writer: self, way: Way::Store, open: Vec::new() };
        let mut tried = Vec::new();
        for page in pages {
            match protect(&page.range, page.protection | libc::PROT_WRITE) {
                Ok(()) => window.open.push(page),
                Err(e) => {
                    tried.push(format!("mprotect: {e}"));
                    window.way = Way::File;
                    break;
                }
            }
        }
        if window.way == Way::Store {
            return Ok(window);
        }
        match self.works.get_or_init(|| self.probe()) {
            Ok(()) => Ok(window),
            Err(e) => {
                tried.push(format!("/proc/self/mem: {e}"));
                Err(Error::Protected { tried })
            }
        }
    }

    fn write_by_file(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file.write_all_at(bytes, at)
    }

    /// Patch a function of our own by the file, and call it: emulators may go on with what was there.
    fn probe(&self) -> std::result::Result<(), String> {
        let probe = Probe::new().map_err(|e| e.to_string())?;
        if probe.call() != 1 {
            return Err("the probe does not run".to_owned());
        }
        self.write_by_file(probe.at, &probe.to_two).map_err(|e| e.to_string())?;
        machine::flush(probe.at, probe.to_two.len());
        if probe.call() != 2 { Err("what is written is not executed".to_owned()) } else { Ok(()) }
    }
}

impl Window<'_> {
    /// Write bytes that no thread can execute before a later write.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        match self.way {
            Way::File => drop(self.writer.write_by_file(at, bytes)),
            Way::Store => {
                for (n, byte) in bytes.iter().enumerate() {
                    // SAFETY: `Writer::open` has made the page writable, and these bytes are the site's.
                    unsafe { ptr::write_volatile((at as *mut u8).wrapping_add(n), *byte) };
                }
            }
        }
        machine::flush(at, bytes.len());
    }

    /// Write bytes that threads may execute, in one store: 1, 2 or 4, at a multiple of that.
    pub fn write_at_once(&self, at: u64, bytes: &[u8]) {
        if self.way == Way::File || !at.is_multiple_of(bytes.len() as u64) {
            return self.write(at, bytes);
        }
        // SAFETY: as above; the address is a multiple of the size.
        unsafe {
            match *bytes {
                [byte] => (*(at as *const AtomicU8)).store(byte, Ordering::SeqCst),
                [a, b] => (*(at as *const AtomicU16)).store(u16::from_ne_bytes([a, b]), Ordering::SeqCst),
                [a, b, c, d] => (*(at as *const AtomicU32)).store(u32::from_ne_bytes([a, b, c, d]), Ordering::SeqCst),
                _ => return self.write(at, bytes),
            }
        }
        machine::flush(at, bytes.len());
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        for page in &self.open {
            // What fails leaves the page writable, which harms nothing.
            let _ = protect(&page.range, page.protection);
        }
    }
}

fn protect(range: &Range<u64>, protection: i32) -> io::Result<()> {
    let flags = MprotectFlags::from_bits_retain(protection.cast_unsigned());
    let size = (range.end - range.start) as usize;
    // SAFETY: only the right to write changes, so nobody loses what they have.
    Ok(unsafe { mprotect(range.start as *mut _, size, flags) }?)
}

extern "C" fn one() -> u32 {
    1
}

extern "C" fn two() -> u32 {
    2
}

/// A function that returns 1, and 2 once it is patched.
struct Probe {
    at: u64,
    to_two: Vec<u8>,
}

impl Probe {
    fn new() -> Result<Probe> {
        let missing =
            |e: io::Error| Error::Missing { what: format!("memory for a probe: {e}"), remedy: "mmap allowed" };
        let file = memfd_create("tramptool-probe", MemfdFlags::CLOEXEC).map_err(|e| missing(e.into()))?;
        ftruncate(&file, PAGE).map_err(|e| missing(e.into()))?;
        let code = ProtFlags::READ | ProtFlags::EXEC;
        // SAFETY: a new mapping. A private one, as code of programs is.
        let at = unsafe { mmap(ptr::null_mut(), PAGE as usize, code, MapFlags::PRIVATE, &file, 0) };
        let at = at.map_err(|e| missing(e.into()))? as u64;
        let backend = backend()?;
        let [first, second] = [at + 64, at + 128];
        let write = |to: u64, code: Vec<u8>| File::from(file.try_clone()?).write_all_at(&code, to - at);
        write(first, backend.branch(Branch::Far, first, one as *const () as u64)?).map_err(missing)?;
        write(second, backend.branch(Branch::Far, second, two as *const () as u64)?).map_err(missing)?;
        write(at, backend.branch(Branch::SiteJump, at, first)?).map_err(missing)?;
        machine::flush(at, 256);
        Ok(Probe { at, to_two: backend.branch(Branch::SiteJump, at, second)? })
    }

    fn call(&self) -> u32 {
        // SAFETY: the code jumps to one of two functions of this type.
        let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(self.at as *const ()) };
        function()
    }
}

/// The architecture that this is compiled for.
///
/// # Errors
/// It is none of ours.
pub fn backend() -> tramptool::Result<&'static dyn Patch> {
    Ok(arch::backend(std::env::consts::ARCH)?)
}

/// The barrier behind which every thread of the process fetches what was stored before.
#[derive(Debug)]
pub struct Barrier;

const REGISTER_SYNC_CORE: libc::c_int = 1 << 6;
const SYNC_CORE: libc::c_int = 1 << 5;

impl Barrier {
    /// Ask for it, before the program may forbid it to itself.
    ///
    /// # Errors
    /// The system has none.
    pub fn new() -> Result<Barrier> {
        if membarrier(REGISTER_SYNC_CORE) != 0 {
            let what = format!("membarrier: {}", io::Error::last_os_error());
            return Err(Error::Missing {
                what,
                remedy: "Linux 4.16 or later, and no filter of system calls that forbids it",
            });
        }
        Ok(Barrier)
    }

    /// Wait until all threads have passed it. False if the program has forbidden it to itself since.
    pub fn pass(&self) -> bool {
        membarrier(SYNC_CORE) == 0
    }
}

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: the call reads and writes no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}
