//! The names of the crate retour, for programs that used it. Threads may execute a function while it is detoured, and what is called by
//! [`RawDetour::trampoline`] is there for ever.
#![allow(unsafe_code, reason = "callers promise what functions are, and get them back by their address")]

use std::marker::PhantomData;

use crate::error::{Error, Result};
use crate::live::{Hook, Live, Policy};

/// A function that another one takes the place of.
pub struct RawDetour {
    hook: Hook,
}

impl RawDetour {
    /// Prepare that `detour` takes the place of `target`. It does not yet.
    ///
    /// # Errors
    /// Those of [`Live::new`], [`Live::function_at`] and [`Live::replace`].
    ///
    /// # Safety
    /// As [`Live::replace`].
    pub unsafe fn new(target: *const (), detour: *const ()) -> Result<RawDetour> {
        let live = Live::new(Policy::default())?;
        let function = live.function_at(target)?;
        if function.range().start != target as u64 {
            return Err(Error::NotFound {
                name: format!("beginning at {target:p}"),
                near: vec![function.name().to_owned()],
            });
        }
        // SAFETY: the caller's promise is the same.
        Ok(RawDetour { hook: unsafe { live.replace(&function, detour) }? })
    }

    /// Let it be called instead.
    ///
    /// # Errors
    /// Those of [`Live::batch`].
    ///
    /// # Safety
    /// There is no danger; retour's is unsafe.
    pub unsafe fn enable(&self) -> Result<()> {
        self.hook.enable().map(drop)
    }

    /// Let the function itself be called again.
    ///
    /// # Errors
    /// Those of [`Live::batch`].
    ///
    /// # Safety
    /// As [`RawDetour::enable`].
    pub unsafe fn disable(&self) -> Result<()> {
        self.hook.disable().map(drop)
    }

    /// Whether calls go to the detour.
    pub fn is_enabled(&self) -> bool {
        self.hook.is_enabled()
    }

    /// The function without its detour, at this address.
    pub fn trampoline(&self) -> &() {
        // SAFETY: nothing is read by a reference to nothing.
        unsafe { &*self.hook.original() }
    }
}

/// A type of functions.
///
/// # Safety
/// A value is the address of a function.
pub unsafe trait Function: Copy {
    /// The function at this address.
    ///
    /// # Safety
    /// One of this type is there.
    unsafe fn from_ptr(at: *const ()) -> Self;
    /// Its address.
    fn to_ptr(&self) -> *const ();
}

/// A function that another one of the same type takes the place of.
pub struct GenericDetour<T: Function> {
    raw: RawDetour,
    of: PhantomData<T>,
}

impl<T: Function> GenericDetour<T> {
    /// Prepare that `detour` takes the place of `target`. It does not yet.
    ///
    /// # Errors
    /// Those of [`RawDetour::new`].
    ///
    /// # Safety
    /// As [`Live::replace`].
    pub unsafe fn new(target: T, detour: T) -> Result<GenericDetour<T>> {
        // SAFETY: the caller's promise is the same.
        Ok(GenericDetour { raw: unsafe { RawDetour::new(target.to_ptr(), detour.to_ptr()) }?, of: PhantomData })
    }

    /// Let it be called instead.
    ///
    /// # Errors
    /// Those of [`Live::batch`].
    ///
    /// # Safety
    /// As [`RawDetour::enable`].
    pub unsafe fn enable(&self) -> Result<()> {
        // SAFETY: the same.
        unsafe { self.raw.enable() }
    }

    /// Let the function itself be called again.
    ///
    /// # Errors
    /// Those of [`Live::batch`].
    ///
    /// # Safety
    /// As [`RawDetour::enable`].
    pub unsafe fn disable(&self) -> Result<()> {
        // SAFETY: the same.
        unsafe { self.raw.disable() }
    }

    /// Whether calls go to the detour.
    pub fn is_enabled(&self) -> bool {
        self.raw.is_enabled()
    }

    /// The function without its detour, at this address.
    pub fn trampoline(&self) -> &() {
        self.raw.trampoline()
    }
}

/// Functions of one type with these arguments.
macro_rules! functions {
    ([$($qualifier:tt)*] [$($call:tt)*] $($name:ident: $argument:ident),*) => {
        // SAFETY: it is a pointer to a function.
        unsafe impl<R, $($argument),*> Function for $($qualifier)* fn($($argument),*) -> R {
            unsafe fn from_ptr(at: *const ()) -> Self {
                // SAFETY: the caller's promise.
                unsafe { std::mem::transmute(at) }
            }

            fn to_ptr(&self) -> *const () {
                *self as *const ()
            }
        }

        impl<R, $($argument),*> GenericDetour<$($qualifier)* fn($($argument),*) -> R> {
            /// Call the function without its detour.
            ///
            /// # Safety
            /// Of a type of unsafe functions, what they demand.
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            pub $($call)* fn call(&self, $($name: $argument),*) -> R {
                // SAFETY: the hook has the type of the function, and for unsafe ones the caller's promise.
                unsafe { <$($qualifier)* fn($($argument),*) -> R>::from_ptr(self.raw.hook.original())($($name),*) }
            }
        }
    };
}

/// All types of functions with these arguments.
macro_rules! all {
    ($($arguments:tt)*) => {
        functions!([] [] $($arguments)*);
        functions!([extern "C"] [] $($arguments)*);
        functions!([unsafe] [unsafe] $($arguments)*);
        functions!([unsafe extern "C"] [unsafe] $($arguments)*);
    };
}

all!();
all!(a: A);
all!(a: A, b: B);
all!(a: A, b: B, c: C);
all!(a: A, b: B, c: C, d: D);
all!(a: A, b: B, c: C, d: D, e: E);
all!(a: A, b: B, c: C, d: D, e: E, f: F);
all!(a: A, b: B, c: C, d: D, e: E, f: F, g: G);
all!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H);
