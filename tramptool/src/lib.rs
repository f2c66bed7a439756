//! Trampolines of function tracing for x86_64, arm64 and riscv64: the code between a patched function entry and a C
//! callback, from one description.
//!
//! ```
//! use tramptool::{Spec, Target, generate};
//!
//! let target = Target::with_profile("x86_64", "bare")?;
//! let on_free = Spec::direct("on_free").sig("void free(void *p)");
//! let made = generate(&target, &[on_free])?;
//! assert!(made.text()?.contains("call\ton_free"));
//! assert_eq!(&made.object()?[..4], b"\x7fELF");
//! let kept = &made.contract("on_free_tramp")?.kept;
//! assert!(kept.contains(&"rdi") && made.cost("on_free_tramp")?.stack <= 64);
//! # Ok::<(), tramptool::Error>(())
//! ```
//!
//! A [`Target`] is an architecture under a profile: `linux-6.12`, `linux-7.3`, `bare` for unikernels, hypervisors and
//! tracers in user space, or a file of yours. A [`Spec`] is a trampoline that you want. [`generate`] makes them, and
//! [`Trampolines`] writes them as text for GNU as, as an object, as bytes, and as a C header.
//!
//! With the feature `judge`, `Trampolines::judge` runs them in an emulator against what they promise. It links Unicorn,
//! so that a program with it is under GPL-2.0-only.
//!
//! Errors have the place and the remedy. Some remedies name options of the command line: the methods of [`Spec`] have the
//! same names.

mod generated;
#[doc(hidden)]
pub mod internal;
#[cfg(feature = "judge")]
mod judge;
mod spec;
mod target;
mod template;
mod unwind;

pub use codegen::words::error::{Error, Result};
pub use generated::{Contract, Cost, Path, Referent, Relocation, Slot, Trampolines, generate};
#[cfg(feature = "judge")]
pub use judge::{Failure, Verdict};
pub use spec::{Clock, Events, Form, Spec};
pub use target::Target;
pub use template::{Filled, Filling, FixUp, Template, UnwindEntry};
pub use unwind::UnwindTable;
