//! Spec to plan: the steps of a trampoline, without instructions.
//!
//! The order of the steps is the same on every architecture, except where it depends on free registers: those that a frame
//! restores, and those of the return address by the psABI and by the profile's sites.

use crate::ask::frame::{Content, FrameLayout, Stores};
use crate::ask::spec::{Around, Clock, Direct, Event, Events, Form, Kind, Programs, Recorder, Regs, Spec};
use crate::profile::lsda;
use crate::profile::target::Target;
use crate::words::error::{Error, Result};
use crate::words::program::{Attach, Program, called};
use crate::words::step::{Callee, ExitPath, KernelLabel, Local, Mark, RecordStep, Role, Step, Value};

/// The steps of one trampoline.
#[derive(Clone, Default, Debug)]
pub struct Plan {
    /// The steps in order of emission.
    pub steps: Vec<Step>,
    /// The return address is already signed at the entry.
    signed: bool,
}

impl Plan {
    /// Plan `spec` into `self`, replacing what was there; buffers are reused.
    ///
    /// # Errors
    /// More arguments than the architecture has registers.
    pub fn make(&mut self, spec: &Spec, target: &Target) -> Result<()> {
        self.steps.clear();
        let most = target.convention.programs.most;
        let sessions = spec.programs.iter().filter(|p| p.attach == Attach::Fsession).count();
        if spec.programs.len() + sessions > most {
            let (n, twice) =
                (spec.programs.len() + sessions, if sessions > 0 { ", a session counted as two" } else { "" });
            return Err(Error::new(format!("there are {n} programs{twice}; valid: up to {most}, as for BPF")));
        }
        let site = &target.convention.site;
        if spec.kind.direct().is_some_and(|direct| direct.jumped) && !site.direct_jumps {
            let (profile, arch) = (target.convention.profile, target.facts.name);
            return Err(Error::new(format!(
                "direct --jump: sites of {arch} in profile {profile} call direct trampolines; valid: without --jump, or a \
                 profile with `direct-jumps` in [arch.{arch}.site]"
            )));
        }
        if spec.kind.jumped_to() && site.protocol.jump.is_empty() {
            let (profile, arch) = (target.convention.profile, target.facts.name);
            let other = if spec.kind.programs().is_some() { "the flag SKIP_FRAME, or " } else { "" };
            return Err(Error::new(format!(
                "{}: sites of {arch} in profile {profile} do not jump, and nothing comes to it otherwise; valid: {other}a \
                 profile with `jump` in [arch.{arch}.site]",
                spec.kind.traits().word
            )));
        }
        if let Some(programs) = spec.kind.programs() {
            let all = if programs.bracketed() { spec.programs.len() + usize::from(programs.call_orig) } else { 0 };
            let given = spec.brackets.len();
            if given != all {
                return Err(Error::new(format!("programs have {given} pairs of functions around them; valid: {all}")));
            }
        }
        let frame = target.frame(spec.kind)?;
        self.signed = spec.body.signed && spec.kind.names_body();
        match spec.kind {
            Kind::Stub | Kind::StubGraph => self.stub(spec.kind, target, ExitPath::Caller),
            Kind::StubDirect => self.stub(spec.kind, target, ExitPath::Function),
            Kind::Entry(regs) => self.entry(regs, &frame, target),
            Kind::Return | Kind::Rethook => self.exit(spec.kind, &frame, target),
            // The frame has said that nothing generates them.
            Kind::Closure | Kind::Callback | Kind::Syscall(_) | Kind::Switch | Kind::Displaced => {}
            Kind::Direct(direct) => self.direct(direct, &frame, target),
            Kind::Sled => {
                if target.convention.thread.is_none() {
                    return Err(Error::Absent {
                        profile: target.convention.profile.to_owned(),
                        what: format!(
                            "threads of programs on {}, whose vector registers `sled` saves",
                            target.facts.name
                        ),
                        valid: format!("one with `thread` in [arch.{}]", target.facts.name),
                    });
                }
                self.sled(target);
            }
            Kind::Around(Around { form: Form::Shadow, .. }) => {
                shadowable(target)?;
                self.shadow(spec.kind, target);
            }
            Kind::Around(around) => self.around(around, target),
            Kind::Programs(programs) => self.programs(&programs, spec, target),
            Kind::Record(recorder) => {
                recordable(recorder, target)?;
                self.record(recorder, target);
            }
        }
        Ok(())
    }

