//! What the engine calls while it runs: a look at every instruction, and, while it is asked for, at every access to the stack.

use codegen::words::error::Result;

use crate::engine::cpu::{STACK_SIZE, STACK_TOP};
use crate::engine::interface::{Accesses, EVERYWHERE, Hook};
use crate::judge::trace::{self, Uc};

/// Runs for which it pays to translate all code once more.
const MANY: usize = 1000;

/// The hooks on accesses to the stack, while there are any.
pub(crate) struct Hooks(Vec<Hook>);

impl Hooks {
    /// No hooks.
    pub(crate) fn none() -> Hooks {
        Hooks(Vec::new())
    }

    /// Look at every instruction, and at every access to the stack.
    pub(crate) fn all(uc: &mut Uc) -> Result<Hooks> {
        // One for all addresses: the engine calls a hook without detour only if it has no other.
        let hook = if uc.can_tell_late() { trace::distant_instruction } else { trace::instruction };
        uc.on_instructions(EVERYWHERE, Box::new(move |uc, pc, _| hook(uc, pc)))?;
        let mut hooks = Hooks::none();
        hooks.watch(uc)?;
        Ok(hooks)
    }

    /// Look at stores to everywhere else too, for as long as the engine is there.
    pub(crate) fn elsewhere(uc: &mut Uc) -> Result<()> {
        for at in [0..=STACK_TOP - STACK_SIZE - 1, STACK_TOP..=u64::MAX] {
            uc.on_accesses(Accesses::Writes, at, Box::new(trace::stored_elsewhere))?;
        }
        uc.translate_anew()
    }

    /// Look at accesses to the stack from now on.
    pub(crate) fn watch(&mut self, uc: &mut Uc) -> Result<()> {
        if !self.0.is_empty() {
            return Ok(());
        }
        for which in [Accesses::Writes, Accesses::Reads] {
            let stack = STACK_TOP - STACK_SIZE..=STACK_TOP - 1;
            self.0.push(uc.on_accesses(which, stack, Box::new(trace::accessed))?);
        }
        set_watched(uc, true);
        // Code that was translated without such hooks calls none.
        uc.translate_anew()
    }

    /// No longer look at accesses to the stack, in so many runs.
    pub(crate) fn unwatch(&mut self, uc: &mut Uc, runs: usize) -> Result<()> {
        for hook in self.0.drain(..) {
            uc.unhook(hook)?;
        }
        set_watched(uc, false);
        // Code that was translated with hooks still looks for them.
        if runs < MANY { Ok(()) } else { uc.translate_anew() }
    }
}

fn set_watched(uc: &mut Uc, watched: bool) {
    if let Some(trace) = uc.data_mut() {
        trace.watched = watched;
    }
}
