//! Text to profile: how sites are laid out and written, and how entry trampolines are copied.

use crate::read::{Path, Reader, join, keys};
use crate::schema::{AlternativesIn, CopiesIn, EntryFieldIn, SiteIn, SpecialIn, WriteIn};
use codegen::arch::facts::Facts;
use codegen::arch::patch::{AlternativeEntry, Branch, EntryField, Half};
use codegen::arch::site::{Copies, OpLiteral, Protocol, Site, SiteWrite, What};
use codegen::words::error::Result;

impl Reader<'_> {
    pub(crate) fn site(&self, site: &SiteIn, entry: Option<&'static str>, facts: &Facts, at: Path) -> Result<Site> {
        let abi = &facts.abi;
        let arrives = join(at, keys!["arrives"]);
        let place = |text: &Option<String>, key: &str| {
            let path = join(at, keys![key]);
            self.loc(self.need(text, &path)?, abi, &path)
        };
        let resume = join(at, keys!["resume"]);
        let reach = join(at, keys!["reach"]);
        let ip_offset = join(at, keys!["ip-offset"]);
        let between = join(at, keys!["between"]);
        let offset = *self.need(&site.ip_offset, &ip_offset)?;
        let most = Site::MOST_IP_OFFSET;
        if !(0..=most).contains(&offset) {
            return Err(self.at(&ip_offset, format!("ip-offset = {offset}; valid: 0 to {most}")));
        }
        Ok(Site {
            arrives: self.sentence(self.need(&site.arrives, &arrives)?, &arrives)?,
            pc: place(&site.pc, "pc")?,
            parent_ip: place(&site.parent_ip, "parent-ip")?,
            pushed: site.pushed,
            ip_offset: offset,
            scratch: self.registers(&site.scratch, abi, &join(at, keys!["scratch"]))?,
            live: self.registers(&site.live, abi, &join(at, keys!["live"]))?,
            resume: match &site.resume[..] {
                [] => None,
                [into, parent] => {
                    let reg = |i: usize, name| self.register(name, abi, &join(&resume, keys![i]));
                    Some((reg(0, into)?, reg(1, parent)?))
                }
                _ => return Err(self.at(&resume, "valid: two registers, or none")),
            },
            lost: self.registers(&site.lost, abi, &join(at, keys!["lost"]))?,
            direct: match &site.direct {
                Some(name) => Some(self.register(name, abi, &join(at, keys!["direct"]))?),
                None => None,
            },
            direct_jumps: site.direct_jumps,
            reach: *self.need(&site.reach, &reach)?,
            between: match &site.between {
                Some(text) if !text.is_empty() => Some(self.sentence(text, &between)?),
                _ => None,
            },
            recorded: site.recorded,
            entry,
            protocol: self.protocol(site, facts, at)?,
        })
    }

    fn protocol(&self, site: &SiteIn, facts: &Facts, at: Path) -> Result<Protocol> {
        let literal = match site.op_literal {
            Some(literal) if !literal.align.is_power_of_two() => {
                return Err(self.at(&join(at, keys!["op-literal", "align"]), "valid: a power of two"));
            }
            Some(literal) => Some(OpLiteral { before: literal.before, align: literal.align }),
            None => None,
        };
        // Whether it is known then where the site goes.
        let writes = |writes: &[WriteIn], key: &str, goes: bool| {
            let each = writes.iter().enumerate();
            let write = |(i, w)| self.write(w, literal.is_some(), goes, facts, &join(at, keys![key, i]));
            each.map(write).collect::<Result<Vec<_>>>()
        };
        Ok(Protocol {
            literal,
            initial: writes(&site.initial, "initial", false)?,
            disabled: writes(&site.disabled, "disabled", false)?,
            call: writes(&site.call, "call", true)?,
            jump: writes(&site.jump, "jump", true)?,
            near: site.near,
            breakpoint: match &site.breakpoint {
                Some(name) => Some(self.insn(name, facts, &join(at, keys!["breakpoint"]))?.to_vec()),
                None => None,
            },
        })
    }

    fn write(&self, write: &WriteIn, literal: bool, goes: bool, facts: &Facts, at: Path) -> Result<SiteWrite> {
        const BRANCHES: [(&str, Branch); 2] = [("call", Branch::SiteCall), ("jump", Branch::SiteJump)];
        const HALVES: [(&str, Half); 2] = [("first", Half::First), ("second", Half::Second)];
        let branch = write.branch.as_ref().map(|b| self.word(b, &BRANCHES, "branch", &join(at, keys!["branch"])));
        let half = write.half.as_ref().map(|h| self.word(h, &HALVES, "half", &join(at, keys!["half"])));
        if let Some(name) = &write.nop_op {
            let alone =
                write.insns.is_empty() && (&write.branch, &write.half, write.op, goes) == (&None, &None, false, false);
            if !alone || !literal {
                let valid = "`nop-op` is written alone, by a site that is off; valid: in `disabled`, with `op-literal`";
                return Err(self.at(at, valid));
            }
            let what = What::NopOp(self.symbol(name, &join(at, keys!["nop-op"]))?);
            return Ok(SiteWrite { at: write.at, what });
        }
        let what = match (&write.insns[..], branch.transpose()?, half.transpose()?, write.op) {
            ([], Some(how), Some(Half::First), false) => What::Half(how, Half::First),
            ([], Some(_), ..) if !goes => {
                return Err(self.at(at, "a site that is off goes nowhere; valid: `insns`, or `half = \"first\"`"));
            }
            ([], Some(how), Some(half), false) => What::Half(how, half),
            ([], Some(how), None, false) => What::Branch(how),
            ([], None, None, true) if literal => What::Op,
            ([], None, None, true) => {
                return Err(self.at(at, "writes the `ftrace_ops`; valid: with `op-literal`"));
            }
            (insns @ [_, ..], None, None, false) => What::Bytes(self.insns(insns, facts, &join(at, keys!["insns"]))?),
            _ => return Err(self.at(at, "valid: one of `insns`, `branch`, which may have a `half`, and `op`")),
        };
        Ok(SiteWrite { at: write.at, what })
    }

    pub(crate) fn copies(&self, copies: &CopiesIn, facts: &Facts, at: Path) -> Result<Copies> {
        let jmp = match &copies.jmp {
            Some(jmp) => {
                let at = join(at, keys!["jmp"]);
                let was = self.insn(&jmp.was, facts, &join(&at, keys!["was"]))?.to_vec();
                Some((was, self.insns(&jmp.becomes, facts, &join(&at, keys!["becomes"]))?))
            }
            None => None,
        };
        Ok(Copies { jmp, end: self.insns(&copies.end, facts, &join(at, keys!["end"]))? })
    }

    pub(crate) fn alternatives(&self, entry: AlternativesIn, at: Path) -> Result<AlternativeEntry> {
        let field = |field: EntryFieldIn, name| match field {
            EntryFieldIn { at, bytes: bytes @ 1..=2 } if at >= 8 && at.saturating_add(bytes) <= entry.size => {
                Ok(EntryField { at, bytes })
            }
            _ => Err(self.at(&join(at, keys![name]), "valid: 1 or 2 bytes of the entry, behind the first 8")),
        };
        let special = entry.special.map(|SpecialIn { at: place, bytes, mask }| {
            let field = field(EntryFieldIn { at: place, bytes }, "special")?;
            if mask == 0 || mask >> (8 * bytes) != 0 {
                return Err(self.at(&join(at, keys!["special", "mask"]), "valid: bits of the field"));
            }
            Ok((field, mask))
        });
        Ok(AlternativeEntry {
            size: entry.size,
            length: field(entry.length, "length")?,
            replacement_length: field(entry.replacement_length, "replacement-length")?,
            special: special.transpose()?,
        })
    }

    /// The bytes of these instructions.
    fn insns(&self, names: &[String], facts: &Facts, at: Path) -> Result<Vec<u8>> {
        let each = names.iter().enumerate().map(|(i, name)| self.insn(name, facts, &join(at, keys![i])));
        Ok(each.collect::<Result<Vec<_>>>()?.concat())
    }

    fn insn(&self, name: &str, facts: &Facts, at: Path) -> Result<&'static [u8]> {
        self.word(name, facts.patched, &format!("instruction of sites of {}", facts.name), at)
    }
}