    fn push(&mut self, steps: &[Step]) {
        self.steps.extend_from_slice(steps);
    }

    fn landing_pad(&mut self, kind: Kind, target: &Target) {
        self.push(&[Step::Block(Role::Entry, "")]);
        if target.landing(kind).is_some() {
            self.push(&[Step::LandingPad]);
        }
        if self.signed {
            self.push(&[Step::Authenticate]);
        }
        if target.guards(kind).is_some() {
            self.push(&[Step::GuardReturn]);
        }
    }

    /// Return to the caller, with the return address from the frame.
    fn leave_to_caller(&mut self, kind: Kind, target: &Target) {
        self.push(&[Step::RestoreSite(ExitPath::Parent), Step::Free(ExitPath::Parent)]);
        if target.guards(kind).is_some() {
            self.push(&[Step::CheckReturn]);
        }
        self.push(&[Step::Leave(ExitPath::Caller)]);
    }

    fn stub(&mut self, kind: Kind, target: &Target, way: ExitPath) {
        self.landing_pad(kind, target);
        self.push(&[Step::Leave(way)]);
    }

    fn entry(&mut self, regs: Regs, frame: &FrameLayout, target: &Target) {
        let early = target.op_from_site && regs == Regs::Args;
        let flags = target.pushes_flags && regs == Regs::All;

        self.landing_pad(Kind::Entry(regs), target);
        if early {
            self.push(&[Step::LoadOp, Step::BranchIfEarlyDirect]);
        }
        self.push(&[Step::Block(Role::Frame, "")]);
        if flags {
            self.push(&[Step::PushFlags]);
        }
        self.push(&[Step::Alloc, Step::Block(Role::Saves, "the function's state at the site -> fregs"), Step::Save]);
        if !frame.records.is_empty() {
            self.push(&[Step::Block(Role::Frame, "frame records: the function's caller, then the function")]);
            self.push(&[Step::Link(0), Step::Link(1)][..frame.records.len()]);
        }

        self.push(&[Step::Block(Role::Arguments, target.convention.callback.prototype)]);
        self.callback_arguments(target, !early);
        if target.marks_regs && regs == Regs::All {
            self.push(&[Step::MarkRegs]);
        }
        let callee = if early {
            Callee::OpFunc
        } else if target.convention.calls_through.is_some() {
            Callee::Variable
        } else {
            Callee::Patchable
        };
        self.call(target, callee);

        self.ways_out(frame, flags, target);
        if early {
            self.push(&[
                Step::Block(Role::Dispatch, "op has a direct trampoline: there at once, nothing was touched"),
                Step::Path(ExitPath::EarlyDirect),
                Step::Leave(ExitPath::EarlyDirect),
            ]);
        }
    }

