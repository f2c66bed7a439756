//! The vocabulary of plans: steps, what they act on, and the labels, symbols and numbers that the instructions for them
//! refer to.

use crate::words::program::Program;
use crate::words::recorder::Event;

/// What a step is for. `diff` compares plans role by role.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Landing pad, and what happens before there is a frame.
    Entry,
    /// Stack allocation and frame records.
    Frame,
    /// State of the traced function into the frame.
    Saves,
    /// Arguments of the callback.
    Arguments,
    /// The call.
    Call,
    /// State back out of the frame.
    Restores,
    /// The way to a direct trampoline.
    Dispatch,
    /// The way out.
    Exit,
}

impl Role {
    /// All roles, in the order of execution.
    pub const ALL: [Role; 8] = [
        Role::Entry,
        Role::Frame,
        Role::Saves,
        Role::Arguments,
        Role::Call,
        Role::Restores,
        Role::Dispatch,
        Role::Exit,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Role::Entry => "entry",
            Role::Frame => "frame",
            Role::Saves => "saves",
            Role::Arguments => "argument set-up",
            Role::Call => "call",
            Role::Restores => "restores",
            Role::Dispatch => "dispatch",
            Role::Exit => "exit",
        }
    }
}

/// An argument of the callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// First byte of the patched instruction.
    Ip,
    /// Return address of the traced function.
    ParentIp,
    /// The `ftrace_ops`.
    Op,
    /// Address of the frame.
    Fregs,
    /// The traced function's own argument with this number.
    Argument(u8),
    /// The traced function's result register with this number.
    Result(u8),
    /// Address of the first word of a context.
    Context,
    /// Address of the cookie.
    Cookie,
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callee {
    /// The patchable slot that calls `ftrace_stub` until a callback is attached.
    Patchable,
    /// The function in the `ftrace_ops`.
    OpFunc,
    /// The function that a variable of the tracer points to.
    Variable,
    /// `ftrace_return_to_handler`.
    ExitHandler,
    /// The function named in the spec.
    Named,
    /// The traced function, behind its site.
    Body,
    /// The exit handler named in the spec.
    Exit,
    /// The program with this number in the spec.
    Program(u8),
}

/// Which way a piece of the exit belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitPath {
    /// Back into the traced function.
    Function,
    /// To the direct trampoline that a callback chose.
    Direct,
    /// To one that a callback chose as if the site had jumped to it.
    DirectJump,
    /// To the direct trampoline of the `ftrace_ops`, before anything is saved.
    EarlyDirect,
    /// To the traced function's parent.
    Parent,
    /// Past the traced function.
    Skipped,
    /// To the caller, as a C function returns.
    Caller,
}

impl ExitPath {
    /// All of them, in their order.
    pub const ALL: [ExitPath; 7] = [
        ExitPath::Function,
        ExitPath::Direct,
        ExitPath::DirectJump,
        ExitPath::EarlyDirect,
        ExitPath::Parent,
        ExitPath::Skipped,
        ExitPath::Caller,
    ];

    /// The name in the ids of demands.
    pub fn name(self) -> &'static str {
        match self {
            ExitPath::Function => "function",
            ExitPath::Direct => "direct",
            ExitPath::DirectJump => "direct-jump",
            ExitPath::EarlyDirect => "early-direct",
            ExitPath::Parent => "parent",
            ExitPath::Skipped => "skipped",
            ExitPath::Caller => "caller",
        }
    }
}

/// A label that the kernel's C code knows by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelLabel {
    /// On the instruction that loads the global op pointer.
    OpPtr,
    /// On the patchable call.
    Call,
    /// On the branch to the direct path.
    Jmp,
    /// After the last byte that a per-ops copy takes.
    End,
    /// Behind the call of the traced function: a gap that a jump to [`KernelLabel::Epilogue`] fits into.
    AfterCall,
    /// Behind the last program.
    Epilogue,
    /// Before the call of a program, the first with number 0: an instruction that a jump to [`KernelLabel::Skipped`] takes
    /// the place of when the program is detached.
    Skip(u8),
    /// Behind that call, and what it decides.
    Skipped(u8),
}

impl KernelLabel {
    /// All of them, with their names in a profile.
    pub const WORDS: [(&str, KernelLabel); 8] = [
        ("op-ptr", KernelLabel::OpPtr),
        ("call", KernelLabel::Call),
        ("jmp", KernelLabel::Jmp),
        ("end", KernelLabel::End),
        ("after-call", KernelLabel::AfterCall),
        ("epilogue", KernelLabel::Epilogue),
        ("skip", KernelLabel::Skip(0)),
        ("skipped", KernelLabel::Skipped(0)),
    ];

