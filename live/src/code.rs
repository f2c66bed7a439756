//! The trampolines: generated once, and copied for each function.

use std::sync::atomic::Ordering;

use codegen::arch::patch::{Branch, Patch, Relocation as Applied};
use tramptool::{Form, Referent, Relocation, Spec, Target, Trampolines, generate};

use crate::calls::{self, Layout};
use crate::error::{Error, Result};
use crate::machine::MACHINE;
use crate::unwind::Rows;

/// How far behind what a trampoline calls its function the function goes on.
const BEHIND: u64 = 16;
const FUNCTION: &str = "function";
const ENTRY: &str = "entered";
const EXIT: &str = "left";
const NAME: &str = "around";

/// A trampoline around any function.
pub struct Around {
    bytes: Vec<u8>,
    relocations: Vec<Relocation>,
    /// The layout of the structure that handlers get.
    pub layout: Layout,
    entry: u64,
    exit: u64,
    rows: Rows,
}

impl Around {
    /// The one that leaves the stack as it is, for functions of any prototype.
    ///
    /// # Errors
    /// The generator has none.
    pub fn in_place() -> Result<Around> {
        let mut target = target()?;
        for (name, value) in MACHINE.in_place {
            target = target.set(name, value)?;
        }
        let (entry, exit) = (calls::entered_in_place as *const () as u64, calls::left_in_place as *const () as u64);
        Around::of(&target, &spec().form(Form::Shadow), [entry, exit])
    }

    /// The one with a frame, for functions of this prototype.
    ///
    /// # Errors
    /// The prototype is none, or has arguments on the stack.
    pub fn framed(prototype: &str) -> Result<Around> {
        let (entry, exit) = (calls::entered as *const () as u64, calls::left as *const () as u64);
        Around::of(&target()?, &spec().form(Form::Fregs).sig(prototype), [entry, exit])
    }

    fn of(target: &Target, spec: &Spec, [entry, exit]: [u64; 2]) -> Result<Around> {
        let made = generate(target, std::slice::from_ref(spec))?;
        let (layout, pc) = layout(&made)?;
        calls::PC.store(pc, Ordering::Relaxed);
        Ok(Around {
            bytes: made.bytes().to_vec(),
            relocations: made.relocations()?,
            layout,
            entry,
            exit,
            rows: Rows::of(&made.object()?)?,
        })
    }

    /// The size of a copy in bytes, with the branches to the called functions.
    pub fn len(&self) -> usize {
        self.bytes.len().next_multiple_of(16) + 2 * STUB
    }

    /// Tell unwinders about the copy at this address. Gives the address in it to which the function returns, if the return address is
    /// not on the stack meanwhile.
    ///
    /// # Errors
    /// A row of the unwind table does not fit.
    pub fn describe(&self, at: u64) -> Result<Option<u64>> {
        self.rows.register((at, self.bytes.len()), &calls::caller(self.rows.depth()))?;
        Ok(self.rows.lost_from().map(|call| at + u64::from(call) + MACHINE.call))
    }

    /// The copy at this address, for a function that goes on there. It begins with its first instruction.
    ///
    /// # Errors
    /// Something is out of reach.
    pub fn copy(&self, backend: &dyn Patch, at: u64, resume: u64) -> Result<Vec<u8>> {
        let stubs = at + self.bytes.len().next_multiple_of(16) as u64;
        let mut code = self.bytes.clone();
        for relocation in &self.relocations {
            self.fill(backend, (at, stubs, resume), relocation, &mut code)?;
        }
        for (n, to) in [self.entry, self.exit].into_iter().enumerate() {
            code.resize((stubs - at) as usize + n * STUB, 0);
            code.extend(backend.branch(Branch::Far, stubs + (n * STUB) as u64, to)?);
        }
        Ok(code)
    }

    fn fill(
        &self,
        backend: &dyn Patch,
        (at, stubs, resume): (u64, u64, u64),
        relocation: &Relocation,
        code: &mut [u8],
    ) -> Result<()> {
        let value = |relocation: &Relocation| match &relocation.to {
            Referent::Symbol(name) => {
                let symbol = match name.as_str() {
                    FUNCTION => resume.wrapping_sub(BEHIND),
                    ENTRY => stubs,
                    _ => stubs + STUB as u64,
                };
                symbol.wrapping_add_signed(relocation.addend)
            }
            Referent::Offset(offset) => (at + u64::from(*offset)).wrapping_add_signed(relocation.addend),
            _ => 0,
        };
        let place = at + u64::from(relocation.offset);
        let (mut high, mut to) = (place, value(relocation));
        if let (true, Referent::Offset(offset)) = (backend.refers_to_high(relocation.r_type), &relocation.to) {
            high = at + u64::from(*offset);
            let first = self.relocations.iter().find(|r| r.offset == *offset && matches!(r.to, Referent::Symbol(_)));
            to = first.map_or(0, value);
        }
        let applied = Applied { r_type: relocation.r_type, place, value: to, high };
        let field = code.get_mut(relocation.offset as usize..).unwrap_or_default();
        Ok(backend.relocate(&applied, field)?)
    }
}

/// Room for a branch to anywhere.
pub const STUB: usize = 32;

fn target() -> Result<Target> {
    Ok(Target::with_profile(std::env::consts::ARCH, profiles::USER)?)
}

fn spec() -> Spec {
    Spec::around(&format!("{FUNCTION}+{BEHIND}"), ENTRY, EXIT).name(NAME)
}

/// Where the members are that handlers are shown, and the one that says where the function goes on.
fn layout(made: &Trampolines) -> Result<(Layout, usize)> {
    let frame = made.contract(NAME)?.frame;
    let word = |member: &str| {
        let slot = frame.iter().find(|slot| slot.member == member).map(|slot| slot.offset as usize / 8);
        slot.ok_or_else(|| Error::Missing {
            what: format!("{member} in what handlers get"),
            remedy: "the profile `bare`",
        })
    };
    let words = frame.iter().map(|slot| slot.offset as usize / 8 + 1).max().unwrap_or_default();
    Ok((Layout { result: word(MACHINE.result)?, words }, word(MACHINE.pc)?))
}
