//! The core's words, as an interrupt may find them: before each access one may come.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

thread_local! {
    /// Accesses up to the interrupt; `usize::MAX`: none comes.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    static INTERRUPT: RefCell<Rc<dyn Fn()>> = RefCell::new(Rc::new(|| ()));
}

/// Do this, with an interrupt before the access that has so many before it. Did it come?
pub fn interrupted<T>(accesses: usize, interrupt: Rc<dyn Fn()>, act: impl FnOnce() -> T) -> (T, bool) {
    let before = (LEFT.replace(accesses), INTERRUPT.replace(interrupt));
    let done = act();
    INTERRUPT.replace(before.1);
    (done, LEFT.replace(before.0) == usize::MAX)
}

fn point() {
    match LEFT.get() {
        usize::MAX => {}
        0 => {
            LEFT.set(usize::MAX);
            let interrupt = INTERRUPT.with_borrow(Rc::clone);
            interrupt();
        }
        left => LEFT.set(left - 1),
    }
}

/// A word.
#[derive(Debug, Default)]
pub struct Word(Cell<u64>);

impl Word {
    pub const fn new(value: u64) -> Self {
        Self(Cell::new(value))
    }

    pub fn get(&self) -> u64 {
        point();
        self.0.get()
    }

    pub fn set(&self, value: u64) {
        point();
        self.0.set(value);
    }

    pub fn add(&self, value: u64) -> u64 {
        point();
        self.0.replace(self.0.get().wrapping_add(value))
    }

    pub fn swap_if(&self, old: u64, new: u64) -> bool {
        point();
        let same = self.0.get() == old;
        if same {
            self.0.set(new);
        }
        same
    }

    pub(crate) fn index(&self) -> usize {
        self.get() as usize
    }
}
