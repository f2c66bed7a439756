//! Tokens to a prototype.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::lex::{MOST_SIZE, Token, tokens};
use super::types::{Class, MOST_ARGS, MOST_BYTES, POINTER, Prototype, Scalar, Struct, Type};
use super::words::{Known, VALID_TYPES, is_harmless, known};
use crate::words::error::{Error, Result};

/// The deepest nesting of parentheses and structs. Real prototypes nest less.
const MOST_DEPTH: usize = 32;
/// Beyond this, no convention returns a struct in registers, so its members do not matter.
const MEMBERS_MATTER: u32 = 64;

/// The base type with which a declaration begins.
enum Base {
    Void,
    Type(Type),
    /// A type that can only be passed by pointer, and the reason.
    Opaque(String),
}

/// One step from the declared name outwards.
enum Derived {
    Pointer,
    Array(Option<u32>),
    /// A function: its parameters, unless the parentheses are empty, and their range in the text.
    Function(Option<Vec<Param>>, Range<usize>),
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
    /// The structs and unions whose members or sizes were given, by keyword and tag.
    structs: FxHashMap<(&'t str, &'t str), Struct>,
}

impl Prototype {
    /// Read a prototype.
    ///
    /// # Errors
    /// The text is no prototype, or its calls cannot be handled by a trampoline; the error marks the place.
    pub fn parse(text: &str) -> Result<Prototype> {
        Parser { text, tokens: tokens(text)?, at: 0, depth: 0, structs: FxHashMap::default() }.prototype()
    }
}

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

    /// Parse one level deeper, up to [`MOST_DEPTH`].
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
        self.ends(name)?;
        let Some(params) = params else {
            let message = "`()` does not say what the function takes: before C23, that may be anything; valid: `(void)`, \
                           or its parameters";
            return self.fail_at(range.start, message);
        };
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

    /// Check that nothing but a `;` follows the prototype.
    fn ends(&mut self, name: &str) -> Result<()> {
        self.takes(";");
        match (self.ahead(0), self.ahead(1)) {
            (Token::End, _) => Ok(()),
            (Token::Sign("{"), _) => self.fail("a body; valid: a prototype, which ends with its `)` or a `;`"),
            (Token::Word(next), Token::Sign("(")) => {
                self.fail(&format!("`{name}(...)` before `{next}` is not known; {VALID_TYPES}"))
            }
            _ => self.fail("more than one prototype; valid: nothing after its `)` but a `;`"),
        }
    }

    /// The type of a value; `None` for void.
    fn complete(&self, base: &Base, place: usize) -> Result<Option<Type>> {
        match base {
            Base::Void => Ok(None),
            Base::Type(t) => Ok(Some(t.clone())),
            Base::Opaque(why) => self.fail_at(place, &format!("{why}; {VALID_TYPES}")),
        }
    }

    /// Skip qualifiers and attributes without effect on how a value is passed. Returns the next word and its meaning, if the
    /// next token is a word.
    fn skip_ignored(&mut self) -> Result<Option<(&'t str, Option<Known>)>> {
        loop {
            match self.ahead(0) {
                Token::Sign("[") if self.ahead(1) == Token::Sign("[") => {
                    return self.fail("attributes in brackets are not read; valid: `__attribute__((...))`");
                }
                Token::Word(word) => match known(word) {
                    Some(Known::Attribute) => {
                        self.at += 1;
                        self.attributes()?;
                    }
                    Some(Known::Ignored) => self.at += 1,
                    Some(Known::IgnoredWithArguments) => {
                        self.at += 1;
                        self.balanced()?;
                    }
                    Some(Known::Refused(valid)) => {
                        return self.fail(&format!("`{word}` may change how a value is passed; valid: {valid}"));
                    }
                    other => return Ok(Some((word, other))),
                },
                _ => return Ok(None),
            }
        }
    }

    /// Parse the parentheses behind `__attribute__`.
    fn attributes(&mut self) -> Result<()> {
        const AFTER: &str = "`__attribute__`";
        self.wants("(", AFTER)?;
        self.wants("(", AFTER)?;
        while !self.takes(")") {
            match self.ahead(0) {
                Token::Sign(",") => self.at += 1,
                Token::Word(name) if is_harmless(name) => {
                    self.at += 1;
                    if self.ahead(0) == Token::Sign("(") {
                        self.balanced()?;
                    }
                }
                Token::Word(name) => {
                    let message = format!(
                        "attribute `{name}` may change where arguments or the result are; valid: those that do not, such \
                         as noinline, nonnull and section, and for a struct its size and alignment, `{{ 16, 8 }}`"
                    );
                    return self.fail(&message);
                }
                _ => return self.fail("no attribute; valid: `__attribute__((noinline))`"),
            }
        }
        self.wants(")", "the attributes")
    }

    fn balanced(&mut self) -> Result<()> {
        let mut open = 0;
        loop {
            match self.ahead(0) {
                Token::Sign("(") => open += 1,
                Token::Sign(")") => open -= 1,
                Token::End => return self.fail("parentheses that do not close; valid: `)`"),
                _ => {}
            }
            self.at += 1;
            if open <= 0 {
                return Ok(());
            }
        }
    }

    /// Parse the beginning of a declaration: qualifiers and a type's name.
    fn base(&mut self) -> Result<Base> {
        let place = self.place();
        let (mut words, mut other, mut unknown) = (Vec::new(), None, None);
        while let Some((word, known)) = self.skip_ignored()? {
            let of_type = matches!(known, Some(Known::OfC | Known::Tagged));
            if matches!(known, Some(Known::OfC)) && other.is_none() {
                words.push(word);
                self.at += 1;
            } else if !words.is_empty() || other.is_some() {
                if let Some(unknown) = unknown.filter(|_| of_type) {
                    let message = format!("`{unknown}` before `{word}` is not known; {VALID_TYPES}");
                    return self.fail_at(place, &message);
                }
                break;
            } else if of_type {
                other = Some(self.tagged()?);
            } else {
                self.at += 1;
                other = Some(match known {
                    Some(Known::Typedef(size)) => Base::Type(Type::Scalar(Scalar { size, class: Class::Integer })),
                    _ => {
                        unknown = Some(word);
                        Base::Opaque(format!("unknown type '{word}'"))
                    }
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
            return Ok(match self.structs.get(&(keyword, tag)) {
                Some(body) => Base::Type(Type::Struct(body.clone())),
                None => Base::Opaque(format!("the members of `{keyword} {tag}` are unknown")),
            });
        }
        let body = self.deeper(|parser| match parser.ahead(0) {
            Token::Number(size) => parser.sized(size),
            _ if keyword == "union" => parser.fail("members of a union; valid: its size and alignment, `{ 16, 8 }`"),
            _ => parser.members(place),
        })?;
        self.skip_ignored()?;
        if !tag.is_empty()
            && let Some(before) = self.structs.insert((keyword, tag), body.clone())
            && before != body
        {
            return self.fail_at(place, &format!("another `{keyword} {tag}` than before; valid: one of them"));
        }
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
            let place = parser.place();
            if let Token::Word(name) = parser.ahead(0) {
                parser.at += 1;
                declarator.name = Some(name);
                if let Some((behind, _)) = parser.skip_ignored()? {
                    let message = format!("`{name}` before `{behind}` is not known; {VALID_TYPES}");
                    return parser.fail_at(place, &message);
                }
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

    /// Parameters up to the closing parenthesis: none for `void`, and none that are known before C23 for nothing.
    fn parameters(&mut self) -> Result<Option<Vec<Param>>> {
        self.deeper(|parser| {
            let mut params = Vec::new();
            if parser.takes(")") {
                return Ok(None);
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
                    return Ok(Some(params));
                }
                params.push(Param { base, pointer: !declarator.derived.is_empty(), place });
                if parser.takes(")") {
                    return Ok(Some(params));
                }
                if !parser.takes(",") {
                    return parser.fail("no `,` and no `)` after an argument; valid: `,` or `)`");
                }
            }
        })
    }
}
