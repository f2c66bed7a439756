//! Prototypes in a kernel's type information: BTF, as `/sys/kernel/btf/vmlinux` has it (kernel
//! Documentation/bpf/btf.rst, include/uapi/linux/btf.h).

use codegen::words::error::{Error, Result};

/// Kinds of types.
const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Types that lead to others: more are taken for a circle.
const DEPTH: usize = 32;

/// A function, with its prototype in C, in which structs are told by their sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// `long f(void * a0, struct s1 { 16, 8 } a1)`.
    pub signature: String,
    /// The bytes of each argument.
    pub sizes: Vec<u32>,
    /// It has a result.
    pub returns: bool,
}

/// A kernel's types.
pub struct Types {
    bytes: Vec<u8>,
    strings: usize,
    /// Where each type is, by its number; type 0 is `void`.
    places: Vec<usize>,
}

/// A type: where it is, its name, kind, number of parts, and size or the type that it leads to.
#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    parts: usize,
    size: u32,
}

impl Types {
    /// Read the table.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn parse(bytes: Vec<u8>) -> Result<Types> {
        let odd = || Error::new("no BTF, or damaged; valid: a copy of /sys/kernel/btf/vmlinux");
        let mut types = Types { bytes, strings: 0, places: vec![0] };
        // Magic number, version, flags, bytes of the header; then where types and strings are behind it.
        let (magic, header) = (types.word(0).ok_or_else(odd)? & 0xffff, types.word(4).ok_or_else(odd)? as usize);
        let [types_at, types_len, strings_at, _] = [8, 12, 16, 20].map(|at| types.word(at).map(|word| word as usize));
        let place = |offset: Option<usize>| offset.and_then(|offset| header.checked_add(offset)).ok_or_else(odd);
        let (from, strings) = (place(types_at)?, place(strings_at)?);
        let end =
            from.checked_add(types_len.ok_or_else(odd)?).filter(|end| *end <= types.bytes.len()).ok_or_else(odd)?;
        if magic != 0xeb9f {
            return Err(odd());
        }
        types.strings = strings;
        let mut at = from;
        while at < end {
            types.places.push(at);
            let t = types.at(at).ok_or_else(odd)?;
            let more = match t.kind {
                INT | VAR | DECL_TAG => 4,
                ARRAY => 12,
                STRUCT | UNION | ENUM64 | DATASEC => 12 * t.parts,
                ENUM | FUNC_PROTO => 8 * t.parts,
                _ => 0,
            };
            at = at.checked_add(12 + more).ok_or_else(odd)?;
        }
        Ok(types)
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn at(&self, at: usize) -> Option<Type> {
        let info = self.word(at + 4)?;
        let (kind, parts) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        Some(Type { at, name: self.word(at)?, kind, parts, size: self.word(at + 8)? })
    }

    fn get(&self, number: u32) -> Result<Type> {
        let place = self.places.get(number as usize).filter(|_| number > 0);
        place.and_then(|at| self.at(*at)).ok_or_else(|| Error::new(format!("the kernel has no type {number}")))
    }

