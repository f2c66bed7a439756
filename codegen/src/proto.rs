//! C prototypes: what a function takes and returns, as far as a calling convention asks.
//!
//! One prototype is read, without a preprocessor and without declarations before it. So typedefs are those of the
//! kernel and of `stdint.h`, and a struct by value says what is in it: `struct pair { long a; double b; } p`, or only
//! its size and alignment, `struct pair { 16, 8 } p`, which is for members that are no floating-point numbers.

use std::ops::Range;
use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};

/// The most arguments that a function may have, as for the kernel's own tailored trampolines.
pub const MOST_ARGS: usize = 12;
/// The most bytes of one argument.
pub const MOST_BYTES: u32 = 16;
/// Deeper nesting of parentheses and structs is no prototype that anybody wrote.
const MOST_DEPTH: usize = 32;
/// The most bytes of a struct, and members of an array.
const MOST_SIZE: u32 = 1 << 24;
/// Beyond this, no convention returns a struct in registers, so its members do not matter.
const MEMBERS_MATTER: u32 = 64;

/// What a scalar is, as far as conventions tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// An integer, or bytes that are taken for some.
    Integer,
    /// A pointer: compilers for RISC-V do not take it for an integer beside a floating-point number.
    Pointer,
    /// A floating-point number.
    Float,
}

/// A number or a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scalar {
    /// Bytes, which are its alignment too.
    pub size: u32,
    /// What it is.
    pub class: Class,
}

impl Scalar {
    /// Is it a floating-point number?
    pub fn is_float(self) -> bool {
        self.class == Class::Float
    }
}

/// A struct by value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Struct {
    /// Bytes.
    pub size: u32,
    /// Bytes to which it is aligned.
    pub align: u32,
    /// Its members, those of structs and arrays in it each for itself, with their offsets. None if only the size was
    /// given, or if there are too many to matter.
    pub members: Vec<(u32, Scalar)>,
}

/// A type that can be passed or returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// A number or a pointer.
    Scalar(Scalar),
    /// A struct by value.
    Struct(Struct),
}

impl Type {
    /// Bytes.
    pub fn size(&self) -> u32 {
        match self {
            Type::Scalar(s) => s.size,
            Type::Struct(s) => s.size,
        }
    }

    /// Bytes to which it is aligned.
    pub fn align(&self) -> u32 {
        match self {
            Type::Scalar(s) => s.size,
            Type::Struct(s) => s.align,
        }
    }

    /// Its members, or the scalar itself.
    pub fn members(&self) -> Vec<(u32, Scalar)> {
        match self {
            Type::Scalar(s) => vec![(0, *s)],
            Type::Struct(s) => s.members.clone(),
        }
    }
}

/// A prototype.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prototype {
    /// The function's name.
    pub name: String,
    /// What it returns; `None` for `void`.
    pub result: Option<Type>,
    /// What it takes.
    pub args: Vec<Type>,
    text: String,
    /// Where in the text each argument begins, and behind those the result.
    places: Vec<usize>,
    /// Where in the text the parameters are, with their parentheses.
    params: Range<usize>,
}

impl Prototype {
    /// Read a prototype.
    ///
    /// # Errors
    /// It is none, or one whose calls no trampoline can take apart; the place is marked.
    pub fn parse(text: &str) -> Result<Prototype> {
        let mut parser = Parser { text, tokens: tokens(text)?, at: 0, depth: 0 };
        let proto = parser.prototype()?;
        Ok(proto)
    }

