//! QEMU's stub for GDB: packets, registers and steps of GDB's remote serial protocol (GDB manual, appendix E).

use std::io::{BufReader, Read, Write};
use std::ops::Range;
use std::process::{ChildStdin, ChildStdout};

use codegen::words::error::{Error, Result};
use quick_xml::events::Event;

/// Bytes of a reply, at most.
const LONGEST: usize = 1 << 20;
/// Bytes of a description that are asked for at once, and of memory that are written.
const PIECE: usize = 1 << 12;

/// A register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Register {
    pub name: String,
    /// The stub's number.
    number: u32,
    bytes: usize,
}

/// A stub that has stopped its CPU.
pub(super) struct Remote {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// By the numbers that the judge has.
    registers: Vec<Register>,
    /// The first of them, which the stub gives all at once, and their bytes.
    core: Vec<Range<usize>>,
    known: Vec<u8>,
    /// Some have been set since.
    changed: bool,
}

impl Remote {
    /// Learn which registers there are.
    ///
    /// # Errors
    /// The process has ended, or its stub does not describe them.
    pub fn new(to: ChildStdin, from: ChildStdout) -> Result<Remote> {
        let (registers, core, known) = Default::default();
        let mut remote = Remote { to, from: BufReader::new(from), registers, core, known, changed: false };
        let target = remote.described("target.xml")?;
        for file in attributes(&target, "xi:include", "href")? {
            let part = remote.described(&file)?;
            remote.registers.append(&mut registers_in(&part, remote.registers.last())?);
        }
        remote.look()?;
        let mut end = 0;
        for register in &remote.registers {
            let from = end;
            end += register.bytes;
            if end > remote.known.len() {
                break;
            }
            remote.core.push(from..end);
        }
        Ok(remote)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.registers.iter().map(|register| register.name.as_str())
    }

    /// The number of a register.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn number(&self, name: &str) -> Result<usize> {
        let found = self.names().position(|known| known == name);
        found.ok_or_else(|| Error::new(format!("emulator: QEMU's stub for GDB has no register {name}")))
    }

    /// Read a register.
    ///
    /// # Errors
    /// There is none of that number, or the process has ended.
    pub fn read(&mut self, register: usize) -> Result<Vec<u8>> {
        if let Some(own) = self.core.get(register) {
            return Ok(self.known.get(own.clone()).unwrap_or_default().to_vec());
        }
        let number = self.registers.get(register).map(|register| register.number);
        let number = number.ok_or_else(|| Error::new("emulator: a register that QEMU does not have"))?;
        let reply = self.ask(&format!("p{number:x}"))?;
        bytes_of(&reply)
    }

    /// Set the first bytes of a register, of which the mask has a bit; without a mask all of them. Of a system register, the stub
    /// does not say whether it has taken it.
    ///
    /// # Errors
    /// There is none of that number, or the process has ended.
    pub fn write(&mut self, register: usize, value: &[u8], mask: Option<&[u8]>) -> Result<()> {
        let mut new = self.read(register)?;
        for (n, (to, byte)) in new.iter_mut().zip(value).enumerate() {
            let mask = mask.map_or(0xff, |mask| mask.get(n).copied().unwrap_or(0));
            *to = *to & !mask | byte & mask;
        }
        if let Some(own) = self.core.get(register) {
            self.known.get_mut(own.clone()).unwrap_or_default().copy_from_slice(&new);
            self.changed = true;
            return Ok(());
        }
        let number = self.registers.get(register).map_or(0, |register| register.number);
        self.do_so(&format!("P{number:x}={}", hex(&new)))
    }

    /// Write memory, at a virtual address.
    ///
    /// # Errors
    /// There is none, or the process has ended.
    pub fn store(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let pieces = (at..).step_by(PIECE).zip(bytes.chunks(PIECE));
        pieces
            .map(|(at, piece)| format!("M{at:x},{:x}:{}", piece.len(), hex(piece)))
            .try_for_each(|all| self.do_so(&all))
    }

    /// One instruction.
    ///
    /// # Errors
    /// The process has ended.
    pub fn step(&mut self) -> Result<()> {
        self.put()?;
        self.go_on("s")
    }

    /// Run as far as this instruction.
    ///
    /// # Errors
    /// The process has ended, or something else stopped the CPU.
    pub fn run_to(&mut self, at: u64) -> Result<()> {
        self.do_so(&format!("Z0,{at:x},4"))?;
        self.put()?;
        self.go_on("c")?;
        self.do_so(&format!("z0,{at:x},4"))
    }

    /// Go on so, until a step or a breakpoint: the signal is SIGTRAP.
    fn go_on(&mut self, how: &str) -> Result<()> {
        let stopped = self.ask(how)?;
        if stopped.starts_with(b"T05") || stopped.starts_with(b"S05") { self.look() } else { Err(odd(&stopped)) }
    }

    /// Learn what the first registers are.
    ///
    /// # Errors
    /// The process has ended.
    pub fn look(&mut self) -> Result<()> {
        self.known = bytes_of(&self.ask("g")?)?;
        Ok(())
    }

    /// Set those of the first registers that have changed.
    fn put(&mut self) -> Result<()> {
        if std::mem::take(&mut self.changed) { self.do_so(&format!("G{}", hex(&self.known))) } else { Ok(()) }
    }

    /// A part of the description.
    fn described(&mut self, file: &str) -> Result<String> {
        let mut all = Vec::new();
        loop {
            let reply = self.ask(&format!("qXfer:features:read:{file}:{:x},{PIECE:x}", all.len()))?;
            let (first, rest) = reply.split_first().ok_or_else(|| odd(&reply))?;
            all.extend_from_slice(rest);
            match first {
                b'm' if !rest.is_empty() && all.len() < LONGEST => {}
                b'l' => return String::from_utf8(all).map_err(|e| odd(e.as_bytes())),
                _ => return Err(odd(&reply)),
            }
        }
    }

    /// A packet that is answered with OK.
    fn do_so(&mut self, packet: &str) -> Result<()> {
        match self.ask(packet)?.as_slice() {
            b"OK" => Ok(()),
            reply => Err(odd(reply)),
        }
    }

    /// A packet and its answer. A plus says that the last answer has come.
    fn ask(&mut self, packet: &str) -> Result<Vec<u8>> {
        let sum = packet.bytes().fold(0, u8::wrapping_add);
        let written = self.to.write_all(format!("+${packet}#{sum:02x}").as_bytes());
        written.and_then(|()| self.to.flush()).map_err(gone)?;
        while self.next()? != b'$' {}
        let mut reply = Vec::new();
        loop {
            match self.next()? {
                b'#' => break,
                b'}' => reply.push(self.next()? ^ 0x20),
                byte => reply.push(byte),
            }
            if reply.len() > LONGEST {
                return Err(odd(b"more than a reply can be"));
            }
        }
        // Nothing is lost in a pipe: the sum says no more than its two digits.
        self.next().and_then(|_| self.next())?;
        Ok(reply)
    }

    fn next(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.from.read_exact(&mut byte).map_err(gone)?;
        Ok(byte[0])
    }
}

