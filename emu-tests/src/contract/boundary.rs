//! What a contract in a file states of boundaries of C: closures, callbacks, stubs of system calls, switches.

use codegen::arch::facts::Facts;
use codegen::arch::machine::Machine;
use codegen::ask::kind::Kind;
use codegen::contract::stated::{Argument, Contexts, Fresh, Given, Gives, Handle, Held, Stated, StatedResult, Sum};
use codegen::words::abi::{Abi, Reg};
use codegen::words::error::{Error, Result};
use codegen::words::term::{Root, Term};
use toml::Spanned;

use crate::contract::file::{ArgumentIn, FreshIn, Reader, ResultIn, TrampolineIn};
use crate::judge::cases::ABOVE;
use crate::run::block::{BYTES, STACK};
use crate::run::situation::MOST_RESULTS;

/// Bytes below SP at the call that are the trampoline's, as far as words of them can be stated.
const DEEPEST: i64 = 4096;

/// What is known at some moment, of which a value can be made, besides what there is at the call.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    /// The result of the function that is called.
    pub(super) result: bool,
    /// The registers as that left them.
    pub(super) registers: bool,
    /// The number of words that it has stored.
    pub(super) stored: usize,
    /// The addresses of symbols.
    pub(super) symbols: bool,
}

impl Known {
    /// Where a trampoline of this kind leaves, if its callee has stored so many words.
    pub(super) fn at_end(kind: Kind, stored: usize) -> Known {
        let called = matches!(kind, Kind::Closure | Kind::Callback);
        Known { result: called || kind.is_in_the_middle(), registers: called, stored, symbols: false }
    }

    /// Does a run have it then?
    pub(super) fn has(self, root: &Root, kind: Kind) -> bool {
        match root {
            Root::Result => self.result,
            Root::Left(..) => self.registers,
            Root::StoredWord(n) => (1..=self.stored).contains(&usize::from(*n)),
            Root::Block | Root::OtherStack => kind.is_boundary(),
            Root::Content(at) if matches!(at.root, Root::Block | Root::OtherStack) => {
                kind.is_boundary() && is_there(at)
            }
            Root::Pc | Root::Ip | Root::Op => !kind.is_boundary(),
            _ => true,
        }
    }
}

/// What the kernel returns to a stub, in runs: none of the first is an error, though it looks like one in part; the others are the first
/// and the last (Linux include/linux/err.h, `MAX_ERRNO`).
const NO_ERRORS: [u64; 4] = [0, 0x7f12_3456_7890, 0xffff_f001, -4096_i64 as u64];
const ERRORS: [u64; 2] = [-1_i64 as u64, -4095_i64 as u64];

impl ArgumentIn {
    /// The value as it is written.
    pub(super) fn text(&self) -> &str {
        match self {
            ArgumentIn::Whole(text) | ArgumentIn::Part { value: text, .. } => text,
        }
    }
}

/// A place besides general registers whose value can be stated: a vector register, `[block+8]`, `[other-stack-8]`, `[sp-8]`, `[&symbol]`.
pub(super) fn given(name: &str, abi: &Abi, machine: &Machine) -> Option<Given> {
    if let Some(vector) = machine.vectors.iter().position(|vector| vector.name == name) {
        return Some(Given::Vector(vector as u8));
    }
    let Root::Content(at) = Term::parse(name, abi).ok().filter(|term| term.add == 0)?.root else { return None };
    match &at.root {
        Root::Block | Root::OtherStack => Some(Given::Word((*at).clone())).filter(|_| is_there(&at)),
        Root::Reg(reg) if *reg == abi.sp => {
            Some(Given::Word((*at).clone())).filter(|_| at.add % 8 == 0 && (-DEEPEST..ABOVE as i64).contains(&at.add))
        }
        Root::Symbol(_) if at.add == 0 => Some(Given::Word((*at).clone())),
        _ => None,
    }
}

/// Is a word of the block or of the other stack at this address?
fn is_there(at: &Term) -> bool {
    match at.root {
        Root::Block => in_block(at.add).is_some(),
        Root::OtherStack => at.add % 8 == 0 && (-(STACK as i64)..0).contains(&at.add),
        _ => true,
    }
}