    fn text(&self, offset: u32) -> Result<String> {
        let rest = self.strings.checked_add(offset as usize).and_then(|at| self.bytes.get(at..)).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0);
        let name = end.map(|end| String::from_utf8_lossy(&rest[..end]).into_owned());
        name.filter(|name| !name.is_empty()).ok_or_else(|| Error::new("a type of the kernel has no name"))
    }

    /// Is this the string at an offset?
    fn is_text(&self, offset: u32, text: &str) -> bool {
        let rest = self.strings.checked_add(offset as usize).and_then(|at| self.bytes.get(at..)).unwrap_or_default();
        rest.strip_prefix(text.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The function with this number.
    ///
    /// # Errors
    /// It is no function, or of a prototype that BPF does not trace.
    pub fn function(&self, number: u32) -> Result<Function> {
        let function = self.get(number)?;
        if function.kind != FUNC {
            return Err(Error::new(format!("type {number} of the kernel is no function")));
        }
        let (name, proto) = (self.text(function.name)?, self.get(function.size)?);
        let mut args = Vec::new();
        let mut sizes = Vec::new();
        for n in 0..proto.parts {
            let number = self.word(proto.at + 16 + 8 * n).unwrap_or(0);
            let (text, size) = self.c(number, n).map_err(|e| e.at(&name))?;
            args.push(format!("{text} a{n}"));
            sizes.push(size);
        }
        let (result, returns) = match proto.size {
            0 => ("void".to_owned(), false),
            number => (self.c(number, proto.parts).map_err(|e| e.at(&name))?.0, true),
        };
        let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
        Ok(Function { signature: format!("{result} f({args})"), name, sizes, returns })
    }

    /// Where a member of a struct lies, in bytes: by its name, that of a member of it, and so on.
    ///
    /// # Errors
    /// The kernel has no such struct, or no such member.
    pub fn member(&self, name: &str, path: &[&str]) -> Result<u64> {
        self.found(name, path).map(|(offset, _)| offset)
    }

    /// How many bytes a member of a struct has.
    ///
    /// # Errors
    /// As of [`Types::member`]; or it is no integer.
    pub fn size(&self, name: &str, path: &[&str]) -> Result<u64> {
        let (_, number) = self.found(name, path)?;
        self.c(number, 0).map(|(_, size)| size.into())
    }

    /// A member of a struct: where it lies in it, and its type.
    fn found(&self, name: &str, path: &[&str]) -> Result<(u64, u32)> {
        let is_named = |number: &u32| {
            let t = self.get(*number);
            t.is_ok_and(|t| t.kind == STRUCT && t.parts > 0 && self.is_text(t.name, name))
        };
        let found = (1..self.places.len() as u32).find(is_named);
        let mut number = found.ok_or_else(|| Error::new(format!("the kernel has no struct {name}")))?;
        let mut offset = 0;
        for wanted in path {
            let t = self.plain(number)?;
            let member = |n: usize| {
                let at = t.at + 12 + 12 * n;
                let [name, number, bits] = [at, at + 4, at + 8].map(|at| self.word(at).unwrap_or(0));
                // Where there are bit fields, the upper byte has how many bits a member has.
                self.is_text(name, wanted).then_some((number, u64::from(bits & 0xff_ffff) / 8))
            };
            let parts = if matches!(t.kind, STRUCT | UNION) { t.parts } else { 0 };
            let found = (0..parts).find_map(member);
            let (next, behind) = found.ok_or_else(|| Error::new(format!("struct {name} has no {}", path.join("."))))?;
            (number, offset) = (next, offset + behind);
        }
        Ok((offset, number))
    }

    /// A type without names and qualifiers of it.
    fn plain(&self, mut number: u32) -> Result<Type> {
        for _ in 0..DEPTH {
            match self.get(number)? {
                Type { kind: TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG, size, .. } => number = size,
                t => return Ok(t),
            }
        }
        Err(Error::new("types of the kernel lead to each other in a circle"))
    }

    /// A type in C, and its bytes; of a struct only its size, with `n` in its name.
    fn c(&self, number: u32, n: usize) -> Result<(String, u32)> {
        let mut number = number;
        for _ in 0..DEPTH {
            let t = self.get(number)?;
            let by_size = |size: u32| match size {
                1 => Some("signed char"),
                2 => Some("short"),
                4 => Some("int"),
                8 => Some("long"),
                16 => Some("__int128"),
                _ => None,
            };
            return match t.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => {
                    number = t.size;
                    continue;
                }
                PTR => Ok(("void *".to_owned(), 8)),
                INT | ENUM | ENUM64 => by_size(t.size)
                    .map(|text| (text.to_owned(), t.size))
                    .ok_or_else(|| Error::new(format!("an integer of {} bytes", t.size))),
                STRUCT | UNION if (1..=16).contains(&t.size) => {
                    let align = [8, 4, 2, 1].into_iter().find(|align| t.size % align == 0).unwrap_or(1);
                    Ok((format!("struct s{n} {{ {}, {align} }}", t.size), t.size))
                }
                STRUCT | UNION => Err(Error::new(format!("a struct of {} bytes", t.size))),
                FLOAT => Err(Error::new("a floating-point number")),
                _ => Err(Error::new("an argument of unknown type, or a variable number of them")),
            };
        }
        Err(Error::new("types of the kernel lead to each other in a circle"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `int f(void *, struct { 16 bytes })`, as the kernel's headers say that the table is laid out.
    fn table() -> Vec<u8> {
        let strings = b"\0int\0f\0";
        let info = |kind: u32, parts: u32| kind << 24 | parts;
        let types: Vec<u32> = [
            vec![1, info(INT, 0), 4, 0x0100_0020],
            vec![0, info(PTR, 0), 0],
            vec![0, info(STRUCT, 1), 16, 0, 1, 0],
            vec![0, info(FUNC_PROTO, 2), 1, 0, 2, 0, 3],
            vec![5, info(FUNC, 0), 4],
        ]
        .concat();
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = [0x0001_eb9f, 24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        let header: Vec<u8> = header.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
        [header, types, strings.to_vec()].concat()
    }

    #[test]
    fn a_prototype_is_read() {
        let function = Types::parse(table()).unwrap().function(5).unwrap();
        assert_eq!((function.name.as_str(), function.sizes.as_slice(), function.returns), ("f", &[8, 16][..], true));
        assert_eq!(function.signature, "int f(void * a0, struct s1 { 16, 8 } a1)");
    }

    #[test]
    fn what_is_damaged_is_refused_or_has_no_function() {
        let table = table();
        for length in 0..table.len() {
            if let Ok(types) = Types::parse(table[..length].to_vec()) {
                assert!(types.function(5).is_err() || length + 1 >= table.len(), "{length}");
            }
        }
        for at in 0..table.len() {
            let mut damaged = table.clone();
            damaged[at] ^= 0xff;
            // Whatever comes of it, it ends.
            let _ = Types::parse(damaged).map(|types| (1..9).filter(|n| types.function(*n).is_ok()).count());
        }
        let types = Types::parse(table).unwrap();
        assert!(types.function(0).is_err() && types.function(1).is_err() && types.function(99).is_err());
    }
}
