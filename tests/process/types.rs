//! Random types and prototypes, as C and as `--sig` have them.

use std::fmt::Write;

use crate::chance::Chance;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Signed,
    Unsigned,
    Pointer,
    /// `char`, whose sign is the architecture's.
    Char,
    Bool,
    Float,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scalar {
    pub c: &'static str,
    pub size: usize,
    pub class: Class,
}

const fn scalar(c: &'static str, size: usize, class: Class) -> Scalar {
    Scalar { c, size, class }
}

/// `u8` and the like are the kernel's, and `size_t`, `enum e` and `struct list_head` are declared nowhere in `--sig`.
const SCALARS: &[Scalar] = &[
    scalar("char", 1, Class::Char),
    scalar("signed char", 1, Class::Signed),
    scalar("u8", 1, Class::Unsigned),
    scalar("short", 2, Class::Signed),
    scalar("unsigned short", 2, Class::Unsigned),
    scalar("int", 4, Class::Signed),
    scalar("unsigned", 4, Class::Unsigned),
    scalar("enum e", 4, Class::Signed),
    scalar("long", 8, Class::Signed),
    scalar("unsigned long long", 8, Class::Unsigned),
    scalar("s64", 8, Class::Signed),
    scalar("size_t", 8, Class::Unsigned),
    scalar("void *", 8, Class::Pointer),
    scalar("const char *", 8, Class::Pointer),
    scalar("struct list_head *", 8, Class::Pointer),
    scalar("_Bool", 1, Class::Bool),
    scalar("bool", 1, Class::Bool),
    scalar("__int128", 16, Class::Signed),
    FLOAT,
    DOUBLE,
    LONG_DOUBLE,
];
const FLOAT: Scalar = scalar("float", 4, Class::Float);
const DOUBLE: Scalar = scalar("double", 8, Class::Float);
/// On arm64 alone: elsewhere it is the x87's, or two integers, and refused.
const LONG_DOUBLE: Scalar = scalar("long double", 16, Class::Float);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Struct {
    pub tag: String,
    /// With the number of elements.
    pub members: Vec<(Scalar, usize)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    Plain(Scalar),
    Struct(Struct),
}

impl Type {
    /// Each scalar in it with its offset.
    pub fn flat(&self) -> Vec<(usize, Scalar)> {
        let Type::Struct(s) = self else {
            let Type::Plain(scalar) = self else { unreachable!() };
            return vec![(0, *scalar)];
        };
        let (mut flat, mut at) = (Vec::new(), 0usize);
        for (scalar, count) in &s.members {
            at = at.next_multiple_of(scalar.size);
            for _ in 0..*count {
                flat.push((at, *scalar));
                at += scalar.size;
            }
        }
        flat
    }

    pub fn align(&self) -> usize {
        self.flat().iter().map(|(_, s)| s.size).max().unwrap()
    }

    pub fn size(&self) -> usize {
        let (at, last) = *self.flat().last().unwrap();
        (at + last.size).next_multiple_of(self.align())
    }

    pub fn is_bool(&self) -> bool {
        matches!(self, Type::Plain(s) if s.class == Class::Bool)
    }

    pub fn has_floats(&self) -> bool {
        self.flat().iter().any(|(_, s)| s.class == Class::Float)
    }

    /// A bit for each byte that is not padding.
    pub fn valid(&self) -> u64 {
        self.flat().iter().fold(0, |valid, (at, s)| valid | ((1 << s.size) - 1) << at)
    }

    /// As C names it once it is declared.
    pub fn c(&self) -> String {
        match self {
            Type::Plain(s) => s.c.to_owned(),
            Type::Struct(s) => format!("struct {}", s.tag),
        }
    }

    fn body(&self) -> String {
        let Type::Struct(s) = self else { return String::new() };
        let mut text = format!("struct {} {{ ", s.tag);
        for (i, (scalar, count)) in s.members.iter().enumerate() {
            let many = if *count > 1 { format!("[{count}]") } else { String::new() };
            write!(text, "{} m{i}{many}; ", scalar.c).unwrap();
        }
        text + "}"
    }

