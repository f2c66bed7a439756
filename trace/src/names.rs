//! Names of functions as their authors wrote them.

use std::ops::Range;

/// `name` without the mangling of C++ and Rust, if it has one of them.
pub fn demangled(name: &str) -> String {
    /// A longer one is shown as it is: nesting makes a name grow exponentially.
    const LONGEST: usize = 4096;
    if name.len() > LONGEST {
        return name.to_owned();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = || cpp_demangle::Symbol::new(name).ok()?.demangle().ok();
    name.starts_with("_Z").then(cpp).flatten().unwrap_or_else(|| name.to_owned())
}

/// Where a name has the parameters of a function of C++, in their parentheses.
pub fn parameters(name: &str) -> Option<Range<usize>> {
    let end = name.rfind(')')? + 1;
    // These are of a namespace without a name.
    if name.get(end..)?.starts_with("::") {
        return None;
    }
    let mut depth = 0_usize;
    for (at, c) in name.get(..end)?.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' if depth == 1 => return Some(at..end),
            '(' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{demangled, parameters};

    #[test]
    fn parameters_are_found() {
        let parts = |name: &str| parameters(&demangled(name)).map(|at| demangled(name)[at].to_owned());
        assert_eq!(parts("_ZN3foo3barEi").as_deref(), Some("(int)"));
        assert_eq!(parts("_ZNK3fooclEiPFviE").as_deref(), Some("(int, void (*)(int))"));
        assert_eq!(parts("_ZN12_GLOBAL__N_13barEv").as_deref(), Some("()"));
        for none in ["main", "_ZN12_GLOBAL__N_13barE", "odd)", "a(b)::c"] {
            assert_eq!(parts(none), None, "{none}");
        }
    }

    #[test]
    fn names_of_each_language_are_readable() {
        assert_eq!(demangled("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangled("_RNvC6_123foo3bar"), "123foo::bar");
        for same in ["main", "_Zebra", "_ZN3fo", ""] {
            assert_eq!(demangled(same), same);
        }
    }
}
