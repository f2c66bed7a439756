//! Probes by their definitions, in functions that run in the engine: what `kprobe_events` does in a kernel.
//!
//! Each probe is a breakpoint, and so is each place to which returns are led. Entries and returns go through the runtime core:
//! the return address in its cell is replaced by that of a trampoline.

mod breakpoint;
mod value;

use std::cell::RefCell;
use std::fmt;

use codegen::backend::Backend;
use codegen::words::error::{Error, Result};
use link::{Image, Input, Options, SymbolKind, link};
use runtime::definition::{Base, Definition, Definitions, Machine, ProbeKind, Symbol};
use runtime::{Call, Data, Entry, Fprobe, Handlers, Kretprobe, Runtime, Site, Task, Trampolines};

use crate::engine::cpu::{EXIT, STACK_TOP, put_word, word};
use crate::engine::disasm::decode;
use crate::engine::load::load;
use crate::engine::registers::{Registers, Snapshot};
use breakpoint::{Breakpoints, INSTRUCTIONS, Meter, STOP, Uc};
use value::{Values, shown};

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As in the first version of the interface: `sym: @sym+0`, `caller: <-sym+0`.
    First,
    /// As Linux does today: `EVENT: (sym+0x0/0x10) arg1=0x1`.
    Today,
}

/// Definitions at most, functions at most (64 a word), events at most.
const DEFINITIONS: usize = 64;
const FUNCTIONS: usize = 64;
const EVENTS: usize = 100_000;
/// The most arguments that a probe keeps from the entry to the return.
const KEPT: usize = 8;

const RETURN_TO_HANDLER: u64 = EXIT + 0x100;
const RETHOOK: u64 = EXIT + 0x200;

/// A function of the object.
#[derive(Clone, Debug)]
struct Function {
    name: String,
    address: u64,
    size: u64,
    instructions: Vec<u64>,
}

/// The object, as definitions see it.
struct Object {
    backend: &'static dyn Backend,
    functions: Vec<Function>,
    image: Image,
}

impl Object {
    fn new(backend: &'static dyn Backend, input: &Input) -> Result<Object> {
        let stub = Some(backend.machine().ret);
        let image = link(backend, std::slice::from_ref(input), &Options { stub, ..Options::default() })?;
        let mut functions = Vec::new();
        for symbol in image.symbols.iter().filter(|s| s.kind == SymbolKind::Function && s.size > 0) {
            let size = usize::try_from(symbol.size).unwrap_or(0);
            let Some(code) = image.bytes(symbol.address, size) else { continue };
            let instructions = decode(backend.machine(), code, symbol.address)?.iter().map(|d| d.at).collect();
            functions.push(Function {
                name: symbol.name.clone(),
                address: symbol.address,
                size: symbol.size,
                instructions,
            });
        }
        functions.sort_by_key(|f| f.address);
        functions.dedup_by_key(|f| f.address);
        if functions.len() > 64 * FUNCTIONS {
            return Err(Error::new(format!(
                "{} has {} functions; valid: up to {}",
                input.name,
                functions.len(),
                64 * FUNCTIONS
            )));
        }
        Ok(Object { backend, functions, image })
    }

    /// The function around an address.
    fn function(&self, address: u64) -> Option<&Function> {
        let before = self.functions.partition_point(|f| f.address <= address);
        self.functions[..before].last().filter(|f| address - f.address < f.size)
    }
}

impl Machine for Object {
    fn symbol(&self, name: &str) -> Symbol {
        let mut found = self.image.symbols.iter().filter(|s| s.name == name && s.kind != SymbolKind::NoType);
        match (found.next(), found.next()) {
            (None, _) => Symbol::None,
            (Some(one), None) => Symbol::One(one.address),
            _ => Symbol::Many,
        }
    }

    fn is_function(&self, address: u64) -> bool {
        self.function(address).is_some_and(|f| f.address == address)
    }

    fn is_instruction(&self, address: u64) -> bool {
        self.function(address).is_some_and(|f| f.instructions.binary_search(&address).is_ok())
    }

    fn is_traceable(&self, address: u64) -> bool {
        self.is_function(address)
    }

    fn is_register(&self, name: &str) -> bool {
        self.backend.machine().pt_reg(&self.backend.facts().abi, name).is_some()
    }
}

/// A defined probe, with what it keeps from the entry.
struct Probe<'d> {
    definition: Definition<'d>,
    /// Arguments of the entry that are shown at the return, by number.
    kept: Vec<u64>,
}

