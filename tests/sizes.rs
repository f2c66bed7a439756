//! P19 for our own code: what is said of a trampoline's size, before and after it is written, is its size in the object.

use object::{Object, ObjectSymbol};
use tramptool::suite::{specs, trampolines};

/// At the edges of what instructions hold as an immediate: 7, 8, 9, 12 and 16 bits, with and without a sign.
const EDGES: [i32; 14] = [0, 1, 8, 120, 127, 128, 256, 504, 512, 2040, 2048, 4095, 32760, 65536];

#[test]
fn the_size_that_is_told_is_the_size_that_is_written() {
    let (mut compared, mut refused) = (0, 0);
    for backend in tramptool::BACKENDS {
        let sound = tramptool::default_target(*backend).unwrap();
        for symbol in sound.symbols() {
            for value in EDGES {
                let mut target = tramptool::default_target(*backend).unwrap();
                if target.set_number(symbol, value).and_then(|()| target.check_frames()).is_err() {
                    refused += 1;
                    continue;
                }
                let names = trampolines(&target).unwrap();
                for spec in specs(&names) {
                    let told = backend.cost(&spec, &target);
                    let written = backend.assemble(&[spec], &target);
                    let Ok(written) = written else {
                        assert!(told.is_err(), "{} {symbol}={value}: only one of the two is refused", spec.name);
                        refused += 1;
                        continue;
                    };
                    let object = codegen::obj::write(&written, &target).unwrap();
                    let object = object::File::parse(&*object).unwrap();
                    let size = object.symbol_by_name(spec.name).unwrap().size();
                    assert_eq!(u64::from(told.unwrap().bytes), size, "{} {symbol}={value}", spec.name);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 1000 && refused > 100, "{compared} compared, {refused} refused");
}
