//! The functions of `include/tramptool_live.h`.
#![allow(unsafe_code, reason = "C gives addresses, and calls by name")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use crate::buffers::{Event, Record};
use crate::calls::{self, Entry, Exit};
use crate::error::{Error, Result};
use crate::function::Function;
use crate::live::{Batch, Hook, Live, Policy};
use crate::record::Recorder;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A call, for handlers.
pub enum Call<'a, 'w> {
    /// The function begins.
    Entry(&'a mut Entry<'w>),
    /// The function returns.
    Exit(&'a mut Exit<'w>),
}

type Handler = Option<unsafe extern "C" fn(*mut Call, *mut c_void)>;

/// The caller's pointer, for handlers in any thread.
#[derive(Clone, Copy)]
struct Data(*mut c_void);

// SAFETY: the header says that handlers run in any thread.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

impl Data {
    /// Call a handler, if there is one.
    fn tell(self, handler: Handler, mut call: Call) {
        if let Some(handler) = handler {
            // SAFETY: the header says what a handler is.
            unsafe { handler(&raw mut call, self.0) };
        }
    }
}

/// Keep the text of an error for `tl_last_error`.
fn kept<T>(result: Result<T>) -> Option<T> {
    let keep = |error: Error| {
        let text = CString::new(error.to_string()).unwrap_or_default();
        LAST.with(|last| last.replace(text));
    };
    result.map_err(keep).ok()
}

fn handle<T>(result: Result<T>) -> *mut T {
    kept(result).map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

fn status<T>(result: Result<T>) -> c_int {
    if kept(result).is_some() { 0 } else { -1 }
}

fn live() -> Result<Live> {
    Live::new(Policy::default())
}

/// Prepare the process.
#[unsafe(no_mangle)]
pub extern "C" fn tl_open() -> c_int {
    status(live())
}

/// The last error in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn tl_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Calls that no handler was called for.
#[unsafe(no_mangle)]
pub extern "C" fn tl_missed() -> u64 {
    calls::missed()
}

/// The function of this name.
///
/// # Safety
/// The name ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_function(name: *const c_char) -> *mut Function {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    handle(live().and_then(|live| live.function(&name)))
}

/// The function with this address in it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_function_at(address: *const c_void) -> *mut Function {
    handle(live().and_then(|live| live.function_at(address.cast())))
}

/// The same function with its prototype.
///
/// # Safety
/// The handle is one of these functions; the prototype ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_with_prototype(function: *const Function, prototype: *const c_char) -> *mut Function {
    // SAFETY: the caller's promise.
    let (function, prototype) = unsafe { (&*function, CStr::from_ptr(prototype)) };
    handle(Ok(function.clone().with_prototype(&prototype.to_string_lossy())))
}

/// Attach handlers around a function.
///
/// # Safety
/// The handle is one of these functions, and as [`Live::around`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_around(
    function: *const Function,
    entry: Handler,
    exit: Handler,
    data: *mut c_void,
) -> *mut Hook {
    let data = Data(data);
    let at_entry = move |call: &mut Entry| data.tell(entry, Call::Entry(call));
    let at_exit = move |call: &mut Exit| data.tell(exit, Call::Exit(call));
    // SAFETY: the caller's promise.
    handle(live().and_then(|live| unsafe { live.around(&*function, at_entry, at_exit) }))
}

/// Let another function be called instead.
///
/// # Safety
/// The handle is one of these functions, and as [`Live::replace`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_replace(function: *const Function, with: *const c_void) -> *mut Hook {
    // SAFETY: the caller's promise.
    handle(live().and_then(|live| unsafe { live.replace(&*function, with.cast()) }))
}

/// Enable a hook.
///
/// # Safety
/// The handle is one of these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_enable(hook: *const Hook) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { &*hook }.enable())
}

/// Disable a hook.
///
/// # Safety
/// The handle is one of these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_disable(hook: *const Hook) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { &*hook }.disable())
}

