//! A process of an engine, the memory of its guest, and the page tables there.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use codegen::arch::bare::{Bare, Bochs, Boot, Page, Program};
use codegen::words::error::{Error, Result};
use link::PAGE;
use rustc_hash::FxHashMap;
use rustix::process::Pid;

use super::child::Process;
use super::pinned::Pinned;
use super::program::{Files, Mode, missing, spawn};
use super::shared::{Asked, BATCH, DATA, MASKED, Message, Said, Shared, Side, Told, word};
use super::stepped::Stepper;

/// Bytes at the end of the guest's memory, where QEMU has a description of the machine.
const LAST: u64 = 32 << 20;
/// The pages of the machine's own: what sets it up, code around the code under test, registers, bytes on their way.
const PAGES: u64 = 4;
/// The longest that a CPU may take for its turn.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bare machine.
pub(crate) struct Machine {
    pub(super) bare: &'static Bare,
    pub(super) mode: Mode,
    message: Shared,
    ram: Shared,
    /// The first byte of memory that nobody has, from `Bare::ram` on.
    free: Cell<u64>,
    /// The pages that are there: virtual to physical.
    pages: RefCell<FxHashMap<u64, u64>>,
    tables: [u64; 2],
    /// Where the entry of a table leads: to another one.
    next: RefCell<FxHashMap<u64, u64>>,
    /// None of one that only waits.
    pinned: Option<Rc<Pinned>>,
    /// None before it is started.
    process: RefCell<Option<Process>>,
    /// Why it is gone.
    gone: OnceCell<String>,
    /// Registers by the program's name.
    registers: OnceCell<FxHashMap<String, u32>>,
    /// Bytes of registers in the message that are to be set.
    to_set: Cell<usize>,
    /// Vectors are wanted at full width.
    wide: Cell<bool>,
}

impl Machine {
    /// Start its process.
    ///
    /// # Errors
    /// The program is not there, is too old, or does not start.
    pub fn start(bare: &'static Bare, mode: Mode) -> Result<Rc<Machine>> {
        let (mut machine, files) = Machine::made(bare, mode)?;
        machine.pinned = Pinned::here();
        let process = match (&bare.program, mode) {
            (Program::Qemu(_), Mode::Stepped) => {
                let mut child = spawn(bare, mode, &files)?;
                match Stepper::start(&mut child, &files.message, bare) {
                    Ok(stepper) => Process::Stepped(child, stepper),
                    Err(e) => {
                        Process::Started(child).end();
                        return Err(e);
                    }
                }
            }
            (Program::Qemu(_), _) => Process::Started(spawn(bare, mode, &files)?),
            (Program::Bochs(_), _) => {
                Process::Forked(Machine::first(bare, mode)?.fork(&files, machine.pinned.as_deref())?)
            }
        };
        machine.begin(process)?;
        let message = machine.message()?;
        if message.walled.get() == 0 {
            return Err(Error::new(format!(
                "{}'s process cannot give up its rights, as seccomp is missing here; valid: --engine unicorn",
                bare.program.name()
            )));
        }
        let names = match &bare.program {
            Program::Qemu(_) => message.names(),
            Program::Bochs(bochs) => bochs.registers.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        };
        let numbers = names.into_iter().zip(0..).collect();
        let _ = machine.registers.set(numbers);
        Ok(Rc::new(machine))
    }

    /// One that is set up, and from which this thread has all others of its kind: it runs nothing but that.
    fn first(bare: &'static Bare, mode: Mode) -> Result<Rc<Machine>> {
        thread_local! {
            static FIRST: RefCell<Vec<Rc<Machine>>> = const { RefCell::new(Vec::new()) };
        }
        let is_it = |machine: &&Rc<Machine>| std::ptr::eq(machine.bare, bare) && machine.mode == mode;
        if let Some(known) = FIRST.with_borrow(|all| all.iter().find(is_it).cloned()) {
            return Ok(known);
        }
        let (machine, files) = Machine::made(bare, mode)?;
        machine.begin(Process::Started(spawn(bare, mode, &files)?))?;
        let machine = Rc::new(machine);
        FIRST.with_borrow_mut(|all| all.push(Rc::clone(&machine)));
        Ok(machine)
    }