/// The probes with the core.
struct Probing<'o> {
    object: &'o Object,
    registers: Registers,
    probes: Vec<Probe<'o>>,
    breakpoints: Breakpoints,
    core: Runtime<'o, FUNCTIONS>,
    task: Task,
    form: Form,
    log: RefCell<Vec<String>>,
}

/// The CPU where it stopped, for handlers.
struct Stop<'s, 'o> {
    probing: &'s Probing<'o>,
    uc: &'s Uc<'s>,
    all: Snapshot,
}

impl Stop<'_, '_> {
    fn probe(&self, key: u64) -> Option<&Probe<'_>> {
        self.probing.probes.get(key.checked_sub(1)? as usize)
    }

    fn values(&self, kept: Option<(&[u64], Data)>) -> Values<'_> {
        let kept = kept.map(|(numbers, data)| numbers.iter().enumerate().map(|(i, n)| (*n, data.get(i))).collect());
        Values { uc: self.uc, registers: self.probing.registers, all: &self.all, kept: kept.unwrap_or_default() }
    }

    /// Keep the arguments that the return shows.
    fn keep(&self, probe: &Probe, data: Option<Data>) {
        let values = self.values(None);
        for (index, number) in probe.kept.iter().enumerate() {
            if let (Some(data), Some(value)) = (data, values.argument(*number)) {
                data.set(index, value);
            }
        }
    }

    /// Write an event of a probe; `caller` is where a return goes to.
    fn event(&self, probe: &Probe, caller: Option<u64>, data: Option<Data>) {
        let Probing { object, form, log, .. } = self.probing;
        let definition = &probe.definition;
        let values = self.values(data.map(|data| (&*probe.kept, data)));
        let at = |address: u64| object.function(address).map(|f| (&*f.name, address - f.address, f.size));
        let place = |address: u64| match at(address) {
            Some((name, offset, size)) => format!("{name}+{offset:#x}/{size:#x}"),
            None => format!("{address:#x}"),
        };
        let short = |address: u64| at(address).map_or_else(|| format!("{address:#x}"), |(name, ..)| name.to_owned());
        let address = definition.address;
        let mut line = match (form, caller) {
            (Form::First, None) => {
                let offset = at(address).map_or(0, |(_, offset, _)| offset);
                format!("{0}: @{0}+{offset}", short(address))
            }
            (Form::First, Some(caller)) => format!("{}: <-{}+0", short(caller), short(address)),
            (Form::Today, None) => format!("{}: ({})", definition.event.as_str(), place(address)),
            (Form::Today, Some(caller)) => {
                format!("{}: ({} <- {})", definition.event.as_str(), place(caller), short(address))
            }
        };
        for (index, argument) in definition.arguments(*object).enumerate() {
            let value = shown(&argument, &values, &place);
            line += &match (form, argument.name) {
                (Form::First, _) => format!(" {value}"),
                (Form::Today, Some(name)) => format!(" {name}={value}"),
                (Form::Today, None) => format!(" arg{}={value}", index + 1),
            };
        }
        log.borrow_mut().push(line);
    }
}

impl Handlers for Stop<'_, '_> {
    // A stop has them already.
    type Regs = ();

    fn fprobe_entry(&self, key: u64, _call: &Call, _regs: &(), data: Option<Data>) -> bool {
        if let Some(probe) = self.probe(key) {
            match probe.definition.kind {
                ProbeKind::FprobeEntry => self.event(probe, None, None),
                _ => self.keep(probe, data),
            }
        }
        true
    }

    fn fprobe_exit(&self, key: u64, call: &Call, _regs: &mut (), data: Option<Data>) {
        self.probe(key).into_iter().for_each(|probe| self.event(probe, Some(call.parent_ip), data));
    }

    fn kretprobe_entry(&self, key: u64, _call: &Call, _regs: &(), data: Data) -> bool {
        self.probe(key).into_iter().for_each(|probe| self.keep(probe, Some(data)));
        true
    }

    fn kretprobe_return(&self, key: u64, call: &Call, _regs: &mut (), data: Data) {
        self.probe(key).into_iter().for_each(|probe| self.event(probe, Some(call.parent_ip), Some(data)));
    }
}

