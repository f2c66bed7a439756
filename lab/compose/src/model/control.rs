//! Registering in the model: who is let in, and who is on a function.

use super::{Live, Model, Ops, PROBE_WORDS};
use crate::case::{Act, Table, UNCALLED, User, What};

/// The object of the users that trace nothing which is called.
const IDLE: u64 = 0x800;

impl<'c> Model<'c> {
    /// Graph users that trace nothing which is called come and go.
    pub(super) fn idle(&mut self, act: &Act) {
        match act {
            Act::Fill(n) => {
                for _ in 0..*n {
                    let code = self.register(IDLE + 8 * self.idle, What::Graph, vec![UNCALLED], None);
                    self.idle += 1;
                    self.done(code);
                }
            }
            Act::Crowd(table, n) => {
                for n in 0..*n {
                    let User { object, what, on, .. } = table.user(n);
                    let code = self.register(object, what, on, None);
                    self.crowd.push((object, what));
                    self.done(code);
                }
            }
            Act::Drain => {
                while let Some((object, what)) = self.crowd.pop() {
                    let code = self.unregister(object, what);
                    self.done(code);
                }
                while self.idle > 0 {
                    self.idle -= 1;
                    let code = self.unregister(IDLE + 8 * self.idle, What::Graph);
                    self.done(code);
                }
            }
            Act::Churn(n) => {
                for _ in 0..*n {
                    let code = self.register(IDLE + 8 * 99, What::Graph, vec![UNCALLED], None);
                    self.done(code);
                    let code = self.unregister(IDLE + 8 * 99, What::Graph);
                    self.done(code);
                }
            }
            _ => {}
        }
    }

    /// Who is on a function and excludes an ops of this kind?
    fn excluded(&self, what: What, f: u64) -> bool {
        self.live.iter().filter(|l| l.wants(f)).any(|l| match (what.direct(), l.what.direct()) {
            (Some(_), Some(_)) => true,
            (Some(share), None) => l.what == What::Hijack && !share,
            (None, Some(share)) => what == What::Hijack && !share,
            (None, None) => what == What::Hijack && l.what == What::Hijack,
        })
    }

    pub(super) fn register(&mut self, object: u64, what: What, on: Vec<u64>, user: Option<&'c User>) -> i64 {
        let exclusive = what == What::Hijack || what.direct().is_some();
        let registered = self.find(object, what).is_some();
        match what {
            // The kernel looks at the arguments first, but for fprobes.
            _ if on.is_empty() && exclusive => return -22,
            What::Direct { .. } | What::Recorder if registered => return -22,
            What::Fprobe { .. } if registered => return -17,
            What::Fprobe { .. } if on.is_empty() => return -22,
            What::Fprobe { .. } if user.is_some_and(|u| u.words > PROBE_WORDS) => return -7,
            _ if registered => return -16,
            What::Kretprobe { .. } if on.is_empty() => return -2,
            What::Kretprobe { most } if most > 4096 => return -7,
            _ if on.iter().any(|f| self.excluded(what, *f)) => return -16,
            _ => {}
        }
        let all = |test: &dyn Fn(What) -> bool| self.live.iter().filter(|l| test(l.what)).count() as u64;
        let ops = match what {
            What::Graph | What::Fprobe { exit: true } => Some(Ops::Graph),
            What::Fprobe { exit: false } => Some(Ops::Probes),
            What::Kretprobe { .. } => Some(Ops::Kretprobes),
            _ => None,
        };
        let slots = matches!(what, What::Graph) || what == What::Fprobe { exit: true } && self.probes.is_none();
        let more = ops.is_none_or(|ops| !self.ops.contains(&ops));
        match what {
            What::Fprobe { .. } if all(&|w| matches!(w, What::Fprobe { .. })) == Table::Fprobes.room() => return -12,
            What::Kretprobe { .. } if all(&|w| matches!(w, What::Kretprobe { .. })) == Table::Kretprobes.room() => {
                return -12;
            }
            _ if slots && self.slots.is_empty() => return -28,
            _ if more && self.ops.len() as u64 == Table::Ops.room() => return -12,
            _ => {}
        }
        let mut slot = 0;
        match what {
            What::Graph => match self.slots.pop_front() {
                Some(free) => slot = free,
                None => return -28,
            },
            What::Fprobe { exit: true } if self.probes.is_none() => match self.slots.pop_front() {
                Some(free) => {
                    self.clock += 1;
                    self.probes = Some((free, self.clock));
                }
                None => return -28,
            },
            _ => {}
        }
        self.clock += 1;
        let ops = ops.unwrap_or(Ops::Of(self.clock));
        if !self.ops.contains(&ops) {
            self.ops.push(ops);
        }
        let on = if matches!(what, What::Kretprobe { .. }) { on[..1].to_vec() } else { on };
        let direct = what.trampoline(object, false);
        self.live.push(Live { user, object, what, at: self.clock, on, disabled: false, missed: 0, direct, slot });
        0
    }

