// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core with handlers that do nothing: whatever it runs is in this object, so that it can be proven what it touches.
#![no_std]

extern crate tramptool_runtime as runtime;

use runtime::{Entry, Fprobe, GraphOps, Handlers, Kretprobe, Ops, Runtime, Task};

type Core = Runtime<'static, 1>;

struct Nobody;

impl Handlers for Nobody {
    type Regs = ();
}

#[unsafe(no_mangle)]
pub extern "C" fn core_enter(core: &Core, task: &Task, entry: &mut Entry) {
    *entry = core.enter(task, &Nobody, *entry, &mut ());
}

#[unsafe(no_mangle)]
pub extern "C" fn core_return_to_handler(core: &Core, task: &Task, retp: u64) -> u64 {
    core.return_to_handler(task, &Nobody, retp, &mut ()).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn core_rethook_return(core: &Core, task: &Task, retp: u64) -> u64 {
    core.rethook_return(task, &Nobody, retp, &mut ()).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn core_register(core: &Core, key: u64, ip: &u64) -> bool {
    let filter = core::slice::from_ref(ip);
    core.register_ftrace_function(&Ops { key, filter, ..Ops::default() }).is_ok()
        && core.register_ftrace_graph(&GraphOps { key, filter, notrace: &[] }).is_ok()
        && core.register_fprobe_ips(&Fprobe { key, exit: true, entry_data_size: 8 }, filter).is_ok()
        && core.register_kretprobe(&Kretprobe { key, ip: *ip, maxactive: 0, entry: true }).is_ok()
}

#[unsafe(no_mangle)]
pub extern "C" fn core_unregister(core: &Core, key: u64) -> bool {
    core.unregister_ftrace_function(key).is_ok()
        && core.unregister_ftrace_graph(key).is_ok()
        && core.unregister_fprobe(key).is_ok()
        && core.unregister_kretprobe(key).is_ok()
}