    /// The ways out after the callback: back into the function, and to a direct trampoline.
    fn ways_out(&mut self, frame: &FrameLayout, flags: bool, target: &Target) {
        let has_direct = frame.find(Content::Direct).is_some_and(|i| frame.fields[i].stores == Stores::TakeEffect);
        let back = Step::Block(Role::Restores, "fregs -> the function's state, as func left it");
        let end = [Step::KernelLabel(KernelLabel::End), Step::Leave(ExitPath::Function)];
        let direct = match target.direct_jump {
            None => "to the direct trampoline, with everything as the site left it",
            Some(_) => "to the direct trampoline, with all but a scratch register as the site left it",
        };
        let direct = Step::Block(Role::Dispatch, direct);
        self.push(&[back]);
        if !has_direct {
            self.push(&[Step::RestoreSite(ExitPath::Function), Step::Restore, Step::Block(Role::Exit, "")]);
            self.push(&[Step::Free(ExitPath::Function)]);
            self.pop_flags(flags, target);
            self.push(&end);
            return;
        }
        // The cell is tested as late as its register and the flags are free and both ways are the same.
        let cell = Content::Reg(target.direct_test);
        let restored = frame.fields.iter().any(|f| f.content == cell && f.stores == Stores::TakeEffect);
        let (site, link) = (&target.convention.site, target.facts.abi.link);
        // The function finds its return address where calls leave it, a direct trampoline where the site leaves it.
        let alike = link.is_some() && site.parent_ip.reg() == link && !flags;
        let test = [Step::LoadDirect, Step::BranchIfDirect];
        if restored {
            self.push(&[Step::RestoreSite(ExitPath::Function)]);
            self.push(&test);
            self.push(&[Step::Restore, Step::Block(Role::Exit, ""), Step::Free(ExitPath::Function)]);
        } else if alike {
            self.push(&[Step::RestoreSite(ExitPath::Function), Step::LoadDirect, Step::Restore]);
            self.push(&[Step::Block(Role::Exit, ""), Step::Free(ExitPath::Function), Step::BranchIfDirect]);
        } else {
            self.push(&[Step::Restore]);
            self.push(&test);
            self.push(&[Step::Block(Role::Exit, "")]);
            self.push(&[Step::RestoreSite(ExitPath::Function), Step::Free(ExitPath::Function)]);
        }
        self.pop_flags(flags, target);
        self.push(&end);
        self.push(&[direct, Step::Path(ExitPath::Direct)]);
        let jumps = site.direct_jumps;
        if jumps {
            self.push(&[Step::BranchIfJump]);
        }
        if !alike || restored {
            match (restored, target.direct_jump) {
                (false, _) => self.push(&[Step::RestoreSite(ExitPath::Direct)]),
                (true, None) => self.push(&[Step::RestoreSite(ExitPath::Direct), Step::Restore]),
                // The register that the jump clobbers is one of the restored ones.
                (true, Some(_)) => self.push(&[Step::Restore, Step::RestoreSite(ExitPath::Direct)]),
            }
            self.push(&[Step::Free(ExitPath::Direct)]);
            self.pop_flags(flags, target);
        }
        self.push(&[Step::Leave(ExitPath::Direct)]);
        if jumps {
            let way = ExitPath::DirectJump;
            let heading = "to the direct trampoline, with everything as if the site had jumped there";
            self.push(&[Step::Block(Role::Dispatch, heading), Step::Path(way)]);
            self.push(&[Step::RestoreSite(way), Step::Restore, Step::Free(way)]);
            self.pop_flags(flags, target);
            self.push(&[Step::Leave(way)]);
        }
    }

    /// The arguments of the profile's callback; `labelled`, if the tracer's C code patches the load of `op`.
    fn callback_arguments(&mut self, target: &Target, labelled: bool) {
        for (n, &value) in target.convention.callback.arguments.iter().enumerate() {
            if labelled && value == Value::Op {
                self.push(&[Step::KernelLabel(KernelLabel::OpPtr)]);
            }
            self.push(&[Step::Arg(n as u8, value)]);
        }
    }

    fn pop_flags(&mut self, pushed: bool, target: &Target) {
        if pushed && target.restores_flags {
            self.push(&[Step::PopFlags]);
        }
    }

    fn exit(&mut self, kind: Kind, frame: &FrameLayout, target: &Target) {
        let every = kind == Kind::Rethook;
        let flags = frame.find(Content::Flags).is_some();
        let (saved, restored) = match every {
            false => ("the function's results -> fregs", "fregs -> the function's results, as the handlers left them"),
            true => ("every register -> regs", "regs -> every register, as the handlers left them"),
        };
        self.push(&[Step::Block(Role::Frame, "")]);
        if flags {
            self.push(&[Step::AllocReturn, Step::PushFlags]);
        }
        self.push(&[Step::Alloc, Step::Block(Role::Saves, saved), Step::Save]);
        self.push(&[Step::Block(Role::Arguments, ""), Step::Arg(0, Value::Fregs)]);
        if every && target.marks_regs {
            self.push(&[Step::MarkRegs]);
        }
        self.call(target, Callee::ExitHandler);
        self.push(&[Step::Block(Role::Exit, ""), Step::TakeResult]);
        self.push(&[Step::Block(Role::Restores, restored)]);
        self.push(&[Step::Restore, Step::Block(Role::Exit, "")]);
        self.push(&[Step::Free(ExitPath::Parent)]);
        if flags {
            self.push(&[Step::PopFlags]);
        }
        self.push(&[Step::Leave(ExitPath::Parent)]);
    }

