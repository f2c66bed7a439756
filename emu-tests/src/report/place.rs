//! Places: what a check is about. Each has a name for files, which stays, and a sentence for people, which may get better.

use std::fmt;

use codegen::arch::facts::Promise;

use crate::report::Clause;

/// One row per place: its variant, its id, its sentence. Ids have no spaces. `tramptool check --list-places`
/// prints them.
macro_rules! places {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident: $type:ty),* })? => $id:literal, $text:literal;)*) => {
        /// What a check is about. Displayed it is a sentence; with `{:#}` it is its id.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub(crate) enum Place {
            $($(#[$doc])* $name $({ $($field: $type),* })?,)*
        }

        /// The ids and sentences of all places, with names in braces where they have parts that vary.
        const PLACES: &[(&str, &str)] = &[$(($id, $text)),*];

        impl fmt::Display for Place {
            #[allow(unused_variables, reason = "an id need not say all that the sentence says")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Place::$name $({ $($field),* })? => if f.alternate() { write!(f, $id) } else { write!(f, $text) },)*
                }
            }
        }
    };
}

places! {
    /// A general register, a vector register, the flags or a control word.
    Reg { name: &'static str } => "{name}", "{name}";
    Pc => "pc", "pc";
    Sp => "sp", "sp";
    ReturnAddress => "return-address", "return address";
    ReturnStandIn => "return-address:stand-in", "address that unwinders find in place of the return address";

    // How a run ends.
    Loop => "loop", "loop: instruction budget used up";
    Endless => "endless", "does not end: the function calls itself again and again";
    Stopped => "stopped", "stopped before the exit";
    UnmappedAccess => "unmapped-access",
        "access to unmapped memory; add the object that defines it. Per-CPU and per-thread data are not supported";
    UnmappedBranch => "unmapped-branch",
        "the jump or call before this place goes where no code is";
    Engine { error: String } => "emulator", "emulator: {error}";
    /// An exception of the CPU, by an instruction that the checker executes in the engine's place.
    Fault { fault: &'static str } => "fault", "{fault}";
    SitesEntered => "sites-entered", "sites entered and not left";
    ReturnsUntold => "returns-untold", "returns of which no trampoline was told";
    SiteUnreached => "site-unreached", "the site was never reached";

    // The stack.
    StoreAbove => "store:above-frame", "store above sp at the site";
    StoreBelow => "store:below-sp", "store below sp";
    NeverWritten { below: u64 } => "load:never-written-{below}",
        "load of a slot never written, {below} bytes below sp at the site";
    SpModulo => "sp-align", "sp modulo the promised alignment, at the call";
    SpOfAccess => "sp-align:access", "sp modulo what the hardware asks where memory is accessed by it";
    SpOfHooked => "sp:hooked-return", "sp when the hooked return arrived";
    SpOfBody => "sp:function", "sp of the function, where its stack arguments are";
    SpModuloOfBody => "sp-align:function",
        "sp of the function against its caller's, modulo the psABI's alignment";
    SpReturned => "sp:function-returns", "sp when the function returns";

    // The way on.
    Unsent => "entry:unsent", "a trampoline that nothing sent it to";
    DirectTrampoline => "direct", "direct trampoline";
    DirectPc => "direct:pc", "pc for the direct trampoline";
    DirectParentIp => "direct:parent_ip", "parent_ip for the direct trampoline";
    DirectEntered => "direct:entered", "direct trampoline entered";
    WayOn => "way-on", "way on";
    ContextEnds => "context:ends", "the context's function has run, and has returned";
    Outermost => "unwind:outermost", "unwinders go on behind the function of a context that nothing called";
    ReturnsToTrampoline => "function:returns-to-trampoline", "the function returns to the trampoline";
    BodyReturns => "function:returns-to", "where the function returns to";
    BodyPaired => "function:call", "return address of the function, and its call";
    ParentPc => "parent:pc", "pc in the parent";
    ParentLink => "parent:link", "link register in the parent";
    StoreFregs => "store:fregs", "store through fregs";
    StoreContext => "store:context", "store to the context";
    RetiredLabels => "retired:labels",
        "labels for code that is retired: the gap behind the traced function, and the epilogue";
    RetiredGap => "retired:gap", "end of the gap behind the traced function";
    DetachLabels => "detached:labels", "labels for programs that are detached: before each and behind it";
    DetachSlot => "detached:slot", "bytes of the instruction before a program that does nothing, for a jump";

    Copies { name: &'static str } => "copies:{name}",
        "{name} behind the copies, against what the displaced instructions leave in it";
    CopiesMemory => "copies:memory", "byte of memory behind the copies, against what the displaced instructions leave there";
    CopiesRead => "copies:read", "page that either the copies read, or the displaced instructions, and not both";
    CopiesLeft => "copies:left", "the copies go on somewhere, as the displaced instructions do";
    CopiesEnd => "copies:end", "where the copies go on, against where the displaced instructions do";
    CopiesRan => "copies:ran", "states in which the displaced instructions run where they stood";

    // What is called, how often, and with what.
    Calls => "calls", "calls of what it calls";
    CallsBefore => "calls:before", "calls before the function";
    CallsAfter => "calls:after", "calls after the function";
    Programs => "calls:programs", "programs that are called here";
    Callee => "callee", "function that it calls";
    Program => "program", "program that it calls";
    BeforeProgram => "program:before", "function that it calls before a program";
    AfterProgram => "program:after", "function that it calls after a program";
    ProgramArgument => "program:argument", "what the functions before and after a program are given first";
    ProgramBegan => "program:began", "a call of the function before the program";
    ProgramLet => "program:let", "a program that the function before it lets run, once";
    ProgramCalled => "program:called", "the program was called";
    ProgramEnds => "program:ends", "a program without a call of the function after it";
    Start => "program:start", "what the function before the program returned";
    RunContext => "run-context", "the run context lies in the frame";
    RunContextAgain => "run-context:again", "the run context, for the function after the program";
    RunContextSaved => "run-context:saved", "what the function before the program has put into the run context";
    StoreRunContext => "store:run-context", "store to the run context";
    AroundEntered => "around:entered", "calls of the function that comes first";
    AroundLeft => "around:left", "calls of the function that comes last";
    AroundOpen => "around:open", "programs are called between the function that comes first and that which comes last";
    AroundFirst => "around:first", "programs that are called before the function that comes first";
    AroundLast => "around:last", "programs that are called when the function comes that comes last";
    AroundArgument => "around:argument", "what the functions that come first and last are given";
    ClearFlags => "clear-flags", "flags that are clear where C code begins";
    Ip => "ip", "ip";
    ParentIp => "parent_ip", "parent_ip";
    Op => "op", "op";
    FregsInFrame => "fregs", "fregs lies in the frame";
    Slot { member: String } => "slot:{member}", "fregs->{member}";
    SlotWritten { member: String } => "slot:{member}:written", "fregs->{member} was written";
    Argument { name: &'static str } => "argument:{name}", "argument in {name}";
    Given { name: &'static str } => "given:{name}", "what the contract says is in {name}, for the callee";
    StackArgument => "argument:stack", "argument on the stack";
    ResultTold { name: &'static str } => "result:{name}:told", "result in {name}, for the exit handler";
    Result { name: &'static str } => "result:{name}", "result in {name}";
    Unstored { name: &'static str } => "unstored:{name}", "{name}, to which nothing is to be stored here";
    Cookie => "cookie", "cookie";
    ContextCount => "context:count", "context[-1]: number of words";
    ContextIp => "context:ip", "context[-2]: ip";
    ContextWord => "context:word", "word of the context";
    ContextResult => "context:result", "result in the context";
    ContextSession => "context:session", "word of a session";

    // Unwinding.
    Cfa => "unwind:cfa", "CFA by the unwind table";
    Column { name: &'static str } => "unwind:{name}", "{name} by the unwind table";
    UnwindReturn => "unwind:return-address", "return address by the unwind table";
    UnwindLink => "unwind:link", "link register by the unwind table";
    ReturnColumn => "unwind:return-column", "return address in a column that unwinders know";
    LookedUp => "unwind:signal-frame",
        "a signal frame: the function has called nothing, so unwinders look up the return address itself";
    BeforeReturn => "unwind:before-return",
        "the address before the one that functions return to is in the unwind table, without a return address";
    FrameRecord { n: usize } => "frame-record:{n}", "return address in frame record {n}";
    RecordRises { n: usize } => "frame-record:{n}:rises", "frame record {n} lies above the one before";
    Refills => "refills", "calls of the routine that makes room";
    BehindRecords => "frame-record:end", "frame pointer behind the records";
    MarkedRegs => "frame-record:regs", "frame pointer: address of pt_regs with bit 0 set";

    // Branches.
    PadAtEntry => "landing-pad:entry", "landing pad at the entry";
    TypeAtEntry => "type:entry", "type before the entry, where who calls through a pointer looks for it";
    PadAtTarget => "landing-pad:target", "landing pad where an indirect branch goes";
    CallsWithoutReturn => "return-stack:calls", "calls without a return";
    ReturnsWithoutCall => "return-stack:returns", "returns without a call";
    StoppedReturns => "engine:returns", "returns that the engine stops";
    StoppedAtEntry => "engine:entry", "the engine stops an indirect branch to the trampoline";
    StoppedAtTarget => "engine:target", "the engine stops at the target of an indirect branch";
    StoppedAtCheck => "engine:check", "the engine stops where a return address is checked";
    Pushed => "engine:pushed", "bytes that stay on the CPU's shadow stack";
    Mispredicted => "return-stack:mispredicted", "returns that do not go behind their call";
    ShadowMoved => "return-stack:pointer", "instructions that move the pointer of the CPU's shadow stack";
    ReturnMade => "return:made", "returns made otherwise than the configuration asks for";
    WideLost => "vectors:wide", "instructions that may change wide vector registers, which nothing stores";
    WideRegister { name: &'static str } => "vectors:wide:{name}", "wide vector state: {name}";
    SpeculationTrap => "speculation-trap", "trap where a return is predicted to go and never goes";

    // The run, against the unpatched one.
    After { name: &'static str } => "after:{name}", "{name} after the function, against the unpatched run";
    AfterStack { offset: usize } => "after:stack+{offset:#x}", "stack+{offset:#x}, against the unpatched run";
    AfterResult { offset: usize } => "after:result+{offset:#x}",
        "result in memory+{offset:#x}, against the unpatched run";
    AfterDisabled => "after:disabled", "disabled again, the function behaves differently";

    // Records.
    Cursor => "record:cursor", "where the thread's next record begins";
    Limit => "record:limit", "where the thread's buffer ends";
    Counter => "record:count", "the thread's counter";
    BesideWords => "record:beside", "memory beside the thread's words";
    ShadowTop => "record:shadow", "where the next entry of the thread's shadow stack goes";
    ShadowLimit => "record:shadow-limit", "where the thread's shadow stack ends";
    ShadowOthers => "record:shadow-others", "what the shadow stack has besides the entries of these calls";
    ShadowParent => "record:shadow-parent", "parent_ip in the function's entry of the shadow stack";
    ShadowSp => "record:shadow-sp", "sp in the function's entry of the shadow stack";
    EntryLost => "record:shadow-lost", "a stop where the function's entry of the shadow stack is lost";
    Buffer { offset: usize } => "record:buffer+{offset:#x}", "the thread's buffer+{offset:#x}";
    SignalCount => "signal:count", "the thread's counter after a signal here, whose handler calls the function too";
    SignalSlots => "signal:slots", "bytes that records took, with a signal here, whose handler calls the function too";
    SignalRecords => "signal:records", "the records of both, with a signal here, whose handler calls the function too";
    SignalUnfinished => "signal:unfinished", "words that a record lacks which says already what happened, where a signal comes here";
    SignalAfter => "signal:after", "what differs from the unpatched run, with a signal here";

    // Exceptions.
    Personality => "exception:personality", "whom unwinders ask about the frame";
    Handled => "exception:handled", "the table of call sites has a landing pad for the call of the function";
    PadForException => "exception:landing-pad", "landing pad for indirect branches, where unwinders go";
    Resumed => "exception:resumed", "where the landing pad ends";
    Exception => "exception:object", "the exception that is handed back";
    SpResumed => "exception:sp", "sp when the exception is handed back";
    GoesOn => "exception:goes-on", "the table of call sites lets the exception go on from there";
    Unwound { place: Box<Place> } => "exception:{place:#}", "after an exception: {place}";

    // Coverage.
    NeverExecuted => "never-executed", "instruction that is never executed";

    // The site, the symbol, the distance.
    Site { function: String, what: SiteBytes } => "site:{what:#}:{function}", "{function}: {what}";
    Cpu { switch: &'static str, done: usize, of: usize, ip: SiteOffset, since: usize, wrong: Box<Place> }
        => "cpu:{ip}:{wrong:#}", "{switch}, step {done} of {of}, CPU at {ip} since step {since}: {wrong}";
    Breakpoint => "breakpoint", "the breakpoint";
    SizeOfSymbol => "size:symbol", "bytes by the symbol, and those of its instructions";
    Mark { what: MarkOf } => "mark:{what:#}", "is {what} true (1 or 0), and what the note says";
    Guarded => "guard:return", "the return address is guarded in memory, and checked before it is returned to (1 or 0)";
    ScsEntry => "guard:scs", "an entry of the callers on the shadow call stack";
    GuardTold => "guard:table", "the unwind table says where the return address is signed (1 or 0)";
    Reach { direction: Direction } => "reach:{direction:#}", "how far a site reaches {direction}";
    Beyond { direction: Direction } => "reach:{direction:#}:beyond",
        "a target beyond what a site reaches {direction} is written to it";
    Away { copy: &'static str, mib: i64, clause: Clause, place: Box<Place> } => "away:{clause}:{place:#}",
        "{copy}{mib} MiB from the site, {clause}: {place}";
}

impl Place {
    /// The name by which contracts and reports know this place.
    pub fn id(&self) -> String {
        format!("{self:#}")
    }
}

/// All places that contracts and expectations may name: each with its id and its sentence, in which `{..}` stands for what
/// varies.
pub fn places() -> Vec<(String, String)> {
    // How a part is printed is of no interest here.
    let plain = |text: &str| text.replace(":#x}", "}").replace(":#}", "}");
    PLACES.iter().map(|(id, text)| (plain(id), plain(text))).collect()
}

/// A member of the structure that a callback is given, as long as no check of it failed.
pub(crate) struct Slot<'m>(pub &'m str);

impl From<Slot<'_>> for Place {
    fn from(Slot(member): Slot) -> Place {
        Place::Slot { member: member.to_owned() }
    }
}

/// The same, when it is asked whether anything was stored there.
pub(crate) struct SlotWritten<'m>(pub &'m str);

impl From<SlotWritten<'_>> for Place {
    fn from(SlotWritten(member): SlotWritten) -> Place {
        Place::SlotWritten { member: member.to_owned() }
    }
}

/// The promise of a mark of protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MarkOf(pub Promise);

impl fmt::Display for MarkOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (f.alternate(), self.0) {
            (true, Promise::Pads) => "pads",
            (true, Promise::Paired | Promise::Guarded) => "returns",
            (true, Promise::Signed) => "signed",
            (false, Promise::Pads) => "the mark of landing pads",
            (false, Promise::Paired | Promise::Guarded) => "the mark of shadow stacks",
            (false, Promise::Signed) => "the mark of signed return addresses",
        })
    }
}

/// The side of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Up => "up",
            Direction::Down => "down",
        })
    }
}

/// A property of the bytes of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SiteBytes {
    Begins,
    Ends,
    EndsInstruction,
    Branch,
    Outside,
    After,
}

impl fmt::Display for SiteBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, text) = match self {
            SiteBytes::Begins => ("begins", "the site begins in the function"),
            SiteBytes::Ends => ("ends", "the site ends in the function"),
            SiteBytes::EndsInstruction => ("ends-instruction", "the site ends where an instruction does"),
            SiteBytes::Branch => ("branch", "a branch of the function into its site"),
            SiteBytes::Outside => ("outside", "byte outside of an enabled site"),
            SiteBytes::After => ("after", "byte after the site was disabled"),
        };
        f.write_str(if f.alternate() { id } else { text })
    }
}

