//! What kprobes have in the place of probed instructions: copies of these, and detours to which jumps lead. Each is found by the
//! kernel's own table of probes (kernel include/linux/kprobes.h; arch/*/include/asm/kprobes.h).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use codegen::ask::frame::{Content, FrameLayout};
use codegen::ask::kind::{Kind, Regs};
use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::words::abi::Abi;
use codegen::words::error::{Error, Result};
use emu_tests::{Suite, first_size, first_target};
use tramptool::internal::settings;

use super::found::{Found, suite};
use super::kernel::Kernel;
use super::symbols::Symbol;
use super::types::Types;

/// The pages of copies, and those of detours.
const PAGES: [&str; 2] = ["kprobe_insn_page", "kprobe_optinsn_page"];

/// Lists in the table (kernel kernel/kprobes.c, `KPROBE_TABLE_SIZE`).
const LISTS: u64 = 64;
/// Probes that are looked at.
const MOST: usize = 4096;
/// A jump takes the place of the breakpoint, or is about to (`KPROBE_FLAG_OPTIMIZED`).
const OPTIMIZED: u64 = 4;
/// Bytes of instructions that a jump takes the place of, with those of the last that it does not overwrite.
const DISPLACED: u64 = 20;
/// Bytes of the longest instruction.
const LONGEST: u64 = 15;
/// Bytes of a jump, and of what is behind its first byte.
const JUMP: usize = 5;
/// Bytes behind the first instruction of a slot that are read: a detour, copies, and what follows them.
const SLOT: u64 = 256;
/// A probe at an instruction.
struct Probe {
    /// The kernel's structure of it.
    at: u64,
    /// The instruction.
    place: u64,
    /// Its copy; 0 if the kernel does without one.
    copy: u64,
    /// The detour to which a jump leads; 0 without one.
    detour: u64,
    /// How many bytes the jump has displaced.
    displaced: u64,
    /// What stood there.
    before: Vec<u8>,
}

/// All that the kernel has for its probes, and the pages that none of them uses.
pub fn probes(kernel: &Kernel, backend: &'static dyn Backend, profile: &'static Profile) -> Vec<Found> {
    let pages: Vec<&Symbol> = kernel.symbols.all().filter(|symbol| PAGES.contains(&symbol.name.as_str())).collect();
    if pages.is_empty() {
        return Vec::new();
    }
    let unjudged = |name: &str, at: u64, e: Error| Found { name: format!("{name}@{at:#x}"), judged: Err(e) };
    let all = match table(kernel, backend) {
        Ok(all) => all,
        Err(e) => return pages.iter().map(|page| unjudged(&page.name, page.address, e.clone())).collect(),
    };
    let (mut found, mut used) = (Vec::new(), BTreeSet::new());
    for (at, probe) in all {
        let probe = match probe {
            Ok(probe) => probe,
            Err(e) => {
                found.push(unjudged("kprobe", at, e));
                continue;
            }
        };
        let place = kernel
            .symbols
            .before(probe.place)
            .map_or(String::new(), |symbol| format!("{}+{:#x}", symbol.name, probe.place - symbol.address));
        for (word, slot) in [("kprobe", probe.copy), ("optprobe", probe.detour)].into_iter().filter(|(_, at)| *at != 0)
        {
            used.extend(kernel.symbols.before(slot).map(|page| page.address));
            let symbol = Symbol { address: slot, name: format!("{word}:{place}"), module: String::new() };
            let judged = if word == "kprobe" {
                copied(kernel, (backend, profile), &symbol, &probe)
            } else {
                detour(kernel, (backend, profile), &symbol, &probe)
            };
            found.push(Found { name: format!("{}@{slot:#x}", symbol.name), judged });
        }
    }
    let idle = pages.iter().filter(|page| !used.contains(&page.address));
    found.extend(idle.map(|page| {
        unjudged(&page.name, page.address, Error::new("no probe of the kernel's table runs anything in this page now"))
    }));
    found
}

/// Where the kernel's structures have what is read of them, in bytes.
struct Layout {
    place: u64,
    /// First byte and bytes of what stood at the probe.
    opcode: (u64, u64),
    copy: u64,
    /// The function by which the kernel does the instruction itself, where the architecture has that.
    emulates: Option<u64>,
    flags: u64,
    /// The detour, how many bytes a jump to it displaces, and what these are: where the architecture has detours.
    detour: Option<[u64; 3]>,
}

