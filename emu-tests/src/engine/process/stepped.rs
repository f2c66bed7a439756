//! The CPU's side of the messages where QEMU has no plugin: a thread of ours that has its stub for GDB step, and does what `plugin.c`
//! does in QEMU.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use codegen::arch::bare::Bare;
use codegen::words::error::{Error, Result};
use link::PAGE;

use super::remote::Remote;
use super::shared::{Asked, MASKED, Message, Said, Shared, Side, Told};

/// Of `shared.h`: the process is to give up its rights.
const ASKED: u64 = 2;
/// Packets after which it has done so, or does not.
const PACKETS: usize = 16;

/// The thread, which ends with the process or when it is told to.
pub(super) struct Stepper {
    thread: Option<JoinHandle<Error>>,
    ends: Arc<AtomicBool>,
}

impl Stepper {
    /// Begin, with the process that was started.
    ///
    /// # Errors
    /// The system has no room for the thread.
    pub fn start(child: &mut Child, message: &OwnedFd, bare: &'static Bare) -> Result<Stepper> {
        let failed = |e: std::io::Error| Error::new(format!("emulator: a thread for QEMU's stub for GDB: {e}"));
        let message = message.try_clone().map_err(failed)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new("emulator: QEMU was started without its stub for GDB"));
        };
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let run = move || match Shared::of(&message, Message::SIZE) {
            Ok(shared) => {
                let ran = Remote::new(to, from).and_then(|remote| Stepped::new(remote, &shared, &told, bare)?.run());
                ran.err().unwrap_or_else(|| Error::new("emulator: QEMU's stub for GDB is no longer asked"))
            }
            Err(e) => e,
        };
        let thread = Builder::new().name("stub for GDB".to_owned()).spawn(run).map_err(failed)?;
        Ok(Stepper { thread: Some(thread), ends })
    }

    /// Has it ended, though nobody told it to?
    pub fn is_gone(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Wait for its end, which comes soon where the process is gone: why it ended, once.
    pub fn end(&mut self) -> Option<Error> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

/// A CPU that is stepped.
struct Stepped<'s> {
    remote: Remote,
    message: &'s Message,
    ends: &'s AtomicBool,
    pc: usize,
    /// Code under test runs.
    runs: bool,
    executed: u64,
}

