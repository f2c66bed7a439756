//! A random case: a prototype, a function of it, a trampoline with options, and what its handlers do.

use std::fmt::Write;

use crate::chance::Chance;
use crate::flags::Flags;
use crate::place::{Isa, Piece, Placed, place};
use crate::types::{Prototype, Type};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Args,
    Regs,
    Graph,
    Direct,
    Frame,
    Fregs,
    Shadow,
    Programs,
}

impl Kind {
    const ALL: [Kind; 13] = {
        use Kind::*;
        [Args, Args, Regs, Regs, Graph, Direct, Direct, Frame, Fregs, Shadow, Programs, Programs, Programs]
    };

    fn around(self) -> Option<&'static str> {
        match self {
            Kind::Frame => Some("frame"),
            Kind::Fregs => Some("fregs"),
            Kind::Shadow => Some("shadow"),
            _ => None,
        }
    }
}

/// The option by which handlers may use vector registers.
const SAVED: (&str, &str) = ("vectors", "save");

/// Programs in the order of `fentry`, `fmod_ret`, `fexit`.
#[derive(Clone, Copy, Default, Debug)]
struct Attached {
    counts: [usize; 3],
    skip_frame: bool,
    ip_arg: bool,
}

pub struct Case {
    pub name: String,
    symbol: String,
    seed: u64,
    kind: Kind,
    act: &'static str,
    linux: bool,
    /// The body tells all registers, and is not C.
    pub probe: bool,
    again: usize,
    proto: Prototype,
    placed: Placed,
    /// Where a handler that is called like the function has the arguments.
    handler: Vec<Piece>,
    programs: Attached,
    cookies: Vec<u64>,
    /// `--args`, and whether ip comes first.
    args: Option<(usize, bool)>,
    set: Vec<(&'static str, &'static str)>,
    sig: String,
    deep: bool,
    fault: Option<String>,
    /// Both handlers of `around` are proven to touch no vector register, so that some may be live.
    proven: bool,
}

impl Case {
    pub fn random(isa: Isa, flags: &Flags, name: String, symbol: String, chance: &mut Chance) -> Case {
        let seed = chance.next() >> 1;
        // Where functions have room for an operation, it is often used.
        let named = isa == Isa::Arm && flags.literal && chance.once_in(6);
        let kind = if named { Kind::Args } else { chance.pick(&Kind::ALL) };
        let linux = named || chance.once_in(2);
        let mut programs = Attached::default();
        if kind == Kind::Programs {
            programs.counts =
                chance.pick(&[[1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [1, 0, 2], [2, 2, 2]]);
            programs.ip_arg = chance.once_in(2);
            programs.skip_frame = programs.counts[1..] != [0, 0] && chance.once_in(3);
        }
        let proven = kind.around().is_some() && chance.once_in(2);
        let mut set = options(isa, kind, linux, flags, chance);
        let kept = proven || set.contains(&SAVED);
        let (proto, placed) = loop {
            let proto = Prototype::random(chance, &symbol, isa == Isa::Arm);
            let placed = place(isa, &proto);
            if compilers_agree(isa, flags, &proto, &placed) && allowed(kind, kept, &programs, &proto, &placed) {
                break (proto, placed);
            }
        };
        let changes =
            matches!(kind, Kind::Args | Kind::Regs | Kind::Graph | Kind::Fregs | Kind::Shadow | Kind::Programs);
        let act = match chance.below(4) {
            0 if changes => "MODIFY",
            1 if matches!(kind, Kind::Args | Kind::Regs) => "REDIRECT",
            1 | 2 if programs.counts[1] > 0 => "SKIP",
            _ => "NOTHING",
        };
        set.iter_mut().filter(|(option, _)| named && *option == "call-ops").for_each(|(_, value)| *value = "on");
        let act = match act {
            "NOTHING" | "MODIFY" if has_early(isa, kind, linux, &set) => chance.pick(&["EARLY", "NEXT"]),
            "NOTHING" if has_next(isa, kind, linux, &set) && !chance.once_in(3) => "NEXT",
            act => act,
        };
        let probe = chance.once_in(3);
        let again = if act == "NOTHING" && !probe && chance.once_in(4) { 2 } else { 0 };
        let sig = proto.sig(chance, &symbol);
        let mut handler = placed.args.clone();
        let args = by_number(kind, &placed).filter(|_| chance.once_in(3)).map(|n| (n, chance.once_in(2)));
        if let Some((_, true)) = args {
            handler = behind_ip(isa, &placed.args);
        }
        let cookies = (0..6).map(|_| if chance.once_in(2) { 0 } else { chance.next() >> 33 }).collect();
        let deep = chance.once_in(2);
        Case {
            name,
            symbol,
            seed,
            kind,
            act,
            linux,
            probe,
            again,
            proto,
            placed,
            handler,
            programs,
            cookies,
            args,
            set,
            sig,
            deep,
            fault: None,
            proven,
        }
    }

    /// What its handlers do, as the harness calls it.
    pub fn act(&self) -> &'static str {
        self.act
    }