impl Layout {
    fn of(types: &Types) -> Result<Layout> {
        let member = |path: &[&str]| types.member("kprobe", path);
        // The architectures name it differently, and have done so in different places.
        let copies = [&["ainsn", "xol_insn"][..], &["ainsn", "insn"], &["ainsn", "api", "insn"]];
        let copy = copies.iter().find_map(|path| member(path).ok());
        let detour = |name| types.member("optimized_kprobe", &["optinsn", name]).ok();
        Ok(Layout {
            place: member(&["addr"])?,
            opcode: (member(&["opcode"])?, types.size("kprobe", &["opcode"])?),
            copy: copy.ok_or_else(|| Error::new("the kernel's struct kprobe names no copy of its instruction"))?,
            emulates: member(&["ainsn", "emulate_op"]).ok(),
            flags: member(&["flags"])?,
            detour: detour("insn")
                .zip(detour("size"))
                .zip(detour("copied_insn"))
                .map(|((at, size), by)| [at, size, by]),
        })
    }
}

/// The probes in the kernel's table, by the addresses of its structures.
fn table(kernel: &Kernel, backend: &dyn Backend) -> Result<Vec<(u64, Result<Probe>)>> {
    let types =
        kernel.types.as_ref().ok_or_else(|| Error::new("the kernel's types are not given; valid: --btf FILE"))?;
    let (layout, first) = (Layout::of(types)?, kernel.symbols.one("kprobe_table")?.address);
    let mut all = Vec::new();
    for list in 0..LISTS {
        // A list's links come first in each structure.
        let mut at = kernel.word(first.wrapping_add(8 * list))?;
        while at != 0 {
            if all.len() == MOST {
                return Err(Error::new(format!("the kernel's table has more than {MOST} probes")));
            }
            all.push((at, probe(kernel, backend, &layout, at)));
            at = kernel.word(at)?;
        }
    }
    Ok(all)
}

/// The probe of which the kernel has this structure.
fn probe(kernel: &Kernel, backend: &dyn Backend, layout: &Layout, at: u64) -> Result<Probe> {
    let word = |offset: u64| kernel.word(at.wrapping_add(offset));
    let bytes = |(offset, size): (u64, u64)| kernel.memory.read(at.wrapping_add(offset), size);
    let place = word(layout.place)?;
    let emulated = layout.emulates.map(word).transpose()?.is_some_and(|function| function != 0);
    let mut before = kernel.memory.read(place, DISPLACED + LONGEST)?;
    overwrite(&mut before, 0, &bytes(layout.opcode)?);
    let (mut detour, mut displaced) = (0, 0);
    if let Some([to, size, by]) = layout.detour
        && word(layout.flags)? & OPTIMIZED != 0
    {
        let to = word(to)?;
        // The kernel says so as soon as a jump is to be written: only if it is there has it displaced more than a breakpoint.
        if first_target(backend, &kernel.memory.read(place, LONGEST)?, place) == Some(to) {
            (detour, displaced) = (to, word(size)?);
            overwrite(&mut before, 1, &bytes((by, JUMP as u64 - 1))?);
        }
    }
    let copy = if emulated { 0 } else { word(layout.copy)? };
    Ok(Probe { at, place, copy, detour, displaced, before })
}

/// Put these bytes there.
fn overwrite(bytes: &mut [u8], from: usize, with: &[u8]) {
    bytes.iter_mut().skip(from).zip(with).for_each(|(byte, with)| *byte = *with);
}

/// The code of a slot, of which only what the page has is read.
fn code(kernel: &Kernel, slot: u64) -> Result<Vec<u8>> {
    kernel.memory.read(slot, SLOT.min(link::PAGE - slot % link::PAGE))
}

/// An instruction that runs where it was copied to.
fn copied(
    kernel: &Kernel,
    (backend, profile): (&'static dyn Backend, &'static Profile),
    symbol: &Symbol,
    probe: &Probe,
) -> Result<Suite> {
    let code = code(kernel, symbol.address)?;
    let size = first_size(backend, &probe.before, probe.place)?;
    let instruction = probe.before.get(..size).unwrap_or_default();
    // Behind it is a breakpoint, or, where the kernel for x86_64 knows that the instruction goes on, a jump back.
    let trap = backend.machine().step_trap;
    let jumps = first_target(backend, code.get(size..).unwrap_or_default(), symbol.address + size as u64);
    let trap = if jumps == Some(probe.place.wrapping_add(size as u64)) { &[][..] } else { trap };
    let mut text = head(backend, profile)?;
    let _ = writeln!(text, "about = \"an instruction that a kprobe has copied\"\n\n{}", trampoline(symbol));
    let _ = writeln!(text, "stack-align = 1\ndisplaced = {}", displaced(probe, instruction, 0, trap));
    suite(kernel, (backend, profile), (symbol, code), (&text, BTreeMap::new()))
}

