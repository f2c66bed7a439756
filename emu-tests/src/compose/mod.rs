//! Compositions of the core's users on the machines themselves: the core as it was compiled for one, linked with trampolines
//! and with functions of gcc, runs the cases of the oracle, and says what its model says.
//!
//! What the machine of `compose` does in Rust is done here by code of the machine: a function calls another, a handler runs, a
//! site is patched. Which and when is decided outside (`state.rs`), where the log is written too.

mod calls;
mod handlers;
mod places;
mod state;
mod steps;
mod third;
mod unwinding;

use std::cell::RefCell;
use std::sync::Arc;

use codegen::ask::kind::Kind;
use codegen::words::abi::RegSet;
use codegen::words::error::{Error, Result};
use compose::{Case, Event, Seen, What};
use link::{Image, Input, Options, link};

use crate::engine::cpu::{EXIT, put_word};
use crate::engine::interface::Holds;
use crate::engine::load::load;
use crate::engine::registers::Registers;
use crate::judge::suite::Suite;
use crate::run::thread::{self, BUFFER, POINTER, SIZE};
use places::{Places, Point, layout, owns, symbol};
use state::{Kept, State, Todo, Uc};

pub use places::{
    AFTER_RECORDER, DIRECT_HANDLER, FUNCTIONS_UNDER_TRACE, Functions, PAIRED_HANDLERS, RECORDER_ARGS, direct_names,
    paired_names, recorder_names,
};

/// The stack: functions that call each other deeper than the core's own stack have room.
const TOP: u64 = 0x65_d0c0_0000;
const STACK: u64 = 0x40_0000;
/// That of the third thread.
const THIRD_TOP: u64 = TOP + 2 * STACK;
/// Straight pieces of code that a case runs at most.
const BLOCKS: u64 = 20_000_000;
/// Where the rethook trampoline would be.
const NO_RETHOOK: u64 = 0x40;

/// The core on a machine.
pub struct Composed {
    suite: Suite,
    image: Image,
    places: Arc<Places>,
    kept: Kept,
    rethook: bool,
}

thread_local! {
    /// Making an engine takes longer than running a case.
    static ENGINE: RefCell<Option<Box<Uc<'static>>>> = const { RefCell::new(None) };
}

impl Composed {
    /// Link trampolines with the core's objects. The suite has all trampolines with a name, and direct ones that are called
    /// [`direct_names`] and call [`DIRECT_HANDLER`].
    ///
    /// # Errors
    /// They do not link, or something is not there.
    pub fn new(suite: Suite, objects: &[(String, Vec<u8>)]) -> Result<Composed> {
        let all = suite.objects.iter().chain(objects).map(|(name, bytes)| Input { name, bytes });
        let slot = |label: &String| {
            let regs =
                suite.contracts.iter().any(|c| c.kind == Kind::Entry(codegen::ask::kind::Regs::All) && owns(c, label));
            (label.clone(), if regs { "callback_regs" } else { "callback_args" }.to_owned())
        };
        let options = Options {
            site: Some(&suite.convention.site),
            calls: suite.slots.iter().map(slot).collect(),
            alias: suite.convention.calls_through.map(|variable| (variable.to_owned(), "callee")).into_iter().collect(),
            ..Options::default()
        };
        let mut image = link(suite.backend, &all.collect::<Vec<_>>(), &options)?;
        let places = Places::of(&image, &suite)?;
        let rethook = suite.contracts.iter().any(|c| c.kind == Kind::Rethook);
        fill(&mut image, &suite)?;
        let by_all = |some: &dyn Fn(Kind) -> bool| {
            let kept = suite.contracts.iter().filter(|c| some(c.kind)).map(|c| c.kept);
            kept.reduce(RegSet::intersection).unwrap_or(RegSet::EMPTY)
        };
        let called = by_all(&|kind| matches!(kind, Kind::Entry(_) | Kind::Direct(_)));
        let kept = Kept { called, paired: by_all(&|kind| matches!(kind, Kind::Around(_))) };
        Ok(Composed { suite, image, places: Arc::new(places), kept, rethook })
    }