    fn direct(&mut self, direct: Direct, frame: &FrameLayout, target: &Target) {
        self.landing_pad(Kind::Direct(direct), target);
        self.push(&[Step::Block(Role::Frame, "")]);
        self.push(&[Step::Alloc]);
        self.push(&[Step::Link(0), Step::Link(1)][..frame.records.len()]);
        self.push(&[Step::Block(Role::Saves, ""), Step::Save]);
        if direct.ip {
            self.push(&[Step::Block(Role::Arguments, "ip first, then the function's own arguments")]);
            for n in (0..direct.args).rev() {
                self.push(&[Step::Arg(n + 1, Value::Argument(n))]);
            }
            self.push(&[Step::Arg(0, Value::Ip)]);
        }
        self.call_with(target, Callee::Named, direct.live.is_some_and(|live| live.stack > 0));
        self.push(&[Step::Block(Role::Restores, ""), Step::Restore]);
        self.push(&[Step::Block(Role::Exit, ""), Step::RestoreSite(ExitPath::Function)]);
        self.push(&[Step::Free(ExitPath::Function), Step::Leave(ExitPath::Function)]);
    }

    fn around(&mut self, around: Around, target: &Target) {
        let fregs = around.form == Form::Fregs;
        self.landing_pad(Kind::Around(around), target);
        self.push(&[Step::Block(Role::Frame, ""), Step::Alloc]);
        self.push(&[Step::Block(Role::Saves, "the function's state at the site"), Step::Save, Step::LoadBody]);
        self.push(&[Step::Block(Role::Frame, "frame records: the function's caller, then the function")]);
        self.push(&[Step::Link(0), Step::Link(1)]);
        if fregs {
            self.push(&[Step::Block(Role::Arguments, target.convention.callback.entry)]);
            self.callback_arguments(target, false);
        }
        self.call(target, Callee::Named);
        self.push(&[Step::Block(Role::Restores, ""), Step::Restore]);
        self.push(&[Step::Block(Role::Call, "the traced function, which returns here"), Step::Call(Callee::Body)]);
        self.push(&[Step::Block(Role::Saves, "the function's results"), Step::SaveResults]);
        if fregs {
            self.push(&[Step::Block(Role::Arguments, "exit(fregs)"), Step::Arg(0, Value::Fregs)]);
        } else {
            self.push(&[Step::Block(Role::Arguments, "exit(results)")]);
            for n in 0..target.facts.abi.rets.len() as u8 {
                self.push(&[Step::Arg(n, Value::Result(n))]);
            }
        }
        self.call(target, Callee::Exit);
        self.push(&[Step::Block(Role::Restores, ""), Step::RestoreResults, Step::Block(Role::Exit, "")]);
        self.leave_to_caller(Kind::Around(around), target);
    }

    fn shadow(&mut self, kind: Kind, target: &Target) {
        self.landing_pad(kind, target);
        self.push(&[Step::Block(Role::Frame, ""), Step::Alloc]);
        self.push(&[Step::Block(Role::Saves, "the function's state at the site -> fregs"), Step::Save]);
        self.push(&[Step::Block(Role::Arguments, target.convention.callback.entry_that_keeps)]);
        self.callback_arguments(target, false);
        self.call(target, Callee::Named);
        self.push(&[Step::Block(Role::Restores, ""), Step::Restore, Step::FreeWithReturn]);
        let heading = "the traced function, which returns here; the stack is its own";
        self.push(&[Step::Block(Role::Call, heading), Step::Call(Callee::Body)]);
        self.push(&[Step::Block(Role::Frame, ""), Step::AllocWithReturn]);
        self.push(&[Step::Block(Role::Saves, "the function's results -> fregs"), Step::SaveResults]);
        let heading = "exit(fregs), which returns parent_ip";
        self.push(&[Step::Block(Role::Arguments, heading), Step::Arg(0, Value::Fregs)]);
        self.call(target, Callee::Exit);
        self.push(&[Step::Block(Role::Exit, ""), Step::TakeResult]);
        self.push(&[Step::Block(Role::Restores, ""), Step::RestoreResults, Step::Block(Role::Exit, "")]);
        self.push(&[Step::Free(ExitPath::Parent), Step::Leave(ExitPath::Parent)]);
    }

