// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function and the programs that are attached to it, drawn at random as BTF could hand them to the kernel.

use std::fmt;

use crate::damage::Rng;

/// The most arguments (kernel include/linux/bpf.h, MAX_BPF_FUNC_ARGS), and programs of one kind.
pub const MOST_ARGS: usize = 12;
pub const MOST_PROGRAMS: usize = 6;

/// A type of an argument or a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Type {
    /// How C writes it, with `N` where the number of the argument stands.
    text: &'static str,
    pub size: u8,
    /// The kernel's BTF_FMODEL_ flags: 1 of a struct, 2 of a signed integer.
    pub flags: u8,
}

const fn row(text: &'static str, size: u8, flags: u8) -> Type {
    Type { text, size, flags }
}

/// The types. A struct has no number that an integer of its size has not.
const TYPES: [Type; 9] = [
    row("long", 8, 2),
    row("void *", 8, 0),
    row("int", 4, 2),
    row("unsigned int", 4, 0),
    row("short", 2, 2),
    row("unsigned char", 1, 0),
    row("struct sN { 8, 8 }", 8, 1),
    row("struct sN { 16, 8 }", 16, 1),
    row("__int128", 16, 2),
];

/// Those that a result can have: up to 8 bytes, and no struct (kernel kernel/bpf/btf.c, btf_distill_func_proto).
const RESULTS: std::ops::Range<usize> = 0..6;

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    pub cookie: i64,
    pub sleepable: bool,
    /// It is called before the function and after it.
    pub session: bool,
}

/// A function, and who is attached to it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Model {
    pub args: Vec<Type>,
    pub result: Option<Type>,
    /// Before the function.
    pub fentry: Vec<Program>,
    pub fmod_ret: Vec<Program>,
    /// After the function.
    pub fexit: Vec<Program>,
    /// After the function, sessions are called behind those of `fexit`; without it, before them.
    pub late_sessions: bool,
    pub ip_arg: bool,
    /// There is no function: C calls the trampoline, and the result is that of its one program.
    pub struct_ops: bool,
    /// The function before a program may say that it is not to be called; of struct_ops, where it has a stack of its own (kernel
    /// include/linux/bpf_verifier.h, bpf_prog_check_recur).
    pub may_refuse: bool,
    /// Another handler may redirect the function (kernel kernel/bpf/trampoline.c, bpf_tramp_ftrace_ops_func).
    pub redirected: bool,
    /// The image is out of reach of the architecture's plain calls.
    pub far: bool,
    /// The function is a BPF program whose tail calls are counted.
    pub tail_calls: bool,
}

/// What a kernel can do that not all can.
#[derive(Clone, Copy)]
pub struct Can {
    pub sessions: bool,
    pub tail_calls: bool,
    pub redirects: bool,
    pub far: bool,
}

impl Type {
    /// How C writes it.
    pub fn text(self) -> &'static str {
        self.text
    }

    pub fn signed(self) -> bool {
        self.flags & 2 != 0
    }
}

impl Model {
    /// Draw one.
    pub fn draw(rng: &mut Rng, can: Can) -> Model {
        // Most functions have few arguments, and most arguments fill a register.
        let most = if rng.below(3) == 0 { MOST_ARGS } else { 6 };
        let args = (0..rng.below(most + 1)).map(|_| TYPES[if rng.below(2) == 0 { 0 } else { rng.below(TYPES.len()) }]);
        let args = args.collect();
        let result = (rng.below(4) > 0).then(|| TYPES[RESULTS.start + rng.below(RESULTS.len())]);
        let far = can.far && rng.below(4) == 0;
        let plain = Model { args, result, far, may_refuse: true, ..Model::default() };
        let mut model = plain;
        if rng.below(8) == 0 {
            model.fentry.push(Program { cookie: 0, sleepable: rng.below(2) == 0, session: false });
            return Model { struct_ops: true, may_refuse: can.sessions && rng.below(2) == 0, ..model };
        }
        model.ip_arg = rng.below(4) == 0;
        model.late_sessions = rng.below(3) == 0;
        model.redirected = can.redirects && rng.below(8) == 0;
        if can.tail_calls && rng.below(8) == 0 {
            // A program has up to 5 arguments of 64 bits, and such a result.
            model.args = vec![TYPES[0]; model.args.len().min(5)];
            (model.tail_calls, model.redirected, model.result) = (true, false, Some(TYPES[0]));
        }
        let most = if rng.below(4) == 0 { MOST_PROGRAMS } else { 3 };
        for _ in 0..=rng.below(most) {
            let kind = rng.below(if can.sessions { 4 } else { 3 });
            let cookie = [0, 7, 0x7654_3210, 0x1234_5678_9abc_def0, -1][rng.below(5)];
            let program = Program { cookie, sleepable: rng.below(8) == 0, session: kind == 3 };
            match kind {
                0 => model.fentry.push(program),
                // Only a function with an error to return can be skipped (kernel kernel/bpf/verifier.c).
                1 if !model.tail_calls => {
                    model.fmod_ret.push(program);
                    model.result = Some(TYPES[2 * rng.below(2)]);
                }
                1 | 2 => model.fexit.push(program),
                _ => model.fentry.push(program),
            }
        }
        model
    }

