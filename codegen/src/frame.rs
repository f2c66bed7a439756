//! Frame layouts: what lies where in a trampoline's frame, as tables.
//!
//! A layout is the one place for offsets. The planner saves and restores what it says, the text prints its names,
//! the manifest lists it, and the contract promises it.

use crate::abi::Reg;

/// What a slot holds when the callback is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// A register of the traced function.
    Reg(Reg),
    /// A result register, once the traced function has returned.
    Result(Reg),
    /// A vector argument register of the traced function: an index into the machine's table.
    Vector(u8),
    /// The address at which the traced function goes on.
    Pc,
    /// The return address of the traced function.
    ParentIp,
    /// SP as it was at the site, before the site's call.
    SiteSp,
    /// SP as it was when a redirected return arrived.
    ExitSp,
    /// The flags register.
    Flags,
    /// A constant.
    Const(i32),
    /// Zero; a callback stores a direct trampoline's address here to leave for it.
    Direct,
    /// Not written: reading it is an error.
    Unfilled,
}

/// What becomes of a slot after the callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Back {
    /// What the callback stored takes effect.
    Written,
    /// Reloaded or not, a store by the callback is not promised to have an effect.
    Ignored,
}

/// One slot of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name in the assembly text, as the kernel's asm-offsets spell it.
    pub symbol: &'static str,
    /// The member's name in the C struct; empty for a slot outside it.
    pub member: &'static str,
    /// Bytes above SP during the callback.
    pub offset: i32,
    /// What is in it.
    pub content: Content,
    /// What a store to it does.
    pub back: Back,
    /// A frame record stores this slot, so the save sequence leaves it out.
    pub in_record: bool,
}

/// A frame record {frame pointer, return address}, at `offset` bytes above SP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The name of its offset in the assembly text.
    pub symbol: &'static str,
    /// Bytes above SP.
    pub offset: i32,
    /// The return address in it: [`Content::Pc`] or [`Content::ParentIp`].
    pub ret: Content,
}

/// A trampoline's frame. SP points at offset 0 during the callback, except where the stack is realigned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameLayout {
    /// The C struct that a callback gets a pointer to; empty if none.
    pub c_struct: &'static str,
    /// Bytes of that struct.
    pub c_size: i32,
    /// The name of the frame's size in the assembly text.
    pub size_symbol: &'static str,
    /// Bytes of stack from SP at the trampoline's entry, without pushed flags.
    pub size: i32,
    /// The slots, lowest offset first.
    pub fields: Vec<Field>,
    /// Frame records in the order in which they are linked: the traced function's caller first.
    pub records: Vec<Record>,
    /// The slots are pushed one by one instead of stored into an allocated frame.
    pub pushed: bool,
}

impl FrameLayout {
    /// A frame with no slots.
    pub fn empty() -> FrameLayout {
        FrameLayout {
            c_struct: "",
            c_size: 0,
            size_symbol: "",
            size: 0,
            fields: Vec::new(),
            records: Vec::new(),
            pushed: false,
        }
    }

    /// The index of the first slot with this content.
    pub fn find(&self, content: Content) -> Option<usize> {
        self.fields.iter().position(|f| f.content == content)
    }
}

/// A slot of a C struct: name in assembly, member, offset, content, and whether stores to it take effect.
pub const fn field(symbol: &'static str, member: &'static str, offset: i32, content: Content, back: Back) -> Field {
    Field { symbol, member, offset, content, back, in_record: false }
}
