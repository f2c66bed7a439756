//! The vocabulary of plans: steps, their operands, and the labels, symbols and numbers to which their instructions refer.

use crate::words::program::Program;
use crate::words::recorder::Event;

/// The purpose of a step. `diff` compares plans role by role.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Landing pad, and other steps before there is a frame.
    Entry,
    /// Stack allocation and frame records.
    Frame,
    /// Saving the traced function's state in the frame.
    Saves,
    /// Arguments of the callback.
    Arguments,
    /// The call.
    Call,
    /// Restoring the traced function's state from the frame.
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
    /// Address of the cookie, which is that of the run context.
    Cookie,
    /// The address that the functions around a program are given, or those around all: with this number in the spec.
    Bracket(u8),
    /// The same, for the second of the two functions around a program.
    BracketAgain(u8),
    /// What the function before a program returned.
    Start,
}

/// The callee of a call.
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
    /// The function that is called before a program, or before all: with this number in the spec.
    Before(u8),
    /// The function that is called after it.
    After(u8),
}

/// A way out of a trampoline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitPath {
    /// Back into the traced function.
    Function,
    /// To the direct trampoline that a callback chose.
    Direct,
    /// To a direct trampoline that a callback chose, as if the site had jumped to it.
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
    /// All ways out, in order.
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

/// The most calls of functions around others: two for each program, and two around all.
const MOST_BRACKETED: usize = 2 * Program::MOST + 2;

/// A label's number, up to [`MOST_BRACKETED`].
fn numeral(n: u8) -> &'static str {
    const NUMBERS: [&str; MOST_BRACKETED] = [
        "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19",
        "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31", "32", "33", "34", "35", "36", "37",
        "38", "39", "40", "41", "42", "43", "44", "45", "46", "47", "48", "49", "50", "51", "52", "53", "54", "55",
        "56", "57", "58", "59", "60", "61", "62", "63", "64", "65", "66", "67", "68", "69", "70", "71", "72", "73",
        "74", "75", "76", "77",
    ];
    NUMBERS.get(usize::from(n)).copied().unwrap_or_default()
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
    /// Behind the call of the traced function: a gap with room for a jump to [`KernelLabel::Epilogue`].
    AfterCall,
    /// Behind the last program.
    Epilogue,
    /// Before the call of a program, the first with number 0: an instruction that is replaced by a jump to
    /// [`KernelLabel::Skipped`] when the program is detached.
    Skip(u8),
    /// Behind the call of a program, and behind the code that uses its result.
    Skipped(u8),
}

impl KernelLabel {
    /// All labels, with their names in a profile.
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

    /// The suffix appended to the trampoline's name, if the label has no name of its own.
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

    /// The number appended to the suffix, for labels with numbers; else empty.
    pub fn number(self) -> &'static str {
        if let KernelLabel::Skip(n) | KernelLabel::Skipped(n) = self { numeral(n) } else { "" }
    }

    /// The label that stands for all labels with numbers in a profile.
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
    /// The beginning of the function, from which all other offsets count.
    Begin,
    /// The call that an exception may come out of.
    Call,
    /// Behind [`Mark::Call`].
    Called,
    /// The landing pad, to which the unwinder goes with an exception from [`Mark::Call`].
    Pad,
    /// The call that hands the exception back.
    Resume,
    /// Behind [`Mark::Resume`].
    End,
}

impl Mark {
    /// All marks, in their order in the code.
    pub const ALL: [Mark; 6] = [Mark::Begin, Mark::Call, Mark::Called, Mark::Pad, Mark::Resume, Mark::End];
}

/// One step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The start of a block of steps with this role; the text is a heading, or empty.
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
    /// Load the address of the traced function's body.
    LoadBody,
    /// Link frame record number `n` of the layout.
    Link(u8),
    /// Store every slot of the layout that is not part of a record.
    Save,
    /// Store the other caller-saved state, which the layout has no slots for, on a stack aligned for that state and for C
    /// functions.
    SaveState,
    /// Load the state of [`Step::SaveState`].
    RestoreState,
    /// Store the result registers.
    SaveResults,
    /// Store a program's return value as the result.
    SaveDecision,
    /// Store the tail call counter, as the function returned it.
    SaveCounted,
    /// Load the tail call counter.
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
    /// Copy the traced function's stack arguments to the place of the callee's own.
    StackArgs,
    /// Call this function.
    Call(Callee),
    /// Take the address to resume at from the exit handler.
    TakeResult,
    /// Move pc, parent_ip and flags to their places for this way out.
    RestoreSite(ExitPath),
    /// Load every register slot to which stores take effect.
    Restore,
    /// Load the result registers.
    RestoreResults,
    /// Set the result that programs see to 0.
    ClearResult,
    /// Store a program's cookie.
    Cookie(i64),
    /// Keep what the function before a program returned.
    KeepStart,
    /// If that is 0, branch past the program to [`Step::Refused`] of this number.
    BranchIfRefused(u8),
    /// The target of [`Step::BranchIfRefused`].
    Refused(u8),
    /// Load what a program decided, for [`Step::BranchIfResult`].
    LoadDecision,
    /// Load the registers that the trampoline uses for itself.
    RestoreOwn,
    /// Store the word before a context: [`crate::ask::kind::Programs::meta`].
    Meta(i64),
    /// An instruction that does nothing, with room for a jump.
    Detach,
    /// If a program returned anything but 0, branch past the traced function.
    BranchIfResult,
    /// Instructions that do nothing, with room for a jump.
    Gap,
    /// Load the direct-call cell.
    LoadDirect,
    /// Branch if the direct-call cell is set.
    BranchIfDirect,
    /// Branch if the value of the direct-call cell means that the site jumps to the direct trampoline.
    BranchIfJump,
    /// Release the frame and the return address that the parent's call pushed. From here on, only handlers know `parent_ip`.
    FreeWithReturn,
    /// Allocate room for the return address alone, which a redirected return popped.
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
    /// Push the return address onto the shadow stack. From here on, only the shadow stack has `parent_ip`.
    PushReturn,
    /// Find the function's own entry on the shadow stack.
    FindReturn,
    /// Pop the return address from the shadow stack, with all entries above.
    PopReturn,
    /// Out of line: skip an entry of a function that did not return. If it is the bottom entry, stop.
    PassOver,
    /// The target of branches to this way out.
    Path(ExitPath),
    /// Authenticate a signed return address, which restores its unsigned value.
    Authenticate,
    /// Guard the return address, which is about to be stored.
    GuardReturn,
    /// Check the guarded return address, which has been loaded.
    CheckReturn,
    /// Leave the trampoline on this way out.
    Leave(ExitPath),
    /// A step of trampolines that record.
    Record(RecordStep),
}

