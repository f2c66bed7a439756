//! Where output goes, and when it has colour.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
#[cfg(feature = "judge")]
use std::time::Duration;

use clap::ValueEnum;
use codegen::words::error::{Error, Result};
#[cfg(feature = "judge")]
use emu_tests::Progress;
#[cfg(feature = "judge")]
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tool::printed::unmarked;

/// What a command knows of its user.
pub struct Ui {
    colour: bool,
}

/// What a piece of text is, for those that want to see it.
#[derive(Clone, Copy)]
pub enum Style {
    /// A title.
    Heading,
    /// What only the first has.
    Left,
    /// What only the second has.
    Right,
    /// What need not be read.
    Quiet,
}

/// How a report is written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For reading.
    Human,
    /// For programs.
    Json,
}

/// How a report is written that can be a page too.
#[cfg(feature = "judge")]
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Written {
    /// For reading.
    Human,
    /// For programs.
    Json,
    /// A page for a browser, in one file.
    Html,
}

impl Ui {
    /// Colour is for terminals, and for users who have not said no (<https://no-color.org>).
    pub fn new() -> Ui {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Ui { colour: io::stdout().is_terminal() && !refused && !dumb }
    }

    /// Without colour, for what goes to a file.
    #[cfg(feature = "judge")]
    pub fn plain() -> Ui {
        Ui { colour: false }
    }

    /// Are there colours on stdout?
    pub fn colour(&self) -> bool {
        self.colour
    }

    /// How many columns a line has: 80 where stdout is no terminal.
    #[cfg(not(feature = "judge"))]
    pub fn columns(&self) -> usize {
        80
    }

    /// How many columns a line has: 80 where stdout is no terminal.
    #[cfg(feature = "judge")]
    pub fn columns(&self) -> usize {
        let terminal = if io::stdout().is_terminal() { terminal_size::terminal_size_of(io::stdout()) } else { None };
        tool::report::columns(terminal.map(|(width, _)| width.0))
    }

    /// `text`, in its colour if there are colours.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match style {
            Style::Heading => "1",
            Style::Left => "31",
            Style::Right => "32",
            Style::Quiet => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Write a text to stdout.
    ///
    /// # Errors
    /// As [`Ui::raw`].
    pub fn out(&self, text: impl AsRef<str>) -> Result<()> {
        self.raw(unmarked(text.as_ref()).as_bytes())
    }

    /// Write to stdout what is too long to be held, or has no words of others.
    ///
    /// # Errors
    /// As [`Ui::raw`], and those of `write`.
    pub fn stream(&self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let mut out = BufWriter::new(Watched { out: io::stdout().lock(), closed: false });
        let refused =
            |e: io::Error| Error::new(format!("cannot write to stdout: {e}; free some space or write to a file"));
        let result = write(&mut out).and_then(|()| out.flush().map_err(refused));
        if out.get_ref().closed { Ok(()) } else { result }
    }

    /// Write to stdout what is no text, or has no words of others.
    ///
    /// # Errors
    /// It cannot be written to. A reader that has seen enough is no error.
    pub fn raw(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                Err(Error::new(format!("cannot write to stdout: {e}; free some space or write to a file")))
            }
            _ => Ok(()),
        }
    }
}

/// stdout, and whether its reader has seen enough.
struct Watched<W> {
    out: W,
    closed: bool,
}

impl<W: Write> Watched<W> {
    fn watch<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|e| self.closed |= e.kind() == ErrorKind::BrokenPipe)
    }
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.watch(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.watch(result)
    }
}

/// Do `work` with a bar and an estimate on stderr, if that is a terminal, once it has taken a second.
#[cfg(feature = "judge")]
pub fn with_progress<T>(work: impl FnOnce(Progress) -> T) -> T {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len}, {eta} left") {
        bar.set_style(style);
    }
    if io::stderr().is_terminal() {
        let shown = bar.clone();
        let later = move || {
            std::thread::sleep(Duration::from_secs(1));
            if !shown.is_finished() {
                shown.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
            }
        };
        // Where no thread can be made, there is no bar.
        let _ = std::thread::Builder::new().spawn(later);
    }
    let result = work(&|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    result
}

/// Lines of so many characters at most, unless a word is longer.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let fits = |line: &&mut String| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width;
        match lines.last_mut().filter(fits) {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
