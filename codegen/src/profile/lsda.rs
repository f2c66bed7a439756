//! Exception handling: the table of call sites, and the function that reads it.
//!
//! The table is that of the C++ ABI for Itanium, "Exception Handling", 7.4 (`.gcc_except_table`): for each call, where an
//! exception that comes out of it goes. A cleanup is all that a trampoline has, so libgcc's `__gcc_personality_v0` serves,
//! which programs in every language can link: it catches nothing. Distances have 4 bytes, because GNU as for RISC-V
//! refuses `.uleb128` of distances that the linker may change.

use crate::effect::faults::Misstated;
use crate::profile::target::Target;
use crate::words::error::{Error, Result};
use crate::words::recorder::Recorder;
use crate::words::reloc::{Reloc, RelocTarget};
use crate::words::step::Mark;

/// The function that unwinders ask about a frame with a landing pad.
pub const PERSONALITY: &str = "__gcc_personality_v0";
/// The function that a landing pad ends with.
pub const RESUME: &str = "_Unwind_Resume";
/// The section with the tables.
pub const TABLES: &str = ".gcc_except_table";
/// The section with a pointer to [`PERSONALITY`]: writable, so that shared objects need no relocations in read-only data.
pub const POINTER: &str = ".data.rel.ro.personality";
/// The label of the pointer to [`PERSONALITY`].
pub const POINTER_LABEL: &str = ".Lpersonality";
/// The encoding of the personality pointer: DW_EH_PE_indirect | DW_EH_PE_pcrel | DW_EH_PE_sdata4.
pub(crate) const PERSONALITY_ENCODING: u8 = 0x9b;
/// The encoding of the pointer to the table: DW_EH_PE_pcrel | DW_EH_PE_sdata4.
pub(crate) const TABLE_ENCODING: u8 = 0x1b;
/// DW_EH_PE_omit.
const OMIT: u8 = 0xff;
/// DW_EH_PE_udata4.
const UDATA4: u8 = 3;
/// Bytes of a call-site entry: start, length, landing pad, action.
const SITE: usize = 13;
/// Bytes to which tables are aligned.
pub(crate) const ALIGN: usize = 4;

/// The calls: start, end, and landing pad of each. The last has no landing pad, but needs an entry: without one, the
/// personality of C++ would end the program.
const SITES: [(Mark, Mark, Option<Mark>); 2] =
    [(Mark::Call, Mark::Called, Some(Mark::Pad)), (Mark::Resume, Mark::End, None)];

/// The table's bytes before its call sites.
const HEADER: [u8; 4] = [OMIT, OMIT, UDATA4, (SITES.len() * SITE) as u8];

/// Refuse a landing pad for a trampoline that leaves no frame on the stack.
///
/// # Errors
/// The events leave no frame that an exception could pass.
pub fn possible(recorder: Recorder) -> Result<()> {
    if recorder.unwound().is_empty() {
        return Err(Error::new(format!(
            "record --unwind: with --events {} no frame of the trampoline is on the stack; valid: with --events both",
            recorder.events.name()
        )));
    }
    Ok(())
}

/// The label of a trampoline's table.
pub(crate) fn label(trampoline: &str) -> String {
    format!(".L{trampoline}_lsda")
}

/// The table as GNU as reads it.
pub(crate) fn text(trampoline: &str) -> Vec<String> {
    let bytes = |all: &[u8]| all.iter().map(|byte| format!("{byte:#x}")).collect::<Vec<_>>().join(", ");
    let at = |mark: Mark| format!(".L{trampoline}_{}", crate::words::step::Local::Mark(mark).suffix());
    let mut all = vec![format!("\t.balign\t{ALIGN}"), format!("{}:", label(trampoline))];
    all.push(format!("\t.byte\t{}", bytes(&HEADER)));
    for (from, to, pad) in SITES {
        let distance = |to: Mark, from: Mark| format!("{} - {}", at(to), at(from));
        let pad = pad.map_or("0".to_owned(), |pad| distance(pad, Mark::Begin));
        all.push(format!("\t.4byte\t{}, {}, {pad}", distance(from, Mark::Begin), distance(to, from)));
        all.push("\t.byte\t0".to_owned());
    }
    all
}

/// A `.gcc_except_table` section under construction.
#[derive(Default, Debug)]
pub struct Tables {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The relocations, where the linker may change distances.
    pub relocs: Vec<Reloc>,
    /// The offset of each table.
    pub starts: Vec<u32>,
}

impl Tables {
    /// Begin the table of a trampoline, and return its number.
    pub(crate) fn open(&mut self) -> u32 {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
        self.starts.push(self.bytes.len() as u32);
        self.starts.len() as u32 - 1
    }

    /// Write the table from the offset of each mark, and from what relocations refer to where the linker may move the mark.
    pub(crate) fn write(
        &mut self,
        at: impl Fn(Mark) -> Option<(u32, RelocTarget)>,
        misstated: Option<Misstated>,
        target: &Target,
    ) -> Result<()> {
        self.bytes.extend_from_slice(&HEADER);
        for (n, (from, to, pad)) in SITES.into_iter().enumerate() {
            let first = n == 0;
            let pad = match misstated {
                Some(Misstated::NoPad) if first => None,
                Some(Misstated::PadAgain) if !first => Some(Mark::Pad),
                _ => pad,
            };
            let (short, off) = match misstated {
                Some(Misstated::Short) if first => (-1, 0),
                Some(Misstated::Pad(by)) if first => (0, by),
                _ => (0, 0),
            };
            self.distance(&at, Some((from, Mark::Begin)), 0, target)?;
            self.distance(&at, Some((to, from)), short, target)?;
            self.distance(&at, pad.map(|pad| (pad, Mark::Begin)), off, target)?;
            self.bytes.push(0);
        }
        Ok(())
    }

    fn distance(
        &mut self,
        at: &impl Fn(Mark) -> Option<(u32, RelocTarget)>,
        between: Option<(Mark, Mark)>,
        by: i32,
        target: &Target,
    ) -> Result<()> {
        let place = self.bytes.len() as u32;
        let Some((to, from)) = between else {
            self.bytes.extend_from_slice(&[0; 4]);
            return Ok(());
        };
        let (Some((to_at, to)), Some((from_at, from))) = (at(to), at(from)) else {
            return Err(Error::new(
                "the table of call sites names a place that is nowhere; valid: with all its labels",
            ));
        };
        let Some(lengths) = target.facts.lengths else {
            self.bytes.extend_from_slice(&to_at.wrapping_sub(from_at).wrapping_add_signed(by).to_le_bytes());
            return Ok(());
        };
        self.bytes.extend_from_slice(&[0; 4]);
        let (add, sub) = lengths.range;
        self.relocs.push(Reloc { at: place, r_type: add, to, addend: i64::from(by) });
        self.relocs.push(Reloc { at: place, r_type: sub, to: from, addend: 0 });
        Ok(())
    }
}
