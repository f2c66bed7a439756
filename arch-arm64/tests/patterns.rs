//! The forms of other people's instructions.

use codegen::listing::pattern::Fields;
use codegen::mutate::Mutable;
use codegen::words::abi::Reg;
use tramptool_arm64::Arm64;

/// Fields that do not fit are not bent until they do.
#[test]
fn a_form_refuses_what_it_cannot_hold() {
    let patterns = Arm64::PATTERNS;
    let pair = patterns.list.iter().find_map(|f| Some((f, f.read(&[0xe0, 0x07, 0x00, 0xa9])?))).unwrap();
    assert_eq!((pair.1.a, pair.1.b, pair.1.imm), (Reg(0), Reg(1), 0));
    let at = |imm| pair.0.encode(&Fields { imm, ..pair.1 });
    assert!(at(-512).is_some() && at(504).is_some());
    assert!([-520, 512, 4].into_iter().all(|imm| at(imm).is_none()));
    assert!(pair.0.read(&[0xe0, 0x07, 0x00]).is_none());
}
