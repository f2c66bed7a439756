// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the C program of `bench native` wants of the crate retour.

use retour::RawDetour;

/// Make `target` go to `hook`; returns what calls the original, or null.
///
/// # Safety
/// Both are functions with the same arguments and result, and nothing is running in `target`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn detour(target: *const (), hook: *const ()) -> *const () {
    // SAFETY: as above.
    let enabled = unsafe { RawDetour::new(target, hook).and_then(|detour| detour.enable().map(|()| detour)) };
    // Dropped, it would be undone.
    enabled.map_or(std::ptr::null(), |detour| Box::leak(Box::new(detour)).trampoline())
}