    fn programs(&mut self, programs: &Programs, spec: &Spec, target: &Target) {
        let (after, instead) = (Attach::AFTER.iter().any(|at| spec.has(*at)), spec.has(Attach::FmodRet));
        let (bracketed, all) = (programs.bracketed(), spec.programs.len() as u8);
        // The last function around all overwrites the result, as programs after the function do.
        let after = after || bracketed && programs.call_orig;
        // The first call of a program clobbers values that the function returned besides its result.
        let counted = programs.tail_call.is_some_and(|counted| counted.returned) && instead && !after;
        self.landing_pad(spec.kind, target);
        self.push(&[Step::Block(Role::Frame, ""), Step::Alloc]);
        self.push(&[Step::Block(Role::Saves, "the function's arguments -> context"), Step::Save]);
        if programs.has_sessions() {
            self.push(&[Step::ClearResult]);
        }
        if spec.kind.jumped_to() {
            self.push(&[Step::LoadBody]);
        }
        self.push(&[Step::Block(Role::Frame, "frame records: the function's caller, then the function")]);
        self.push(&[Step::Link(0), Step::Link(1)]);
        if bracketed && programs.call_orig {
            self.push(&[Step::Block(Role::Arguments, "before all: (image)"), Step::Arg(0, Value::Bracket(all))]);
            self.call(target, Callee::Before(all));
        }
        let first = self.programs_at(&[Attach::Fentry, Attach::Fsession], 0, after, spec, target);
        if instead && (bracketed || !programs.has_sessions()) {
            self.push(&[Step::Block(Role::Saves, "no result yet"), Step::ClearResult]);
        }
        let first = self.programs_at(&[Attach::FmodRet], first, after, spec, target);
        let back = Step::Block(Role::Restores, "context -> the function's arguments");
        if !programs.call_orig {
            self.push(&[back, Step::Restore]);
            self.restore_own(programs);
            self.push(&[Step::Block(Role::Exit, ""), Step::RestoreSite(ExitPath::Function)]);
            self.push(&[Step::Free(ExitPath::Function), Step::Leave(ExitPath::Function)]);
            return;
        }
        if first > 0 || bracketed {
            self.push(&[back, Step::Restore]);
        }
        self.push(&[Step::Block(Role::Call, "the traced function, which returns here")]);
        if programs.live.stack > 0 {
            self.push(&[Step::StackArgs]);
        }
        self.push(&[Step::Call(Callee::Body)]);
        if after {
            self.push(&[Step::Block(Role::Saves, "the function's results"), Step::SaveResults]);
        } else if counted {
            self.push(&[Step::Block(Role::Saves, "what counts tail calls"), Step::SaveCounted]);
        }
        if target.convention.has_label(KernelLabel::AfterCall) {
            self.push(&[Step::KernelLabel(KernelLabel::AfterCall), Step::Gap]);
        }
        if instead {
            self.push(&[Step::Path(ExitPath::Skipped)]);
        }
        self.programs_at(Attach::AFTER, first, after, spec, target);
        self.push(&[Step::KernelLabel(KernelLabel::Epilogue)]);
        if bracketed {
            self.push(&[Step::Block(Role::Arguments, "after all: (image)"), Step::Arg(0, Value::Bracket(all))]);
            self.call(target, Callee::After(all));
        }
        if after {
            self.push(&[Step::Block(Role::Restores, ""), Step::RestoreResults]);
        } else if counted {
            self.push(&[Step::Block(Role::Restores, ""), Step::RestoreCounted]);
        }
        self.restore_own(programs);
        self.push(&[Step::Block(Role::Exit, "")]);
        self.leave_to_caller(spec.kind, target);
    }

    fn restore_own(&mut self, programs: &Programs) {
        if programs.bracketed() {
            self.push(&[Step::RestoreOwn]);
        }
    }

    fn sled(&mut self, target: &Target) {
        self.landing_pad(Kind::Sled, target);
        self.push(&[
            Step::Block(Role::Frame, "frame record: the function that calls this"),
            Step::Alloc,
            Step::Link(0),
        ]);
        self.push(&[Step::Block(Role::Saves, "what C functions may overwrite"), Step::Save, Step::SaveState]);
        self.push(&[Step::Block(Role::Call, ""), Step::Call(Callee::Named)]);
        self.push(&[Step::Block(Role::Restores, ""), Step::RestoreState, Step::Restore]);
        self.push(&[Step::Block(Role::Exit, "")]);
        self.leave_to_caller(Kind::Sled, target);
    }