    /// What stands behind the trampoline's name, where a label has no name of its own.
    pub fn suffix(self) -> &'static str {
        match self {
            KernelLabel::OpPtr => "_op_ptr",
            KernelLabel::Call => "_call",
            KernelLabel::Jmp => "_jmp",
            KernelLabel::End => "_end",
            KernelLabel::AfterCall => "_after_call",
            KernelLabel::Epilogue => "_epilogue",
            KernelLabel::Skip(_) => "_skip_",
            KernelLabel::Skipped(_) => "_skipped_",
        }
    }

    /// What stands behind that: the number, where there is one.
    pub fn number(self) -> &'static str {
        const NUMBERS: [&str; Program::MOST] = [
            "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18",
            "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31", "32", "33", "34", "35", "36",
            "37",
        ];
        match self {
            KernelLabel::Skip(n) | KernelLabel::Skipped(n) => NUMBERS.get(usize::from(n)).copied().unwrap_or_default(),
            _ => "",
        }
    }

    /// The label under which a profile has all of those with numbers.
    pub(crate) fn first(self) -> KernelLabel {
        match self {
            KernelLabel::Skip(_) => KernelLabel::Skip(0),
            KernelLabel::Skipped(_) => KernelLabel::Skipped(0),
            other => other,
        }
    }
}

/// A place that the table of call sites names, for exceptions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mark {
    /// Where the function begins: all others count from there.
    Begin,
    /// The call that an exception may come out of.
    Call,
    /// Behind it.
    Called,
    /// Where the unwinder goes then.
    Pad,
    /// The call that hands the exception back.
    Resume,
    /// Behind it.
    End,
}

impl Mark {
    /// All of them, in their order in the code.
    pub const ALL: [Mark; 6] = [Mark::Begin, Mark::Call, Mark::Called, Mark::Pad, Mark::Resume, Mark::End];
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// From here on, this is what the steps are for; the text is a heading, or empty.
    Block(Role, &'static str),
    /// A place that an indirect branch may reach.
    LandingPad,
    /// Load `op` from the literal before the traced function.
    LoadOp,
    /// If `op` has a direct-call target, go there at once.
    BranchIfEarlyDirect,
    /// Push the flags.
    PushFlags,
    /// Allocate the frame.
    Alloc,
    /// Have the address of the traced function's body at hand.
    LoadBody,
    /// Link frame record number `n` of the layout.
    Link(u8),
    /// Store every slot of the layout that is not part of a record.
    Save,
    /// Store what else C functions may overwrite, where that is more than the layout has slots for, on a stack that is aligned
    /// for it and for them.
    SaveState,
    /// Load it.
    RestoreState,
    /// Store the result registers.
    SaveResults,
    /// Store what a program returned as the result.
    SaveDecision,
    /// Store what counts tail calls, as the function gave it back.
    SaveCounted,
    /// Load it.
    RestoreCounted,
    /// Point the frame pointer at pt_regs, marked as such.
    MarkRegs,
    /// Put a value into argument register `n`.
    Arg(u8, Value),
    /// Align SP, keeping a way back.
    Realign,
    /// Undo [`Step::Realign`].
    Unalign,
    /// A label that the kernel knows.
    KernelLabel(KernelLabel),
    /// Copy the traced function's stack arguments to where the callee looks for its own.
    StackArgs,
    /// Call it.
    Call(Callee),
    /// Take the address to resume at from the exit handler.
    TakeResult,
    /// Bring pc, parent_ip and flags where this way out wants them.
    RestoreSite(ExitPath),
    /// Load every register slot to which stores take effect.
    Restore,
    /// Load the result registers.
    RestoreResults,
    /// The result that programs see is 0.
    ClearResult,
    /// Store a program's cookie.
    Cookie(i32),
    /// Store what a context says of itself: [`crate::ask::kind::Programs::meta`].
    Meta(i64),
    /// An instruction that does nothing, where a jump fits in.
    Detach,
    /// If a program returned anything but 0, branch past the traced function.
    BranchIfResult,
    /// Instructions that do nothing, where a jump fits in.
    Gap,
    /// Load the direct-call cell.
    LoadDirect,
    /// Branch if it is set.
    BranchIfDirect,
    /// Branch if what the cell holds says that the site jumps there.
    BranchIfJump,
    /// Release the frame and what the parent's call pushed. From here on, only handlers know the parent.
    FreeWithReturn,
    /// Room for the return address alone, which a redirected return took off the stack.
    AllocReturn,
    /// Allocate the frame again, with room for the return address.
    AllocWithReturn,
    /// Release the frame, on this way out.
    Free(ExitPath),
    /// Pop the flags.
    PopFlags,
    /// A place that the table of call sites names.
    Mark(Mark),
    /// The place that the unwinder goes to with an exception.
    ExceptionPad,
    /// If the thread's shadow stack has no room, go to the function as if it were not traced.
    BranchIfNoRoomToReturn,
    /// The return address onto the shadow stack. From here on, only that knows the parent.
    PushReturn,
    /// Find the function's own entry there.
    FindReturn,
    /// The return address back from it. What lay above goes with it.
    PopReturn,
    /// Out of line: the entry is that of a function that did not return. Without one more below, stop.
    PassOver,
    /// The place that a branch on this way goes to.
    Path(ExitPath),
    /// Make of a signed return address what it was before.
    Authenticate,
    /// Leave.
    Leave(ExitPath),
    /// A step of trampolines that record.
    Record(RecordStep),
}

/// What only trampolines that record do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordStep {
    /// Count the word of the thread up.
    Count,
    /// Take a slot of the thread's buffer for the record of this event.
    Slot(Event),
    /// Take another one: all registers are as they were then.
    SlotAgain(Event),
    /// Branch there if the buffer has no room for this event's record.
    BranchIfFull(Event, Local),
    /// Where an event's record is written, once there is room.
    Room(Event),
    /// Store where the slot of a call is, for the record of its return.
    KeepSlot,
    /// Out of line: there is none, which the return has to know.
    NoSlot,
    /// Out of line: call the routine that may make room.
    Refill(Event),
    /// Back to where this event's record is written.
    ToRoom(Event),
    /// Store the time.
    Time(Event),
    /// The place behind what reads the clock in some records only.
    Timed(Event),
    /// Store the words that only some records have.
    Words(Event),
    /// Store what happened, last of all: until then the slot is nobody's.
    What(Event),
    /// The place behind the record.
    Recorded(Event),
    /// Hand the exception back to the unwinder. Nothing comes back from there.
    Resume,
}

