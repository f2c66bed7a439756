/// Faults, on which machines no case notices them, and why.
type Unnoticed = (&'static [&'static str], &'static [&'static str], &'static str);

#[rustfmt::skip]
const UNNOTICED: &[Unnoticed] = &[
    (&[
        "rethook: an unregistered kretprobe is called",
        "rethook: nodes of refused returns are lost",
        "rethook: a call without a node is not counted",
        "stack traces: callbacks are shown the rethook trampoline as caller",
        "stack traces: a hook that is not in place yet hides older ones",
        "kretprobes are called the newest first",
        "maxactive is not looked at",
        "data of a kretprobe are the last call's",
        "pending returns that were left by a jump are run",
        "a thread that ends leaves its pending returns in the pool",
        "a kretprobe comes though there is no place for its ops",
        "layer: returns of kretprobes are those of the graph",
    ], &["arm64"], "Linux has no rethook trampoline there, so no case has a kretprobe"),
    (&["paired: calls that are left by a jump are not forgotten"], &["x86_64", "arm64", "riscv64"],
        "nobody returns to what stays, and there is room for it"),
    (&["paired: a call has one hook at most"], &["arm64"], "without kretprobes no call has two"),
    (&[
        "paired: returns of kretprobes are those of the graph",
        "paired: the return of a kretprobe shows the trampoline as caller",
    ], &["arm64"], "Linux has no rethook trampoline there, so no case has a kretprobe"),
    (&["layer: a frame with all registers is read as one of arguments"], &["x86_64"],
        "both frames are a struct pt_regs, and have what is read at the same offsets"),
    (&["layer: a frame of arguments is read as one with all registers"], &["x86_64"], "as above"),
    (&["layer: a frame with all registers is read as one of arguments"], &["arm64", "riscv64"],
        "Linux has no entry trampoline with all registers there: nothing calls this"),
    (&["layer: the replaced return address is not put into the frame"], &["x86_64"],
        "return addresses are on the stack: nothing runs this"),
    (&["layer: the replaced return address is not put onto the stack"], &["arm64", "riscv64"],
        "frames have the return address: nothing runs this"),
    (&["layer: where a return address lay is taken from behind the return"], &["arm64", "riscv64"],
        "returns pop nothing"),
];