impl Probing<'_> {
    /// The CPU met the breakpoint at `pc`. Where it goes on; None if that is not known.
    fn stopped(&self, uc: &mut Uc, pc: u64) -> Option<u64> {
        let all = self.registers.general(uc);
        let abi = self.registers.abi;
        let sp = all[abi.sp];
        if pc == RETURN_TO_HANDLER || pc == RETHOOK {
            // A return that popped its address left SP behind the cell.
            let retp = sp - abi.return_bytes();
            let stop = Stop { probing: self, uc, all };
            let to = match pc {
                RETURN_TO_HANDLER => self.core.return_to_handler(&self.task, &stop, retp, &mut ()),
                _ => self.core.rethook_return(&self.task, &stop, retp, &mut ()),
            };
            return to;
        }
        let parent = abi.link.map_or_else(|| word(uc, sp), |link| all[link]);
        let stop = Stop { probing: self, uc, all };
        for probe in self.probes.iter().filter(|p| p.definition.address == pc && p.definition.kind == ProbeKind::Kprobe)
        {
            stop.event(probe, None, None);
        }
        let entry = Entry { ip: pc, parent, retp: sp, direct: 0 };
        let now = self.core.enter(&self.task, &stop, entry, &mut ());
        if now.parent != parent {
            match abi.link {
                Some(link) => self.registers.set(uc, link, now.parent),
                None => drop(put_word(uc, sp, now.parent)),
            }
        }
        Some(pc)
    }

    fn register(&self) -> Result<()> {
        for (index, probe) in self.probes.iter().enumerate() {
            let (key, ip, kept) = (index as u64 + 1, probe.definition.address, probe.kept.len());
            let registered = match probe.definition.kind {
                ProbeKind::Kprobe => Ok(()),
                ProbeKind::Kretprobe(most) => {
                    let maxactive = most.map_or(0, |n| n as usize);
                    self.core.register_kretprobe(&Kretprobe { key, ip, maxactive, entry: true })
                }
                kind => {
                    let probe = Fprobe { key, exit: kind == ProbeKind::FprobeExit, entry_data_size: kept * 8 };
                    self.core.register_fprobe_ips(&probe, &[ip])
                }
            };
            registered.map_err(|e| Error::new(format!("{}: {e}", probe.definition)))?;
        }
        Ok(())
    }
}

impl Probing<'_> {
    /// An engine with the object and its breakpoints.
    fn engine(&self) -> Result<Box<Uc<'static>>> {
        let backend = self.object.backend;
        let mut uc = load(backend, std::iter::once(&self.object.image), Meter::default())?;
        uc.store(EXIT, backend.machine().ret);
        self.breakpoints.set(&mut *uc)?;
        Ok(uc)
    }

    /// Call a function as C does.
    fn call(&self, uc: &mut Uc, text: &str) -> Result<u64> {
        let form = || Error::new(format!("cannot read the call '{text}'; valid: f(1, 0x2, -3), with integers"));
        let (name, values) = parse_call(text).ok_or_else(form)?;
        let start = match self.object.symbol(name) {
            Symbol::One(address) if self.object.is_function(address) => address,
            _ => {
                let known = self.object.functions.iter().map(|f| &*f.name);
                return Err(Error::unknown("function", name, known));
            }
        };
        let abi = self.registers.abi;
        let in_registers = values.len().min(abi.args.len());
        let on_stack = &values[in_registers..];
        let align = u64::from(abi.sp_align);
        let mut sp = (STACK_TOP - 0x1000 - 8 * on_stack.len() as u64) / align * align;
        for (index, value) in on_stack.iter().enumerate() {
            put_word(uc, sp + 8 * index as u64, *value);
        }
        match abi.link {
            Some(link) => self.registers.set(uc, link, EXIT),
            None => {
                sp -= abi.return_bytes();
                put_word(uc, sp, EXIT);
            }
        }
        self.registers.set(uc, abi.sp, sp);
        for (reg, value) in abi.args.iter().zip(&values) {
            self.registers.set(uc, *reg, *value);
        }
        self.run(uc, start, text)
    }

    fn run(&self, uc: &mut Uc, start: u64, text: &str) -> Result<u64> {
        let astray = |at: u64, e: &dyn fmt::Display| Error::new(format!("{text} goes astray at {at:#x}: {e}"));
        let mut pc = start;
        Breakpoints::begin(uc);
        while pc != EXIT && !uc.data().is_spent() {
            match self.breakpoints.run(uc, pc) {
                Ok(at) => {
                    uc.data_mut().stopped();
                    let next = self.stopped(uc, at).ok_or_else(|| astray(at, &"nobody knows where it returns to"))?;
                    pc = if next == at { self.breakpoints.step(uc, at).map_err(|e| astray(at, &e))? } else { next };
                }
                Err(ended) => {
                    pc = uc.pc();
                    ended.map_err(|e| astray(pc, &e))?;
                    if pc != EXIT {
                        break;
                    }
                }
            }
            if self.log.borrow().len() > EVENTS {
                return Err(Error::new(format!(
                    "{text} has more than {EVENTS} events; valid: probes that are met less often"
                )));
            }
        }
        if pc == EXIT {
            return Ok(self.registers.get(uc, self.registers.abi.rets[0]));
        }
        Err(Error::new(format!(
            "{text} does not end; valid: a call of up to {INSTRUCTIONS} instructions, of which a stop at a probe counts for {STOP}"
        )))
    }
}

