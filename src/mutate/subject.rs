//! Trampolines into which faults are put, and the mutants that there are of them.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use codegen::ask::spec::Kind;
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::mutate::Mutant;
use codegen::out::obj;
use codegen::profile::Convention;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use codegen::words::shell::shell;
use emu_tests::{Chosen, Clause, Emulator, Filter, Observed, Progress, Row, Source, Suite, Verdict, disassemble};
use link::Input;
use link::object_mutants::Function;

use super::bugs::{Bug, Known};
use crate::{settings, suite};

/// Trampolines into which faults are put.
pub struct MutationSubject {
    /// Without a fault.
    pub(super) suite: Suite,
    /// Where they come from.
    origin: Origin,
    /// What each leaves to those to whom it goes on, once it is asked for.
    left: Vec<OnceLock<Vec<u64>>>,
    /// The arguments that choose them.
    pub(super) chosen: Chosen,
}

enum Origin {
    /// They are generated for a target.
    Generated(Box<Target>, Vec<(String, Kind)>, Vec<Alone>),
    /// Somebody else wrote them. What the judge knows of the code of each.
    Objects(Vec<Code>),
}

/// A suite with one trampoline, once it is needed; none if that does not hold without the others.
type Alone = OnceLock<Option<Suite>>;

/// The code of a trampoline that somebody else wrote.
struct Code {
    /// Offsets of what the judge never executes.
    missed: Vec<u64>,
    /// Instructions of other symbols that it jumps to, as symbol+offset: those that the judge executes.
    elsewhere: Vec<String>,
    /// Those that it does not.
    missed_elsewhere: Vec<String>,
}

impl MutationSubject {
    /// Everything that `backend` has with these options and numbers.
    ///
    /// # Errors
    /// What generation refuses.
    pub fn new(
        backend: &'static dyn Backend,
        convention: &'static Convention,
        settings: &[(&str, &str)],
    ) -> Result<MutationSubject> {
        let target = settings::target(backend, convention, settings)?;
        let suite = suite::suite(backend, &target)?;
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let source = Source::Generated { arch: backend.facts().name, settings };
        let chosen = Chosen { profile: convention.argument, source };
        let trampolines = suite::trampolines(&target)?;
        let alone = trampolines.iter().map(|_| Alone::new()).collect();
        let left = vec![OnceLock::new(); suite.contracts.len()];
        Ok(MutationSubject { suite, origin: Origin::Generated(Box::new(target), trampolines, alone), left, chosen })
    }

    /// The same, run by this engine.
    pub fn run_by(mut self, engine: Emulator) -> MutationSubject {
        self.suite.engine = engine;
        self
    }

    /// Where a bug is rebuilt.
    ///
    /// # Errors
    /// The table of bugs is out of date.
    pub fn of_bug(bug: &Bug) -> Result<MutationSubject> {
        let settings = bug.set.iter().map(|s| settings::setting(s)).collect::<Result<Vec<_>>>()?;
        let backend = crate::backend(&bug.arch)?;
        let convention = crate::profile(&bug.profile)?.convention(backend.facts().name)?;
        MutationSubject::new(backend, convention, &settings)
    }

    /// The trampolines of objects. They are judged as they are first: what is wrong already would be noticed with any
    /// fault.
    ///
    /// # Errors
    /// A clause of their contract fails or is not decided, or they cannot be judged.
    pub fn objects(suite: Suite, seed: u64, progress: Progress) -> Result<MutationSubject> {
        let chosen = suite.chosen.clone();
        let suites = [suite];
        let report = emu_tests::check(&suites, &Filter::default(), seed, progress)?;
        let [suite] = suites;
        if let Some(Row { trampoline, reason, .. }) = report.results.iter().find(|row| row.verdict == Verdict::Open) {
            return Err(Error::new(format!("{trampoline} is not decided: {reason}")));
        }
        let covers = |row: &&Row| row.clause == Clause::Coverage;
        if let Some(row) = report.results.iter().find(|row| row.verdict == Verdict::Fail && !covers(row)) {
            let (trampoline, clause) = (&row.trampoline, row.clause);
            let check = shell(
                &[&["tramptool".to_owned(), "check".to_owned(), trampoline.clone()][..], &chosen.words()].concat(),
            );
            return Err(Error::new(format!(
                "{trampoline} fails {clause} without a fault; see `{check}`, and mend it \
                 or add a deviation to the contract"
            )));
        }
        let code = |row: &Row| {
            let Row { missed, elsewhere, missed_elsewhere, .. } = row.clone();
            let elsewhere = elsewhere.into_iter().filter(|at| !missed_elsewhere.contains(at)).collect();
            Code { missed, elsewhere, missed_elsewhere }
        };
        let code = report.results.iter().filter(covers).map(code).collect();
        let left = vec![OnceLock::new(); suite.contracts.len()];
        Ok(MutationSubject { suite, origin: Origin::Objects(code), left, chosen })
    }

