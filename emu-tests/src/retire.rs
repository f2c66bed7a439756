//! Code that is retired: the jump past the programs that come after the traced function, and its gap (P9).

use std::sync::Arc;

use codegen::error::Result;
use codegen::patch::{SiteState, Write};
use codegen::spec::Kind;
use codegen::step::Inner;

use crate::case::Case;
use crate::cpu::write_code;
use crate::disasm::decode;
use crate::report::Clause;
use crate::rig::Rig;
use crate::tally::Tally;
use crate::trace::Finding;

impl Rig<'_> {
    /// The jump past the programs that come after the function, from the gap behind its call; nothing if the trampoline at
    /// the site has no such gap.
    pub(crate) fn retirement(&self, trampoline: usize) -> Result<Vec<Write>> {
        let contract = &self.suite.contracts[trampoline];
        let place = |inner: Inner| self.image.symbol(&inner.symbol(&contract.name, contract.kind).concat());
        let (Kind::Programs(_), Some(gap), Some(to)) = (contract.kind, place(Inner::AfterCall), place(Inner::Epilogue))
        else {
            return Ok(Vec::new());
        };
        let jump = SiteState::Enabled { target: to.address, op: 0, jump: true };
        let writes = self.suite.backend.poke_site(gap.address, jump, false)?.into_iter().map(|poke| poke.write);
        // A site may begin with an instruction before its branch.
        Ok(writes.filter(|w| w.at >= gap.address).collect())
    }

    /// Put that jump into its gap, or what was there before.
    pub(crate) fn retire(&mut self, case: &Case) -> Result<()> {
        let mut writes = self.retirement(case.attach)?;
        if !case.situation.retired {
            for write in &mut writes {
                write.bytes = self.image.bytes(write.at, write.bytes.len()).unwrap_or_default().to_vec();
            }
        }
        write_code(&mut self.uc, &writes)
    }

    /// P9: where the function is called, there is a gap behind it and a place to go on, and nothing is in the gap that the
    /// jump would overwrite.
    pub(crate) fn judge_gap(&self, case: &Arc<Case>, trampoline: usize, tally: &mut Tally) -> Result<()> {
        let writes = self.retirement(trampoline)?;
        let ends = || writes.iter().map(|w| w.at + w.bytes.len() as u64);
        let (Some(start), Some(end)) = (writes.iter().map(|w| w.at).min(), ends().max()) else {
            if matches!(self.suite.contracts[trampoline].kind, Kind::Programs(p) if p.call_orig) {
                let place = "labels for code that is retired: the gap behind the traced function, and the epilogue";
                let pc = self.image.symbol(&self.suite.contracts[trampoline].name).map_or(0, |s| s.address);
                let place = place.to_owned();
                let finding =
                    Finding { clause: Clause::P9, trampoline, place, register: None, expected: 2, found: 0, pc };
                tally.judged(case, finding, self);
            }
            return Ok(());
        };
        let code = decode(self.registers.machine, self.image.bytes(start, 16).unwrap_or_default(), start)?;
        let nothing =
            code.iter().take_while(|d| d.text.split(' ').next().is_some_and(|mnemonic| mnemonic.ends_with("nop")));
        let finding = Finding {
            clause: Clause::P9,
            trampoline,
            place: "end of the gap behind the traced function".to_owned(),
            register: None,
            expected: end,
            found: nothing.map(|d| d.at + u64::from(d.size)).last().unwrap_or(start).min(end),
            pc: start,
        };
        tally.judged(case, finding, self);
        Ok(())
    }
}