    fn record(&mut self, recorder: Recorder, target: &Target) {
        self.landing_pad(Kind::Record(recorder), target);
        match recorder.events {
            Events::Count => self.push(&[Step::Block(Role::Saves, "one more entry"), Step::Record(RecordStep::Count)]),
            Events::Entry => {
                self.scratch(recorder, &[Step::Alloc, Step::Save]);
                self.event(Event::Entry, recorder);
                self.scratch(recorder, &[Step::Restore, Step::Free(ExitPath::Function)]);
            }
            Events::Both if recorder.shadow => self.record_in_place(recorder),
            Events::Both => {
                self.event(Event::Entry, recorder);
                self.push(&[Step::Block(Role::Frame, "frame record: the function's caller"), Step::Alloc]);
                self.push(&[Step::Link(0)]);
                if recorder.pair {
                    self.push(&[Step::Record(RecordStep::KeepSlot)]);
                }
                let heading = "the traced function, which returns here";
                self.push(&[Step::Block(Role::Call, heading)]);
                if recorder.unwind {
                    self.push(&[Step::Mark(Mark::Call), Step::Call(Callee::Body), Step::Mark(Mark::Called)]);
                } else {
                    self.push(&[Step::Call(Callee::Body)]);
                }
                self.event(Event::Exit, recorder);
                self.push(&[Step::Block(Role::Exit, "")]);
                self.leave_to_caller(Kind::Record(recorder), target);
                if recorder.unwind {
                    self.unwound(recorder);
                }
            }
        }
        if recorder.events != Events::Both {
            self.push(&[Step::Block(Role::Exit, ""), Step::Leave(ExitPath::Function)]);
        }
        recorder.possible().filter(|_| recorder.refill).for_each(|event| self.refill(event));
        if recorder.pair {
            self.push(&[Step::Block(Role::Saves, "no room for the two records"), Step::Record(RecordStep::NoSlot)]);
        }
    }

    /// Both records of a function whose stack is as its caller left it.
    fn record_in_place(&mut self, recorder: Recorder) {
        self.scratch(recorder, &[Step::Alloc, Step::Save]);
        let heading = "room for the way back, or the function is not traced";
        self.push(&[Step::Block(Role::Entry, heading), Step::BranchIfNoRoomToReturn]);
        self.event(Event::Entry, recorder);
        self.push(&[
            Step::Block(Role::Frame, "parent_ip, and sp behind it -> the thread's shadow stack"),
            Step::PushReturn,
        ]);
        self.scratch(recorder, &[Step::Restore, Step::FreeWithReturn]);
        let heading = "the traced function, which returns here; the stack is its own";
        self.push(&[Step::Block(Role::Call, heading), Step::Call(Callee::Body)]);
        self.scratch(recorder, &[Step::AllocWithReturn, Step::Save]);
        let heading = "the topmost entry with its sp: those above never returned";
        self.push(&[Step::Block(Role::Frame, heading), Step::FindReturn, Step::PopReturn]);
        self.event(Event::Exit, recorder);
        self.scratch(recorder, &[Step::Restore, Step::Free(ExitPath::Parent)]);
        self.push(&[Step::Block(Role::Exit, ""), Step::Leave(ExitPath::Caller)]);
        self.push(&[Step::Block(Role::Frame, "another's entry; below the last one there is none"), Step::PassOver]);
        self.push(&[Step::Block(Role::Exit, "no room: the function alone"), Step::Path(ExitPath::Function)]);
        self.scratch(recorder, &[Step::Restore, Step::Free(ExitPath::Function)]);
        self.push(&[Step::Leave(ExitPath::Function)]);
    }

    /// Steps that save or restore the trampoline's scratch registers, if a caller may have values in them.
    fn scratch(&mut self, recorder: Recorder, steps: &[Step]) {
        if recorder.keeps_all {
            let saves = steps.contains(&Step::Save);
            let (role, heading) =
                if saves { (Role::Saves, "what is used here, and may be live") } else { (Role::Restores, "") };
            self.push(&[Step::Block(role, heading)]);
            self.push(steps);
        }
    }

