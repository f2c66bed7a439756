//! The oracle of the runtime: users in all combinations, orders and moments, on a machine of three threads, against a model.

mod case;
pub mod cross;
mod generate;
mod judge;
mod linux;
mod machine;
mod model;
mod ours;
mod sweep;

pub use case::{
    Act, Answer, Call, Callers, Case, Event, FUNCTIONS, HANDLER, OUTSIDE, REPLACEMENT, Seen, Table, UNCALLED, User,
    What, When, address, fold, mix,
};
pub use generate::{MOMENTS, SHAPES, SUBSETS, USERS, random, rare, subset};
pub use judge::{Failure, Subject};
pub use linux::repair;
pub use machine::{Core, Hooks, run};
pub use model::{Room, expected};
pub use ours::Ours;
pub use sweep::{Outcome, Plan};

use linux::{Linux, V6_12, V7_3};

/// This project's core.
pub const OURS: Subject<'static> = Subject::new::<Ours>("runtime", Room { frame: 4, all: 496 });

/// Linux 6.12's function graph.
pub const LINUX_6_12: Subject<'static> = Subject::new::<Linux<V6_12, 0>>("kernel-6.12", Room { frame: 5, all: 490 })
    .limited(&linux::supports::<V6_12>, linux::promised);

/// Linux 7.3's function graph and fprobe.
pub const LINUX_7_3: Subject<'static> = linux_7_3::<0>("kernel-7.3");

/// The same with all findings repaired: what is left would be a finding, too.
pub const LINUX_7_3_REPAIRED: Subject<'static> =
    linux_7_3::<{ repair::BIT_0 | repair::OVERRUN | repair::SLOT | repair::MEMORY }>("kernel-7.3-repaired");

/// All cores.
pub const SUBJECTS: [Subject<'static>; 4] = [OURS, LINUX_6_12, LINUX_7_3, LINUX_7_3_REPAIRED];

/// Linux 7.3 with some of the findings repaired: see `repair`.
#[must_use]
pub const fn linux_7_3<const REPAIRED: u8>(name: &'static str) -> Subject<'static> {
    Subject::new::<Linux<V7_3, REPAIRED>>(name, Room { frame: 4, all: 491 })
        .limited(&linux::supports::<V7_3>, linux::promised)
}
