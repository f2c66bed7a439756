//! A kernel's symbols, as `/proc/kallsyms` lists them: `ffffffff81000000 T _text`, and behind a tab the module in brackets.

use std::collections::BTreeMap;

use codegen::words::error::{Error, Result};

/// A symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Where it is.
    pub address: u64,
    /// Its name.
    pub name: String,
    /// The module that has it, in brackets; empty for the kernel's own.
    pub module: String,
}

/// All of them.
pub struct Symbols {
    by_address: BTreeMap<u64, Vec<Symbol>>,
    /// Each name with its addresses.
    by_name: BTreeMap<String, Vec<u64>>,
}

impl Symbols {
    /// Read the list.
    ///
    /// # Errors
    /// A line that is none of it, or no address is shown.
    pub fn parse(text: &str) -> Result<Symbols> {
        let mut symbols = Symbols { by_address: BTreeMap::new(), by_name: BTreeMap::new() };
        for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let mut words = line.split_ascii_whitespace();
            let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
            let (Some(address), Some(_), Some(name)) = (address, words.next(), words.next()) else {
                return Err(Error::new(format!("line {}: no symbol, as /proc/kallsyms lists them", n + 1)));
            };
            let module = words.next().unwrap_or_default().to_owned();
            let symbol = Symbol { address, name: name.to_owned(), module };
            symbols.by_name.entry(symbol.name.clone()).or_default().push(address);
            symbols.by_address.entry(address).or_default().push(symbol);
        }
        match symbols.by_address.keys().any(|address| *address != 0) {
            true => Ok(symbols),
            false => {
                Err(Error::new("it shows no addresses; valid: what root reads, with kernel.kptr_restrict at most 1"))
            }
        }
    }

    /// In the order of their addresses.
    pub fn all(&self) -> impl Iterator<Item = &Symbol> {
        self.by_address.values().flatten()
    }

    /// The first symbol at an address.
    pub fn at(&self, address: u64) -> Option<&Symbol> {
        self.by_address.get(&address).and_then(|all| all.first())
    }

    /// The last symbol at an address or before it.
    pub fn before(&self, address: u64) -> Option<&Symbol> {
        self.by_address.range(..=address).next_back().and_then(|(_, all)| all.first())
    }

    /// The next address that has a symbol.
    pub fn next(&self, address: u64) -> Option<u64> {
        self.by_address.range(address.checked_add(1)?..).next().map(|(next, _)| *next)
    }

    /// The symbol with this name.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn one(&self, name: &str) -> Result<&Symbol> {
        match self.by_name.get(name).map_or(&[][..], |all| all) {
            [address] => {
                let named = self.by_address.get(address).and_then(|all| all.iter().find(|symbol| symbol.name == name));
                named.ok_or_else(|| Error::new(format!("the kernel has no symbol {name}")))
            }
            [] => Err(Error::new(format!("the kernel has no symbol {name}"))),
            several => Err(Error::new(format!("the kernel has {} symbols {name}", several.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read() {
        let text = "ffffffff81000000 T _text\nffffffffc0201000 t bpf_trampoline_1\t[bpf]\nffffffffc0202000 t two\nffffffffc0203000 t two\n";
        let symbols = Symbols::parse(text).unwrap();
        assert_eq!(symbols.one("bpf_trampoline_1").unwrap().address, 0xffff_ffff_c020_1000);
        assert_eq!(symbols.next(0xffff_ffff_c020_1000), Some(0xffff_ffff_c020_2000));
        assert!(symbols.one("two").is_err() && symbols.one("none").is_err());
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "0000000000000000 T _text\n", "x\n", "ffffffff81000000 T\n"] {
            assert!(Symbols::parse(text).is_err(), "{text}");
        }
    }
}
