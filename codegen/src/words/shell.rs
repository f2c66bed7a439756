//! Commands, as they are typed into a shell.

/// Join words into a shell command, with quotes around words in which a shell would interpret characters.
pub fn shell(words: &[impl AsRef<str>]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    let quotes = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let quoted = |word: &str| match word {
        _ if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        // Control characters would act on the terminal, so they are escaped.
        _ if word.chars().any(char::is_control) => format!("\"$(printf %b {})\"", quotes(&octal(word))),
        _ => quotes(word),
    };
    words.iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Control characters as `printf %b` has them.
fn octal(word: &str) -> String {
    let each = |c: char| match c {
        '\\' => r"\\".to_owned(),
        c if c.is_control() => c.encode_utf8(&mut [0; 4]).bytes().map(|b| format!("\\0{b:o}")).collect(),
        c => c.to_string(),
    };
    word.chars().map(each).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The shell itself says what it reads.
    #[test]
    fn a_shell_reads_the_words_back() {
        let words = [
            "plain",
            "endbr=on",
            "",
            "a b",
            "it's",
            "*",
            "$HOME",
            "a\\b",
            "~",
            "x\ty",
            "é",
            "\x1b[31m it's \\n 7\u{85}7",
            "a;b",
            "#c",
            "\"q\"",
        ];
        let script = format!("printf '%s\\0' {}", shell(&words));
        let out = Command::new("sh").arg("-c").arg(&script).output().unwrap();
        let read = String::from_utf8(out.stdout).unwrap();
        assert_eq!(read.split_terminator('\0').collect::<Vec<_>>(), words);
        assert!(!script.contains(char::is_control), "{script}");
        // What needs no quotes has none.
        assert_eq!(shell(&["check", "--set", "endbr=on", "copy-4096"]), "check --set endbr=on copy-4096");
    }
}