    /// The architecture.
    pub fn arch(&self) -> &'static str {
        self.suite.backend.facts().name
    }

    /// The name of the objects' contract; empty for what is generated.
    pub(super) fn contract(&self) -> &str {
        self.chosen.contract().unwrap_or_default()
    }

    /// The names of its trampolines.
    pub fn trampolines(&self) -> impl Iterator<Item = &str> + Clone {
        self.suite.contracts.iter().map(|contract| contract.name.as_str())
    }

    /// Instructions that the judge never executes, as trampoline and offset. They have no mutants.
    pub fn missed(&self) -> Vec<String> {
        let Origin::Objects(code) = &self.origin else { return Vec::new() };
        let each = |(name, code): (&str, &Code)| -> Vec<String> {
            let own = code.missed.iter().map(|offset| format!("{name}+{offset:#x}"));
            own.chain(code.missed_elsewhere.iter().cloned()).map(|at| format!("{} {at}", self.arch())).collect()
        };
        self.trampolines().zip(code).flat_map(each).collect()
    }

    /// All mutants of the trampolines for which `wanted` holds.
    ///
    /// # Errors
    /// What generation refuses.
    pub fn mutants(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Candidate<'_>>> {
        let mut all = Vec::new();
        for (which, name) in self.trampolines().enumerate().filter(|(_, name)| wanted(name)) {
            let found = match &self.origin {
                Origin::Generated(target, trampolines, _) => {
                    let spec = &suite::specs(trampolines)[which];
                    vec![(0, self.suite.backend.mutants(spec, target)?)]
                }
                Origin::Objects(code) => self.in_place(which, name, &code[which])?,
            };
            for (object, mutants) in found {
                all.extend(mutants.into_iter().map(|mutant| Candidate {
                    subject: self,
                    which,
                    object,
                    mutant,
                    bug: None,
                }));
            }
        }
        Ok(all)
    }

    /// The mutants of one trampoline of an object, with the number of the object.
    fn in_place(&self, which: usize, name: &str, code: &Code) -> Result<Vec<(usize, Vec<Mutant>)>> {
        let own = |offset: usize| !code.missed.contains(&(offset as u64));
        let mut all: Vec<_> = self.of_symbol(which, name, &own)?.into_iter().collect();
        let symbols = code.elsewhere.iter().filter_map(|at| Some(at.rsplit_once('+')?.0));
        for symbol in symbols.collect::<BTreeSet<_>>() {
            let reached = |offset: usize| code.elsewhere.contains(&format!("{symbol}+{offset:#x}"));
            if let Some((object, mut mutants)) = self.of_symbol(which, symbol, &reached)? {
                mutants.iter_mut().for_each(|mutant| symbol.clone_into(&mut mutant.symbol));
                all.push((object, mutants));
            }
        }
        Ok(all)
    }

    /// The mutants of a symbol's instructions at the offsets for which `wanted` holds, with the number of its object.
    fn of_symbol(
        &self,
        which: usize,
        name: &str,
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Option<(usize, Vec<Mutant>)>> {
        let Suite { backend, objects, contracts, slots, .. } = &self.suite;
        for (i, (object, bytes)) in objects.iter().enumerate() {
            let Some(function) = Function::find(&Input { name: object, bytes }, name)? else { continue };
            // What the kernel writes to a call slot hides what is there.
            let slot = |offset| function.labels.iter().any(|(label, at)| *at == offset && slots.contains(label));
            let skip = |offset: usize| slot(offset) || !wanted(offset);
            let decode = |code: &[u8], offset| disassemble(backend.machine(), code, offset);
            return Ok(Some((i, function.mutants(backend.patterns(), &contracts[which], &decode, &skip)?)));
        }
        Ok(None)
    }

    /// The mutants that are this bug.
    ///
    /// # Errors
    /// There is none: the table of bugs is out of date.
    pub fn rebuilt(&self, bug: &'static Bug) -> Result<Vec<Candidate<'_>>> {
        let mut candidates = self.mutants(|name| name == bug.trampoline)?;
        candidates.retain(|c| bug.is(&c.mutant));
        if candidates.is_empty() {
            return Err(Error::new(format!(
                "src/mutants.toml: bug {}: {} has no mutant {}; see `tramptool mutate {} --arch {}`",
                bug.id, bug.trampoline, bug.operator, bug.trampoline, bug.arch
            )));
        }
        candidates.iter_mut().for_each(|c| c.bug = Some(bug));
        Ok(candidates)
    }
}

/// A mutant that may be run.
pub struct Candidate<'s> {
    pub(super) subject: &'s MutationSubject,
    which: usize,
    /// The number of the object that has the fault.
    pub(super) object: usize,
    /// The fault.
    pub mutant: Mutant,
    /// The bug of the corpus that it rebuilds. Then every case is run, and its property must be among those that fail.
    pub bug: Option<&'static Bug>,
}

