//! Assembly of which no contract says anything, held against what C relies on.
//!
//! A function that C calls keeps C's convention, whoever wrote it. It is run from many states, with callees that change all that
//! they may, and looked at in each instruction.

mod asked;
mod claim;
mod compilers;
mod function;
mod habits;
mod look;
mod machine;
mod members;
mod never;
mod siblings;
mod state;

use std::collections::BTreeMap;

use codegen::backend::Backend;
use codegen::words::error::Result;
use link::Input;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

pub use self::asked::{Asked, Only};
pub use self::claim::{Claim, Confidence, Kind, Tier};
pub use self::function::Judged;
use self::members::Members;
pub use self::members::{Boundary, Marked};
pub use self::siblings::siblings;

/// What came of an audit.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Audited {
    /// The architecture.
    pub arch: &'static str,
    /// What ran the code, with its version.
    pub engine: String,
    /// Objects with code.
    pub objects: usize,
    /// Those that a person wrote, by the signs of it.
    pub by_hand: BTreeMap<&'static str, usize>,
    /// Shared libraries: of what they export, nobody knows who wrote it.
    pub libraries: usize,
    /// Those of compilers whose functions keep a convention of their own: none was judged.
    pub of_others: usize,
    /// Most look so: another compiler has made them, and none was judged.
    pub other_compiler: bool,
    /// The functions that were to be judged.
    pub functions: Vec<Judged>,
    /// Functions of libraries whose unwind rows are wrong where they end, as their compiler has them: nothing is claimed of that.
    pub wrong_ends: usize,
    /// Functions that are none of C's business: only assembly refers to them.
    pub private: usize,
    /// Functions of which only the address is taken: they may have a convention of their own.
    pub address_taken: usize,
    /// Objects that do not link, with the reason.
    pub unlinked: Vec<(String, String)>,
    /// What objects say of their protection.
    pub marks: Vec<Marked>,
}

/// Judge the functions that C calls in these objects, which are one archive's.
///
/// # Errors
/// An object is damaged, or no engine can be made.
pub fn audit(objects: &[Input], backend: &'static dyn Backend, asked: &Asked) -> Result<Audited> {
    let members = Members::of(objects, backend, asked)?;
    let judge = |(image, function): &(usize, members::Function)| {
        function::judged(backend, &members.images[*image], function, asked)
    };
    let mut functions = members.functions.par_iter().map(judge).collect::<Result<Vec<Judged>>>()?;
    siblings::beside(&mut functions);
    let wrong_ends = compilers::without_ends(&mut functions);
    Ok(Audited {
        arch: backend.facts().name,
        engine: asked.engine.version(backend)?,
        objects: members.objects,
        by_hand: members.by_hand,
        libraries: members.libraries,
        of_others: members.of_others,
        other_compiler: members.other_compiler,
        functions,
        wrong_ends,
        private: members.private,
        address_taken: members.address_taken,
        unlinked: members.unlinked,
        marks: members.marks,
    })
}
