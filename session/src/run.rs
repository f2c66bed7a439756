//! A program that runs while its functions are recorded.

use std::ffi::OsString;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::geteuid;

use crate::agent::Agent;
use crate::attach::Orders;
use crate::clock;
use crate::drain::{Drain, Seen, ended};
use crate::forms::{How, What};
use crate::loader;
use crate::maps;
use crate::objects::{Attached, Choice, Objects, Place};
use crate::pool::{Mode, Pool, file_of};
use crate::program::Program;
use crate::protocol::{self, HELLO, Hello, Kind, OBEYED};
use crate::sink::{Begun, Sink};

/// The time that a process may take for a message that it has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks at the buffers if no thread hands one in.
const MOMENT: Duration = Duration::from_millis(100);

/// The program to record.
#[derive(Clone, Copy)]
pub enum Subject<'a> {
    /// A program that is started.
    Program(&'a Program),
    /// A process that has loaded the library itself, and waits to be told where it says so. How it ends, nobody tells us.
    Process {
        /// The process's number.
        pid: u32,
        /// Told the name of the socket.
        listening: &'a dyn Fn(&str) -> io::Result<()>,
    },
}

/// The options of a recording.
pub struct Options<'a> {
    /// The records of each function.
    pub what: What,
    /// The reaction if no buffer is free.
    pub mode: Mode,
    /// The number of buffers.
    pub buffers: usize,
    /// Whether processes that the program starts are recorded too.
    pub follow: bool,
    /// Set while the program runs, the recording ends, and the program runs on.
    pub stop: &'a AtomicBool,
    /// Told the program's number once it runs.
    pub started: &'a (dyn Fn(u32) + Sync),
    /// Whose functions.
    pub choice: &'a dyn Choice,
    /// The machine of the program.
    pub backend: &'static dyn Patch,
    /// The program is for another machine, and this runs it: a command of qemu's user mode.
    pub emulator: &'a [OsString],
    /// The program's clocks are this machine's.
    pub same_clocks: bool,
    /// The library that it loads.
    pub agent: &'a Agent,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// The status of the program, if it was started.
    pub status: Option<ExitStatus>,
    /// The amount that was recorded.
    pub seen: Seen,
    /// Records that found no room, and threads that are not recorded for want of memory.
    pub lost: (u64, u64),
    /// Functions that were recorded, of how many with a site; each object once.
    pub functions: (usize, usize),
    /// How they were.
    pub how: Option<How>,
    /// Why entries alone are recorded, if nobody has asked for that: what an object has or does.
    pub why: Option<&'static str>,
    /// Whether there was one with which the recording ends.
    pub last: bool,
    /// Why processes were not recorded, or not in full.
    pub complaints: Vec<Error>,
}

/// The state that the threads of a session share.
struct Session<'a> {
    options: &'a Options<'a>,
    pool: Pool,
    sink: Mutex<&'a mut dyn Sink>,
    objects: Mutex<Objects>,
    outcome: Mutex<Known>,
    ended: AtomicBool,
    /// The process that came first.
    first: OnceLock<u32>,
}

#[derive(Default)]
struct Known {
    functions: (usize, usize),
    how: Option<How>,
    why: Option<&'static str>,
    /// There is a function with which the recording ends.
    last: bool,
    complaints: Vec<Error>,
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(what: &str) -> impl Fn(io::Error) -> Error + '_ {
    move |e| Error::new(format!("{what}: {e}"))
}

