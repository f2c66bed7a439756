//! The follower on instructions one by one; what is expected follows from DWARF 5, section 6.4.2.

use super::*;

const ARG: Reg = Reg(0);
const FP: Reg = Reg(5);
const LINK: Reg = Reg(6);
const SP: Reg = Reg(7);
/// DWARF numbers of FP and LINK.
const COLUMN_FP: u16 = 29;
const COLUMN_LINK: u16 = 30;

/// At the entry of a function that was called through a link register.
fn tracker() -> Tracker {
    let column = |number, reg| Some(Column { number, home: Some(reg), place: Place::Register(reg) });
    let mut columns = [None; COLUMNS];
    columns[0] = column(COLUMN_FP, FP);
    columns[1] = column(COLUMN_LINK, LINK);
    let both = RegSet::of(&[FP, LINK]);
    let state = State { holders: both, cfa: (SP, 0), sp: 0, columns, saved: 0, lost: false, signed: false, scs: 0 };
    Tracker {
        sp_reg: SP,
        initial: state,
        state,
        moved: &[],
        returns_in: COLUMN_LINK,
        at_branch: Vec::new(),
        copies: None,
        survives: RegSet::of(&[FP]),
        homes: both,
        spare: None,
        reachable: true,
        link: None,
        scs: None,
        stored: StoredReturn::default(),
        ops: Vec::new(),
    }
}

/// The rules that change after each of these.
fn rules(tracker: &mut Tracker, effects: &[Effects]) -> Vec<Vec<CfiOp>> {
    let after = |e: &Effects| {
        tracker.after(e);
        std::mem::take(&mut tracker.ops)
    };
    effects.iter().map(after).collect()
}

fn moves(by: i32) -> Effects {
    Effects::sp(SpEffect::Move(by))
}

const NOTHING: Vec<CfiOp> = Vec::new();

#[test]
fn a_frame_is_followed_there_and_back() {
    let effects = [
        moves(-32),
        Effects::store2(FP, LINK, 8),
        // Of no column.
        Effects::store(ARG, 0),
        Effects::flow(Flow::Call),
        Effects::load(ARG, 0),
        Effects::load(LINK, 16),
        Effects::load(FP, 8),
        moves(32),
    ];
    let expected = [
        vec![CfiOp::DefCfaOffset(32)],
        vec![CfiOp::Offset(COLUMN_FP, -24), CfiOp::Offset(COLUMN_LINK, -16)],
        NOTHING,
        NOTHING,
        NOTHING,
        vec![CfiOp::Restore(COLUMN_LINK)],
        vec![CfiOp::Restore(COLUMN_FP)],
        vec![CfiOp::DefCfaOffset(0)],
    ];
    assert_eq!(rules(&mut tracker(), &effects), expected);
}

#[test]
fn a_column_is_where_its_value_went() {
    // The return address is loaded into an argument register, and comes home by a copy.
    let effects = [moves(-16), Effects::store(LINK, 8), Effects::load(ARG, 8), Effects::copy(LINK, ARG)];
    let expected = [
        vec![CfiOp::DefCfaOffset(16)],
        vec![CfiOp::Offset(COLUMN_LINK, -8)],
        vec![CfiOp::Register(COLUMN_LINK, ARG)],
        vec![CfiOp::Restore(COLUMN_LINK)],
    ];
    assert_eq!(rules(&mut tracker(), &effects), expected);
}

#[test]
fn a_copy_takes_the_column_along_when_the_original_is_overwritten() {
    // LINK is copied, and then becomes something else.
    let effects = [Effects::copy(ARG, LINK), Effects::copy(LINK, Reg(1))];
    assert_eq!(rules(&mut tracker(), &effects), [NOTHING, vec![CfiOp::Register(COLUMN_LINK, ARG)]]);
}

#[test]
fn behind_a_way_out_the_rules_are_those_of_the_branch() {
    let mut tracker = tracker();
    let to = Local::Path(crate::words::step::ExitPath::Direct);
    let branch = Effects::flow(Flow::Branch(to));
    let before = [moves(-16), Effects::store(LINK, 8), branch, Effects::load(LINK, 8), moves(16)];
    rules(&mut tracker, &before);
    rules(&mut tracker, &[Effects::flow(Flow::Leave)]);
    tracker.at_label(to);
    assert_eq!(tracker.ops, [CfiOp::DefCfaOffset(16), CfiOp::Offset(COLUMN_LINK, -8)]);
    // Where control may also come from above, they are the same already, and nothing is said.
    tracker.ops.clear();
    tracker.at_label(to);
    assert_eq!(tracker.ops, []);
}

/// An interrupt may overwrite it. A register that calls keep has its value all the same.
#[test]
fn nothing_is_found_below_sp() {
    let effects = [moves(-16), Effects::store2(FP, LINK, 0), moves(16)];
    let told = rules(&mut tracker(), &effects);
    assert_eq!(told[2], [CfiOp::DefCfaOffset(0), CfiOp::Restore(COLUMN_FP)]);
}

#[test]
fn where_sp_is_rounded_cfa_is_told_from_its_copy() {
    let effects = [
        moves(-16),
        Effects::store(FP, 0),
        Effects::sp(SpEffect::CopyTo(FP, 0)),
        Effects::sp(SpEffect::Realign),
        Effects::sp(SpEffect::CopyFrom(FP, -8)),
    ];
    let expected = [
        vec![CfiOp::DefCfaOffset(16)],
        vec![CfiOp::Offset(COLUMN_FP, -16)],
        NOTHING,
        vec![CfiOp::DefCfaRegister(FP)],
        vec![CfiOp::DefCfa(SP, 24)],
    ];
    assert_eq!(rules(&mut tracker(), &effects), expected);
}

#[test]
fn a_return_address_that_is_lost_is_undefined_and_another_trampoline_begins_anew() {
    let mut tracker = tracker();
    rules(&mut tracker, &[moves(-16)]);
    tracker.lose_return();
    assert_eq!(tracker.ops, [CfiOp::Undefined(COLUMN_LINK)]);
    tracker.restart();
    assert_eq!(rules(&mut tracker, &[moves(-8)]), [vec![CfiOp::DefCfaOffset(8)]]);
    assert_eq!(rules(&mut tracker, &[Effects::store(LINK, 0)]), [vec![CfiOp::Offset(COLUMN_LINK, -8)]]);
}
