//! The choice of calls to show.

use codegen::words::error::{Error, Result};
use regex::Regex;
use rustc_hash::FxHashSet;
use wildmatch::WildMatch;

use crate::calls::{Call, Step};
use crate::recording::Recording;

/// Names of functions: a glob, or `/regex/`; behind `LIB:`, only those of an object with this base name.
#[derive(Clone, Debug)]
pub struct Pattern {
    object: Option<WildMatch>,
    name: Name,
}

#[derive(Clone, Debug)]
enum Name {
    Glob(WildMatch),
    Regex(Regex),
}

impl Pattern {
    /// A pattern.
    ///
    /// # Errors
    /// The regular expression breaks the rules of its language.
    pub fn new(text: &str) -> Result<Pattern> {
        let (object, name) = match text.split_once(':') {
            // `a::b` is a name of C++ or Rust.
            Some((object, name)) if !text.starts_with('/') && !name.starts_with(':') => (Some(object), name),
            _ => (None, text),
        };
        let within = name.strip_prefix('/').and_then(|name| name.strip_suffix('/'));
        let name = match within {
            Some(regex) => Name::Regex(Regex::new(regex).map_err(|_| {
                Error::new(format!(
                    "'{text}' is no regular expression; valid: a glob such as 'sqlite3_*', or /^sqlite3_/"
                ))
            })?),
            None => Name::Glob(WildMatch::new(name)),
        };
        Ok(Pattern { object: object.map(WildMatch::new), name })
    }

    /// Is it the function's name, mangled or not? The object is a path.
    pub fn is(&self, object: &str, names: [&str; 2]) -> bool {
        let base = object.rsplit('/').next().unwrap_or(object);
        let named = |name: &&str| match &self.name {
            Name::Glob(glob) => glob.matches(name),
            Name::Regex(regex) => regex.is_match(name),
        };
        self.object.as_ref().is_none_or(|object| object.matches(base)) && names.iter().any(named)
    }
}

/// The requested calls; by default all.
#[derive(Clone, Default, Debug)]
pub struct Wanted {
    /// These and what they call; all if there are none.
    pub only: Vec<Pattern>,
    /// Neither these nor what they call.
    pub never: Vec<Pattern>,
    /// These and not what they call; all if there are none.
    pub just: Vec<Pattern>,
    /// So many levels, from those of `only` on.
    pub depth: Option<usize>,
    /// No call that took less, in the recording's unit.
    pub least: u64,
}

/// The functions of a recording that are asked for.
pub struct Filter {
    only: Option<FxHashSet<u32>>,
    never: FxHashSet<u32>,
    just: Option<FxHashSet<u32>>,
    depth: usize,
    least: u64,
}

impl Filter {
    /// Find the functions.
    ///
    /// # Errors
    /// A pattern fits none.
    pub fn new<R>(wanted: &Wanted, recording: &Recording<R>) -> Result<Filter> {
        let functions = |patterns: &[Pattern]| -> FxHashSet<u32> {
            let fits = |number: u32, pattern: &Pattern| {
                let mangled = recording.function(number).map_or("", |traced| traced.function.name.as_str());
                let object = recording.object_of(number).map_or("", |object| object.path.as_str());
                pattern.is(object, [recording.name(number), mangled])
            };
            let all = recording.functions().map(|(number, _)| number);
            all.filter(|number| patterns.iter().any(|pattern| fits(*number, pattern))).collect()
        };
        let some = |patterns: &[Pattern]| (!patterns.is_empty()).then(|| functions(patterns));
        let filter = Filter {
            only: some(&wanted.only),
            never: functions(&wanted.never),
            just: some(&wanted.just),
            depth: wanted.depth.unwrap_or(usize::MAX),
            least: wanted.least,
        };
        if [&filter.only, &filter.just].into_iter().flatten().any(FxHashSet::is_empty) {
            return Err(Error::new(
                "no recorded function has this name; valid: a name that `tramptool trace report` shows, or a glob",
            ));
        }
        Ok(filter)
    }

    fn shows(&self, function: u32) -> bool {
        self.just.as_ref().is_none_or(|just| just.contains(&function))
    }
}

/// A step that is shown. The call's depth is that among shown calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The step.
    pub step: Step,
    /// At its end, the time in which no shown callee ran.
    pub own: u64,
}

/// A call that has begun.
struct Frame {
    /// It opens what `only` asks for.
    opens: bool,
    /// It closes what `never` leaves out.
    closes: bool,
    /// It is shown, if it takes long enough.
    shown: bool,
    /// The time in callees that are shown.
    within: u64,
    /// Its beginning, while nobody knows whether it takes long enough.
    pending: Option<Call>,
}

/// The filter at work on the steps of a thread.
pub struct Filtering<'f> {
    filter: &'f Filter,
    frames: Vec<Frame>,
    /// How many open calls open, close, and are shown.
    opens: usize,
    closes: usize,
    shown: usize,
    /// The index of the first frame whose beginning is pending.
    told: usize,
}

impl<'f> Filtering<'f> {
    /// Begin with a thread.
    pub fn new(filter: &'f Filter) -> Filtering<'f> {
        Filtering { filter, frames: Vec::new(), opens: 0, closes: 0, shown: 0, told: 0 }
    }

    /// The next step. What is shown comes out later at times: the beginning of a call is known to be shown when it has taken
    /// long enough.
    pub fn add(&mut self, step: Step, out: &mut impl FnMut(Shown)) {
        self.tell(step.time(), out);
        match step {
            Step::Begin(call) => self.begin(call, out),
            Step::End(call) => self.end(call, out),
        }
    }

    fn begin(&mut self, mut call: Call, out: &mut impl FnMut(Shown)) {
        let filter = self.filter;
        let opens = filter.only.as_ref().is_some_and(|only| only.contains(&call.function));
        let closes = filter.never.contains(&call.function);
        self.opens += usize::from(opens);
        self.closes += usize::from(closes);
        let within = (filter.only.is_none() || self.opens > 0) && self.closes == 0;
        let shown = within && filter.shows(call.function) && self.shown < filter.depth;
        call.depth = self.shown;
        self.shown += usize::from(shown);
        let time = call.begin;
        self.frames.push(Frame { opens, closes, shown, within: 0, pending: shown.then_some(call) });
        self.tell(time, out);
    }

    /// Show the beginnings of calls that have taken long enough at this time.
    fn tell(&mut self, time: u64, out: &mut impl FnMut(Shown)) {
        while let Some(frame) = self.frames.get_mut(self.told) {
            match &frame.pending {
                Some(call) if time.saturating_sub(call.begin) < self.filter.least => return,
                _ => {}
            }
            if let Some(call) = frame.pending.take() {
                out(Shown { step: Step::Begin(call), own: 0 });
            }
            self.told += 1;
        }
    }

    fn end(&mut self, mut call: Call, out: &mut impl FnMut(Shown)) {
        let Some(frame) = self.frames.pop() else { return };
        self.opens -= usize::from(frame.opens);
        self.closes -= usize::from(frame.closes);
        self.shown -= usize::from(frame.shown);
        self.told = self.told.min(self.frames.len());
        let seen = frame.shown && frame.pending.is_none();
        let total = call.total();
        if let Some(outer) = self.frames.last_mut() {
            // What lies between two shown calls passes on the time of the inner one.
            outer.within = outer.within.saturating_add(if seen { total } else { frame.within });
        }
        if seen {
            call.depth = self.shown;
            out(Shown { step: Step::End(call), own: total.saturating_sub(frame.within) });
        }
    }
}
