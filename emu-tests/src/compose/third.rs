//! The third thread: it has a stack of its own, and waits inside functions while others run. It changes places with them where
//! both ask what is to be done.

use std::collections::VecDeque;
use std::mem::swap;

use compose::Call;

use super::state::{CURRENT, Step, Third, Todo, Uc, mail, post};

/// Its number.
const THIRD: u64 = 2;

/// Whoever waits goes on where it asked last.
pub(super) fn change_places(uc: &mut Uc) {
    let current = mail(uc, CURRENT);
    let state = uc.data_mut();
    swap(&mut state.levels, &mut state.third.levels);
    swap(&mut state.frames, &mut state.third.frames);
    state.third.runs = !state.third.runs;
    let now = if state.third.runs { THIRD } else { state.third.other };
    state.third.other = current;
    let asked = state.levels.last().and_then(|level| level.asked.clone());
    state.todo = asked.map(|asked| Todo::Resume(Box::new(asked)));
    post(uc, CURRENT, now);
}

/// It calls a function, and stays in it. Not if it runs already.
pub(super) fn enter(uc: &mut Uc, call: &Call) -> bool {
    if uc.data().third.runs {
        return false;
    }
    change_places(uc);
    let state = uc.data_mut();
    if state.levels.is_empty() {
        state.level(VecDeque::new());
        state.todo = Some(Todo::Start(state.places.families[state.family].outside));
    }
    if let Some(level) = state.levels.last_mut() {
        level.stays = true;
        level.steps.push_back(Step::Stay(call.clone()));
    }
    true
}

/// The function in which it stays returns, if there is one.
pub(super) fn leave(uc: &mut Uc) -> bool {
    let third = &mut uc.data_mut().third;
    if third.runs || third.frames.is_empty() {
        return false;
    }
    if let Some(level) = third.levels.last_mut() {
        level.stays = false;
    }
    change_places(uc);
    true
}

/// It ends, wherever it is. The next one has its stack.
pub(super) fn end(uc: &mut Uc) -> bool {
    let third = &mut uc.data_mut().third;
    if third.runs {
        return false;
    }
    *third = Third::default();
    true
}
