//! Returns without a call of their own.

use crate::ask::frame::{Content, FrameLayout, Stores};
use crate::ask::kind::Kind;
use crate::profile::target::Target;

/// Returns that are not paired with calls. A processor mispredicts them, and a shadow stack stops the program there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Pairing {
    /// Returns on the way out without a call on the return-address stack.
    pub unpaired: u32,
    /// Returns that go elsewhere than their calls came from, because the traced function's return was redirected, or because nothing
    /// returns to the site's call.
    pub mispredicted: u32,
    /// Those on the way to a direct trampoline: one, if that way is a return.
    pub direct_mispredicted: u32,
}

impl Pairing {
    /// Of a trampoline of this kind with this frame.
    pub fn of(kind: Kind, frame: &FrameLayout, target: &Target) -> Pairing {
        let (rethook, returned_to) = (kind == Kind::Rethook, kind.returned_to());
        let direct = has_direct(frame);
        Pairing {
            unpaired: if returned_to && !rethook { target.convention.exit.unpaired } else { 0 },
            mispredicted: match returned_to {
                // With every register in use, the trampoline can only leave by a return.
                true if rethook => 2,
                true => target.convention.exit.mispredicted,
                false => u32::from(kind.calls_body() && !kind.jumped_to()),
            },
            // Without a register for the target, the trampoline puts it on the stack for a return.
            direct_mispredicted: u32::from(direct && target.direct_jump.is_none() && target.facts.abi.link.is_none()),
        }
    }

    /// Does each return go where its call came from?
    pub fn is_paired(self) -> bool {
        self == Pairing::default()
    }
}

/// May the callback name a direct trampoline in the frame?
pub(crate) fn has_direct(frame: &FrameLayout) -> bool {
    frame.fields.iter().any(|field| field.content == Content::Direct && field.stores == Stores::TakeEffect)
}