impl<'s> Stepped<'s> {
    /// Let the CPU run to where it waits, and the process give up its rights.
    fn new(mut remote: Remote, shared: &'s Shared, ends: &'s AtomicBool, bare: &Bare) -> Result<Stepped<'s>> {
        let message = shared.message().ok_or_else(|| Error::new("emulator: no room for messages"))?;
        message.set_names(remote.names());
        if message.bytes_of_this.get() == 0 {
            return Err(Error::new(
                "emulator: QEMU is linked statically, or loads nothing of ours; it is to take LD_PRELOAD",
            ));
        }
        let park = bare.start + PAGE + bare.park;
        remote.run_to(park)?;
        message.walled.set(ASKED);
        // The first packet wakes the process, which then sees it.
        for _ in 0..PACKETS {
            remote.look()?;
            if message.walled.get() != ASKED {
                let pc = remote.number("pc")?;
                let mut stepped = Stepped { remote, message, ends, pc, runs: false, executed: 0 };
                return match stepped.at()? {
                    at if at == park => Ok(stepped),
                    at => Err(Error::new(format!("emulator: QEMU's CPU is at {at:#x}, and was to wait at {park:#x}"))),
                };
            }
        }
        Err(Error::new("emulator: QEMU does not wait by ppoll(), where it would give up its rights"))
    }

    /// Until the process is gone, or this is told to end.
    fn run(mut self) -> Result<()> {
        while !self.ends.load(Ordering::Relaxed) {
            let pc = self.at()?;
            if !self.before(pc)? {
                self.remote.step()?;
            }
        }
        Ok(())
    }

    /// Before an instruction: does the CPU go on elsewhere?
    fn before(&mut self, pc: u64) -> Result<bool> {
        let message = self.message;
        if pc == message.park.get() {
            return self.park(pc);
        }
        let is_trap = pc == message.trap.get();
        if !self.runs || (pc ^ message.stub.get()) < PAGE {
            return if is_trap && self.tell(Said::Trapped, pc)? == Some(Told::Stop) { self.leave() } else { Ok(false) };
        }
        if pc == message.until.get() || self.count() == message.budget.get() {
            self.tell(Said::Ended, pc)?;
            return self.leave();
        }
        if message.passes(pc) || !message.asks_about(pc) {
            return Ok(false);
        }
        match self.tell(Said::Instruction, pc)? {
            Some(Told::Go) => self.go(message.from.get()),
            Some(Told::Stop) => self.leave(),
            _ => Ok(false),
        }
    }

    /// How many instructions came before this one.
    fn count(&mut self) -> u64 {
        self.executed += 1;
        self.executed - 1
    }

    /// The CPU is where it waits: nothing runs until the judge says so.
    fn park(&mut self, pc: u64) -> Result<bool> {
        loop {
            let wanted = self.tell(Said::Parked, pc)?;
            if wanted == Some(Told::Run) {
                self.executed = 0;
            }
            self.runs = matches!(wanted, Some(Told::Run | Told::Back));
            match wanted {
                Some(Told::Run | Told::Back | Told::Go) => return self.go(self.message.from.get()),
                None => return Ok(false),
                Some(_) => {}
            }
        }
    }

    /// Go and wait. The stub has a landing pad.
    fn leave(&mut self) -> Result<bool> {
        self.runs = false;
        self.go(self.message.stub.get())
    }

    fn go(&mut self, pc: u64) -> Result<bool> {
        self.remote.write(self.pc, &pc.to_le_bytes(), None)?;
        Ok(true)
    }

    fn at(&mut self) -> Result<u64> {
        let bytes = self.remote.read(self.pc)?;
        Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// Tell the judge, and do what it asks for until it lets the CPU go; none if this is to end.
    fn tell(&mut self, said: Said, pc: u64) -> Result<Option<Told>> {
        let message = self.message;
        message.what.set(said as u64 + 1);
        message.pc.set(pc);
        loop {
            message.most_late.set(0);
            message.give(Side::Judge);
            while !message.wait(Side::Cpu, Duration::from_millis(100)) {
                if self.ends.load(Ordering::Relaxed) {
                    return Ok(None);
                }
            }
            message.passed.set(0);
            let what = message.what.get();
            let done = if what == Asked::Read as u64 { self.read() } else { self.write() };
            let done = done.and_then(|()| if what == Asked::Code as u64 { self.code() } else { Ok(()) });
            message.ok.set(u64::from(done.is_ok()));
            if let Some(told) = Told::ALL.into_iter().find(|told| *told as u64 == what) {
                done?;
                return Ok(Some(told));
            }
        }
    }

    /// Numbers of registers in the message, and their sizes.
    fn listed(&self) -> Vec<(u32, usize)> {
        let message = self.message;
        let all = message.ids.iter().zip(&message.sizes).take(message.count.get() as usize);
        all.map(|(id, size)| (id.get(), size.get() as usize)).collect()
    }

    /// Read the registers of the list.
    fn read(&mut self) -> Result<()> {
        let mut at = 0;
        for (id, size) in self.listed() {
            let value = self.remote.read(id as usize)?;
            let bytes = value.into_iter().chain(std::iter::repeat(0)).take(size);
            self.message.data.iter().skip(at).zip(bytes).for_each(|(to, byte)| to.set(byte));
            at += size;
        }
        Ok(())
    }

    /// Set the registers of the list. Of those that are marked so, the bits of a mask, which follows the value.
    fn write(&mut self) -> Result<()> {
        let mut at = 0;
        for (id, size) in self.listed() {
            let mut next = |size| {
                let bytes: Vec<u8> = self.message.data.iter().skip(at).take(size).map(|byte| byte.get()).collect();
                at += size;
                bytes
            };
            let (value, is_masked) = (next(size), id & MASKED != 0);
            let mask = is_masked.then(|| next(size));
            self.remote.write((id & !MASKED) as usize, &value, mask.as_deref())?;
        }
        self.message.count.set(0);
        Ok(())
    }

    fn code(&mut self) -> Result<()> {
        let message = self.message;
        let code: Vec<u8> = message.data.iter().take(message.bytes.get() as usize).map(|byte| byte.get()).collect();
        self.remote.store(message.at.get(), &code)
    }
}
