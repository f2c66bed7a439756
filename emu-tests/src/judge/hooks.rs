//! What the engine calls while it runs: a look at every instruction, and, while it is asked for, at every access to the stack.

use codegen::words::error::{Error, Result};
use unicorn_engine::{HookType, UcHookId, uc_error};

use crate::engine::cpu::{STACK_SIZE, STACK_TOP};
use crate::judge::trace::{self, Uc};

/// Runs for which it pays to translate all code once more.
const MANY: usize = 1000;

/// The hooks on accesses to the stack, while there are any.
pub(crate) struct Hooks(Vec<UcHookId>);

fn failed(error: uc_error) -> Error {
    Error::new(format!("emulator: hook: {error:?}"))
}

impl Hooks {
    /// No hooks.
    pub(crate) fn none() -> Hooks {
        Hooks(Vec::new())
    }

    /// Look at every instruction, and at every access to the stack.
    pub(crate) fn all(uc: &mut Uc<'static>) -> Result<Hooks> {
        // One for all addresses: the engine calls a hook without detour only if it has no other.
        uc.add_code_hook(1, 0, |uc, pc, _| trace::instruction(uc, pc)).map_err(failed)?;
        let mut hooks = Hooks::none();
        hooks.watch(uc)?;
        Ok(hooks)
    }

    /// Look at accesses to the stack from now on.
    pub(crate) fn watch(&mut self, uc: &mut Uc<'static>) -> Result<()> {
        if !self.0.is_empty() {
            return Ok(());
        }
        for (kind, is_write) in [(HookType::MEM_WRITE, true), (HookType::MEM_READ, false)] {
            let hook = uc.add_mem_hook(kind, STACK_TOP - STACK_SIZE, STACK_TOP - 1, move |uc, _, at, size, _| {
                trace::accessed(uc, at, size, is_write)
            });
            self.0.push(hook.map_err(failed)?);
        }
        set_watched(uc, true);
        // Code that was translated without such hooks calls none.
        uc.ctl_flush_tb().map_err(failed)
    }

    /// No longer look at accesses to the stack, in so many runs.
    pub(crate) fn unwatch(&mut self, uc: &mut Uc<'static>, runs: usize) -> Result<()> {
        for hook in self.0.drain(..) {
            uc.remove_hook(hook).map_err(failed)?;
        }
        set_watched(uc, false);
        // Code that was translated with hooks still looks for them.
        if runs < MANY { Ok(()) } else { uc.ctl_flush_tb().map_err(failed) }
    }
}

fn set_watched(uc: &mut Uc<'static>, watched: bool) {
    if let Some(trace) = uc.get_data_mut() {
        trace.watched = watched;
    }
}
