//! Where things are in the image: functions under trace, their layer, trampolines.

use std::collections::HashMap;

use codegen::ask::frame::Content;
use codegen::ask::kind::{Kind, Regs};
use codegen::contract::Contract;
use codegen::words::error::{Error, Result};
use compose::{FUNCTIONS, HANDLER, OUTSIDE, address};
use link::{Image, SiteEntry};

use crate::judge::suite::Suite;
use crate::run::thread::Words;

/// Functions under trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions {
    /// By this name one chooses them.
    pub name: &'static str,
    /// What they are called, without their number: of words, words on the stack, a result in two registers, one in memory.
    pub(super) signature: &'static str,
    /// Where nobody changes what runs, they are entered through paired trampolines.
    pub(super) paired: bool,
}

const fn replaced(signature: &'static str) -> Functions {
    Functions { name: signature, signature, paired: false }
}

/// All of them. Between a paired trampoline's function and its caller is a frame, so none of those has arguments on the stack.
pub const FUNCTIONS_UNDER_TRACE: [Functions; 7] = [
    replaced("word"),
    replaced("stack"),
    replaced("pair"),
    replaced("big"),
    Functions { name: "word-paired", signature: "word", paired: true },
    Functions { name: "pair-paired", signature: "pair", paired: true },
    Functions { name: "big-paired", signature: "big", paired: true },
];

/// Paired trampolines, each with its function.
pub fn paired_names() -> impl Iterator<Item = (String, String)> {
    let paired = FUNCTIONS_UNDER_TRACE.into_iter().filter(|functions| functions.paired);
    let each = paired.flat_map(|Functions { signature, .. }| (0..FUNCTIONS).map(move |f| format!("{signature}_{f}")));
    each.map(|function| (format!("composed_around_{function}"), function))
}

/// The C functions that they call.
pub const PAIRED_HANDLERS: [&str; 2] = ["paired_entry", "paired_return"];

/// Direct trampolines: two for each of so many users.
const DIRECTS: usize = 32;
/// No offset.
const NONE: u64 = u64::MAX;

/// The name of a direct trampoline.
#[must_use]
pub fn direct_name(index: usize) -> String {
    format!("composed_direct_{index}")
}

/// The C function that direct trampolines call.
pub const DIRECT_HANDLER: &str = "direct_handler";

/// Recorders: two for each of so many users.
const RECORDERS: usize = 16;

/// The name of a direct trampoline that records, with its number in records.
pub fn recorder_names() -> impl Iterator<Item = (String, u32)> {
    (0..RECORDERS as u32).map(|id| (format!("composed_recorder_{id}"), id))
}

/// Arguments in their records: the number of a call is the second where the address of the result is the first.
pub const RECORDER_ARGS: u8 = 2;

/// Where a recorder goes on, and bytes behind it.
pub const AFTER_RECORDER: (&str, i32) = ("recorded", 8);

/// The names of all direct trampolines.
pub fn direct_names() -> impl Iterator<Item = String> {
    (0..DIRECTS).map(direct_name)
}

/// What happens when the CPU comes to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// `host`.
    Host,
    /// The entry of a function.
    Entry(u64),
    /// Behind its site.
    Inside(u64),
    /// A direct trampoline.
    Direct(usize),
}

/// Functions under trace, in the image.
pub(super) struct Family {
    pub signature: &'static str,
    /// The paired trampoline of each, and its bytes; none where returns are replaced.
    pub around: Vec<(u64, u64)>,
    /// Where they begin, and what is traced.
    pub starts: Vec<u64>,
    pub sites: Vec<SiteEntry>,
    pub ends: Vec<u64>,
    /// Who calls for handlers, and who calls what nobody calls.
    pub handler: u64,
    pub outside: u64,
}

/// All of it.
pub(super) struct Places {
    pub families: Vec<Family>,
    /// Where calls come from: range of addresses, and what the model has for it.
    callers: Vec<(u64, u64, u64)>,
    /// What lies behind the sites of functions, by where they begin.
    pub insides: HashMap<u64, u64>,
    pub points: HashMap<u64, Point>,
    /// Direct trampolines, and those that record.
    pub directs: [Vec<u64>; 2],
    /// Of the thread: where the next record begins, and how far there is room.
    pub cursor: u64,
    pub limit: u64,
    /// What sites call: nothing but arguments, all registers.
    pub caller: u64,
    pub regs_caller: u64,
    pub ops: u64,
    pub mail: u64,
    pub begin: u64,
    /// Address ranges that a replaced return address can lead to, in trampolines.
    pub returns: Vec<(u64, u64)>,
    /// Where a thread's stack begins.
    pub bottom: (u64, u64),
    /// The image, of which the unwind table is read.
    pub image: Image,
}

pub(super) fn symbol(image: &Image, name: &str) -> Result<u64> {
    let found = image.symbol(name).map(|s| s.address);
    found.ok_or_else(|| Error::new(format!("the core's objects have no {name}; valid: those made for this version")))
}