    /// Functions with two arguments, and one program each, or two: what these cost is compared.
    pub fn compared(can: Can) -> Vec<(&'static str, Model)> {
        let one = |session| vec![Program { cookie: 0, sleepable: false, session }];
        let plain = Model { args: vec![TYPES[0]; 2], result: Some(TYPES[0]), may_refuse: true, ..Model::default() };
        let mut all = vec![
            ("fentry", Model { fentry: one(false), ..plain.clone() }),
            ("fexit", Model { fexit: one(false), ..plain.clone() }),
            ("fentry and fexit", Model { fentry: one(false), fexit: one(false), ..plain.clone() }),
            ("fmod_ret", Model { fmod_ret: one(false), ..plain.clone() }),
        ];
        all.extend(can.sessions.then(|| ("fsession", Model { fentry: one(true), ..plain })));
        all
    }

    /// The kernel calls the function from the trampoline where anything comes after it, or may come instead of it (kernel
    /// kernel/bpf/trampoline.c, bpf_trampoline_update).
    pub fn call_orig(&self) -> bool {
        !self.fmod_ret.is_empty() || !self.fexit.is_empty() || self.sessions().next().is_some()
    }

    /// Is there an order of sessions and others after the function?
    fn has_order_after(&self) -> bool {
        self.sessions().next().is_some() && !self.fexit.is_empty()
    }

    pub fn sessions(&self) -> impl Iterator<Item = &Program> {
        self.fentry.iter().filter(|program| program.session)
    }

    /// Its prototype in C.
    pub fn signature(&self) -> String {
        self.with_types(|t| t)
    }

    /// A prototype whose arguments and result are in the same places: the psABI has one for all integers and pointers of a word.
    pub fn places(&self) -> String {
        self.with_types(|t| if t.size <= 8 { &TYPES[0] } else { t })
    }

    fn with_types(&self, like: fn(&Type) -> &Type) -> String {
        let arg = |(n, t): (usize, &Type)| format!("{} a{n}", like(t).text.replace('N', &n.to_string()));
        let args: Vec<String> = self.args.iter().enumerate().map(arg).collect();
        let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
        format!("{} f({args})", self.result.map_or("void", |t| like(&t).text))
    }

    /// Models with one thing less, the larger steps first.
    pub fn smaller(&self) -> Vec<Model> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Model)| {
            let mut model = self.clone();
            change(&mut model);
            let count = model.fentry.len() + model.fmod_ret.len() + model.fexit.len();
            if count > 0 && model != *self {
                all.push(model);
            }
        };
        let lists: [fn(&mut Model) -> &mut Vec<Program>; 3] =
            [|m| &mut m.fentry, |m| &mut m.fmod_ret, |m| &mut m.fexit];
        for list in lists {
            for n in 0..MOST_PROGRAMS {
                add(&|m| without(list(m), n));
            }
        }
        add(&|m| m.ip_arg = false);
        add(&|m| m.late_sessions = false);
        add(&|m| m.tail_calls = false);
        add(&|m| m.redirected = false);
        add(&|m| m.far = false);
        add(&|m| m.result = m.result.filter(|_| !m.fmod_ret.is_empty()));
        (0..MOST_ARGS).for_each(|n| add(&|m| without(&mut m.args, n)));
        (0..MOST_ARGS).for_each(|n| add(&|m| m.args.iter_mut().skip(n).take(1).for_each(|t| *t = TYPES[0])));
        for list in lists {
            add(&|m| list(m).iter_mut().for_each(|p| p.cookie = 0));
            add(&|m| list(m).iter_mut().for_each(|p| p.sleepable = false));
        }
        all
    }
}

/// Take one out, if there are so many.
fn without<T>(all: &mut Vec<T>, n: usize) {
    let mut at = 0..;
    all.retain(|_| at.next() != Some(n));
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.signature())?;
        let plain = self.fentry.iter().filter(|program| !program.session);
        let lists = [("fentry", plain.collect()), ("fsession", self.sessions().collect::<Vec<_>>())];
        let more = [("fmod_ret", self.fmod_ret.iter().collect()), ("fexit", self.fexit.iter().collect())];
        for (name, list) in lists.into_iter().chain(more).filter(|(_, list)| !list.is_empty()) {
            let one = |p: &&Program| format!("{:#x}{}", p.cookie, if p.sleepable { " sleepable" } else { "" });
            write!(f, ", {name} with cookies {}", list.iter().map(one).collect::<Vec<_>>().join(", "))?;
        }
        f.write_str(if self.struct_ops { ", struct_ops" } else { "" })?;
        f.write_str(if self.struct_ops && self.may_refuse { " with a stack of its own" } else { "" })?;
        f.write_str(if self.far { ", far" } else { "" })?;
        f.write_str(if self.redirected { ", redirected" } else { "" })?;
        f.write_str(if self.tail_calls { ", tail calls" } else { "" })?;
        f.write_str(if self.late_sessions && self.has_order_after() { ", sessions last" } else { "" })?;
        f.write_str(if self.ip_arg { ", ip" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_drawn_alike_for_the_same_seed_and_get_smaller() {
        let draw =
            |seed| Model::draw(&mut Rng(seed), Can { sessions: true, tail_calls: true, redirects: true, far: true });
        assert_eq!(draw(5), draw(5));
        for seed in 0..200 {
            let mut model = draw(seed);
            assert!(model.args.len() <= MOST_ARGS && model.fentry.len() <= MOST_PROGRAMS);
            let mut steps = 0;
            while let Some(smaller) = model.smaller().into_iter().next() {
                (model, steps) = (smaller, steps + 1);
                assert!(steps < 100, "{model}");
            }
        }
    }
}
