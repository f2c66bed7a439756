//! What speaks against a bit of a note, or leaves it open.

use std::fmt;

/// Why something speaks against a bit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Why {
    AddressTaken,
    Exported,
    JumpTable,
    Label,
    Hidden,
    ReturnsElsewhere,
    OtherStack,
    LeavesByJump,
    CallLeft,
    StoredPlain,
    ReturnsSigned,
    AuthenticatesOther,
    AuthenticatesOtherwise,
    AuthenticatesUnknown,
    ReturnUnknown,
    StackUnknown,
    GoesOn,
    MovesShadow,
    NoInstruction,
    TooLong,
    Millicode,
}

impl Why {
    /// It speaks against the bit. The others leave it open.
    pub fn is_certain(&self) -> bool {
        matches!(
            self,
            Why::AddressTaken
                | Why::JumpTable
                | Why::ReturnsElsewhere
                | Why::OtherStack
                | Why::LeavesByJump
                | Why::CallLeft
                | Why::StoredPlain
                | Why::ReturnsSigned
                | Why::AuthenticatesOther
                | Why::AuthenticatesOtherwise
        )
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::AddressTaken => "its address is taken, and no landing pad is there",
            Why::Exported => "no landing pad is there, and other files may call it by a register, as PLT entries do; none of these does",
            Why::JumpTable => "a jump by a register leads here, and no landing pad is there",
            Why::Label => "a label without a type and without a landing pad: if it is a function, it may be called by a register",
            Why::Hidden => "a jump by a register may lead here, and no landing pad is there",
            Why::ReturnsElsewhere => "it returns to where no call came from",
            Why::OtherStack => "it returns on another stack, and leaves the shadow stack where it is",
            Why::LeavesByJump => "it jumps to its return address: its call is never returned from",
            Why::CallLeft => "it has called the next instruction to learn an address: that call is never returned from",
            Why::StoredPlain => "it stores its return address on the stack unsigned",
            Why::ReturnsSigned => "it returns to an address that is still signed, or still on the shadow stack",
            Why::AuthenticatesOther => "it checks an address that it has not signed, or not put onto the shadow stack",
            Why::AuthenticatesOtherwise => "it checks its return address with another key or another SP than it was signed with",
            Why::AuthenticatesUnknown => "it checks an address of which nobody knows where it came from",
            Why::ReturnUnknown => "nobody knows where it returns to",
            Why::StackUnknown => "nobody knows where SP is when it returns",
            Why::GoesOn => "it jumps to another function while something of its own is on the stack",
            Why::MovesShadow => "it moves the shadow stack itself",
            Why::NoInstruction => "the bytes there are no instruction that is known",
            Why::TooLong => "it is too long to be followed",
            Why::Millicode => "compilers call it in a way of their own, which is not known here",
        })
    }
}