    pub fn symbol(&self) -> &str {
        &self.symbol
    }

    /// Have the trampoline leave out to restore the first register with an argument, or let it take down eight bytes too many,
    /// if it has such a place. `refusal` says what `gen` answers to a fault that it does not know: it lists those that it does.
    pub fn break_by(&mut self, arch: &str, behind: usize, refusal: impl Fn(&[String]) -> String) -> bool {
        let Some(first) = self.placed.args.iter().find(|p| p.place == 'g') else { return false };
        let (mut args, renamed) = self.generate(arch, behind);
        let trampoline = renamed.first().map_or(format!("{}_tramp", self.symbol), |(from, _)| from.clone());
        args.extend(["--fault".into(), format!("{trampoline}:?")]);
        let regs = tool::backend(arch).unwrap().facts().abi.regs;
        let dropped = format!("DROP_RESTORE({})@", regs[first.index].name);
        let wanted = if self.seed.is_multiple_of(3) { "TEARDOWN_MISMATCH(+8)@" } else { &dropped };
        let known = refusal(&args);
        let fault = known.split([' ', ',']).find(|f| f.starts_with(wanted));
        // On these ways nothing is restored.
        self.fault = fault.filter(|_| !matches!(self.act, "SKIP" | "EARLY")).map(|f| format!("{trampoline}:{f}"));
        self.fault.is_some()
    }

    fn jumps(&self) -> bool {
        self.kind.around().is_some() || (self.programs.counts[1..] != [0, 0] && !self.programs.skip_frame)
    }

    /// What is known of no prototype saves vector registers around its handlers, which lose them.
    fn saves_vectors(&self) -> bool {
        self.set.contains(&SAVED) && !self.proven
    }

