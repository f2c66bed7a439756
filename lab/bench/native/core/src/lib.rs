// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runtime core as the C program of `bench native` has it: what the handlers of paired trampolines call.
//!
//! The users of the function graph are the program's own, and reached through pointers, as the kernel reaches its users.
// The program hands these references back, and looks into none of them.
#![allow(improper_ctypes_definitions)]

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use tramptool_runtime::{Call, Data, Entry, GraphOps, Handlers, Room, Runtime, Site, Task, Trampolines};

/// Room for this many functions, times 64.
const WORDS: usize = 257;

/// `struct pt_regs` of x86-64, which users are handed as the kernel's are: arguments and the result are theirs to read and to
/// change where the trampoline has them.
#[repr(C)]
pub struct PtRegs {
    kept: [AtomicU64; 8],
    of_calls: [AtomicU64; 7],
    /// `orig_ax`, which no trampoline of `ftrace_caller`'s kind fills: the layer, from an entry that is hooked.
    hooked: Option<&'static Layer>,
    ip: AtomicU64,
    cs: AtomicU64,
    flags: AtomicU64,
    sp: AtomicU64,
    ss: AtomicU64,
}

/// A user: what it does at an entry, and at the return with the word that it kept.
#[repr(C)]
pub struct User {
    entry: extern "C" fn(ip: u64, fregs: &PtRegs, room: &Room) -> bool,
    exit: extern "C" fn(ip: u64, fregs: &PtRegs, kept: u64),
}

/// What the trampolines' `op` is.
pub struct Layer {
    core: Runtime<'static, WORDS>,
    users: &'static [User; 2],
}

static LAYER: OnceLock<Layer> = OnceLock::new();

thread_local! {
    static TASK: Task = const { Task::new() };
}

impl Layer {
    /// Users are named by their number, from 1.
    fn user(&self, key: u64) -> Option<&User> {
        self.users.get((key as usize).wrapping_sub(1))
    }
}

impl Handlers for Layer {
    type Regs = PtRegs;

    fn graph_entry(&self, user: u64, call: &Call, fregs: &Self::Regs, room: &Room) -> bool {
        self.user(user).is_some_and(|user| (user.entry)(call.ip, fregs, room))
    }

    fn graph_return(&self, user: u64, call: &Call, fregs: &mut Self::Regs, data: Option<Data>) {
        if let (Some(user), Some(data)) = (self.user(user), data) {
            (user.exit)(call.ip, fregs, data.get(0));
        }
    }
}

/// Trace functions, by address in any order, for both users.
#[unsafe(no_mangle)]
pub extern "C" fn core_start_users(
    users: &'static [User; 2],
    functions: &[u64; 64 * WORDS],
    count: usize,
) -> Option<&'static Layer> {
    let mut ips = functions[..count.min(64 * WORDS)].to_vec();
    ips.sort_unstable();
    let sites: Vec<Site> = ips.iter().map(|ip| Site { ip: *ip, name: "f" }).collect();
    // No function returns there: the trampolines are paired.
    let trampolines = Trampolines { return_to_handler: u64::MAX, rethook: u64::MAX - 1 };
    let Ok(core) = Runtime::new(sites.leak(), trampolines) else { return None };
    let layer = LAYER.get_or_init(|| Layer { core, users });
    for key in [1, 2] {
        layer.core.register_ftrace_graph(&GraphOps { key, filter: &ips, notrace: &[] }).ok()?;
    }
    Some(layer)
}

/// Keep a word from an entry to its return.
#[unsafe(no_mangle)]
pub extern "C" fn core_keep(room: &Room, word: u64) -> bool {
    room.reserve_data(8).inspect(|data| data.set(0, word)).is_some()
}

/// Is the shadow stack empty?
#[unsafe(no_mangle)]
pub extern "C" fn core_balanced() -> bool {
    TASK.with(Task::is_balanced)
}

/// A traced function is entered.
#[unsafe(no_mangle)]
pub extern "C" fn core_entry(ip: u64, parent: u64, layer: &'static Layer, fregs: &mut PtRegs) {
    let entry = Entry { ip, parent, retp: std::ptr::from_ref(fregs).addr() as u64, direct: 0 };
    let hooked = TASK.with(|task| layer.core.enter(task, layer, entry, fregs)).parent != parent;
    // The frame stays until the function returns: here is whether somebody asked for that.
    fregs.hooked = hooked.then_some(layer);
}

/// And it returns.
#[unsafe(no_mangle)]
pub extern "C" fn core_exit(fregs: &mut PtRegs) {
    let Some(layer) = fregs.hooked else { return };
    let retp = std::ptr::from_ref(fregs).addr() as u64;
    TASK.with(|task| layer.core.return_to_handler(task, layer, retp, fregs));
}