    /// The functions that this machine has: none with paired trampolines where sites do not jump.
    #[must_use]
    pub fn functions(&self) -> &'static [Functions] {
        FUNCTIONS_UNDER_TRACE.get(..self.places.families.len()).unwrap_or_default()
    }

    /// Has this machine, with those functions, what the case uses? Kretprobes want a trampoline that not every profile has;
    /// gcc makes no jump of a call whose result is in memory.
    #[must_use]
    pub fn supports(&self, case: &Case, family: usize) -> bool {
        let rethook = self.rethook || !case.users.iter().any(|u| matches!(u.what, What::Kretprobe { .. }));
        let big = self.places.families.get(family).is_some_and(|family| family.signature == "big");
        rethook && !(big && case.jumps_last())
    }

    /// Run a case with some of the functions: what is seen.
    #[must_use]
    pub fn run(&self, case: &Case, family: usize) -> Vec<Event> {
        ENGINE.with_borrow_mut(|engine| {
            let mut uc = match engine.take().filter(|uc| Arc::ptr_eq(&uc.data().places, &self.places)) {
                Some(uc) => uc,
                None => match self.engine() {
                    Ok(uc) => uc,
                    Err(e) => unreachable!("the image was loaded before: {e}"),
                },
            };
            let log = self.case(&mut *uc, case, family % self.places.families.len());
            *engine = Some(uc);
            log.unwrap_or_else(|_| vec![Event::of(Seen::Lost("the machine"))])
        })
    }

    fn engine(&self) -> Result<Box<Uc<'static>>> {
        let backend = self.suite.backend;
        let registers = Registers::of(backend.machine(), &backend.facts().abi)?;
        let state = State::new(Arc::clone(&self.places), registers, self.kept);
        let mut uc: Box<Uc> = load(backend, std::iter::once(&self.image), Box::new(state))?;
        for top in [TOP, THIRD_TOP] {
            uc.map(top - STACK, STACK, Holds::Data)?;
        }
        thread::map(&mut *uc, [(BUFFER, SIZE)])?;
        // Recorders are another profile's, which has the usual one.
        let usual = backend.facts().threads.first().copied();
        thread::point(&mut *uc, registers, usual, POINTER)?;
        uc.store(EXIT, backend.machine().ret);
        for at in self.places.points.keys() {
            uc.on_instructions(*at..=*at, Box::new(come))?;
        }
        uc.on_blocks(Box::new(count))?;
        for (i, _) in registers.machine.vectors.iter().enumerate() {
            registers.set_vector(&mut *uc, i, &[0xa0 + i as u8; 16]);
        }
        Ok(uc)
    }

    fn case(&self, uc: &mut Uc, case: &Case, family: usize) -> Result<Vec<Event>> {
        let registers = uc.data().registers;
        let abi = registers.abi;
        uc.data_mut().begin(case, family);
        let of = &self.places.families[family];
        let put = |uc: &mut Uc, name: &str, words: &[u64]| {
            let at = symbol(&self.image, name)?;
            (0..).step_by(8).zip(words).for_each(|(offset, word)| {
                put_word(uc, at + offset, *word);
            });
            Ok::<(), Error>(())
        };
        put(uc, "sites", &of.sites.iter().map(|site| site.ip).collect::<Vec<_>>())?;
        let (at, bytes): (Vec<u64>, Vec<u64>) = of.around.iter().copied().unzip();
        put(uc, "paired_at", &at)?;
        put(uc, "paired_bytes", if of.around.is_empty() { &[0; 8] } else { &bytes })?;
        put(uc, "handler_calls", &[of.handler])?;
        put(uc, "outside_calls", &[of.outside])?;
        // CURRENT.
        put_word(uc, self.places.mail + 8 * 5, 0);
        // Records are taken out as soon as they are looked for.
        put_word(uc, self.places.cursor, BUFFER);
        put_word(uc, self.places.limit, BUFFER + SIZE / 2);
        let all = (0..8).map(|f| (f, codegen::arch::patch::SiteState::Disabled)).collect();
        self.patch(uc, all)?;
        begin_stack(uc, TOP);
        let mut pc = self.places.begin;
        loop {
            let ended = uc.run(pc, EXIT);
            let at = uc.pc();
            match uc.data_mut().todo.take() {
                Some(Todo::Patch(writes)) => {
                    self.patch(uc, writes)?;
                    uc.data_mut().done = at;
                    pc = at;
                }
                Some(Todo::Resume(asked)) => {
                    registers.load(uc, &asked.0);
                    if abi.link.is_none() {
                        put_word(uc, asked.0[abi.sp], asked.1);
                    }
                    pc = at;
                }
                Some(Todo::Start(at)) => {
                    begin_stack(uc, THIRD_TOP);
                    pc = at;
                }
                None => {
                    let answer = registers.get(uc, abi.rets[0]);
                    let state = uc.data_mut();
                    match ended {
                        Err(_) => state.lost("the way", 0, at),
                        Ok(()) if at != EXIT => state.lost("the end", 0, at),
                        Ok(()) if answer != 0 => state.lost("the beginning", 0, answer),
                        Ok(()) => {}
                    }
                    return Ok(std::mem::take(&mut state.log));
                }
            }
        }
    }

    fn patch(&self, uc: &mut Uc, writes: Vec<(usize, codegen::arch::patch::SiteState)>) -> Result<()> {
        let family = uc.data().family;
        for (f, state) in writes {
            let site = &self.places.families[family].sites[f];
            uc.write_code(&self.suite.writes(site.spot(Some(self.places.caller), None), state)?)?;
        }
        Ok(())
    }
}