    fn profile(&self) -> &'static str {
        if self.linux { "linux-6.12" } else { "bare" }
    }

    /// Arguments of `gen`, and what names mean what they are called by: fixed names are those of each case.
    pub fn generate(&self, arch: &str, behind: usize) -> (Vec<String>, Vec<(String, String)>) {
        let mut args: Vec<String> =
            ["gen", "--arch", arch, "--emit", "obj", "--stem", &self.symbol].map(String::from).into();
        args.extend(["--profile", self.profile()].map(String::from));
        args.extend(self.set.iter().flat_map(|(o, v)| ["--set".into(), format!("{o}={v}")]));
        args.extend(self.fault.iter().flat_map(|f| ["--fault".into(), f.clone()]));
        let named = |linux: &str, bare: &str| if self.linux { linux.to_owned() } else { bare.to_owned() };
        let tramp = format!("{}_tramp", self.symbol);
        let to = |from: String, to: &str| (from, to.to_owned());
        let mut renamed = Vec::new();
        let general = if self.saves_vectors() { "v" } else { "g" };
        if matches!(self.kind, Kind::Args | Kind::Regs | Kind::Graph) {
            let entry = if self.kind == Kind::Regs {
                named("ftrace_regs_caller", "trace_regs_caller")
            } else {
                named("ftrace_caller", "trace_caller")
            };
            renamed.extend([
                to(entry.clone(), &tramp),
                to(named("ftrace_stub", "trace_entry"), &format!("{general}_entry")),
            ]);
            args.push(entry);
        }
        if self.kind == Kind::Graph {
            let back = named("return_to_handler", "trace_return");
            renamed.extend([to(back.clone(), &format!("{}_back", self.symbol))]);
            renamed.push(to(named("ftrace_return_to_handler", "trace_exit"), &format!("{general}_exit")));
            args.push(back);
        }
        if !renamed.is_empty() {
            return (args, renamed);
        }
        // Forms that show the registers let handlers use general ones only, if vector registers are not saved.
        let vectors = match self.kind {
            _ if self.proven => "p",
            Kind::Fregs | Kind::Shadow => general,
            _ => "v",
        };
        let more = match self.kind {
            Kind::Direct => format!("direct --call {vectors}_entry"),
            Kind::Programs if self.linux => "programs --own-form".to_owned(),
            Kind::Programs => "programs".to_owned(),
            _ => format!("around --form {} --call {vectors}_entry --exit {vectors}_exit", self.kind.around().unwrap()),
        };
        args.extend(more.split(' ').map(String::from));
        args.extend(["--name".into(), tramp]);
        args.extend(self.proven.then(|| ["--handler".into(), "proven.o".into()]).into_iter().flatten());
        match self.args {
            None => args.extend(["--sig".into(), self.sig.clone()]),
            Some((n, ip)) => {
                args.extend(["--args".into(), n.to_string()]);
                args.extend(ip.then(|| "--ip".into()));
            }
        }
        if self.kind != Kind::Direct && self.jumps() || self.programs.skip_frame {
            args.extend(["--function".into(), format!("{}+{behind}", self.symbol)]);
        }
        let mut n = 0;
        for (count, option) in self.programs.counts.iter().zip(["--fentry", "--fmod-ret", "--fexit"]) {
            for _ in 0..*count {
                let cookie = self.cookies[n];
                let cookie = if cookie == 0 { String::new() } else { format!(":{cookie}") };
                args.extend([option.into(), format!("v_program{n}{cookie}")]);
                n += 1;
            }
        }
        if self.kind == Kind::Programs {
            let flag = if self.programs.counts[1..] == [0, 0] { "RESTORE_REGS" } else { "CALL_ORIG" };
            args.extend(["--flags".into(), flag.into()]);
            args.extend(
                self.programs.skip_frame.then(|| ["--flags".into(), "SKIP_FRAME".into()]).into_iter().flatten(),
            );
            args.extend(self.programs.ip_arg.then(|| ["--flags".into(), "IP_ARG".into()]).into_iter().flatten());
        }
        (args, Vec::new())
    }

    /// Arguments of `gen` for the direct trampoline that a handler names.
    pub fn generate_next(&self, arch: &str) -> Option<Vec<String>> {
        let next = format!("{}_next", self.symbol);
        let mut args: Vec<String> = ["gen", "--arch", arch, "--emit", "obj", "--stem", &next].map(String::from).into();
        args.extend(["--profile", self.profile()].map(String::from));
        args.extend(["direct", "--call", "v_exit", "--name", &next, "--sig", &self.sig].map(String::from));
        args.extend(self.set.iter().flat_map(|(o, v)| ["--set".into(), format!("{o}={v}")]));
        matches!(self.act, "NEXT" | "EARLY").then_some(args)
    }

    /// The function in C. It stores what it gets, and returns what it is told to.
    pub fn function(&self) -> String {
        let (name, mut text) = (&self.symbol, self.proto.declarations());
        if self.probe {
            return String::new();
        }
        writeln!(text, "TRACED {} {{", self.proto.c(name)).unwrap();
        for (i, t) in self.proto.args.iter().enumerate() {
            writeln!(text, "    memcpy(seen[{i}], &a{i}, {});", t.size()).unwrap();
        }
        text += "    seen_calls++;\n";
        if self.deep {
            text += "    helper();\n";
        }
        let args: Vec<String> = (0..self.proto.args.len()).map(|i| format!("a{i}")).collect();
        let args = args.join(", ");
        if self.again > 0 {
            // Nothing is known of what it returns, so that it is no tail call.
            writeln!(text, "    if (again) {{ again--; {name}({args}); helper(); }}").unwrap();
        }
        if let Some(t) = &self.proto.result {
            writeln!(text, "    {} r;\n    memcpy(&r, give_result, {});\n    return r;", t.c(), t.size()).unwrap();
        }
        text + "}\n"
    }

    fn pieces(name: &str, of: &[Piece]) -> String {
        let mut text = format!("static const struct piece {name}[] = {{");
        for p in of {
            let extend = if p.extend == '-' { "0".to_owned() } else { format!("'{}'", p.extend) };
            write!(text, "{{'{}', {extend}, {}, {}, {}, {}}}, ", p.place, p.of, p.size, p.offset, p.index).unwrap();
        }
        text + "{0}};\n"
    }

    /// What goes before the table, and its row.
    pub fn row(&self, behind: usize) -> (String, String) {
        let s = &self.symbol;
        let back = match (self.kind, self.act) {
            (Kind::Graph, _) => format!("{s}_back"),
            (_, "NEXT" | "EARLY") => format!("{s}_next"),
            _ => "0".into(),
        };
        let mut before = format!("void {s}(void), {s}_tramp(void), {s}_back(void), {s}_next(void);\n");
        before += &Case::pieces(&format!("{s}_at"), &self.placed.args);
        before += &Case::pieces(&format!("{s}_handler"), &self.handler);
        before += &Case::pieces(&format!("{s}_result"), &self.placed.result);
        let cookies: Vec<String> = self.cookies.iter().map(u64::to_string).collect();
        writeln!(before, "static const int {s}_cookies[] = {{{}}};", cookies.join(", ")).unwrap();
        let value = |t: &Type| format!("{{{}, {}, {:#x}}}", t.size(), u8::from(t.is_bool()), t.valid());
        let args: Vec<String> = self.proto.args.iter().map(value).collect();
        let is = |option, value| self.set.contains(&(option, value));
        let literal = is("call-ops", "on") && matches!(self.kind, Kind::Args | Kind::Graph);
        let [fentry, fmod_ret, fexit] = self.programs.counts;
        let words = self.placed.args.iter().map(|p| match p.place {
            'g' => 1,
            's' => p.size.div_ceil(8),
            _ => 0,
        });
        let row = format!(
            "    {{.name = \"{}\", .seed = {}u, .kind = {}, .act = {}, .function = {s}, .tramp = {s}_tramp, .back = {back}, \
             .behind = {behind}, .jumps = {}, .literal = {}, .probe = {}, .again = {}, .op = {}, .flags = {}, .align = {}, \
             .ip = {}, .vectors = {}, .fentry = {fentry}, .fmod_ret = {fmod_ret}, .fexit = {fexit}, .ip_arg = {}, .cookies = {s}_cookies, \
             .args = {}, .words = {}, .arg = {{{}}}, .result = {}, .sret = {}, .at = {s}_at, .handler_at = {s}_handler, \
             .result_at = {s}_result}},\n",
            self.name,
            self.seed,
            format!("{:?}", self.kind).to_uppercase(),
            self.act,
            u8::from(self.jumps()),
            u8::from(literal),
            u8::from(self.probe),
            self.again,
            u8::from(self.linux),
            u8::from(self.kind == Kind::Regs && is("restore-flags", "on")),
            if is("stack-align", "8") { 8 } else { 16 },
            u8::from(self.args.is_some_and(|(_, ip)| ip)),
            u8::from(self.saves_vectors()),
            u8::from(self.programs.ip_arg),
            args.len(),
            words.sum::<usize>(),
            args.join(", "),
            self.proto.result.as_ref().map_or("{0, 0, 0}".into(), value),
            self.placed.memory.map_or(-1, |reg| reg as i32),
        );
        (before, row)
    }

    /// What it is about, for a person.
    pub fn told(&self) -> String {
        let set: Vec<String> = self.set.iter().map(|(o, v)| format!("{o}={v}")).collect();
        let body = if self.probe { "probe" } else { "C" };
        format!(
            "{}: {:?} {} {body} again={} {:?} {}: {}",
            self.name,
            self.kind,
            self.act,
            self.again,
            self.args,
            set.join(" "),
            self.sig
        )
    }
}