/// Enable or disable several hooks together.
///
/// # Safety
/// There are so many handles of these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_batch(hooks: *const *const Hook, n: usize, enable: c_int) -> c_int {
    let fill = |batch: &mut Batch| {
        for i in 0..n {
            // SAFETY: the caller's promise.
            let hook = unsafe { &**hooks.add(i) };
            if enable == 0 { batch.disable(hook) } else { batch.enable(hook) }
        }
    };
    status(live().and_then(|live| live.batch(fill)))
}

/// Disable a hook for good.
///
/// # Safety
/// The handle is one of these functions, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_detach(hook: *mut Hook) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(hook) });
}

/// Record the calls of functions.
///
/// # Safety
/// There are so many handles of these functions, and as [`Live::record`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_record(functions: *const *const Function, n: usize, room: usize) -> *mut Recorder {
    // SAFETY: the caller's promise.
    let functions: Vec<Function> = (0..n).map(|n| unsafe { (**functions.add(n)).clone() }).collect();
    // SAFETY: the caller's promise.
    handle(live().and_then(|live| unsafe { live.record(&functions, room) }))
}

/// Enable a recorder's hooks.
///
/// # Safety
/// The handle is one of these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_recorder_enable(recorder: *const Recorder) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { &*recorder }.enable())
}

/// Disable a recorder's hooks.
///
/// # Safety
/// The handle is one of these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_recorder_disable(recorder: *const Recorder) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { &*recorder }.disable())
}

/// A record, for C.
#[repr(C)]
pub struct Recorded {
    time: u64,
    thread: u32,
    function: u32,
    returns: c_int,
}

/// Take records.
///
/// # Safety
/// The handle is one of these functions, and `to` has room for so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_recorder_take(recorder: *const Recorder, to: *mut Recorded, most: usize) -> usize {
    // SAFETY: the caller's promise.
    let records = unsafe { &*recorder }.take(most);
    for (n, Record { time, thread, function, event }) in records.iter().copied().enumerate() {
        let record = Recorded { time, thread, function, returns: (event == Event::Return).into() };
        // SAFETY: there are no more than the caller has room for.
        unsafe { to.add(n).write(record) };
    }
    records.len()
}

/// The number of records for which there was no room.
///
/// # Safety
/// The handle is one of these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_recorder_dropped(recorder: *const Recorder) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*recorder }.dropped()
}

/// Disable a recorder for good.
///
/// # Safety
/// The handle is one of these functions, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_recorder_detach(recorder: *mut Recorder) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(recorder) });
}

/// The function without its hooks.
///
/// # Safety
/// The handle is one of these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_original(hook: *const Hook) -> *const c_void {
    // SAFETY: the caller's promise.
    unsafe { &*hook }.original().cast()
}

/// An argument of a call that begins.
///
/// # Safety
/// The call is the handler's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_argument(call: *const Call, n: c_uint) -> u64 {
    // SAFETY: the caller's promise.
    match unsafe { &*call } {
        Call::Entry(entry) => entry.argument(n as usize),
        Call::Exit(_) => 0,
    }
}

/// Change it.
///
/// # Safety
/// The call is the handler's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_set_argument(call: *mut Call, n: c_uint, value: u64) {
    // SAFETY: the caller's promise.
    if let Call::Entry(entry) = unsafe { &mut *call } {
        entry.set_argument(n as usize, value);
    }
}

/// The result of a call that returns.
///
/// # Safety
/// The call is the handler's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_result(call: *const Call) -> u64 {
    // SAFETY: the caller's promise.
    match unsafe { &*call } {
        Call::Exit(exit) => exit.result(),
        Call::Entry(_) => 0,
    }
}

/// Change it.
///
/// # Safety
/// The call is the handler's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_set_result(call: *mut Call, value: u64) {
    // SAFETY: the caller's promise.
    if let Call::Exit(exit) = unsafe { &mut *call } {
        exit.set_result(value);
    }
}
