//! What trampolines find in memory by symbol: variables that hold the address of what they call, and words that a contract
//! states.

use codegen::words::error::{Error, Result};
use link::Image;

use crate::engine::cpu::put_word;
use crate::engine::interface::Cpu;
use crate::judge::suite::Suite;
use crate::run::case::Case;

/// A variable by which a trampoline finds what it calls.
#[derive(Clone, Copy)]
struct Variable {
    /// The number of the trampoline.
    of: usize,
    /// Which of its variables it is.
    nth: usize,
    at: u64,
    /// The function; 0 for a callback, which each case chooses.
    to: u64,
}

/// The variables and words of all trampolines.
pub(crate) struct Variables {
    variables: Vec<Variable>,
    /// Address, value and name of each word.
    words: Vec<(u64, u64, String)>,
}

impl Variables {
    /// Those of a suite, where its image has them.
    ///
    /// # Errors
    /// A contract names what the image does not have.
    pub(crate) fn of(suite: &Suite, image: &Image) -> Result<Variables> {
        let address = |name: &str| image.symbol(name).map(|s| s.address);
        let (mut variables, mut words) = (Vec::new(), Vec::new());
        for (of, contract) in suite.contracts.iter().enumerate() {
            for (nth, variable) in contract.stated.through.iter().enumerate() {
                let (name, callee) = (&variable.name, &variable.callee);
                let to = if contract.kind.calls_back() { Some(0) } else { address(callee) };
                let (Some(at), Some(to)) = (address(name), to) else {
                    return Err(Error::new(format!(
                        "{} calls through {name}, says the contract; the objects must refer to that",
                        contract.name
                    )));
                };
                variables.push(Variable { of, nth, at, to });
            }
            for word in &contract.stated.memory {
                let name = format!("{}+{:#x}", word.symbol, word.offset);
                let at = address(&word.symbol).ok_or_else(|| no_memory(&name))?;
                words.push((at.wrapping_add(word.offset), word.value, name));
            }
        }
        Ok(Variables { variables, words })
    }

    /// Set them for a case, in which callbacks are `func`. Those of the trampoline that the case is about come last: others may
    /// have them too.
    ///
    /// # Errors
    /// There is no memory for a word.
    pub(crate) fn set<D>(&self, suite: &Suite, uc: &mut Cpu<'_, D>, case: &Case, func: u64) -> Result<()> {
        for (at, value, name) in &self.words {
            if !put_word(uc, *at, *value) {
                return Err(no_memory(name));
            }
        }
        let (mine, others): (Vec<Variable>, Vec<Variable>) = self.variables.iter().partition(|v| v.of == case.attach);
        for Variable { of, nth, at, to } in others.into_iter().chain(mine) {
            let null = of == case.attach && nth < case.situation.variable();
            let to = if suite.contracts[of].kind.calls_back() { func } else { to };
            put_word(uc, at, if null { 0 } else { to });
        }
        Ok(())
    }
}

fn no_memory(name: &str) -> Error {
    Error::new(format!("there is no memory at {name}, where a trampoline finds something, says the contract"))
}