fn gone(e: std::io::Error) -> Error {
    Error::new(format!("emulator: QEMU's stub for GDB: {e}"))
}

fn odd(reply: &[u8]) -> Error {
    let reply = String::from_utf8_lossy(reply.get(..80).unwrap_or(reply)).into_owned();
    Error::new(format!("emulator: QEMU's stub for GDB answers {reply:?}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(reply: &[u8]) -> Result<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8; 2]| Some((digit(&pair[0])? << 4 | digit(&pair[1])?) as u8);
    let (pairs, rest) = reply.as_chunks();
    let all: Option<Vec<u8>> = pairs.iter().map(pair).collect();
    all.filter(|_| rest.is_empty()).ok_or_else(|| odd(reply))
}

/// The elements of a name in a description, each with its attributes.
fn elements(xml: &str, name: &str) -> Result<Vec<Vec<(String, String)>>> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut found = Vec::new();
    loop {
        match reader.read_event().map_err(|e| odd(e.to_string().as_bytes()))? {
            Event::Start(element) | Event::Empty(element) if element.name().as_ref() == name.as_bytes() => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let all = element.attributes().flatten();
                found.push(all.map(|all| (text(all.key.as_ref()), text(&all.value))).collect());
            }
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}

/// An attribute of each element of a name.
fn attributes(xml: &str, name: &str, attribute: &str) -> Result<Vec<String>> {
    let all = elements(xml, name)?.into_iter().flatten().filter(|(key, _)| key == attribute);
    Ok(all.map(|(_, value)| value).collect())
}

/// The registers of a description, whose first, if nothing says otherwise, is numbered behind the last one.
fn registers_in(xml: &str, last: Option<&Register>) -> Result<Vec<Register>> {
    let mut next = last.map_or(0, |last| last.number + 1);
    let register = |all: Vec<(String, String)>| {
        let value = |wanted: &str| all.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone());
        let number = value("regnum").and_then(|number| number.parse().ok()).unwrap_or(next);
        next = number + 1;
        let bits: usize = value("bitsize").and_then(|bits| bits.parse().ok()).ok_or_else(|| odd(xml.as_bytes()))?;
        Ok(Register { name: value("name").unwrap_or_default(), number, bytes: bits / 8 })
    };
    elements(xml, "reg")?.into_iter().map(register).collect()
}