impl Places {
    pub fn of(image: &Image, suite: &Suite) -> Result<Places> {
        let (mut families, mut callers, mut points) = (vec![], vec![], HashMap::new());
        let mut insides = HashMap::new();
        let extent = |name: &str| Ok::<_, Error>((symbol(image, name)?, image.symbol(name).map_or(0, |s| s.size)));
        let paired = suite.contracts.iter().any(|c| matches!(c.kind, Kind::Around(_)));
        for Functions { signature, paired, .. } in FUNCTIONS_UNDER_TRACE.into_iter().filter(|f| paired || !f.paired) {
            let (mut starts, mut sites, mut ends, mut around) = (vec![], vec![], vec![], vec![]);
            for f in 0..FUNCTIONS {
                let name = format!("{signature}_{f}");
                let start = symbol(image, &name)?;
                let end = start + image.symbol(&name).map_or(0, |s| s.size);
                let site = image.sites.iter().find(|site| site.start == start);
                let site = site.ok_or_else(|| Error::new(format!("{name} has no site; valid: functions with one")))?;
                points.insert(start, Point::Entry(f));
                let inside = site.ip + u64::from(suite.convention.site.ip_offset.unsigned_abs());
                points.insert(inside, Point::Inside(f));
                insides.insert(start, inside);
                callers.push((start, end, address(f) + 0x100));
                starts.push(start);
                ends.push(end);
                sites.push(site.clone());
                if paired {
                    around.push(extent(&format!("composed_around_{name}"))?);
                }
            }
            let mut from = |what: &str, parent: u64| {
                let at = symbol(image, &format!("{signature}_{what}"))?;
                let size = image.symbol(&format!("{signature}_{what}")).map_or(0, |s| s.size);
                callers.push((at, at + size, parent));
                Ok::<u64, Error>(at)
            };
            let (handler, outside) = (from("handler", HANDLER)?, from("outside", OUTSIDE)?);
            families.push(Family { signature, around, starts, sites, ends, handler, outside });
        }
        points.insert(symbol(image, "host")?, Point::Host);
        let directs = direct_names().map(|name| symbol(image, &name)).collect::<Result<Vec<u64>>>()?;
        let recorders = recorder_names().map(|(name, _)| symbol(image, &name)).collect::<Result<Vec<u64>>>()?;
        let words = suite.contracts.iter().find_map(Words::of);
        let Words { cursor, limit, .. } = words.ok_or_else(|| Error::new("no recorder; valid: a suite with some"))?;
        points.extend(directs.iter().enumerate().map(|(index, at)| (*at, Point::Direct(index))));
        let entry = |test: &dyn Fn(&Contract) -> bool| {
            let found = suite.contracts.iter().find(|c| matches!(c.kind, Kind::Entry(_)) && test(c));
            found.map(|c| symbol(image, &c.name)).transpose()
        };
        let caller = entry(&|c| c.kind == Kind::Entry(Regs::Args))?;
        let caller = caller.ok_or_else(|| Error::new("no entry trampoline; valid: a profile with one"))?;
        // Whoever has a direct call besides needs one that can go there; and one whose own call is patched, since what both
        // take from one place would not know whose frame it is given.
        let own = |c: &Contract| suite.slots.iter().any(|label| owns(c, label));
        let regs_caller = entry(&|c| c.kind == Kind::Entry(Regs::All) && c.direct && own(c))?.unwrap_or(caller);
        // The words lie behind four pointers.
        let mail = symbol(image, "outside")? + 32;
        let (ops, begin) = (symbol(image, "ops")?, symbol(image, "begin")?);
        let returning = suite.contracts.iter().filter(|c| matches!(c.kind, Kind::Return | Kind::Rethook));
        let returns = returning.map(|c| extent(&c.name)).collect::<Result<_>>()?;
        let (bottom, image) = (extent("switched")?, image.clone());
        Ok(Places {
            families,
            callers,
            insides,
            points,
            directs: [directs, recorders],
            cursor,
            limit,
            caller,
            regs_caller,
            ops,
            mail,
            begin,
            returns,
            bottom,
            image,
        })
    }

    /// What the model has for a return address.
    pub fn parent(&self, at: u64) -> u64 {
        self.caller_at(at).unwrap_or(at)
    }

    /// The same, if the address is in somebody who calls.
    pub fn caller_at(&self, at: u64) -> Option<u64> {
        let found = self.callers.iter().find(|(start, end, _)| (*start..*end).contains(&at));
        found.map(|(.., parent)| *parent)
    }

    /// The function that the core knows by this address.
    pub fn function(&self, ip: u64) -> u64 {
        let of = |family: &Family| family.sites.iter().position(|site| site.ip == ip);
        self.families.iter().find_map(of).map_or(u64::MAX, |f| f as u64)
    }
}

/// Of a trampoline's frame: `struct layout` of the layer.
pub(super) fn layout(contract: &Contract) -> Vec<u64> {
    let offset = |content| {
        let found = contract.frame.find(content).and_then(|index| contract.frame.fields.get(index));
        found.map_or(NONE, |field| u64::from(field.offset.unsigned_abs()))
    };
    let abi = &contract.facts.abi;
    let sp = match offset(Content::SiteSp) {
        NONE => offset(Content::ExitSp),
        at => at,
    };
    let parent = abi.link.map_or(NONE, |_| offset(Content::ParentIp));
    let argument = |i: usize| abi.args.get(i).map_or(NONE, |reg| offset(Content::Reg(*reg)));
    let result = abi.rets.first().map_or(NONE, |reg| offset(Content::Result(*reg)).min(offset(Content::Reg(*reg))));
    let mut words = vec![offset(Content::Pc), parent, sp, offset(Content::Direct)];
    words.extend((0..8).map(argument));
    words.push(result);
    words
}

/// Is this label, of a call that is patched, in this trampoline?
pub(super) fn owns(contract: &Contract, label: &str) -> bool {
    let stem = contract.name.trim_end_matches("_caller");
    label.starts_with(stem) && (stem.ends_with("_regs") || !label.contains("_regs_"))
}