/// What a jump leads to that has taken the place of a breakpoint.
fn detour(
    kernel: &Kernel,
    (backend, profile): (&'static dyn Backend, &'static Profile),
    symbol: &Symbol,
    probe: &Probe,
) -> Result<Suite> {
    let code = code(kernel, symbol.address)?;
    let [entry, end] = ["optprobe_template_entry", "optprobe_template_end"].map(|name| kernel.symbols.one(name));
    let own = end?.address.checked_sub(entry?.address);
    let own = own.ok_or_else(|| Error::new("optprobe_template_end comes before optprobe_template_entry"))?;
    let callback = kernel.symbols.one("optimized_callback")?.address;
    let facts = backend.facts();
    let target = settings::target(backend, profile.convention(facts.name)?, &[])?;
    let before = usize::try_from(probe.displaced).ok().and_then(|size| probe.before.get(..size));
    let before = before.ok_or_else(|| Error::new(format!("a jump in the place of {} bytes", probe.displaced)))?;
    let mut text = head(backend, profile)?;
    let _ = writeln!(text, "about = \"the detour of a kprobe\"\n");
    text += &frame(&*target.frame(Kind::Entry(Regs::All))?, &facts.abi);
    let _ =
        writeln!(text, "{}\ncalls = \"optimized_callback\"\nstack-align = {}", trampoline(symbol), target.stack_align);
    let _ = writeln!(text, "arguments = [\"&{:#x}\", \"frame\"]\nframe = \"pt_regs\"", probe.at);
    let _ = writeln!(text, "displaced = {}", displaced(probe, before, own, &[]));
    // Nothing but memmove sets DF, and no probe may be in that (kernel arch/x86/lib/memmove_64.S, .noinstr.text).
    let clear = if has_smap(kernel) { "\"df\"" } else { "\"df\", \"ac\"" };
    let _ = writeln!(text, "site = {{ clear-flags = [{clear}] }}");
    let names = BTreeMap::from([(callback, "optimized_callback".to_owned())]);
    suite(kernel, (backend, profile), (symbol, code), (&text, names))
}

/// The frame that it shows: registers and flags, in which stores take effect. Its other words are the handler's to fill in (kernel
/// arch/x86/kernel/kprobes/opt.c, `optimized_callback`).
fn frame(regs: &FrameLayout, abi: &Abi) -> String {
    let mut text = format!("[frame.pt_regs]\nstruct = \"pt_regs\"\nsize = {}\n\n", regs.c_size);
    for field in &regs.fields {
        let (name, offset) = match field.content {
            Content::Reg(reg) if reg != abi.sp => (abi.name(reg), field.offset),
            Content::Flags => ("flags", field.offset),
            _ => continue,
        };
        let _ = writeln!(text, "[[frame.pt_regs.field]]\nmember = {name:?}\noffset = {offset}\nholds = {name:?}");
        text.push_str("stores = \"take-effect\"\n\n");
    }
    text
}

fn head(backend: &dyn Backend, profile: &'static Profile) -> Result<String> {
    let facts = backend.facts();
    Ok(format!("arch = {:?}\nprofile = {:?}\n", facts.name, profile.convention(facts.name)?.argument))
}

fn trampoline(symbol: &Symbol) -> String {
    format!(
        "[[trampoline]]\nsymbol = {:?}\nkind = \"displaced\"\npromises = \"transparent\"\nhandlers = \"general\"",
        symbol.name
    )
}

/// What has been displaced, as a contract says it.
fn displaced(probe: &Probe, before: &[u8], copies: u64, breakpoint: &[u8]) -> String {
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (place, before, breakpoint) = (probe.place, digits(before), digits(breakpoint));
    format!("{{ at = \"{place:#x}\", instructions = \"{before}\", copies = {copies}, breakpoint = \"{breakpoint}\" }}")
}

/// Does this kernel use SMAP? Its entries clear AC then, and without it AC is never set in a kernel (kernel
/// arch/x86/include/asm/smap.h, `ASM_CLAC`).
fn has_smap(kernel: &Kernel) -> bool {
    const CLAC: [u8; 3] = [0x0f, 0x01, 0xca];
    let entry = kernel.symbols.one("asm_exc_page_fault").and_then(|entry| kernel.memory.read(entry.address, 16));
    entry.map_or(true, |code| code.windows(CLAC.len()).any(|three| three == CLAC))
}
