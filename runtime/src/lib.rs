//! The runtime core of function tracing: trampolines call it, and it decides which handlers run.
//!
//! No operating system, no allocation, no unsafe code. The machine's layer owns a [`Runtime`], one [`Task`] for each
//! thread, and [`Handlers`]; its trampolines call [`Runtime::enter`], [`Runtime::return_to_handler`] and
//! [`Runtime::rethook_return`]. Operations have the names and error codes of Linux; where one behaves differently, its
//! documentation says how.
//!
//! ```
//! use std::cell::RefCell;
//! use tramptool_runtime::{Call, Data, Entry, GraphOps, Handlers, Room, Runtime, Site, Task, Trampolines};
//!
//! struct Log(RefCell<Vec<String>>);
//!
//! /// What this machine has of registers: the result of a function.
//! type Value = u64;
//!
//! impl Handlers for Log {
//!     type Regs = Value;
//!
//!     fn graph_entry(&self, _user: u64, call: &Call, _regs: &Value, room: &Room) -> bool {
//!         self.0.borrow_mut().push(format!("enter {:#x}", call.ip));
//!         room.reserve_data(8).inspect(|data| data.set(0, 7)).is_some()
//!     }
//!     fn graph_return(&self, _user: u64, call: &Call, value: &mut Value, data: Option<Data>) {
//!         let data = data.map_or(0, |d| d.get(0));
//!         self.0.borrow_mut().push(format!("leave {:#x} = {value}, data {data}", call.ip));
//!     }
//! }
//!
//! let sites = [Site { ip: 0x1000, name: "f" }];
//! let core: Runtime<1> = Runtime::new(&sites, Trampolines { return_to_handler: 0xf000, rethook: 0xf100 })?;
//! let (task, log) = (Task::new(), Log(RefCell::new(Vec::new())));
//! core.register_ftrace_graph(&GraphOps { key: 1, filter: &[0x1000], notrace: &[] })?;
//!
//! let entry = Entry { ip: 0x1000, parent: 0x2000, retp: 0x7ff0, direct: 0 };
//! assert_eq!(core.enter(&task, &log, entry, &mut 0), Entry { parent: 0xf000, ..entry });
//! assert_eq!(core.return_to_handler(&task, &log, 0x7ff0, &mut 3), Some(0x2000));
//! assert_eq!(log.0.into_inner(), ["enter 0x1000", "leave 0x1000 = 3, data 7"]);
//! # Ok::<(), tramptool_runtime::Errno>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod data;
pub mod definition;
mod enter;
mod errno;
mod flags;
mod fprobe;
mod graph;
mod handlers;
mod kretprobe;
mod ops;
mod pool;
mod runtime;
mod sites;
mod task;
mod users;
mod word;

pub use data::Data;
pub use errno::{Errno, Result};
pub use flags::Flags;
pub use fprobe::Fprobe;
pub use graph::GraphOps;
pub use handlers::{Call, Entry, Handlers, Room};
pub use kretprobe::Kretprobe;
pub use ops::{Hijack, Ops, Target};
pub use runtime::{FPROBES, KRETPROBES, OPS, Runtime, Trampolines};
pub use sites::{Site, Sites, glob};
pub use task::{GRAPH_USERS, Task};
pub use word::Word;