    /// Out of line: call the routine that may make room, and take the slot again.
    fn refill(&mut self, event: Event) {
        let heading = match event {
            Event::Entry => "no room for the record of the entry",
            Event::Exit => "no room for the record of the return",
            Event::Unwound => "no room for the record of the exception",
        };
        let full = Step::Record(RecordStep::BranchIfFull(event, Local::Recorded(event)));
        self.push(&[
            Step::Block(Role::Call, heading),
            Step::Record(RecordStep::Refill(event)),
            Step::Record(RecordStep::SlotAgain(event)),
            full,
            Step::Record(RecordStep::ToRoom(event)),
        ]);
    }

    /// The landing pad. The unwinder enters it with the frame as it was at the call of the function.
    fn unwound(&mut self, recorder: Recorder) {
        let heading = "landing pad: an exception has left the function";
        self.push(&[Step::Block(Role::Exit, heading), Step::Mark(Mark::Pad), Step::ExceptionPad]);
        self.event(Event::Unwound, recorder);
        let heading = "the unwinder goes on with the function's caller";
        self.push(&[Step::Block(Role::Exit, heading), Step::Mark(Mark::Resume), Step::Record(RecordStep::Resume)]);
        self.push(&[Step::Mark(Mark::End)]);
    }

    /// The record of an event.
    fn event(&mut self, event: Event, recorder: Recorder) {
        let heading = match event {
            Event::Entry => "the record of the entry: nothing else was touched yet",
            Event::Exit => "the record of the return: the results stay where they are",
            Event::Unwound => "the record of the exception, which stays where it is",
        };
        let to = match event {
            _ if recorder.refill => Local::Refill(event),
            Event::Entry if recorder.pair => Local::NoSlot,
            _ => Local::Recorded(event),
        };
        let no_room = Step::Record(RecordStep::BranchIfFull(event, to));
        self.push(&[Step::Block(Role::Saves, heading), Step::Record(RecordStep::Slot(event)), no_room]);
        if recorder.refill {
            self.push(&[Step::Record(RecordStep::Room(event))]);
        }
        self.push(&[Step::Record(RecordStep::Time(event))]);
        if recorder.clock == Clock::Stamp8 {
            self.push(&[Step::Record(RecordStep::Timed(event))]);
        }
        if recorder.words(event) > 0 {
            self.push(&[Step::Record(RecordStep::Words(event))]);
        }
        self.push(&[Step::Record(RecordStep::What(event)), Step::Record(RecordStep::Recorded(event))]);
    }

    /// Call the programs that are called at these points. `first` is how many calls come before; what a program decides is
    /// `stored`. Returns how many come before the next.
    fn programs_at(&mut self, at: &[Attach], first: u8, stored: bool, spec: &Spec, target: &Target) -> u8 {
        let (mut place, mut session) = (first, 0);
        let begins = called(spec.programs, at).next().and_then(|n| spec.programs.get(n)).map(|program| program.attach);
        if let (Some(Attach::Fexit), Some(programs)) = (begins, spec.kind.programs().filter(|p| p.has_sessions())) {
            let heading = "after the function, no session yet";
            self.push(&[Step::Block(Role::Saves, heading), Step::Meta(programs.meta(None, true))]);
        }
        for n in called(spec.programs, at) {
            let Program { attach, cookie, .. } = spec.programs[n];
            if let (Attach::Fsession, Some(programs)) = (attach, spec.kind.programs()) {
                let over = at.contains(&Attach::Fexit);
                let meta = programs.meta(Some(session), over);
                // The initial value may be right for the first session.
                if over || session > 0 || meta != programs.meta_at_first() {
                    let heading = if over { "which session, after the function" } else { "which session" };
                    self.push(&[Step::Block(Role::Saves, heading), Step::Meta(meta)]);
                }
                session += 1;
            }
            let detached = target.convention.has_label(KernelLabel::Skip(place));
            if detached {
                self.push(&[
                    Step::Block(Role::Dispatch, ""),
                    Step::KernelLabel(KernelLabel::Skip(place)),
                    Step::Detach,
                ]);
            }
            let decides = attach == Attach::FmodRet;
            let heading = "anything but 0 is the function's result, and it is not called";
            let dispatch = Step::Block(Role::Dispatch, heading);
            if spec.kind.programs().is_some_and(|programs| programs.bracketed()) {
                self.bracketed(n as u8, (place, decides), cookie, target);
                if decides {
                    self.push(&[dispatch, Step::LoadDecision, Step::BranchIfResult]);
                }
            } else {
                self.push(&[Step::Block(Role::Arguments, attach.called_with()), Step::Cookie(cookie)]);
                self.push(&[Step::Arg(0, Value::Context), Step::Arg(1, Value::Cookie)]);
                self.call(target, Callee::Program(n as u8));
                if decides {
                    self.push(&[dispatch]);
                    if stored {
                        self.push(&[Step::SaveDecision]);
                    }
                    self.push(&[Step::BranchIfResult]);
                }
            }
            if detached {
                self.push(&[Step::KernelLabel(KernelLabel::Skipped(place))]);
            }
            place += 1;
        }
        place
    }