impl Candidate<'_> {
    /// The architecture.
    pub fn arch(&self) -> &'static str {
        self.subject.arch()
    }

    /// The trampoline with the fault.
    pub fn trampoline(&self) -> &str {
        &self.contract().name
    }

    pub(super) fn contract(&self) -> &Contract {
        &self.subject.suite.contracts[self.which]
    }

    /// Is it this one, of which something is known?
    pub fn is(&self, known: &Known) -> bool {
        known.describes(self.arch(), self.subject.contract(), self.trampoline(), &self.mutant)
    }

    /// What the symbolic checker finds wrong, by the names of its properties.
    pub(super) fn properties(&self) -> Result<Vec<&'static str>> {
        let MutationSubject { suite, origin, .. } = self.subject;
        let Origin::Generated(target, trampolines, _) = origin else {
            return Err(Error::new(
                "what others wrote has no listing for the symbolic checker; valid: without --by, or without files",
            ));
        };
        let specs = suite::specs(trampolines);
        let mut names: Vec<&'static str> = suite
            .backend
            .verify(&specs[self.which], target, Some(&self.mutant))?
            .iter()
            .map(|fault| fault.property.name())
            .collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Where the trampoline is without a fault.
    pub(super) fn place(&self) -> (usize, usize) {
        (std::ptr::from_ref(self.subject) as usize, self.which)
    }

    /// What it does without a fault.
    pub(super) fn original(&self) -> Result<Observed> {
        self.observed(&self.subject.suite.objects[self.object].1)
    }

    /// What the trampoline of an object does.
    pub(super) fn observed(&self, bytes: &[u8]) -> Result<Observed> {
        let suite = &self.subject.suite;
        let object = Input { name: &suite.objects[self.object].0, bytes };
        emu_tests::observe(&object, Some(self.trampoline()), crate::BACKENDS, suite.convention.orc)
    }

    /// Is the object the same with the fault?
    pub(super) fn is_unchanged(&self) -> Result<bool> {
        Ok(self.faulty()? == self.subject.suite.objects[self.object].1)
    }

    /// The object with the fault.
    pub(super) fn faulty(&self) -> Result<Vec<u8>> {
        let MutationSubject { suite, origin, .. } = self.subject;
        if let Origin::Generated(target, trampolines, _) = origin {
            let specs = suite::specs(trampolines);
            return obj::write(&suite.backend.assemble_mutant(&specs, target, self.which, &self.mutant)?, target);
        }
        let mut bytes = suite.objects[self.object].1.clone();
        for (at, new) in &self.mutant.patch {
            bytes[*at..at + new.len()].copy_from_slice(new);
        }
        Ok(bytes)
    }

    /// The suite with the fault in it.
    pub(super) fn suite(&self) -> Result<Suite> {
        let mut faulty = self.subject.suite.clone();
        faulty.objects[self.object].1 = self.faulty()?;
        Ok(faulty)
    }

    /// What the trampoline leaves to others without the fault, by `left`.
    pub(super) fn left(&self, left: impl FnOnce(&Suite) -> Result<Vec<u64>>) -> Result<&[u64]> {
        let MutationSubject { suite, left: known, .. } = self.subject;
        let known = &known[self.which];
        if known.get().is_none() {
            let _ = known.set(left(suite)?);
        }
        Ok(known.get().map(Vec::as_slice).unwrap_or_default())
    }

    /// The suite with this trampoline alone, and the fault in it; none of what others wrote, and none if the trampoline without
    /// the fault does not hold alone.
    pub(super) fn alone(&self, holds: impl Fn(&Suite) -> bool) -> Result<Option<Suite>> {
        let MutationSubject { suite: Suite { backend, engine, .. }, origin, .. } = self.subject;
        let Origin::Generated(target, trampolines, alone) = origin else { return Ok(None) };
        let only = &trampolines[self.which..=self.which];
        let whole = || Some(Suite { engine: *engine, ..suite::suite_of(*backend, target, only).ok()? });
        let whole = alone[self.which].get_or_init(|| whole().filter(&holds));
        let Some(mut faulty) = whole.clone() else { return Ok(None) };
        let assembly = backend.assemble_mutant(&suite::specs(only), target, 0, &self.mutant)?;
        faulty.objects[0].1 = obj::write(&assembly, target)?;
        Ok(Some(faulty))
    }
}
