//! Names of functions as their authors wrote them.

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

#[cfg(test)]
mod tests {
    use super::demangled;

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