    /// Another process of the same state, with these files, on this CPU.
    fn fork(&self, files: &Files, pinned: Option<&Pinned>) -> Result<Pid> {
        let message = self.message()?;
        message.at.set(files.message.as_raw_fd() as u64);
        message.from.set(files.ram.as_raw_fd() as u64);
        let made = self.ask(Asked::Fork)?.then(|| Pid::from_raw(message.pc.get() as i32)).flatten();
        let pid = made.ok_or_else(|| Error::new("emulator: there is no room for another process of Bochs"))?;
        if let Some(pinned) = pinned {
            pinned.take(pid);
        }
        Ok(pid)
    }

    /// The machine without a process, and what that will share with it.
    fn made(bare: &'static Bare, mode: Mode) -> Result<(Machine, Files)> {
        let (message_file, message) = Shared::new("tramptool-message", Message::SIZE)?;
        let (ram_file, ram) = Shared::new("tramptool-ram", bare.memory as usize)?;
        let first = bare.start - bare.ram + PAGES * PAGE;
        let tables = [first, first + PAGE];
        let around = bare.start + PAGE;
        let enforced = mode == Mode::Enforced;
        let setup = Boot { tables: tables.map(|table| bare.ram + table), around, enforced };
        put_boot(bare, &ram, &setup)?;
        let start = message.message().ok_or_else(|| Error::new("emulator: no room for messages"))?;
        start.judge.set(u64::from(std::process::id()));
        start.park.set(around + bare.park);
        start.stub.set(around);
        start.trap.set(around + bare.trap);
        start.ram.set(bare.ram);
        start.tables.set(setup.tables[0]);
        start.begin();
        let machine = Machine {
            bare,
            mode,
            message,
            ram,
            free: Cell::new(first + 2 * PAGE),
            pages: RefCell::default(),
            tables,
            next: RefCell::default(),
            pinned: None,
            process: RefCell::default(),
            gone: OnceCell::new(),
            registers: OnceCell::new(),
            to_set: Cell::new(0),
            wide: Cell::new(false),
        };
        // A jump out of a page that is not guarded comes to more landing pads than one out of a page that is.
        let guarded = if enforced { Page::Guarded } else { Page::Code };
        for n in 0..PAGES {
            let page = bare.start + n * PAGE;
            machine.enter(page, page - bare.ram, if page == around { guarded } else { Page::Machine })?;
        }
        if let Program::Bochs(bochs) = &bare.program {
            let (at, usually, _) = bochs.components;
            machine.put(machine.frame() + at, &usually.to_le_bytes());
        }
        Ok((machine, Files { message: message_file, ram: ram_file }))
    }

    /// Have the process, which comes to where it waits.
    fn begin(&self, process: Process) -> Result<()> {
        *self.process.borrow_mut() = Some(process);
        self.wait().map_err(|e| missing(&self.bare.program, &e.to_string()))?;
        if self.message()?.bytes_of_this.get() != size_of::<Message>() as u64 {
            return Err(Error::new("emulator: engine and tool have different messages; build both anew"));
        }
        Ok(())
    }

    /// Does it say nothing of accesses, so that instructions have to?
    pub fn tells_no_access(&self) -> bool {
        self.mode == Mode::Stepped || matches!(self.bare.program, Program::Bochs(_))
    }

    /// The message, while it is our turn.
    pub(super) fn message(&self) -> Result<&Message> {
        match self.gone.get() {
            Some(why) => Err(Error::new(why.clone())),
            None => self.message.message().ok_or_else(|| Error::new("emulator: no room for messages")),
        }
    }

    /// Wait for our turn.
    ///
    /// # Errors
    /// The process is gone, or takes too long and is ended.
    fn turn(&self) -> Result<&Message> {
        let message = self.message()?;
        let since = Instant::now();
        while !message.wait(Side::Judge, Duration::from_millis(100)) {
            let mut process = self.process.borrow_mut();
            let name = self.bare.program.name();
            let Some(process) = process.as_mut() else {
                return Err(Error::new(format!("emulator: {name} is not started")));
            };
            let why = match process.ended(name) {
                Ok(Some(why)) => why,
                Ok(None) if since.elapsed() < PATIENCE => continue,
                _ => format!("{name} does not answer"),
            };
            process.end();
            return Err(Error::new(self.gone.get_or_init(|| why).clone()));
        }
        Ok(message)
    }