/// A step of trampolines that record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordStep {
    /// Increment the counter of the thread.
    Count,
    /// Take a slot of the thread's buffer for the record of this event.
    Slot(Event),
    /// Take a slot again for the record of this event: all registers have their values from before [`RecordStep::Slot`].
    SlotAgain(Event),
    /// Branch to the label if the buffer has no room for this event's record.
    BranchIfFull(Event, Local),
    /// The place where an event's record is written, once there is room.
    Room(Event),
    /// Store the address of a call's slot, for the record of its return.
    KeepSlot,
    /// Out of line: store that the call has no slot, for its return.
    NoSlot,
    /// Out of line: call the routine that may make room.
    Refill(Event),
    /// Branch back to the place where this event's record is written.
    ToRoom(Event),
    /// Store the time.
    Time(Event),
    /// The place behind the code that reads the clock only for some records.
    Timed(Event),
    /// Store the words that only some records have.
    Words(Event),
    /// Store the second word, last of all: until then the slot has no valid record.
    What(Event),
    /// The place behind the record.
    Recorded(Event),
    /// Hand the exception back to the unwinder. This call does not return.
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
    /// The beginning of a way out.
    Path(ExitPath),
    /// The instruction that a second one refers to (RISC-V `%pcrel_lo`), for `op`.
    Anchor,
    /// The instruction that a second one refers to, for the traced function.
    BodyAnchor,
    /// The instruction that a second one refers to, for the variable that points to the callee.
    CalleeAnchor,
    /// The instruction after a call that only pushes its own address.
    Rebalance,
    /// The instruction that a second one refers to, for the clock in the record of this event.
    ClockAnchor(Event),
    /// Behind the record of this event.
    Recorded(Event),
    /// The place where the record of this event is written, once there is room.
    Room(Event),
    /// Out of line: there is no room for the record of this event.
    Refill(Event),
    /// Out of line: there is no room for the two records of a call.
    NoSlot,
    /// The loop that examines the next entry of the shadow stack.
    Find,
    /// Out of line: the entry is not the function's.
    PassOver,
    /// Behind the code that reads the clock, in the record of this event.
    Timed(Event),
    /// A place that the table of call sites names.
    Mark(Mark),
    /// Behind the program of the call with this number, which is not called if the function before it says so.
    Refused(u8),
    /// The instruction that a second one refers to, for an address that functions around programs are given; counted from 0.
    BracketAnchor(u8),
}

impl Local {
    /// The label's suffix in the text, without its number.
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
            Local::Refused(_) => "refused_",
            Local::BracketAnchor(_) => "bracket_",
        }
    }

    /// The number behind the suffix, for labels with numbers; else empty.
    pub fn number(self) -> &'static str {
        if let Local::Refused(n) | Local::BracketAnchor(n) = self { numeral(n) } else { "" }
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
            Local::Refused(n) => Local::REFUSED + usize::from(n),
            Local::BracketAnchor(n) => Local::BRACKETS + usize::from(n),
        }
    }

    const REFUSED: usize = 27 + Mark::ALL.len();
    const BRACKETS: usize = Local::REFUSED + Program::MOST;
    pub(crate) const COUNT: usize = Local::BRACKETS + MOST_BRACKETED;
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
    /// Number `n` of the profile, as an offset in the thread's own copy of a variable.
    Tls(Sym, u8),
}

/// A number with the name under which it is printed: `FREGS_SP`, `FREGS_FRAME + 8`, `-16`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disp {
    /// The number that is encoded.
    pub value: i32,
    /// The name to which the number is relative in the text.
    pub name: Name,
}

impl Disp {
    /// A bare number.
    pub const fn number(value: i32) -> Disp {
        Disp { value, name: Name::None }
    }

    /// The thread-local variable from whose start the number counts; `None` if it counts from the thread pointer.
    pub const fn variable(self) -> Option<Sym> {
        if let Name::Tls(sym, _) = self.name { Some(sym) } else { None }
    }

    /// The number plus `by`, under the same name.
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
        let labels = labels.chain((0..Program::MOST as u8).map(Local::Refused));
        let labels = labels.chain((0..MOST_BRACKETED as u8).map(Local::BracketAnchor));
        let mut numbers = BTreeMap::new();
        for label in labels {
            let other = numbers.insert(label.index(), label);
            assert!(other.is_none(), "{label:?} and {other:?}");
        }
        assert_eq!(numbers.len(), Local::COUNT);
        assert_eq!(numbers.last_key_value().map(|(number, _)| *number), Some(Local::COUNT - 1));
    }
}
