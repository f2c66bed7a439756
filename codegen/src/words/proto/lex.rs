//! The tokens of a prototype.

use crate::words::error::{Error, Result};

/// The largest number in a prototype: the most bytes of a struct, and members of an array.
pub(super) const MOST_SIZE: u32 = 1 << 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'t> {
    Word(&'t str),
    Number(u32),
    Sign(&'t str),
    /// A quoted text, with its quotes.
    Text(&'t str),
    End,
}

/// The tokens of `text` with their offsets, without comments.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, usize)>> {
    // A word and a sign for each few characters.
    let mut tokens = Vec::with_capacity(text.len() / 3 + 2);
    let mut at = 0;
    while let Some((rest, first)) = text.get(at..).and_then(|rest| Some((rest, *rest.as_bytes().first()?))) {
        let run = |is: fn(u8) -> bool| rest.bytes().position(|c| !is(c)).unwrap_or(rest.len());
        let (token, length) = match first {
            b' ' => {
                at += 1;
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = run(|c| c.is_ascii_alphanumeric() || c == b'_');
                (Token::Word(&rest[..length]), length)
            }
            b'0'..=b'9' => {
                let length = run(|c| c.is_ascii_alphanumeric());
                let number = rest[..length].parse().ok().filter(|n| *n <= MOST_SIZE);
                let invalid = || Error::marked(&format!("not a number; valid: 1 to {MOST_SIZE}"), text, at);
                (Token::Number(number.ok_or_else(invalid)?), length)
            }
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'*' | b',' | b';' | b':' => (Token::Sign(&rest[..1]), 1),
            b'.' if rest.starts_with("...") => (Token::Sign("..."), 3),
            b'/' if rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            b'/' if rest.starts_with("/*") => {
                let end = rest.get(2..).and_then(|inside| inside.find("*/"));
                let unended = || Error::marked("a comment that does not end; valid: `/* ... */`", text, at);
                at += end.ok_or_else(unended)? + 4;
                continue;
            }
            b'"' => {
                let end = rest.get(1..).and_then(|inside| inside.find('"'));
                let unended = || Error::marked("a quote that does not end; valid: `section(\".text\")`", text, at);
                let length = end.ok_or_else(unended)? + 2;
                (Token::Text(&rest[..length]), length)
            }
            _ => match rest.chars().next().filter(|c| c.is_whitespace()) {
                Some(space) => {
                    at += space.len_utf8();
                    continue;
                }
                None => {
                    let message = "a character that no prototype has; valid: `int f(struct s *p, size_t n)`";
                    return Err(Error::marked(message, text, at));
                }
            },
        };
        tokens.push((token, at));
        at += length;
    }
    tokens.push((Token::End, text.trim_end().len()));
    Ok(tokens)
}