    /// An error about argument number `arg`, or about the result.
    pub fn refuse(&self, arg: Option<usize>, message: &str) -> Error {
        let at = self.places.get(arg.unwrap_or(self.args.len())).copied().unwrap_or(0);
        Error::marked(message, &self.text, at)
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parameters as they were given, with their parentheses.
    pub fn params(&self) -> &str {
        self.text.get(self.params.clone()).unwrap_or_default()
    }

    /// What stands behind `keyword`, which is `struct`, `union` or `enum`, in the parameters, each once.
    pub fn tags(&self, keyword: &str) -> Vec<&str> {
        let tokens = tokens(self.params()).unwrap_or_default();
        let mut tags: Vec<&str> = Vec::new();
        for pair in tokens.windows(2) {
            if let [(Token::Word(word), _), (Token::Word(tag), _)] = *pair
                && word == keyword
                && !tags.contains(&tag)
            {
                tags.push(tag);
            }
        }
        tags
    }
}

/// Words that say nothing about how a value is passed.
const IGNORED: &str = "const volatile restrict __restrict __restrict__ register extern static inline __inline \
    __inline__ __always_inline noinline notrace asmlinkage __visible __must_check __init __user __kernel __iomem \
    __percpu __rcu __force _Noreturn noinstr";

/// Typedefs of integers and pointers by their bytes: those of C, and of the kernel where it has its own mind (`dev_t`).
const TYPEDEFS: &[(u32, &str)] = &[
    (1, "bool _Bool u8 s8 __u8 __s8 uint8_t int8_t u_char blk_status_t"),
    (2, "u16 s16 __u16 __s16 uint16_t int16_t __le16 __be16 u_short ushort umode_t"),
    (
        4,
        "u32 s32 __u32 __s32 uint32_t int32_t __le32 __be32 u_int uint gfp_t fmode_t mode_t pid_t uid_t gid_t kuid_t \
        kgid_t dev_t clockid_t __wsum __poll_t vm_fault_t netdev_tx_t irqreturn_t blk_opf_t slab_flags_t \
        isolate_mode_t key_serial_t rwf_t",
    ),
    (
        8,
        "u64 s64 __u64 __s64 uint64_t int64_t __le64 __be64 u_long ulong size_t ssize_t ptrdiff_t intptr_t uintptr_t \
        loff_t off_t ino_t time64_t ktime_t sector_t pgoff_t phys_addr_t dma_addr_t resource_size_t cycles_t \
        netdev_features_t pte_t pmd_t pud_t pgd_t pgprot_t",
    ),
    (16, "u128 s128 __u128 __s128 __int128_t __uint128_t"),
];

/// What an identifier is, if it is known.
enum Known {
    Ignored,
    Typedef(u32),
}

/// The words of the tables, to be found at once.
static KNOWN: LazyLock<FxHashMap<&str, Known>> = LazyLock::new(|| {
    let ignored = IGNORED.split_whitespace().map(|word| (word, Known::Ignored));
    let typedefs =
        TYPEDEFS.iter().flat_map(|(size, names)| names.split_whitespace().map(|n| (n, Known::Typedef(*size))));
    ignored.chain(typedefs).collect()
});

/// What would be accepted where a type is wanted.
const VALID_TYPES: &str = "valid: C's own types, pointers, enums, the kernel's typedefs such as u32, size_t and gfp_t, \
    and structs as `struct s { long a; int b; } x` or, by size and alignment, `struct s { 16, 8 } x`";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'t> {
    Word(&'t str),
    Number(u32),
    Sign(&'t str),
    End,
}

/// Tokens with their places.
fn tokens(text: &str) -> Result<Vec<(Token<'_>, usize)>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(first) = rest.chars().next() else { break };
        let run = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let (token, length) = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = run(|c| c.is_ascii_alphanumeric() || c == '_');
            (Token::Word(&rest[..length]), length)
        } else if first.is_ascii_digit() {
            let length = run(|c| c.is_ascii_alphanumeric());
            let number = rest[..length].parse().ok().filter(|n| *n <= MOST_SIZE);
            let invalid = || Error::marked(&format!("not a number; valid: 1 to {MOST_SIZE}"), text, at);
            (Token::Number(number.ok_or_else(invalid)?), length)
        } else if rest.starts_with("...") {
            (Token::Sign("..."), 3)
        } else if "()[]{}*,;:".contains(first) {
            (Token::Sign(&rest[..1]), 1)
        } else {
            let message = "a character that no prototype has; valid: `int f(struct s *p, size_t n)`";
            return Err(Error::marked(message, text, at));
        };
        tokens.push((token, at));
        at += length;
    }
    tokens.push((Token::End, text.trim_end().len()));
    Ok(tokens)
}