/// An address in a site, in bytes from the site's ip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SiteOffset(pub i64);

impl fmt::Display for SiteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "ip"),
            offset => write!(f, "ip{}{:#x}", if offset < 0 { '-' } else { '+' }, offset.unsigned_abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(place: Place) -> (String, String) {
        (place.id(), place.to_string())
    }

    #[test]
    fn a_place_has_an_id_and_a_sentence() {
        let pair = |id: &str, text: &str| (id.to_owned(), text.to_owned());
        assert_eq!(both(Place::Reg { name: "rsi" }), pair("rsi", "rsi"));
        assert_eq!(both(Slot("lr").into()), pair("slot:lr", "fregs->lr"));
        assert_eq!(both(SlotWritten("lr").into()), pair("slot:lr:written", "fregs->lr was written"));
        let site = Place::Site { function: "f1".to_owned(), what: SiteBytes::Branch };
        assert_eq!(both(site), pair("site:branch:f1", "f1: a branch of the function into its site"));
    }

    #[test]
    fn ids_differ_and_are_no_sentences() {
        let all = places();
        let mut ids: Vec<&str> = all.iter().map(|(id, _)| id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all.len());
        for id in ids {
            let plain = |c: char| c.is_ascii_lowercase() || "-:_{}+".contains(c);
            assert!(id.chars().all(plain), "{id}");
        }
        assert!(all.contains(&("frame-record:{n}".to_owned(), "return address in frame record {n}".to_owned())));
        assert!(all.iter().all(|(id, text)| !format!("{id}{text}").contains('#')));
    }

    #[test]
    fn a_place_in_a_place_keeps_its_own_id() {
        let away = |place| Place::Away { copy: "copy, ", mib: -2046, clause: Clause::P10, place: Box::new(place) };
        let (id, text) = both(away(Place::SpModulo));
        assert_eq!(id, "away:P10:sp-align");
        assert_eq!(text, "copy, -2046 MiB from the site, P10: sp modulo the promised alignment, at the call");
        let cpu = |ip| {
            let wrong = Box::new(Place::UnmappedBranch);
            Place::Cpu { switch: "switched on", done: 1, of: 2, ip: SiteOffset(ip), since: 0, wrong }.id()
        };
        assert_eq!(
            [0, 4, -4].map(cpu),
            ["cpu:ip", "cpu:ip+0x4", "cpu:ip-0x4"].map(|ip| format!("{ip}:unmapped-branch"))
        );
    }
}