    pub(super) fn unregister(&mut self, object: u64, what: What) -> i64 {
        let is_it = |l: &Live| l.object == object && l.what.family() == what.family() && kind(l.what) == kind(what);
        let Some(index) = self.live.iter().position(is_it) else {
            return if matches!(what, What::Op { .. } | What::Hijack) { -16 } else { -22 };
        };
        let gone = self.live.remove(index);
        let any = |test: &dyn Fn(What) -> bool| self.live.iter().any(|l| test(l.what));
        match gone.what {
            What::Graph => self.slots.push_back(gone.slot),
            What::Fprobe { exit: true } if !any(&|w| w == What::Fprobe { exit: true }) => {
                self.slots.extend(self.probes.take().map(|(slot, _)| slot));
            }
            _ => {}
        }
        let any = |test: &dyn Fn(What) -> bool| self.live.iter().any(|l| test(l.what));
        let graph = any(&|w| matches!(w, What::Graph | What::Fprobe { exit: true }));
        let probes = any(&|w| w == What::Fprobe { exit: false });
        let kretprobes = any(&|w| matches!(w, What::Kretprobe { .. }));
        self.ops.retain(|o| match o {
            Ops::Of(at) => *at != gone.at,
            Ops::Graph => graph,
            Ops::Probes => probes,
            Ops::Kretprobes => kretprobes,
        });
        0
    }

    pub(super) fn filter(&mut self, user: &User, f: u64, remove: bool) -> i64 {
        if user.what.family() != (What::Hijack).family() {
            return -22;
        }
        let Some(own) = self.find(user.object, user.what).map(|l| l.clone()) else { return -22 };
        let exclusive = own.what == What::Hijack || own.what.direct().is_some();
        let mut on = own.on.clone();
        if remove {
            if exclusive && on == [f] {
                return -22;
            }
            on.retain(|g| *g != f);
            if on.is_empty() {
                on.push(u64::MAX);
            }
        } else if !on.contains(&f) {
            if self.excluded(own.what, f) {
                return -16;
            }
            on.push(f);
        }
        if let Some(own) = self.find(user.object, user.what) {
            own.on = on;
        }
        0
    }

    pub(super) fn site(&self, f: u64) -> u64 {
        let wants = |test: &dyn Fn(What) -> bool| self.live.iter().any(|l| l.wants(f) && test(l.what));
        let (mut all, mut regs, mut direct) = (0, false, 0);
        for ops in &self.ops {
            let there = match ops {
                Ops::Graph => wants(&|w| matches!(w, What::Graph | What::Fprobe { exit: true })),
                Ops::Probes => wants(&|w| w == What::Fprobe { exit: false }),
                Ops::Kretprobes => wants(&|w| matches!(w, What::Kretprobe { .. })),
                Ops::Of(at) => {
                    let own = self.at(*at).filter(|l| l.wants(f));
                    if let Some(own) = &own {
                        regs |= own.what != What::Op { regs: false };
                        direct = if own.what.direct().is_some() { own.direct } else { direct };
                    }
                    own.is_some()
                }
            };
            all += u64::from(there);
        }
        match all {
            0 => 0,
            1 if direct != 0 => direct,
            _ => 1 + u64::from(regs),
        }
    }
}

/// What may unregister it.
const fn kind(what: What) -> u8 {
    match what {
        What::Direct { .. } | What::Recorder => 1,
        _ => 0,
    }
}