/// For an `__int128` with one register left, clang before 18 takes that and the stack on x86_64; the psABI wants the stack.
fn compilers_agree(isa: Isa, flags: &Flags, proto: &Prototype, placed: &Placed) -> bool {
    let halved = |p: &Piece| p.place == 's' && matches!(&proto.args[p.of], Type::Plain(s) if s.size == 16);
    isa != Isa::X86 || !flags.clang || !placed.args.iter().any(halved)
}

/// As README.md says what trampolines are for.
fn allowed(kind: Kind, kept: bool, programs: &Attached, proto: &Prototype, placed: &Placed) -> bool {
    let vectors = placed.args.iter().chain(&placed.result).any(|p| p.place == 'v');
    match kind {
        Kind::Frame | Kind::Fregs => (kept || !vectors) && placed.stack == 0,
        Kind::Shadow => kept || !vectors,
        Kind::Programs if placed.memory.is_some() => false,
        Kind::Programs if programs.counts[1] > 0 => {
            proto.result.as_ref().is_some_and(|t| matches!(t, Type::Plain(_)) && t.size() <= 8 && !t.has_floats())
        }
        _ => true,
    }
}

/// Whether handlers can name a direct trampoline, in Linux's way.
fn has_next(isa: Isa, kind: Kind, linux: bool, set: &[(&str, &str)]) -> bool {
    linux
        && match (isa, kind) {
            (Isa::X86, Kind::Regs) | (Isa::Riscv, Kind::Args | Kind::Regs) => true,
            (Isa::X86, Kind::Args) => set.contains(&("direct-way", "jmp")),
            (Isa::Arm, Kind::Args) => set.contains(&("call-ops", "on")),
            _ => false,
        }
}