/// A symbol that instructions refer to: an index into those of its listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sym(pub u8);

impl Sym {
    /// The most symbols that a listing can have. One with more is refused when it is complete.
    pub const MOST: usize = 1 << u8::BITS;

    /// Another symbol, if the listing has one.
    pub const fn other(self) -> Sym {
        Sym(self.0 ^ 1)
    }
}

/// A label inside one trampoline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Local {
    /// Where a way out begins.
    Path(ExitPath),
    /// The instruction that a second one refers to (RISC-V `%pcrel_lo`), for `op`.
    Anchor,
    /// The same for the traced function.
    BodyAnchor,
    /// The same for the variable that points to what is called.
    CalleeAnchor,
    /// The instruction after a call that only pushes its own address.
    Rebalance,
    /// The same as [`Local::Anchor`] for the clock, in the record of this event.
    ClockAnchor(Event),
    /// Behind the record of this event.
    Recorded(Event),
    /// Where the record of this event is written, once there is room.
    Room(Event),
    /// Out of line: there is no room for the record of this event.
    Refill(Event),
    /// Out of line: there is no room for the two records of a call.
    NoSlot,
    /// Where the next entry of the shadow stack is looked at.
    Find,
    /// Out of line: the entry is not the function's.
    PassOver,
    /// Behind what reads the clock, in the record of this event.
    Timed(Event),
    /// A place that the table of call sites names.
    Mark(Mark),
}