    fn random(chance: &mut Chance, tag: &str, long_double: bool) -> Type {
        let scalar = |chance: &mut Chance| {
            let all = if long_double { SCALARS } else { &SCALARS[..SCALARS.len() - 1] };
            // Half of them floating-point numbers, and few of 16 bytes.
            match chance.below(8) {
                0 => FLOAT,
                1 | 2 => DOUBLE,
                _ => chance.pick(all),
            }
        };
        if chance.below(10) < 7 {
            return Type::Plain(scalar(chance));
        }
        let mut members = vec![(scalar(chance), chance.pick(&[1, 1, 2, 3]))];
        for _ in 0..chance.below(3) {
            // Often alike, for what is passed by its elements.
            let one = if chance.once_in(2) { members[0].0 } else { scalar(chance) };
            members.push((one, chance.pick(&[1, 1, 1, 2])));
        }
        // A byte that is no bool in one is no value of C's.
        members.retain(|(s, _)| s.class != Class::Bool);
        while !members.is_empty() {
            let found = Type::Struct(Struct { tag: tag.to_owned(), members: members.clone() });
            if found.size() <= 16 {
                return found;
            }
            match members.last_mut() {
                Some((_, count)) if *count > 1 => *count -= 1,
                _ => drop(members.pop()),
            }
        }
        Type::Plain(DOUBLE)
    }
}

pub struct Prototype {
    pub result: Option<Type>,
    pub args: Vec<Type>,
}

impl Prototype {
    pub fn random(chance: &mut Chance, name: &str, long_double: bool) -> Prototype {
        let count = chance.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]);
        let mut args: Vec<Type> = Vec::new();
        for i in 0..count {
            let again = args.iter().rfind(|t| matches!(t, Type::Struct(_))).cloned();
            let new = Type::random(chance, &format!("{name}_s{i}"), long_double);
            args.push(again.filter(|_| chance.once_in(6)).unwrap_or(new));
        }
        let large =
            |member: Scalar, count| Type::Struct(Struct { tag: format!("{name}_r"), members: vec![(member, count)] });
        let result = match chance.below(10) {
            0 => None,
            1 => Some(large(chance.pick(&[SCALARS[8], SCALARS[5], DOUBLE]), 5)),
            2 => Some(large(chance.pick(&[DOUBLE, FLOAT]), 3 + chance.below(2))),
            _ => Some(Type::random(chance, &format!("{name}_r"), long_double)),
        };
        Prototype { result, args }
    }

    fn structs(&self) -> Vec<&Type> {
        let mut all: Vec<&Type> = Vec::new();
        for t in self.result.iter().chain(&self.args) {
            if matches!(t, Type::Struct(_)) && !all.contains(&t) {
                all.push(t);
            }
        }
        all
    }

    /// What C has before a function of this prototype.
    pub fn declarations(&self) -> String {
        self.structs().iter().map(|s| s.body() + ";\n").collect()
    }

    pub fn c(&self, function: &str) -> String {
        let args: Vec<String> = self.args.iter().enumerate().map(|(i, t)| format!("{} a{i}", t.c())).collect();
        let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
        format!("{} {function}({args})", self.result.as_ref().map_or("void".to_owned(), Type::c))
    }

    /// For `--sig`: a struct is defined where it comes first, some by size and alignment alone.
    pub fn sig(&self, chance: &mut Chance, function: &str) -> String {
        let mut text = self.c(function);
        for s in self.structs() {
            let alone = !s.has_floats() && chance.once_in(3);
            let body = if alone { format!("{} {{ {}, {} }}", s.c(), s.size(), s.align()) } else { s.body() };
            // The last character keeps names apart that begin alike.
            text = text.replacen(&format!("{} ", s.c()), &format!("{body} "), 1);
        }
        text
    }
}