/// What a declaration begins with.
enum Base {
    Void,
    Type(Type),
    /// A type of which only pointers can be passed, and why.
    Opaque(String),
}

/// One step from the declared name outwards.
enum Derived {
    Pointer,
    Array(Option<u32>),
    /// With where its parameters are in the text.
    Function(Vec<Param>, Range<usize>),
}

struct Param {
    base: Base,
    /// An array or a function is passed as a pointer too.
    pointer: bool,
    place: usize,
}

struct Declarator<'t> {
    name: Option<&'t str>,
    derived: Vec<Derived>,
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token<'t>, usize)>,
    at: usize,
    depth: usize,
}

const POINTER: Type = Type::Scalar(Scalar { size: 8, class: Class::Pointer });

impl<'t> Parser<'t> {
    fn ahead(&self, by: usize) -> Token<'t> {
        self.tokens.get(self.at + by).map_or(Token::End, |t| t.0)
    }

    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.text.len(), |t| t.1)
    }

    fn fail<T>(&self, message: &str) -> Result<T> {
        Err(Error::marked(message, self.text, self.place()))
    }

    fn fail_at<T>(&self, place: usize, message: &str) -> Result<T> {
        Err(Error::marked(message, self.text, place))
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.ahead(0);
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: &'static str) -> bool {
        let here = self.ahead(0) == Token::Sign(sign);
        self.at += usize::from(here);
        here
    }

    fn wants(&mut self, sign: &'static str, after: &str) -> Result<()> {
        if self.takes(sign) { Ok(()) } else { self.fail(&format!("no `{sign}` after {after}; valid: `{sign}`")) }
    }

    /// Parentheses and braces nest only so deep.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MOST_DEPTH {
            return self.fail(&format!("nested too deep; valid: up to {MOST_DEPTH} levels"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn prototype(&mut self) -> Result<Prototype> {
        let place = self.place();
        let base = self.base()?;
        let declarator = self.declarator()?;
        let Some(name) = declarator.name else {
            return self.fail_at(place, "no function with a name and a result; valid: `void f(int x)`");
        };
        let mut derived = declarator.derived.into_iter();
        let Some(Derived::Function(params, range)) = derived.next() else {
            return self.fail_at(place, "this declares no function; valid: a prototype, as `void f(int x)`");
        };
        self.takes(";");
        if self.ahead(0) != Token::End {
            return self.fail("more than one prototype; valid: nothing after its `)` but a `;`");
        }
        let result = match derived.next() {
            None => self.complete(&base, place)?,
            Some(Derived::Pointer) => Some(POINTER),
            Some(_) => {
                return self.fail_at(place, "no function returns an array or a function; valid: a pointer to it");
            }
        };
        let mut places: Vec<usize> = params.iter().map(|p| p.place).collect();
        if let Some(excess) = places.get(MOST_ARGS) {
            return self.fail_at(*excess, &format!("too many arguments; valid: up to {MOST_ARGS}"));
        }
        let mut args = Vec::with_capacity(params.len());
        for Param { base, pointer, place } in params {
            let arg = if pointer { Some(POINTER) } else { self.complete(&base, place)? };
            let Some(arg) = arg else {
                return self.fail_at(place, &format!("an argument of type void; {VALID_TYPES}"));
            };
            if arg.size() > MOST_BYTES {
                let message = format!("an argument of {} bytes; valid: up to {MOST_BYTES}, or a pointer", arg.size());
                return self.fail_at(place, &message);
            }
            args.push(arg);
        }
        places.push(place);
        Ok(Prototype { name: name.to_owned(), result, args, text: self.text.to_owned(), places, params: range })
    }

    /// The type of a value; `None` for void.
    fn complete(&self, base: &Base, place: usize) -> Result<Option<Type>> {
        match base {
            Base::Void => Ok(None),
            Base::Type(t) => Ok(Some(t.clone())),
            Base::Opaque(why) => self.fail_at(place, &format!("{why}; {VALID_TYPES}")),
        }
    }

    /// Qualifiers and attributes.
    fn skip_ignored(&mut self) -> Result<()> {
        while let Token::Word(word) = self.ahead(0) {
            if word.trim_matches('_') == "attribute" {
                self.at += 1;
                self.balanced()?;
            } else if matches!(KNOWN.get(word), Some(Known::Ignored)) {
                self.at += 1;
            } else {
                break;
            }
        }
        Ok(())
    }

    fn balanced(&mut self) -> Result<()> {
        let mut open = 0;
        loop {
            match self.ahead(0) {
                Token::Sign("(") => open += 1,
                Token::Sign(")") => open -= 1,
                Token::End => return self.fail("parentheses that do not close; valid: `__attribute__((...))`"),
                _ => {}
            }
            self.at += 1;
            if open <= 0 {
                return Ok(());
            }
        }
    }

    /// What a declaration begins with: qualifiers and a type's name.
    fn base(&mut self) -> Result<Base> {
        let place = self.place();
        let (mut words, mut other): (Vec<&str>, Option<Base>) = (Vec::new(), None);
        loop {
            self.skip_ignored()?;
            let Token::Word(word) = self.ahead(0) else { break };
            let of_c = ["void", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "__int128"];
            if of_c.contains(&word) && other.is_none() {
                words.push(word);
                self.at += 1;
            } else if !words.is_empty() || other.is_some() {
                break;
            } else if let "struct" | "union" | "enum" = word {
                other = Some(self.tagged()?);
            } else {
                self.at += 1;
                other = Some(match KNOWN.get(word) {
                    Some(Known::Typedef(size)) => {
                        Base::Type(Type::Scalar(Scalar { size: *size, class: Class::Integer }))
                    }
                    _ => Base::Opaque(format!("unknown type '{word}'")),
                });
            }
        }
        match other {
            Some(base) => Ok(base),
            None if words.is_empty() => self.fail_at(place, &format!("no type; {VALID_TYPES}")),
            None => self.arithmetic(&mut words, place),
        }
    }

    fn arithmetic(&self, words: &mut Vec<&str>, place: usize) -> Result<Base> {
        let scalar = |size, class| Base::Type(Type::Scalar(Scalar { size, class }));
        words.sort_unstable();
        let plain: Vec<&str> = words.iter().copied().filter(|w| !matches!(*w, "signed" | "unsigned")).collect();
        let base = match (plain.as_slice(), words.len() - plain.len()) {
            (["void"], 0) => Base::Void,
            (["float"], 0) => scalar(4, Class::Float),
            (["double"], 0) => scalar(8, Class::Float),
            (["double", "long"], 0) => scalar(16, Class::Float),
            (["char"], ..=1) => scalar(1, Class::Integer),
            (["short"] | ["int", "short"], ..=1) => scalar(2, Class::Integer),
            ([] | ["int"], ..=1) => scalar(4, Class::Integer),
            (["long"] | ["int", "long"] | ["long", "long"] | ["int", "long", "long"], ..=1) => {
                scalar(8, Class::Integer)
            }
            (["__int128"], ..=1) => scalar(16, Class::Integer),
            _ => return self.fail_at(place, &format!("these words make no type together; {VALID_TYPES}")),
        };
        Ok(base)
    }

    /// `struct`, `union` or `enum` with a name, a body, or both.
    fn tagged(&mut self) -> Result<Base> {
        let Token::Word(keyword) = self.next() else { return self.fail(VALID_TYPES) };
        self.skip_ignored()?;
        let tag = match self.ahead(0) {
            Token::Word(tag) => {
                self.at += 1;
                tag
            }
            Token::Sign("{") => "",
            _ => return self.fail(&format!("no name after `{keyword}`; {VALID_TYPES}")),
        };
        if keyword == "enum" {
            return Ok(Base::Type(Type::Scalar(Scalar { size: 4, class: Class::Integer })));
        }
        let place = self.place();
        if !self.takes("{") {
            return Ok(Base::Opaque(format!("it is not known what is in `{keyword} {tag}`")));
        }
        let body = self.deeper(|parser| match parser.ahead(0) {
            Token::Number(size) => parser.sized(size),
            _ if keyword == "union" => parser.fail("members of a union; valid: its size and alignment, `{ 16, 8 }`"),
            _ => parser.members(place),
        })?;
        self.skip_ignored()?;
        Ok(Base::Type(Type::Struct(body)))
    }

    /// `{ size, align }`, from the size on.
    fn sized(&mut self, size: u32) -> Result<Struct> {
        let place = self.place();
        self.at += 1;
        self.wants(",", "the size of a struct")?;
        let Token::Number(align) = self.ahead(0) else {
            return self.fail("no alignment after the size; valid: `{ 16, 8 }`");
        };
        if size == 0 || !align.is_power_of_two() || align > 16 || !size.is_multiple_of(align) {
            let message = "no size and alignment of a struct; valid: `{ 16, 8 }`, the size a multiple of the alignment, \
                           which is 1, 2, 4, 8 or 16";
            return self.fail_at(place, message);
        }
        self.at += 1;
        self.wants("}", "size and alignment")?;
        Ok(Struct { size, align, members: Vec::new() })
    }

    /// Members up to the closing brace, laid out as C does.
    fn members(&mut self, place: usize) -> Result<Struct> {
        let mut all = Struct { size: 0, align: 1, members: Vec::new() };
        while !self.takes("}") {
            let at = self.place();
            let base = self.base()?;
            loop {
                let place = self.place();
                let declarator = self.declarator()?;
                if self.ahead(0) == Token::Sign(":") {
                    return self.fail("a bit-field; valid: the struct's size and alignment, `{ 16, 8 }`");
                }
                let (mut count, mut pointer) = (1u32, false);
                for derived in declarator.derived {
                    count = match derived {
                        Derived::Array(Some(n)) if n > 0 => count.saturating_mul(n),
                        Derived::Pointer => {
                            pointer = true;
                            break;
                        }
                        Derived::Array(_) => return self.fail_at(place, "an array without members; valid: `[4]`"),
                        Derived::Function(..) => {
                            return self.fail_at(place, "a function as a member; valid: a pointer to it, `(*f)(int)`");
                        }
                    };
                }
                let member = if pointer { Some(POINTER) } else { self.complete(&base, at)? };
                let Some(member) = member else { return self.fail_at(at, "a member without a type; valid: `long a`") };
                self.append(&mut all, &member, count, place)?;
                if !self.takes(",") {
                    break;
                }
            }
            self.wants(";", "a member")?;
        }
        if all.size == 0 {
            return self.fail_at(place, "a struct without members; valid: one member or more");
        }
        all.size = all.size.next_multiple_of(all.align);
        Ok(all)
    }

    fn append(&self, to: &mut Struct, member: &Type, count: u32, place: usize) -> Result<()> {
        let start = to.size.next_multiple_of(member.align());
        let end = member.size().checked_mul(count).and_then(|bytes| start.checked_add(bytes));
        let Some(end) = end.filter(|end| *end <= MOST_SIZE) else {
            return self.fail_at(place, &format!("a struct beyond all measure; valid: up to {MOST_SIZE} bytes"));
        };
        (to.size, to.align) = (end, to.align.max(member.align()));
        if end > MEMBERS_MATTER {
            to.members.clear();
            return Ok(());
        }
        let inner = match member.members() {
            // Of a struct by size alone, all bytes count as integers.
            none if none.is_empty() => vec![(0, Scalar { size: member.size(), class: Class::Integer })],
            some => some,
        };
        for i in 0..count {
            let at = start + i * member.size();
            to.members.extend(inner.iter().map(|(offset, scalar)| (at + offset, *scalar)));
        }
        Ok(())
    }

    /// Pointers, a name or none, and what follows it.
    fn declarator(&mut self) -> Result<Declarator<'t>> {
        self.deeper(|parser| {
            let mut pointers = 0;
            parser.skip_ignored()?;
            while parser.takes("*") {
                pointers += 1;
                parser.skip_ignored()?;
            }
            let mut declarator = Declarator { name: None, derived: Vec::new() };
            if let Token::Word(name) = parser.ahead(0) {
                parser.at += 1;
                declarator.name = Some(name);
            } else if parser.encloses_declarator() {
                parser.at += 1;
                declarator = parser.declarator()?;
                parser.wants(")", "a declarator in parentheses")?;
            }
            loop {
                parser.skip_ignored()?;
                let open = parser.place();
                if parser.takes("(") {
                    let params = parser.parameters()?;
                    let close = parser.tokens.get(parser.at - 1).map_or(open, |(_, at)| at + 1);
                    declarator.derived.push(Derived::Function(params, open..close));
                } else if parser.takes("[") {
                    parser.skip_ignored()?;
                    let bound = match parser.ahead(0) {
                        Token::Number(n) => Some(n),
                        _ => None,
                    };
                    // A bound that is no number does not matter to a parameter, and a member is refused without one.
                    while !matches!(parser.ahead(0), Token::Sign("]") | Token::End) {
                        parser.at += 1;
                    }
                    parser.wants("]", "an array's bound")?;
                    declarator.derived.push(Derived::Array(bound));
                } else {
                    break;
                }
            }
            declarator.derived.extend((0..pointers).map(|_| Derived::Pointer));
            Ok(declarator)
        })
    }

    /// Parentheses around a declarator: `(*f)(int)`, `(f)(int)`. Others begin parameters.
    fn encloses_declarator(&self) -> bool {
        matches!(
            [0, 1, 2, 3].map(|by| self.ahead(by)),
            [Token::Sign("("), Token::Sign("*" | "("), ..]
                | [Token::Sign("("), Token::Word(_), Token::Sign(")"), Token::Sign("(")]
        )
    }

    /// Parameters up to the closing parenthesis; none for `void`.
    fn parameters(&mut self) -> Result<Vec<Param>> {
        self.deeper(|parser| {
            let mut params = Vec::new();
            if parser.takes(")") {
                return Ok(params);
            }
            loop {
                let place = parser.place();
                if parser.ahead(0) == Token::Sign("...") {
                    let message = "a variable number of arguments: how many are live is known to the callee alone; \
                                   valid: a function with a fixed number";
                    return parser.fail(message);
                }
                let base = parser.base()?;
                let declarator = parser.declarator()?;
                let alone = params.is_empty() && declarator.name.is_none() && declarator.derived.is_empty();
                if matches!(base, Base::Void) && alone && parser.takes(")") {
                    return Ok(params);
                }
                params.push(Param { base, pointer: !declarator.derived.is_empty(), place });
                if parser.takes(")") {
                    return Ok(params);
                }
                parser.wants(",", "an argument")?;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> (Option<u32>, Vec<u32>) {
        let proto = Prototype::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        (proto.result.map(|r| r.size()), proto.args.iter().map(Type::size).collect())
    }

    #[test]
    fn prototypes_of_the_kernel_are_read() {
        assert_eq!(sizes("void kfree_skb(struct sk_buff *skb)"), (None, vec![8]));
        assert_eq!(sizes("extern void __must_check *kmalloc(size_t size, gfp_t flags);"), (Some(8), vec![8, 4]));
        let text = "static inline ssize_t vfs_read(struct file *, char __user *buf, size_t, loff_t *pos)";
        assert_eq!(sizes(text), (Some(8), vec![8; 4]));
        assert_eq!(sizes("int f(void)"), (Some(4), vec![]));
        assert_eq!(sizes("int f()"), (Some(4), vec![]));
        let text =
            "unsigned long long (f)(const unsigned char x, s16 y, enum hrtimer_mode mode, u64 a[static 4], bool b)";
        assert_eq!(sizes(text), (Some(8), vec![1, 2, 4, 8, 1]));
        assert_eq!(sizes("void (*signal(int sig, void (*func)(int)))(int)"), (Some(8), vec![4, 8]));
        assert_eq!(sizes("long f(unknown_t *p, int cb(unknown_t *, struct s), unsigned)"), (Some(8), vec![8, 8, 4]));
        assert_eq!(sizes("__int128 f(long double x, float y, double const z)"), (Some(16), vec![16, 4, 8]));
        assert_eq!(sizes("struct big { 40, 8 } f(union u { 8, 8 } x)"), (Some(40), vec![8]));
    }

    #[test]
    fn members_are_laid_out_as_c_does() {
        let text = "void f(struct s { char a; struct { short b, *c; } in; } *p, struct t { char a[3]; float b; } x)";
        let proto = Prototype::parse(text).unwrap();
        let Type::Struct(t) = &proto.args[1] else { panic!("{:?}", proto.args) };
        let at: Vec<(u32, u32)> = t.members.iter().map(|(at, m)| (*at, m.size)).collect();
        assert_eq!((t.size, t.align, at), (8, 4, vec![(0, 1), (1, 1), (2, 1), (4, 4)]));
        assert_eq!(proto.args[0], POINTER);
    }

    /// The message, and what is above its caret.
    fn refused(text: &str) -> (String, String) {
        let error = Prototype::parse(text).expect_err(text);
        let lines: Vec<&str> = error.mark().unwrap_or_default().lines().collect();
        let column = lines[1].find('^').unwrap();
        (error.to_string(), lines[0].chars().skip(column).take(6).collect())
    }

    #[test]
    fn what_is_refused_is_marked() {
        for (text, part, place) in [
            ("int printk(const char *fmt, ...)", "variable number", "...)"),
            ("void f(int a, sk_buff_t skb)", "unknown type 'sk_buff_t'", "sk_buf"),
            ("void f(int a, struct list_head l)", "`struct list_head`", "struct"),
            ("void f(struct s { long a[3]; } x)", "24 bytes; valid: up to 16", "struct"),
            ("void f(int,int,int,int,int,int,int,int,int,int,int,int,u8)", "valid: up to 12", "u8)"),
            ("void f(int a, void b)", "type void", "void b"),
            ("f(int a)", "name and a result", "f(int "),
            ("int x", "no function", "int x"),
            ("int (*f)(int)", "no function", "int (*"),
            ("int f(int a", "no `,`", ""),
            ("int f(int a) int", "more than one", "int"),
            ("int f(long float a)", "no type together", "long f"),
            ("int f(struct s { int a : 3; } x)", "bit-field", ": 3; }"),
            ("int f(struct s { 3, 2 } x)", "a multiple", "3, 2 }"),
            ("int f(struct s { } x)", "without members", "{ } x)"),
            ("int f(union u { int a; } x)", "union", "int a;"),
            ("int f(int a; int b)", "no `,`", "; int "),
            ("int f(int $a)", "character", "$a)"),
            ("", "no type", ""),
            ("int f(struct s { char a[99999999]; } x)", "number", "999999"),
            ("int f(struct s { char a[9999999][9999999]; } x)", "beyond all measure", "a[9999"),
        ] {
            let (message, at) = refused(text);
            assert!(message.contains(part) && message.contains("valid: "), "{text}: {message}");
            assert_eq!(at, place, "{text}: {message}");
        }
    }

    #[test]
    fn nesting_ends() {
        for open in ["(", "int (*f)(", "struct { ", "int f(int (*a)(", "int *(*(*("] {
            assert!(Prototype::parse(&open.repeat(10_000)).is_err());
        }
    }
}