impl Local {
    /// The label's suffix in the text.
    pub fn suffix(self) -> &'static str {
        match self {
            Local::Path(ExitPath::EarlyDirect) => "direct_early",
            Local::Path(ExitPath::Direct) => "direct",
            Local::Path(ExitPath::DirectJump) => "direct_jump",
            Local::Path(ExitPath::Skipped) => "skipped",
            Local::Path(_) => "out",
            Local::Anchor => "op",
            Local::BodyAnchor => "pc",
            Local::CalleeAnchor => "func",
            Local::Rebalance => "rebalance",
            Local::ClockAnchor(Event::Entry) => "clock",
            Local::ClockAnchor(Event::Exit) => "clock_exit",
            Local::ClockAnchor(Event::Unwound) => "clock_unwound",
            Local::Recorded(Event::Entry) => "entered",
            Local::Recorded(Event::Exit) => "returned",
            Local::Recorded(Event::Unwound) => "unwound",
            Local::Room(Event::Entry) => "room",
            Local::Room(Event::Exit) => "room_exit",
            Local::Room(Event::Unwound) => "room_unwound",
            Local::Refill(Event::Entry) => "refill",
            Local::Refill(Event::Exit) => "refill_exit",
            Local::Refill(Event::Unwound) => "refill_unwound",
            Local::NoSlot => "no_slot",
            Local::Find => "find",
            Local::PassOver => "pass_over",
            Local::Timed(Event::Entry) => "timed",
            Local::Timed(Event::Exit) => "timed_exit",
            Local::Timed(Event::Unwound) => "timed_unwound",
            Local::Mark(Mark::Begin) => "begin",
            Local::Mark(Mark::Call) => "call",
            Local::Mark(Mark::Called) => "called",
            Local::Mark(Mark::Pad) => "pad",
            Local::Mark(Mark::Resume) => "resume",
            Local::Mark(Mark::End) => "end",
        }
    }

    /// A small number for each label.
    pub(crate) fn index(self) -> usize {
        match self {
            Local::Path(ExitPath::EarlyDirect) => 0,
            Local::Path(ExitPath::Direct) => 1,
            Local::Path(ExitPath::Skipped) => 2,
            Local::Path(ExitPath::DirectJump) => 26,
            Local::Path(_) => 3,
            Local::Anchor => 4,
            Local::Rebalance => 5,
            Local::BodyAnchor => 6,
            Local::CalleeAnchor => 7,
            Local::ClockAnchor(Event::Entry) => 8,
            Local::ClockAnchor(Event::Exit) => 9,
            Local::Recorded(Event::Entry) => 10,
            Local::Recorded(Event::Exit) => 11,
            Local::Timed(Event::Entry) => 12,
            Local::Timed(Event::Exit) => 13,
            Local::ClockAnchor(Event::Unwound) => 14,
            Local::Recorded(Event::Unwound) => 15,
            Local::Timed(Event::Unwound) => 16,
            Local::Room(event) => 16 + event.number() as usize,
            Local::Refill(event) => 19 + event.number() as usize,
            Local::Find => 23,
            Local::PassOver => 24,
            Local::NoSlot => 25,
            Local::Mark(mark) => 27 + mark as usize,
        }
    }

    pub(crate) const COUNT: usize = 27 + Mark::ALL.len();
}

/// The name behind a number in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// None: the number is printed.
    None,
    /// Slot number `n` of the frame layout.
    Field(u8),
    /// Frame record number `n` of the layout.
    Record(u8),
    /// The size of the frame.
    FrameSize,
    /// Number `n` of the profile.
    Number(u8),
    /// The same, as bytes into the thread's own copy of a variable.
    Tls(Sym, u8),
}

/// A number with the name under which it is printed: `FREGS_SP`, `FREGS_FRAME + 8`, `-16`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disp {
    /// What is encoded.
    pub value: i32,
    /// What it is relative to in the text.
    pub name: Name,
}

impl Disp {
    /// A bare number.
    pub const fn number(value: i32) -> Disp {
        Disp { value, name: Name::None }
    }

    /// The thread-local variable from whose start it counts; without one, a word of the thread counts from the thread pointer.
    pub const fn variable(self) -> Option<Sym> {
        if let Name::Tls(sym, _) = self.name { Some(sym) } else { None }
    }

    /// So many bytes further, under the same name.
    pub const fn moved(self, by: i32) -> Disp {
        Disp { value: self.value + by, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn labels_have_numbers_of_their_own() {
        use Local::{
            Anchor, BodyAnchor, CalleeAnchor, ClockAnchor, Find, NoSlot, PassOver, Path, Rebalance, Recorded, Refill,
            Room, Timed,
        };
        let ways =
            [ExitPath::Function, ExitPath::Direct, ExitPath::DirectJump, ExitPath::EarlyDirect, ExitPath::Skipped];
        let events = [Event::Entry, Event::Exit, Event::Unwound];
        let of_events = [ClockAnchor, Recorded, Room, Refill, Timed].map(|of| events.map(of));
        let labels = [Anchor, BodyAnchor, CalleeAnchor, Rebalance, NoSlot, Find, PassOver].into_iter();
        let labels = labels.chain(ways.map(Path)).chain(of_events.concat()).chain(Mark::ALL.map(Local::Mark));
        let mut numbers = BTreeMap::new();
        for label in labels {
            let other = numbers.insert(label.index(), label);
            assert!(other.is_none(), "{label:?} and {other:?}");
        }
        assert_eq!(numbers.len(), Local::COUNT);
        assert_eq!(numbers.last_key_value().map(|(number, _)| *number), Some(Local::COUNT - 1));
    }
}