/// Whether the operation that a site names can name a direct trampoline.
fn has_early(isa: Isa, kind: Kind, linux: bool, set: &[(&str, &str)]) -> bool {
    linux && isa == Isa::Arm && kind == Kind::Args && set.contains(&("call-ops", "on"))
}

/// How many argument registers say the same as the prototype does.
fn by_number(kind: Kind, placed: &Placed) -> Option<usize> {
    let in_registers = placed.args.iter().all(|p| p.place == 'g') && placed.memory.is_none();
    let results = placed.result.iter().all(|p| p.place == 'g');
    (kind == Kind::Direct && in_registers && results && placed.args.len() < 6).then_some(placed.args.len())
}

/// Each argument one register further.
fn behind_ip(isa: Isa, args: &[Piece]) -> Vec<Piece> {
    let order: &[usize] = match isa {
        Isa::X86 => &[7, 6, 2, 1, 8, 9],
        Isa::Arm => &[0, 1, 2, 3, 4, 5, 6, 7],
        Isa::Riscv => &[10, 11, 12, 13, 14, 15, 16, 17],
    };
    let next = |p: &Piece| Piece { index: order[order.iter().position(|&r| r == p.index).unwrap() + 1], ..*p };
    args.iter().map(next).collect()
}

fn options(isa: Isa, kind: Kind, linux: bool, flags: &Flags, chance: &mut Chance) -> Vec<(&'static str, &'static str)> {
    let mut set = Vec::new();
    let mut pick = |name, values: &[&'static str]| set.push((name, chance.pick(values)));
    if !linux {
        pick(SAVED.0, &[SAVED.1, "none"]);
    }
    match isa {
        Isa::X86 => {
            pick("unwinder", &["orc", "fp"]);
            pick("endbr", &["on", "off"]);
            // The form that keeps nothing on the stack takes no realigned one.
            pick("stack-align", if kind == Kind::Shadow { &["8"] } else { &["8", "16"] });
            pick("restore-flags", &["on", "off"]);
            pick("return", &["ret", "int3", "thunk"]);
            pick("call-padding", &["off", "on"]);
            if linux {
                pick("direct-way", &["ret", "jmp"]);
            }
        }
        Isa::Arm => {
            if linux {
                pick("call-ops", if flags.literal { &["on", "off"] } else { &["off"] });
            }
            pick("frame-records", &["on", "off"]);
        }
        Isa::Riscv => {
            pick("abi", &["lp64d"]);
            pick("rvc", &["on", "off"]);
            pick("frame-records", &["on", "off"]);
            if linux {
                pick("fp-test", &["on", "off"]);
            }
        }
    }
    set
}