    /// Wait for our turn; returns what the CPU says.
    ///
    /// # Errors
    /// The process is gone, takes too long and is ended, or says what nobody knows.
    pub(super) fn wait(&self) -> Result<Said> {
        let message = self.turn()?;
        let (what, name) = (message.what.get(), self.bare.program.name());
        if message.ok.get() == 0 {
            return Err(Error::new(format!("emulator: {name} does not set a register")));
        }
        let said = what.checked_sub(1).and_then(|n| Said::ALL.get(n as usize)).copied();
        said.ok_or_else(|| Error::new(format!("emulator: {name} says {what}")))
    }

    /// Let the CPU go on, so.
    ///
    /// # Errors
    /// The process is gone.
    pub(super) fn go(&self, how: Told) -> Result<()> {
        self.to_set.set(0);
        self.give(how as u64)
    }

    fn give(&self, what: u64) -> Result<()> {
        let message = self.message()?;
        message.what.set(what);
        message.give(Side::Cpu);
        Ok(())
    }

    /// Have something done that leaves the turn to us.
    fn ask(&self, what: Asked) -> Result<bool> {
        self.give(what as u64)?;
        Ok(self.turn()?.ok.get() != 0)
    }

    /// The number of a register, by the program's name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.registers.get()?.get(name).copied()
    }

    /// Read registers: numbers and sizes in bytes. Their bytes are in the message, one behind the other.
    ///
    /// # Errors
    /// The process is gone, or has not all of them.
    pub fn read(&self, mut registers: impl Iterator<Item = (u32, usize)>) -> Result<&[Cell<u8>]> {
        let message = self.message()?;
        let bytes = match &self.bare.program {
            Program::Qemu(_) => {
                self.set_listed()?;
                let mut bytes = 0;
                for (number, size) in registers {
                    bytes = self.list(number, bytes, size)?;
                }
                if !self.ask(Asked::Read)? {
                    return Err(Error::new("emulator: QEMU does not read a register"));
                }
                message.count.set(0);
                bytes
            }
            Program::Bochs(bochs) => registers.try_fold(0, |at, (number, size)| {
                let to = message.data.iter().skip(at).take(size);
                let from = self.place(bochs, number)?.iter().map(Cell::get).chain(std::iter::repeat(0));
                to.zip(from).for_each(|(to, byte)| to.set(byte));
                Ok::<usize, Error>(at + size)
            })?,
        };
        Ok(message.data.get(..bytes).unwrap_or_default())
    }

    /// Set registers: numbers and values. QEMU does so when the CPU has its turn.
    ///
    /// # Errors
    /// The process is gone, or has not all of them.
    pub fn write<'v>(&self, mut registers: impl Iterator<Item = (u32, &'v [u8])>) -> Result<()> {
        let message = self.message()?;
        if let Program::Bochs(bochs) = &self.bare.program {
            for (number, value) in registers {
                self.place(bochs, number)?.iter().zip(value).for_each(|(to, byte)| to.set(*byte));
            }
            return Ok(());
        }
        registers.try_for_each(|(number, value)| self.list_to_set(message, number, value, &[]))
    }

    /// Set the bits of a mask in a register, as [`Self::write`] does.
    ///
    /// # Errors
    /// The process is gone, or has not the register.
    pub fn write_bits(&self, number: u32, value: &[u8], mask: &[u8]) -> Result<()> {
        if let Program::Bochs(bochs) = &self.bare.program {
            let bits = value.iter().zip(mask);
            self.place(bochs, number)?.iter().zip(bits).for_each(|(to, (value, mask))| {
                to.set(to.get() & !mask | value & mask);
            });
            return Ok(());
        }
        self.list_to_set(self.message()?, number | MASKED, value, mask)
    }

    /// Put a register into the message's list, to be set: its value, and behind that the mask if it has one.
    fn list_to_set(&self, message: &Message, number: u32, value: &[u8], mask: &[u8]) -> Result<()> {
        if message.count.get() as usize == BATCH || self.to_set.get() + value.len() + mask.len() > DATA {
            self.set_listed()?;
        }
        let at = self.to_set.get();
        self.to_set.set(self.list(number, at, value.len())? + mask.len());
        message.data.iter().skip(at).zip(value.iter().chain(mask)).for_each(|(to, from)| to.set(*from));
        Ok(())
    }

    /// Have the registers set that are to be.
    fn set_listed(&self) -> Result<()> {
        match self.to_set.take() {
            0 => Ok(()),
            _ if self.ask(Asked::Write)? => Ok(()),
            _ => Err(Error::new("emulator: QEMU does not set a register")),
        }
    }

    /// Where the guest has left a register, and takes it from.
    fn place(&self, bochs: &Bochs, number: u32) -> Result<&[Cell<u8>]> {
        let Some((_, at, bytes)) = bochs.registers.get(number as usize) else { return Ok(&[]) };
        if !bochs.general.contains(at) {
            self.have_left(bochs)?;
        }
        Ok(self.cells(self.frame() + at, *bytes))
    }

    /// Vectors at full width are wanted from now on, or no longer.
    ///
    /// # Errors
    /// The process is gone.
    pub fn want_wide(&self, wide: bool) -> Result<()> {
        match &self.bare.program {
            Program::Bochs(bochs) if self.wide.replace(wide) != wide => self.have_left(bochs),
            _ => Ok(()),
        }
    }

    /// Have Bochs's guest leave all its registers, and vectors at full width if they are wanted.
    fn have_left(&self, bochs: &Bochs) -> Result<()> {
        let ((at, usually, all), frame) = (bochs.components, self.frame());
        let wanted = if self.wide.get() { all } else { usually };
        let has = || self.cells(frame, 1);
        let (is_left, told) = (has().iter().all(|byte| byte.get() == 1), word(self.cells(frame + at, 4)));
        if is_left && told == u64::from(wanted) {
            return Ok(());
        }
        // What it has left already may have been set since.
        let others = || bochs.registers.iter().filter(|(_, at, _)| is_left && !bochs.wide.contains(at));
        let kept: Vec<Vec<u8>> =
            others().map(|(_, at, bytes)| self.cells(frame + at, *bytes).iter().map(Cell::get).collect()).collect();
        self.put(frame + at, &wanted.to_le_bytes());
        has().iter().for_each(|byte| byte.set(0));
        if !self.ask(Asked::All)? {
            return Err(Error::new("emulator: Bochs's guest does not leave its registers"));
        }
        others().zip(kept).for_each(|((_, at, _), bytes)| self.put(frame + at, &bytes));
        Ok(())
    }

    /// The third page, where Bochs's guest leaves registers.
    fn frame(&self) -> u64 {
        self.bare.start - self.bare.ram + 2 * PAGE
    }

    /// Put a register into the message's list: its number, where its bytes are, and how many; returns where the next has them.
    fn list(&self, number: u32, at: usize, bytes: usize) -> Result<usize> {
        let message = self.message()?;
        let next = message.count.get() as usize;
        let (Some(id), Some(size), true) = (message.ids.get(next), message.sizes.get(next), at + bytes <= DATA) else {
            return Err(Error::new("emulator: a message has no room for so many registers"));
        };
        id.set(number);
        size.set(bytes as u32);
        message.count.set(message.count.get() + 1);
        Ok(at + bytes)
    }

    /// A word of a register by the program's name.
    ///
    /// # Errors
    /// There is none of that name, or the process is gone.
    pub fn word(&self, name: &str) -> Result<u64> {
        let number = self
            .number(name)
            .ok_or_else(|| Error::new(format!("emulator: {} has no register {name}", self.bare.program.name())))?;
        let bytes = self.read(std::iter::once((number, 8)))?;
        Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(byte.get())))
    }

    /// Write code, which runs as it is then.
    ///
    /// # Errors
    /// There is no memory, or the process is gone.
    pub fn write_code(&self, at: u64, code: &[u8]) -> Result<()> {
        let message = self.message()?;
        self.set_listed()?;
        for (at, piece) in (at..).step_by(DATA).zip(code.chunks(DATA)) {
            message.at.set(at);
            message.bytes.set(piece.len() as u32);
            message.data.iter().zip(piece).for_each(|(to, from)| to.set(*from));
            if !self.ask(Asked::Code)? {
                return Err(Error::new(format!("emulator: no memory for code at {at:#x}")));
            }
        }
        Ok(())
    }

    /// Memory that nobody has had: where it begins.
    fn take(&self, bytes: u64) -> Result<u64> {
        let at = self.free.get();
        let end = at.checked_add(bytes).filter(|end| *end <= self.bare.memory - LAST);
        self.free.set(end.ok_or_else(|| Error::new("emulator: the guest has no more memory"))?);
        Ok(at)
    }

    /// Have zeros in whole pages.
    ///
    /// # Errors
    /// There is memory already, these are no pages, or no more is left.
    pub fn map(&self, at: u64, bytes: u64, page: Page) -> Result<u64> {
        let refused = |what| Error::new(format!("emulator: map {bytes:#x} bytes at {at:#x}: {what}"));
        if !(at | bytes).is_multiple_of(PAGE) {
            return Err(refused("these are no pages"));
        }
        let from = self.take(bytes)?;
        let page = if self.mode == Mode::Enforced && page == Page::Code { Page::Guarded } else { page };
        for offset in (0..bytes).step_by(PAGE as usize) {
            let virt = at.checked_add(offset).ok_or_else(|| refused("it ends above all addresses"))?;
            if self.pages.borrow().contains_key(&virt) {
                return Err(refused("there is memory already"));
            }
            self.enter(virt, from + offset, page)?;
        }
        Ok(from)
    }

    /// Enter a page in the tables.
    fn enter(&self, virt: u64, from: u64, page: Page) -> Result<()> {
        let upper = virt as i64 >> 47;
        if upper != 0 && upper != -1 {
            return Err(Error::new(format!("emulator: the guest has no address {virt:#x}")));
        }
        let mut table = self.tables[usize::from(upper != 0 && self.bare.split)];
        for shift in [39, 30, 21] {
            let at = table + (virt >> shift & 0x1ff) * 8;
            let known = self.next.borrow().get(&at).copied();
            table = match known {
                Some(next) => next,
                None => {
                    let next = self.take(PAGE)?;
                    self.put(at, &(self.bare.table)(self.bare.ram + next).to_le_bytes());
                    self.next.borrow_mut().insert(at, next);
                    next
                }
            };
        }
        let entry = (self.bare.page)(self.bare.ram + from, page);
        self.put(table + (virt >> 12 & 0x1ff) * 8, &entry.to_le_bytes());
        self.pages.borrow_mut().insert(virt, from);
        Ok(())
    }

    /// Bytes of the guest's memory, from its beginning on.
    pub fn cells(&self, from: u64, bytes: usize) -> &[Cell<u8>] {
        let from = from as usize;
        self.ram.cells().get(from..from.saturating_add(bytes)).unwrap_or_default()
    }

    fn put(&self, from: u64, bytes: &[u8]) {
        self.cells(from, bytes.len()).iter().zip(bytes).for_each(|(to, byte)| to.set(*byte));
    }

    /// The bytes at a virtual address, page by page; false if some are nowhere.
    pub fn each(&self, at: u64, bytes: usize, mut work: impl FnMut(usize, &[Cell<u8>])) -> bool {
        let pages = self.pages.borrow();
        let mut done = 0;
        while done < bytes {
            let here = at.wrapping_add(done as u64);
            let within = here % PAGE;
            let size = (bytes - done).min((PAGE - within) as usize);
            let Some(from) = pages.get(&(here - within)) else { return false };
            work(done, self.cells(from + within, size));
            done += size;
        }
        true
    }

    /// The address of the second page.
    pub fn around(&self) -> u64 {
        self.bare.start + PAGE
    }

    /// Is there a page?
    pub fn has(&self, at: u64) -> bool {
        self.pages.borrow().contains_key(&(at & !(PAGE - 1)))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(process) = self.process.get_mut() {
            process.end();
        }
    }
}

/// The pages of the machine's own.
fn put_boot(bare: &Bare, ram: &Shared, setup: &Boot) -> Result<()> {
    let start = bare.start - bare.ram;
    let put = |at: u64, words: &mut dyn Iterator<Item = u8>| {
        let cells = ram.cells().get(at as usize..(at + PAGE) as usize);
        let cells = cells.ok_or_else(|| Error::new("emulator: the guest begins outside of its memory"))?;
        cells.iter().zip(words).for_each(|(to, byte)| to.set(byte));
        Ok::<(), Error>(())
    };
    let (at, parameters) = bare.parameters;
    put(start + at, &mut parameters(setup).into_iter().flat_map(u64::to_le_bytes))?;
    let around = bare.around.iter().map(|(at, code)| (PAGE + at, code));
    for (at, code) in bare.boot.iter().map(|(at, code)| (*at, code)).chain(around) {
        put(start + at, &mut code.bytes().into_iter())?;
    }
    Ok(())
}