/// A call: `f(1, 0x2, -3)`.
fn parse_call(text: &str) -> Option<(&str, Vec<u64>)> {
    let (name, rest) = text.split_once('(')?;
    let inside = rest.trim_end().strip_suffix(')')?.trim();
    let number = |text: &str| {
        let (digits, negative) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
        let value = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => digits.parse().ok()?,
        };
        Some(if negative { value.wrapping_neg() } else { value })
    };
    let values = match inside {
        "" => Some(vec![]),
        _ => inside.split(',').map(|v| number(v.trim())).collect(),
    };
    Some((name.trim(), values?))
}

/// The definitions of a file, without those that it deletes.
fn definitions<'d>(object: &Object, file: &str, text: &'d str) -> Result<Vec<Probe<'d>>> {
    let mut list: Definitions<DEFINITIONS> = Definitions::default();
    for (index, line) in text.lines().enumerate() {
        list.line(line, object).map_err(|refused| {
            let joined = line.split('#').next().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ");
            let message = format!("{file}:{}: {}: {}", index + 1, refused.problem.name(), refused.problem.text());
            Error::marked(&message, &joined, refused.column)
        })?;
    }
    let probe = |definition: &Definition<'d>| {
        let mut kept = Vec::new();
        for argument in definition.arguments(object).filter(|_| definition.kind.returns()) {
            match argument.base {
                Base::Arg(n) if !kept.contains(&n) => kept.push(n),
                _ => {}
            }
        }
        if kept.len() > KEPT {
            return Err(Error::new(format!(
                "{definition}: {} arguments are kept for the return; valid: up to {KEPT}",
                kept.len()
            )));
        }
        Ok(Probe { definition: *definition, kept })
    };
    list.iter().map(probe).collect()
}

/// What stands where the CPU has to stop.
fn breakpoints(object: &Object, probes: &[Probe]) -> Result<Breakpoints> {
    let (mut all, machine) = (Breakpoints::default(), object.backend.machine());
    for probe in probes {
        let address = probe.definition.address;
        let of = object.function(address).ok_or_else(|| Error::new(format!("{}: no function", probe.definition)))?;
        let code = object.image.bytes(of.address, usize::try_from(of.size).unwrap_or(0)).unwrap_or_default();
        let added = all.add(machine, (of.address, code), address);
        added.map_err(|e| Error::new(format!("{}: {e}", probe.definition)))?;
    }
    [RETURN_TO_HANDLER, RETHOOK].into_iter().for_each(|at| all.stand_alone(machine, at));
    Ok(all)
}

/// Call functions of an object with probes on them: the trace, and after each call its result in a comment.
///
/// # Errors
/// The object does not link by itself, a definition is refused, a call is of no function, or a function goes astray.
pub fn probe(
    backend: &'static dyn Backend,
    input: &Input,
    (file, events): (&str, &str),
    calls: &[String],
    form: Form,
) -> Result<Vec<String>> {
    let object = Object::new(backend, input)?;
    let sites: Vec<Site> = object.functions.iter().map(|f| Site { ip: f.address, name: &f.name }).collect();
    let trampolines = Trampolines { return_to_handler: RETURN_TO_HANDLER, rethook: RETHOOK };
    let probes = definitions(&object, file, events)?;
    let probing = Probing {
        object: &object,
        registers: Registers::of(backend.machine(), &backend.facts().abi)?,
        breakpoints: breakpoints(&object, &probes)?,
        probes,
        core: Runtime::new(&sites, trampolines)
            .map_err(|e| Error::new(format!("{}: its functions: {e}", input.name)))?,
        task: Task::new(),
        form,
        log: RefCell::default(),
    };
    probing.register()?;
    let mut uc = probing.engine()?;
    for call in calls {
        let result = probing.call(&mut *uc, call)?;
        probing.log.borrow_mut().push(format!("# {call} = {result:#x}"));
    }
    Ok(probing.log.into_inner())
}