/// An offset in the block, if it is one of a word.
fn in_block(add: i64) -> Option<u64> {
    u64::try_from(add).ok().filter(|at| at.is_multiple_of(8) && *at < BYTES)
}

impl Reader<'_> {
    /// What is stated of a boundary: it runs as C for user space does.
    ///
    /// # Errors
    /// It names what does not exist, or leaves out what its kind needs.
    pub(super) fn boundary(
        &self,
        t: &TrampolineIn,
        kind: Kind,
        (facts, machine): (&Facts, &Machine),
        base: Stated,
    ) -> Result<Stated> {
        let abi = &facts.abi;
        if !kind.is_boundary() {
            return Ok(base);
        }
        let needs_callee = matches!(kind, Kind::Closure | Kind::Callback) || t.fresh.is_some();
        if needs_callee == t.calls.is_empty() {
            let what = if needs_callee { "give calls, the function" } else { "it calls no function: leave calls out" };
            return Err(
                self.at(t.stack_align.span().start, format!("{}, of kind {}: {what}", t.symbol, kind.traits().word))
            );
        }
        if kind == Kind::Closure && (t.frame.is_none() || t.arguments.is_none()) {
            let message = format!("{}: what does a closure show? give frame and arguments", t.symbol);
            return Err(self.at(t.stack_align.span().start, message));
        }
        if t.results.len() > MOST_RESULTS.into() {
            let message = format!("{} results; valid: at most {MOST_RESULTS}", t.results.len());
            return Err(self.at(t.stack_align.span().start, message));
        }
        let errno = t.errno.as_ref().map(|errno| errno.get_ref().clone());
        let results = match kind.syscall() {
            Some(_) => of_kernel(abi, errno.as_deref()),
            None => t.results.iter().map(|r| self.result(r, kind, (facts, machine))).collect::<Result<_>>()?,
        };
        let called = u64::from(abi.sp_align).wrapping_sub(abi.return_bytes()) % u64::from(abi.sp_align);
        Ok(Stated {
            sp: vec![called],
            red_zone: machine.red_zone,
            results,
            passes: self.gives(&t.passes, kind, Known::default(), (facts, machine))?,
            callee_keeps: t.callee_keeps.as_ref().map(|names| self.registers(names, facts)).transpose()?,
            errno,
            contexts: if kind == Kind::Switch { Some(self.contexts(t, (facts, machine))?) } else { None },
            ..base
        })
    }

    fn result(&self, result: &ResultIn, kind: Kind, of: (&Facts, &Machine)) -> Result<StatedResult> {
        let abi = &of.0.abi;
        let store = |text: &Spanned<String>| match Term::parse(text.get_ref(), abi).map(|term| term.root) {
            Ok(Root::Content(at)) if matches!(at.root, Root::Reg(_) | Root::Block) => Ok((*at).clone()),
            _ => Err(self.at(text.span().start, format!("'{}'; valid: a word, as [rcx+8]", text.get_ref()))),
        };
        Ok(StatedResult {
            holds: self.holds(&result.holds, kind, abi)?,
            returns: result.returns.map(i64::cast_unsigned),
            stores: result.stores.iter().map(store).collect::<Result<_>>()?,
            gives: self.gives(&result.gives, kind, Known::at_end(kind, result.stores.len()), of)?,
        })
    }

    /// A register, of which something is said at this place.
    fn named<T>(&self, name: &str, at: &Spanned<T>, abi: &Abi) -> Result<Reg> {
        let known = || Error::unknown("register", name, abi.regs.iter().map(|r| r.name));
        abi.find(name).ok_or_else(|| self.at(at.span().start, known()))
    }

    fn contexts(&self, t: &TrampolineIn, of: (&Facts, &Machine)) -> Result<Contexts> {
        let abi = &of.0.abi;
        let here = t.stack_align.span().start;
        let from = match (&t.from, &t.from_register) {
            (Some(from), None) => {
                Handle::At(self.sum(from.get_ref(), from.span().start, (Kind::Switch, Known::default()), abi)?)
            }
            (None, Some(register)) => Handle::In(self.named(register.get_ref(), register, abi)?),
            _ => {
                let message =
                    format!("{}: what names the context that is left? valid: from, or from-register", t.symbol);
                return Err(self.at(here, message));
            }
        };
        let Some(to) = &t.to else {
            return Err(
                self.at(here, format!("{}: which register names the context that is entered? give to", t.symbol))
            );
        };
        let fresh = t.fresh.as_ref().map(|fresh| self.fresh(fresh.get_ref(), of)).transpose()?;
        Ok(Contexts { from, to: self.named(to.get_ref(), to, abi)?, control: t.switches_control, fresh })
    }

    fn fresh(&self, fresh: &FreshIn, of: (&Facts, &Machine)) -> Result<Fresh> {
        let abi = &of.0.abi;
        if fresh.made_by.get_ref().is_empty() {
            return Err(self.at(fresh.made_by.span().start, "made-by: which function makes a context?"));
        }
        Ok(Fresh {
            made_by: fresh.made_by.get_ref().clone(),
            holds: self.holds(&fresh.holds, Kind::Switch, abi)?,
            passes: self.gives(&fresh.passes, Kind::Switch, Known::default(), of)?,
            from: fresh.from_register.as_ref().map(|from| self.named(from.get_ref(), from, abi)).transpose()?,
            ends_in: fresh.ends_in.clone(),
        })
    }

    /// What something holds when a boundary is called.
    pub(super) fn held_by(&self, held: &str, value: &Spanned<String>, abi: &Abi) -> Result<(Held, Sum)> {
        let at = value.span().start;
        let sum = Sum::parse(value.get_ref(), abi).map_err(|e| self.at(at, e))?;
        let place = match Term::parse(held, abi).ok().filter(|term| term.add == 0).map(|term| term.root) {
            Some(Root::Content(word)) if word.root == Root::Block => in_block(word.add).map(Held::Block),
            _ => None,
        };
        let valid = match (place, &sum.terms[..]) {
            (_, [] | [(1, Root::Symbol(_))]) | (None, [(1, Root::Reg(_))]) => true,
            (_, [(1, Root::Block)]) => (0..BYTES as i64).contains(&sum.number),
            (_, [(1, Root::OtherStack)]) => (-(STACK as i64)..=0).contains(&sum.number),
            _ => false,
        };
        if !valid {
            let valid = "valid: a number, block to block+4095, other-stack-65536 to other-stack, &symbol, or, of a register or a word of the stack, sp+N or a register";
            return Err(self.at(at, format!("'{}'; {valid}", value.get_ref())));
        }
        let free = matches!(sum.terms[..], [(1, Root::Block | Root::OtherStack | Root::Symbol(_))]);
        match place {
            Some(place) => Ok((place, sum)),
            // The register or the word is asked after as for a sled.
            None if free => Ok((self.held(held, &Spanned::new(value.span(), "0".to_owned()), abi)?.0, sum)),
            None => self.held(held, value, abi),
        }
    }
}

