//! Requests for `around`, and alternatives that an error suggests if a request cannot be met.

use codegen::ask::place::{Place, Placement, Returned};
use codegen::ask::spec::{Around, Form, Kind};
use codegen::plan::shadowable;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use codegen::words::proto::Prototype;

use super::asked::{Asked, PROGRAMS};
use super::proof::Proof;

/// A value that a form cannot preserve.
#[derive(Clone, Copy)]
enum Lost {
    /// An argument on the stack.
    Stack,
    /// A value in a vector register.
    Vector,
}

/// The traced function, where its prototype is known.
struct Traced<'t> {
    proto: Prototype,
    placement: Placement,
    proof: Option<&'t Proof>,
    target: &'t Target,
}

impl<'t> Traced<'t> {
    fn of(sig: &str, proof: Option<&'t Proof>, target: &'t Target) -> Result<Traced<'t>> {
        let proto = Prototype::parse(sig)?;
        let placement = target.place(&proto)?;
        Ok(Traced { proto, placement, proof, target })
    }

    /// Are vector registers preserved, or not touched by any handler?
    fn keeps_vectors(&self) -> bool {
        self.target.saves_vectors || Proof::holds(self.proof)
    }

    /// The first argument, or the result, that this form cannot preserve. `vectors`: values in vector registers are safe.
    fn lost(&self, form: Form, vectors: bool) -> Option<(Option<usize>, Lost)> {
        let result = match &self.placement.returned {
            Returned::Registers(pieces) => pieces.as_slice(),
            Returned::Nothing | Returned::Memory => &[],
        };
        let args = self.placement.args.iter().enumerate().map(|(n, pieces)| (Some(n), pieces.as_slice()));
        args.chain([(None, result)]).find_map(|(arg, pieces)| {
            let lost = pieces.iter().find_map(|piece| match piece.place {
                Place::Stack(_) if form != Form::Shadow => Some(Lost::Stack),
                Place::Vector(_) if !vectors => Some(Lost::Vector),
                Place::Stack(_) | Place::Vector(_) | Place::Reg(_) => None,
            })?;
            Some((arg, lost))
        })
    }

    fn takes(&self, form: Form) -> bool {
        self.lost(form, self.keeps_vectors()).is_none()
    }

    /// Can `programs` be attached to the function?
    fn takes_programs(&self) -> bool {
        let live = self.target.live_where_guarded(self.target.convention.site.live);
        let abi = &self.target.facts.abi;
        self.placement.programs(&self.proto, abi, live, Proof::holds(self.proof)).is_ok()
    }

    /// Refuse a function with values that `form` cannot preserve; every alternative in the message would be accepted.
    fn check(&self, form: Form) -> Result<()> {
        let Some((arg, lost)) = self.lost(form, self.keeps_vectors()) else { return Ok(()) };
        let programs = self.takes_programs();
        let (what, instead) = match lost {
            Lost::Stack => {
                let shadow = self.takes(Form::Shadow) && available(Form::Shadow, self.target).is_ok();
                let shadow = shadow.then(|| "--form shadow, which leaves it in place".to_owned());
                let programs = programs.then(|| format!("`{PROGRAMS}`, which copies it"));
                ("an argument on the stack, which the frame displaces".to_owned(), [shadow, programs])
            }
            Lost::Vector => {
                let found = match self.proof {
                    Some(Proof::Fails(why)) => format!(" ({why})"),
                    _ => String::new(),
                };
                let proof = "--handler with an object of both handlers that touches no vector register";
                let proof = self.lost(form, true).is_none().then(|| proof.to_owned());
                let programs = programs.then(|| format!("`{PROGRAMS}`, which keeps it"));
                (format!("a value in a vector register, which the handlers may overwrite{found}"), [programs, proof])
            }
        };
        let instead: Vec<String> = instead.into_iter().flatten().collect();
        let none = "arguments and a result in general registers".to_owned();
        let valid = if instead.is_empty() { none } else { instead.join(", or ") };
        Err(self.proto.refuse(arg, &format!("{what}; valid: {valid}")))
    }
}

/// Check that the target has trampolines of this form.
fn available(form: Form, target: &Target) -> Result<()> {
    if form == Form::Shadow {
        shadowable(target)?;
    }
    target.frame(of_form(form)).map(drop)
}

/// The kind of a trampoline of this form, for any function.
pub(crate) fn of_form(form: Form) -> Kind {
    Kind::Around(Around { form, args: 0, general_handlers: false })
}

/// The error for a form that is not available, with the alternatives that would be accepted.
fn unavailable(form: Form, why: Error, traced: Option<&Traced>, target: &Target) -> Error {
    let Error::Absent { profile, what, valid } = why else { return why };
    let takes = |form| traced.is_none_or(|traced| traced.takes(form));
    let mut instead: Vec<String> = takes(form).then(|| valid.clone()).into_iter().collect();
    // Without a prototype, --form frame wants --args.
    let others = Form::ALL.into_iter().filter(|other| *other != form && (*other != Form::Frame || traced.is_some()));
    let others = others.filter(|other| takes(*other) && available(*other, target).is_ok());
    instead.extend(others.map(|other| format!("--form {}", other.name())));
    instead.extend(traced.is_some_and(Traced::takes_programs).then(|| format!("`{PROGRAMS}`")));
    // Without an alternative, the message gives the reason for unavailability, and then the values that the form cannot preserve.
    let valid = if instead.is_empty() { valid } else { instead.join(", or ") };
    Error::Absent { profile, what, valid }
}

/// The parameters of a paired trampoline: its form, and its number of arguments.
pub(crate) fn paired(args: &Asked, proof: Option<&Proof>, target: &Target) -> Result<Around> {
    let form = args.form.unwrap_or(Form::Frame);
    let most = target.facts.abi.args.len() as u8;
    let general_handlers = Proof::holds(proof);
    let traced = args.sig.as_ref().map(|sig| Traced::of(sig, proof, target).map_err(|e| e.at("--sig"))).transpose()?;
    available(form, target).map_err(|e| unavailable(form, e, traced.as_ref(), target))?;
    if let Some(traced) = &traced {
        traced.check(form).map_err(|e| e.at("--sig"))?;
    }
    let live = |traced: &Traced| {
        traced.placement.direct(&target.facts.abi, target.convention.site.live, general_handlers).args
    };
    match form {
        // `missing` has checked that one of both is given.
        Form::Frame => {
            let args = args.args.or(traced.as_ref().map(live)).unwrap_or(0);
            Ok(Around { form, args, general_handlers })
        }
        _ if args.args.is_some() => Err(Error::new(format!(
            "around: --args is not for --form {}, which keeps all; valid: without --args",
            form.name()
        ))),
        _ => Ok(Around { form, args: most, general_handlers }),
    }
}