    /// Call program `n` between the two functions around it. The one before it may say that it is not called.
    fn bracketed(&mut self, n: u8, (place, decides): (u8, bool), cookie: i64, target: &Target) {
        self.push(&[Step::Block(Role::Arguments, "before a program: (prog, run context)"), Step::Cookie(cookie)]);
        self.push(&[Step::Arg(0, Value::Bracket(n)), Step::Arg(1, Value::Cookie)]);
        self.call(target, Callee::Before(n));
        self.push(&[Step::Block(Role::Dispatch, "0: the program is not called"), Step::KeepStart]);
        self.push(&[Step::BranchIfRefused(place)]);
        self.push(&[Step::Block(Role::Arguments, "the program: (context)"), Step::Arg(0, Value::Context)]);
        self.call(target, Callee::Program(n));
        if decides {
            self.push(&[Step::SaveDecision]);
        }
        let heading = "after the program: (prog, start, run context)";
        self.push(&[Step::Refused(place), Step::Block(Role::Arguments, heading)]);
        self.push(&[Step::Arg(0, Value::BracketAgain(n)), Step::Arg(1, Value::Start), Step::Arg(2, Value::Cookie)]);
        self.call(target, Callee::After(n));
    }

    fn call(&mut self, target: &Target, callee: Callee) {
        self.call_with(target, callee, false);
    }

    fn call_with(&mut self, target: &Target, callee: Callee, stack_args: bool) {
        let realign = target.realign.is_some();
        self.push(&[Step::Block(Role::Call, "")]);
        if realign {
            self.push(&[Step::Realign]);
        }
        if stack_args {
            self.push(&[Step::StackArgs]);
        }
        if callee == Callee::Patchable {
            self.push(&[Step::KernelLabel(KernelLabel::Call)]);
        }
        self.push(&[Step::Call(callee)]);
        if realign {
            self.push(&[Step::Unalign]);
        }
    }
}

/// Refuse a shadow stack kept by handlers if the entry handler does not get `parent_ip`.
///
/// # Errors
/// The profile's callbacks do not get `parent_ip`.
pub fn shadowable(target: &Target) -> Result<()> {
    if target.convention.callback.position(Value::ParentIp).is_some() {
        return Ok(());
    }
    Err(Error::Absent {
        profile: target.convention.profile.to_owned(),
        what: "argument `parent-ip` of callbacks, which an entry handler of --form shadow has to keep".to_owned(),
        valid: "a profile whose callback has `parent-ip`".to_owned(),
    })
}

/// Refuse parameters with which the target cannot record.
fn recordable(recorder: Recorder, target: &Target) -> Result<()> {
    if target.convention.thread.is_none() {
        return Err(Error::Absent {
            profile: target.convention.profile.to_owned(),
            what: format!("thread pointer for {}, by which `record` finds its buffer", target.facts.name),
            valid: format!("one with `thread` in [arch.{}]", target.facts.name),
        });
    }
    if recorder.clock.of_cpu() && target.facts.clock.0.is_empty() {
        let (arch, clock) = (target.facts.name, recorder.clock.name());
        return Err(Error::new(format!(
            "record --clock {clock}: {arch} has no clock that code may read; valid: --clock none or word"
        )));
    }
    if recorder.unwind {
        lsda::possible(recorder)?;
    }
    recorder.fits_form()
}
