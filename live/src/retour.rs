//! The names of the crate retour, for programs that used it. Threads may execute a function while it is detoured, and what is called by
//! [`RawDetour::trampoline`] is there for ever. Errors are this crate's [`Error`].
#![allow(unsafe_code, reason = "callers promise what functions are, and get them back by their address")]
#![allow(clippy::too_many_arguments, reason = "as many as functions have")]

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

pub use crate::error::{Error, Result};
use crate::live::{Hook, Live, Policy};
pub use crate::static_detour;

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
pub unsafe trait Function: Copy + 'static {
    /// The closures that can take the place of such a function.
    type Closure: ?Sized;
    /// A function that calls the closure of this static.
    #[doc(hidden)]
    fn __thunk<S: Static<Self>>() -> Self;
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

/// A function that a closure takes the place of. [`static_detour!`] makes it.
pub struct StaticDetour<T: Function> {
    thunk: fn() -> T,
    initialized: OnceLock<Initialized<T>>,
}

struct Initialized<T: Function> {
    detour: GenericDetour<T>,
    /// Never freed: a thread may be in a closure that was replaced.
    closure: AtomicPtr<Box<T::Closure>>,
}

/// A type for each static, by which its thunk finds it.
#[doc(hidden)]
pub trait Static<T: Function> {
    fn detour() -> &'static StaticDetour<T>;
}

impl<T: Function> StaticDetour<T> {
    #[doc(hidden)]
    pub const fn __new<S: Static<T>>() -> StaticDetour<T> {
        StaticDetour { thunk: T::__thunk::<S>, initialized: OnceLock::new() }
    }

    /// # Safety
    /// As [`Live::replace`].
    unsafe fn begin(&self, target: T, closure: Box<T::Closure>) -> Result<&StaticDetour<T>> {
        // SAFETY: the caller's promise is the same.
        let detour = unsafe { GenericDetour::new(target, (self.thunk)()) }?;
        let closure = AtomicPtr::new(Box::into_raw(Box::new(closure)));
        match self.initialized.set(Initialized { detour, closure }) {
            Ok(()) => Ok(self),
            Err(_) => Err(Error::AlreadyInitialized),
        }
    }

    fn initialized(&self) -> Result<&Initialized<T>> {
        self.initialized.get().ok_or(Error::NotInitialized)
    }

    /// The closure that a thunk calls. No call reaches the thunk before the static is initialized.
    fn closure(&self) -> &T::Closure {
        let initialized = self.initialized().unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: it was a box, which nobody frees.
        unsafe { &*initialized.closure.load(Ordering::Acquire) }
    }

    /// Let the closure be called instead.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], and those of [`Live::batch`].
    ///
    /// # Safety
    /// As [`RawDetour::enable`].
    pub unsafe fn enable(&self) -> Result<()> {
        // SAFETY: the same.
        unsafe { self.initialized()?.detour.enable() }
    }

    /// Let the function itself be called again.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], and those of [`Live::batch`].
    ///
    /// # Safety
    /// As [`RawDetour::enable`].
    pub unsafe fn disable(&self) -> Result<()> {
        // SAFETY: the same.
        unsafe { self.initialized()?.detour.disable() }
    }

    /// Whether calls go to the closure.
    pub fn is_enabled(&self) -> bool {
        self.initialized().is_ok_and(|initialized| initialized.detour.is_enabled())
    }

    /// The function without its detour, at this address.
    ///
    /// # Errors
    /// [`Error::NotInitialized`].
    pub fn trampoline(&self) -> Result<&()> {
        Ok(self.initialized()?.detour.trampoline())
    }
}

/// Makes statics, each a [`StaticDetour`](crate::retour::StaticDetour).
///
/// ```
/// use tramptool_live::retour::{Result, static_detour};
///
/// static_detour! {
///     static Twice: fn(i32) -> i32;
///     /// Attributes, visibility, `unsafe`, an ABI and names of arguments are optional.
///     pub(crate) static Exit: unsafe extern "C" fn(status: i32);
/// }
///
/// #[inline(never)]
/// fn twice(of: i32) -> i32 {
///     std::hint::black_box(of) * 2
/// }
///
/// # fn main() -> Result<()> {
/// // SAFETY: callers may get any number.
/// unsafe { Twice.initialize(twice, |of| Twice.call(of) + 1)?.enable()? };
/// assert_eq!((twice(5), Twice.call(5)), (11, 10));
/// let more = 100;
/// Twice.set_detour(move |of| of + more);
/// assert_eq!(twice(5), 105);
/// // SAFETY: there is no danger.
/// unsafe { Twice.disable()? };
/// assert_eq!((twice(5), Twice.is_enabled()), (10, false));
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! static_detour {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $function:ty;)+) => {$(
        $(#[$attribute])*
        #[allow(non_upper_case_globals, reason = "retour's users name them like types")]
        $visibility static $name: $crate::retour::StaticDetour<$function> = {
            struct __Static;
            impl $crate::retour::Static<$function> for __Static {
                fn detour() -> &'static $crate::retour::StaticDetour<$function> {
                    &$name
                }
            }
            $crate::retour::StaticDetour::__new::<__Static>()
        };
    )+};
}