/// What comes of a stub, whatever the kernel returns. The variable has 4 bytes, and only an error is stored there.
fn of_kernel(abi: &Abi, errno: Option<&str>) -> Vec<StatedResult> {
    let number = |value: u64| Sum { number: value.cast_signed(), terms: Vec::new() };
    let ret = |value| {
        abi.rets
            .first()
            .map(move |ret| Gives { place: Given::Reg(*ret), value: Argument { value: number(value), bits: 64 } })
    };
    let result = |value: u64, gives| StatedResult { returns: Some(value), gives, ..StatedResult::default() };
    let Some(errno) = errno else {
        return NO_ERRORS
            .iter()
            .chain(&ERRORS)
            .map(|value| result(*value, ret(*value).into_iter().collect()))
            .collect();
    };
    let half = |add, value| {
        let place = Given::Word(Term::from(Root::Symbol(errno.into())).plus(add));
        Gives { place, value: Argument { value, bits: 32 } }
    };
    let as_before = |add| {
        let at = Term::from(Root::Symbol(errno.into())).plus(add);
        half(add, Sum { number: 0, terms: vec![(1, at.content().root)] })
    };
    let told = |value: &u64| result(*value, ret(*value).into_iter().chain([as_before(0), as_before(4)]).collect());
    let failed = |value: &u64| {
        let stored = half(0, number(value.wrapping_neg()));
        result(*value, ret(u64::MAX).into_iter().chain([stored, as_before(4)]).collect())
    };
    NO_ERRORS.iter().map(told).chain(ERRORS.iter().map(failed)).collect()
}
