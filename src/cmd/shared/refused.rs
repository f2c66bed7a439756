//! What is wrong with a command line, as one message with a remedy.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// The message. `root` is the definition of the command line, `words` are those that were given.
pub fn message(error: &Error, root: &Command, words: &[String]) -> String {
    let (path, command) = meant(root, words);
    let see = format!("see `{path} --help`");
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => Vec::new(),
    };
    let commands = || command.get_subcommands().map(Command::get_name).collect::<Vec<_>>().join(", ");
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("no command given; valid: {}; {see}", commands())
        }
        ErrorKind::InvalidSubcommand => {
            let name = named(ContextKind::InvalidSubcommand).concat();
            format!("unknown command '{name}'; valid: {}; {see}", commands())
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = named(ContextKind::InvalidArg);
            let are = if missing.len() == 1 { "is" } else { "are" };
            let arch = missing.iter().any(|arg| arg.starts_with("--arch"));
            let of_arch = arch.then(|| format!("--arch with one of {}", arches()));
            // Who wants none by name wants all.
            let names = missing.iter().any(|arg| arg.starts_with("<TRAMPOLINE>"));
            let all = command.get_arguments().any(|arg| arg.get_long() == Some("all"));
            let of_names = (names && all).then(|| "names of `tramptool list`, or --all".to_owned());
            let valid: Vec<String> = of_arch.into_iter().chain(of_names).collect();
            let valid = if valid.is_empty() { String::new() } else { format!("valid: {}; ", valid.join("; ")) };
            format!("{} {are} missing; {valid}{see}", missing.join(" and "))
        }
        ErrorKind::UnknownArgument => {
            let name = named(ContextKind::InvalidArg).concat();
            let like = named(ContextKind::SuggestedArg).concat();
            let like = if like.is_empty() { String::new() } else { format!("there is {like}; ") };
            format!("unknown argument '{name}'; {like}{see}")
        }
        ErrorKind::ValueValidation => number(&one_line(&error.to_string())),
        _ => one_line(&error.to_string()),
    }
}

fn arches() -> String {
    tool::BACKENDS.iter().map(|backend| backend.facts().name).collect::<Vec<_>>().join(", ")
}

/// The command that the words begin with.
fn meant<'c>(root: &'c Command, words: &[String]) -> (String, &'c Command) {
    let (mut path, mut command) = (root.get_name().to_owned(), root);
    for word in words {
        let Some(sub) = command.find_subcommand(word) else { break };
        path = format!("{path} {}", sub.get_name());
        command = sub;
    }
    (path, command)
}

/// clap's message about a number, with which numbers are valid.
fn number(message: &str) -> String {
    let Some((what, why)) = message.rsplit_once(": ") else { return message.to_owned() };
    let range = why.rsplit_once(" is not in ").and_then(|(_, range)| range.split_once(".."));
    let valid = match (why, range) {
        ("invalid digit found in string" | "cannot parse integer from empty string", _) => "a number".to_owned(),
        ("number too large to fit in target type", _) => "a smaller number".to_owned(),
        (_, Some((first, last))) => match last.strip_prefix('=').map(str::parse::<u64>) {
            Some(Ok(last)) if last < u64::MAX => format!("a number from {first} to {last}"),
            None if last.parse().is_ok_and(|last: u64| last < u64::MAX) => {
                format!("a number from {first}, and less than {last}")
            }
            _ => format!("a number from {first}"),
        },
        _ => return message.to_owned(),
    };
    format!("{what}; valid: {valid}")
}

/// clap's paragraphs, without the pointer to `--help` that ends them all.
fn one_line(text: &str) -> String {
    let text = text.trim_start_matches("error: ");
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("For more information"));
    let mut out = String::new();
    for line in lines {
        if !out.is_empty() {
            out.push_str(if out.ends_with(':') { " " } else { "; " });
        }
        match line.strip_prefix("[possible values: ").and_then(|l| l.strip_suffix(']')) {
            Some(values) => out.extend(["valid: ", values]),
            None => out.push_str(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_clap_are_one_line() {
        let text = "error: invalid value 'x' for '--format <FORMAT>'\n  [possible values: human, json]\n\nFor more \
                    information, try '--help'.\n";
        assert_eq!(one_line(text), "invalid value 'x' for '--format <FORMAT>'; valid: human, json");
    }

    #[test]
    fn of_a_number_it_is_said_which_are_valid() {
        let of = |why: &str| number(&format!("invalid value 'x' for '--sample <N>': {why}"));
        let valid = |valid: &str| format!("invalid value 'x' for '--sample <N>'; valid: {valid}");
        assert_eq!(of("invalid digit found in string"), valid("a number"));
        assert_eq!(of("0 is not in 1..18446744073709551615"), valid("a number from 1"));
        assert_eq!(of("0 is not in 1..=18446744073709551615"), valid("a number from 1"));
        assert_eq!(of("300 is not in 0..=255"), valid("a number from 0 to 255"));
        assert_eq!(of("300 is not in 0..256"), valid("a number from 0, and less than 256"));
        assert_eq!(of("no such thing"), "invalid value 'x' for '--sample <N>': no such thing");
    }
}
