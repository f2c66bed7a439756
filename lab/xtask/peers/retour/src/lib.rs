// SPDX-License-Identifier: MIT OR Apache-2.0
//! What agent.c wants of the crate retour.

use std::ffi::{CStr, c_char};

use retour::RawDetour;

/// A detour from `target`, of this name, to `hook`. It is off. Null, and a line that says why, if there is none.
///
/// # Safety
/// Both are functions with the same arguments and result; the name is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn detour_new(name: *const c_char, target: *const (), hook: *const ()) -> *mut RawDetour {
    // SAFETY: as above.
    match unsafe { RawDetour::new(target, hook) } {
        Ok(detour) => Box::into_raw(Box::new(detour)),
        Err(why) => {
            // SAFETY: as above.
            eprintln!("peers: refused {}: {why}", unsafe { CStr::from_ptr(name) }.to_string_lossy());
            std::ptr::null_mut()
        }
    }
}

/// What calls the original.
///
/// # Safety
/// It is a detour of `detour_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn detour_original(detour: *const RawDetour) -> *const () {
    // SAFETY: as above.
    std::ptr::from_ref(unsafe { &*detour }.trampoline()).cast()
}

/// Switch it.
///
/// # Safety
/// It is a detour of `detour_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn detour_switch(detour: *const RawDetour, on: bool) {
    // SAFETY: as above.
    let _ = unsafe { if on { (*detour).enable() } else { (*detour).disable() } };
}