/// Whoever is called now has this stack, and returns to nobody.
fn begin_stack(uc: &mut Uc, top: u64) {
    let registers = uc.data().registers;
    let sp = top - 0x1000 - registers.abi.return_bytes();
    registers.set(uc, registers.abi.sp, sp);
    match registers.abi.link {
        Some(link) => registers.set(uc, link, EXIT),
        None => {
            put_word(uc, sp, EXIT);
        }
    }
}

/// What the layer has to know of frames and of this machine.
fn fill(image: &mut Image, suite: &Suite) -> Result<()> {
    let rethook = suite.contracts.iter().find(|c| c.kind == Kind::Rethook);
    let of = |kind: &dyn Fn(Kind) -> bool| suite.contracts.iter().find(|c| kind(c.kind)).map(layout);
    let layouts = [
        ("args_layout", of(&|k| k == Kind::Entry(codegen::ask::kind::Regs::Args))),
        ("regs_layout", of(&|k| k == Kind::Entry(codegen::ask::kind::Regs::All))),
        ("exit_layout", of(&|k| k == Kind::Return)),
        ("rethook_layout", rethook.map(layout)),
        ("paired_layout", of(&|k| matches!(k, Kind::Around(_)))),
        ("popped", Some(vec![suite.backend.facts().abi.return_bytes()])),
        ("to_return", Some(vec![symbol(image, "return_to_handler")?])),
        ("to_rethook", Some(vec![rethook.map_or(Ok(NO_RETHOOK), |c| symbol(image, &c.name))?])),
    ];
    for (name, words) in layouts {
        let at = symbol(image, name)?;
        let bytes: Vec<u8> = words.unwrap_or_default().iter().flat_map(|word| word.to_le_bytes()).collect();
        image.write(&codegen::arch::patch::Write { at, bytes })?;
    }
    // Where functions carry the address of an `ftrace_ops`, the entry trampoline calls what that one names.
    if let Some((func, _)) = suite.op_offsets {
        let at = symbol(image, "ops")? + func;
        let bytes = symbol(image, "callback_args")?.to_le_bytes().to_vec();
        image.write(&codegen::arch::patch::Write { at, bytes })?;
    }
    Ok(())
}

/// A piece of code begins: a case that does not end is ended.
fn count(uc: &mut Uc, _at: u64, _size: usize) {
    let state = uc.data_mut();
    state.blocks += 1;
    if state.blocks > BLOCKS {
        uc.stop();
    }
}

/// The CPU comes to one of the points.
fn come(uc: &mut Uc, pc: u64, _size: usize) {
    if std::mem::take(&mut uc.data_mut().done) == pc {
        return;
    }
    let point = uc.data().places.points.get(&pc).copied();
    match point {
        Some(Point::Host) => handlers::host(uc, pc),
        Some(Point::Entry(f)) => calls::entry(uc, f),
        Some(Point::Inside(f)) => calls::inside(uc, f),
        Some(Point::Direct(index)) => uc.data_mut().direct = Some(index),
        None => {}
    }
    if uc.data().todo.is_some() {
        uc.stop();
    }
}