/// Functions of one type with these arguments.
macro_rules! functions {
    ([$($qualifier:tt)*] [$($call:tt)*] $($name:ident: $argument:ident),*) => {
        // SAFETY: it is a pointer to a function.
        unsafe impl<R: 'static, $($argument: 'static),*> Function for $($qualifier)* fn($($argument),*) -> R {
            type Closure = dyn Fn($($argument),*) -> R + Send + Sync;

            fn __thunk<S: Static<Self>>() -> Self {
                $($qualifier)* fn thunk<S, R: 'static, $($argument: 'static),*>($($name: $argument),*) -> R
                where
                    S: Static<$($qualifier)* fn($($argument),*) -> R>,
                {
                    S::detour().closure()($($name),*)
                }
                thunk::<S, R, $($argument),*>
            }

            unsafe fn from_ptr(at: *const ()) -> Self {
                // SAFETY: the caller's promise.
                unsafe { std::mem::transmute(at) }
            }

            fn to_ptr(&self) -> *const () {
                *self as *const ()
            }
        }

        impl<R: 'static, $($argument: 'static),*> GenericDetour<$($qualifier)* fn($($argument),*) -> R> {
            /// Call the function without its detour.
            ///
            /// # Safety
            /// Of a type of unsafe functions, what they demand.
            pub $($call)* fn call(&self, $($name: $argument),*) -> R {
                // SAFETY: the hook has the type of the function, and for unsafe ones the caller's promise.
                unsafe { <$($qualifier)* fn($($argument),*) -> R>::from_ptr(self.raw.hook.original())($($name),*) }
            }
        }

        impl<R: 'static, $($argument: 'static),*> StaticDetour<$($qualifier)* fn($($argument),*) -> R> {
            /// Prepare that `closure` takes the place of `target`. It does not yet.
            ///
            /// # Errors
            /// [`Error::AlreadyInitialized`], and those of [`RawDetour::new`].
            ///
            /// # Safety
            /// As [`Live::replace`].
            pub unsafe fn initialize(
                &self,
                target: $($qualifier)* fn($($argument),*) -> R,
                closure: impl Fn($($argument),*) -> R + Send + Sync + 'static,
            ) -> Result<&Self> {
                // SAFETY: the caller's promise is the same.
                unsafe { self.begin(target, Box::new(closure)) }
            }

            /// Replace the closure, whether calls go to it or not. The previous one is never freed. Before `initialize` it has no effect.
            pub fn set_detour(&self, closure: impl Fn($($argument),*) -> R + Send + Sync + 'static) {
                if let Ok(initialized) = self.initialized() {
                    initialized.closure.store(Box::into_raw(Box::new(Box::new(closure))), Ordering::Release);
                }
            }

            /// Call the function without its detour.
            ///
            /// # Panics
            /// The static is not initialized. retour's panics too.
            ///
            /// # Safety
            /// Of a type of unsafe functions, what they demand.
            pub $($call)* fn call(&self, $($name: $argument),*) -> R {
                let original = self.trampoline().unwrap_or_else(|error| panic!("{error}"));
                // SAFETY: the hook has the type of the function, and for unsafe ones the caller's promise.
                unsafe { <$($qualifier)* fn($($argument),*) -> R>::from_ptr(original)($($name),*) }
            }
        }
    };
}

/// All types of functions with these arguments.
macro_rules! all {
    ($($arguments:tt)*) => {
        functions!([] [] $($arguments)*);
        functions!([extern "C"] [] $($arguments)*);
        functions!([extern "system"] [] $($arguments)*);
        functions!([unsafe] [unsafe] $($arguments)*);
        functions!([unsafe extern "C"] [unsafe] $($arguments)*);
        functions!([unsafe extern "system"] [unsafe] $($arguments)*);
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
all!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I);
all!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I, j: J);
all!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I, j: J, k: K);
all!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I, j: J, k: K, l: L);
all!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I, j: J, k: K, l: L, m: M);
all!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I, j: J, k: K, l: L, m: M, n: N);