/// Run the program to its end, or wait for that of the process.
///
/// # Errors
/// It cannot be started, or the system refuses memory or a socket. What cannot be written to the sink ends the recording alone.
pub fn run(subject: Subject, options: &Options, sink: &mut dyn Sink) -> Result<Outcome> {
    let pool = Pool::new(options.buffers, options.mode).map_err(failed("memory for records"))?;
    static SESSIONS: AtomicU32 = AtomicU32::new(0);
    let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
    let name = format!("tramptool-trace-{}-{session}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).map_err(failed("socket"))?;
    let listener = UnixListener::bind_addr(&address).map_err(failed("socket"))?;
    let objects = Mutex::new(Objects::new(pool.bytes()));
    let (outcome, ended) = (Mutex::new(Known::default()), AtomicBool::new(false));
    let session = Session { options, pool, sink: Mutex::new(sink), objects, outcome, ended, first: OnceLock::new() };
    let session = &session;
    thread::scope(|scope| {
        scope.spawn(|| session.listen(&listener));
        let drain = scope.spawn(|| session.drain());
        let ran = session.ran(subject, &name);
        session.ended.store(true, Ordering::SeqCst);
        session.pool.wake();
        // Whoever waits for a process sees that there will be none.
        drop(UnixStream::connect_addr(&address));
        let mut drain = drain.join().map_err(|_| Error::new("the thread that writes records has ended by a panic"))?;
        let (pid, status) = ran?;
        session.finish(&mut drain, pid, status)
    })
}

impl Session<'_> {
    fn complain(&self, error: Error) {
        let complaints = &mut locked(&self.outcome).complaints;
        if complaints.iter().all(|known| known.to_string() != error.to_string()) {
            complaints.push(error);
        }
    }

    /// The process and how it ended, once it has.
    fn ran(&self, subject: Subject, socket: &str) -> Result<(u32, Option<ExitStatus>)> {
        let Options { agent, emulator, started, .. } = self.options;
        match subject {
            Subject::Program(program) => {
                let mut child = program.start(agent.path(), socket, emulator)?;
                started(child.id());
                let status = child.wait().map_err(failed("the program"))?;
                Ok((child.id(), Some(status)))
            }
            Subject::Process { pid, listening } => {
                started(pid);
                listening(socket).map_err(failed("the process"))?;
                while !ended(pid) {
                    thread::sleep(MOMENT / 10);
                }
                Ok((pid, None))
            }
        }
    }

    /// Answer processes until the program has ended.
    fn listen(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            if let Err(error) = stream.map_err(failed("socket")).and_then(|stream| self.greeted(stream)) {
                self.complain(error);
            }
        }
    }

    /// A process is there. It waits for the answer.
    fn greeted(&self, mut stream: UnixStream) -> Result<()> {
        let failed = failed("a process that began");
        // Any user may connect to such a socket, and whoever does gets the memory with the records.
        let peer = socket_peercred(&stream).map_err(|e| failed(e.into()))?;
        if peer.uid != geteuid() {
            return Err(Error::new(format!(
                "a process of user {} wants to be recorded; valid: one of yours",
                peer.uid.as_raw()
            )));
        }
        stream.set_read_timeout(Some(PATIENCE)).map_err(&failed)?;
        let mut bytes = [0; HELLO];
        stream.read_exact(&mut bytes).map_err(&failed)?;
        let hello = Hello::parse(&bytes).map_err(|e| Error::new(e.to_string()))?;
        let mut text = vec![0; hello.text as usize];
        stream.read_exact(&mut text).map_err(&failed)?;
        let text = String::from_utf8_lossy(&text);
        let exe = text.lines().next().unwrap_or_default().to_owned();
        let first = *self.first.get_or_init(|| hello.pid);
        if !self.options.follow && first != hello.pid {
            return send(&stream, &protocol::answer(0, 0, 0), &[]).map_err(failed);
        }
        if hello.kind == Kind::Loaded {
            return self.attached(&mut stream, &hello, &text);
        }
        let begun = Begun { pid: hello.pid, parent: hello.parent, exe, at: hello.now };
        locked(&self.sink).process(&begun).map_err(&failed)?;
        if hello.kind == Kind::Forked {
            locked(&self.objects).forked(&hello);
            return send(&stream, &protocol::answer(0, self.pool.bytes(), 0), &[]).map_err(failed);
        }
        self.attached(&mut stream, &hello, &text)
    }

    /// Tell a process what it has to do, and hear what became of it.
    fn attached(&self, stream: &mut UnixStream, hello: &Hello, text: &str) -> Result<()> {
        let failed = failed("a process that began");
        let (orders, places) = self.orders(hello, text)?;
        for place in &places {
            let mut sink = locked(&self.sink);
            if place.new {
                sink.object(&place.numbered, place.how).map_err(&failed)?;
            }
            sink.loaded(hello.pid, &place.numbered, place.base, &place.maps).map_err(&failed)?;
        }
        self.note(&places);
        let (count, parts) = orders.file();
        let bytes = parts.last().map_or(0, |(at, part)| at + part.len() as u64);
        let file = file_of(&parts).map_err(&failed)?;
        let answer = protocol::answer(count, self.pool.bytes(), bytes);
        send(stream, &answer, &[self.pool.file(), file.as_fd()]).map_err(&failed)?;
        let mut obeyed = [0; OBEYED];
        stream.read_exact(&mut obeyed).map_err(failed)?;
        let [failed, strange] =
            [0, 4].map(|at| u32::from_le_bytes([obeyed[at], obeyed[at + 1], obeyed[at + 2], obeyed[at + 3]]));
        let pid = hello.pid;
        if failed != 0 {
            let why = io::Error::from_raw_os_error(failed.cast_signed());
            return Err(Error::new(format!(
                "process {pid} is not recorded, or in part: its code cannot be changed: {why}"
            )));
        }
        if strange != 0 {
            let what = "functions of it are not recorded: something else stands at their sites";
            return Err(Error::new(format!("process {pid}: {strange} {what}")));
        }
        Ok(())
    }

    fn orders(&self, hello: &Hello, text: &str) -> Result<(Orders, Vec<Place>)> {
        let Options { what, choice, backend, .. } = self.options;
        let Attached { mut orders, places, complaints } =
            locked(&self.objects).attach(hello, text, *what, *choice, *backend)?;
        complaints.into_iter().for_each(|complaint| self.complain(complaint));
        if hello.kind == Kind::Attach && choice.later() {
            let maps = maps::parse(text);
            match loader::tells(hello, &maps, *backend) {
                Ok((order, guarded)) => orders.write(vec![order], &maps, guarded),
                Err(error) => self.complain(error),
            }
        }
        Ok((orders, places))
    }

    fn note(&self, places: &[Place]) {
        let mut known = locked(&self.outcome);
        for place in places.iter().filter(|p| p.new) {
            known.functions.0 += place.recorded;
            known.functions.1 += place.numbered.object.functions.len() + place.numbered.object.refused.len();
            known.how = Some(place.how);
            known.why = place.why;
            known.last |= place.last;
        }
    }

    /// Write what threads hand in until the program has ended.
    fn drain(&self) -> Drain {
        let (mut drain, mut idle) = (Drain::default(), false);
        while !self.ended.load(Ordering::SeqCst) {
            let seen = self.pool.handed_in();
            let mut sink = locked(&self.sink);
            let written = drain.run(&self.pool, &mut **sink, false);
            let written = written.and_then(|()| if idle { sink.flush() } else { Ok(()) });
            drop(sink);
            if let Err(error) = written {
                self.complain(failed("records are no longer written")(error));
                self.pool.stop();
                return drain;
            }
            if self.options.stop.load(Ordering::SeqCst) {
                self.pool.stop();
            }
            if self.pool.stopped() {
                self.stopped(&mut drain);
                return drain;
            }
            let none = || self.pool.handed_in() == seen;
            if none() {
                self.pool.wait(seen, MOMENT);
            }
            // Nobody is kept waiting by it, and whoever reads the file meanwhile finds what has come.
            idle = none();
        }
        drain
    }

    /// The recording ends while the program runs on. Threads fill up the buffers that they have, for a moment.
    fn stopped(&self, drain: &mut Drain) {
        thread::sleep(MOMENT);
        let mut sink = locked(&self.sink);
        if let Err(error) = drain.run(&self.pool, &mut **sink, true).and_then(|()| sink.flush()) {
            self.complain(failed("the end is not written")(error));
        }
    }

    /// Write what is left.
    fn finish(&self, drain: &mut Drain, pid: u32, status: Option<ExitStatus>) -> Result<Outcome> {
        self.pool.stop();
        let mut sink = locked(&self.sink);
        let lost = self.pool.lost();
        let now = self.options.same_clocks.then(clock::now);
        let written = drain.run(&self.pool, &mut **sink, true).and_then(|()| sink.end(pid, status, lost.0, now));
        if let Err(error) = written {
            self.complain(failed("the end is not written")(error));
        }
        if self.first.get().is_none() {
            let what = "the program has not loaded the library that records, so nothing is recorded";
            self.complain(Error::new(format!("{what}; valid: a program and a library for the same loader")));
        }
        let Known { functions, how, why, last, complaints } = std::mem::take(&mut *locked(&self.outcome));
        Ok(Outcome { status, seen: drain.seen, lost, functions, how, why, last, complaints })
    }
}

/// Send an answer, and with it file descriptors.
fn send(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd]) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
