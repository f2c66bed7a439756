//! Prototypes of a file's functions, from its debug information.

use std::collections::BTreeSet;
use std::path::PathBuf;

use codegen::arch::patch::Patch;
use codegen::profile::target::Target;
use codegen::words::error::Result;
use codegen::words::input;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, elf};

use crate::debug_info::{DAMAGED, DebugInfo, NONE};
use crate::function::Function;
use crate::object::Object;
use crate::signature::Signature;

/// Why nothing is known of a function, for people.
type Why = &'static str;

const COMPRESSED: Why = "its debug information is compressed: link with -Wl,--compress-debug-sections=none";
const CONVENTION: Why = "compiled for another calling convention";
const CLONE: Why = "a copy of a function, whose parameters the compiler may have changed";

/// The directories where Debian and others install debug information, by build ID.
const INSTALLED: &str = "/usr/lib/debug/.build-id";

/// Give each function of an object its signature, or say why that is not known.
///
/// # Errors
/// Nothing is known of how functions of this machine are called.
pub fn read(object: &mut Object, backend: &dyn Patch) -> Result<()> {
    let name = backend.facts().name;
    let backend = arch::backend(name)?;
    let convention = tramptool::internal::profile(profiles::USER)?.convention(name)?;
    let target = backend.target(convention, convention.defaults())?;
    let files = [Some(object.path.clone()), installed(&object.build_id)];
    let mut why = NONE;
    for path in files.into_iter().flatten() {
        let Ok(bytes) = input::bytes(&path) else { continue };
        match sign(object, &bytes, &target) {
            Ok(()) => return Ok(()),
            // A file that is not there has nothing to say.
            Err(found) => why = if why == NONE { found } else { why },
        }
    }
    object.functions.iter_mut().for_each(|function| function.signature = Some(Signature::none(why)));
    Ok(())
}

fn installed(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    Some(PathBuf::from(format!("{INSTALLED}/{first}/{rest}.debug")))
}

fn sign(object: &mut Object, bytes: &[u8], target: &Target) -> std::result::Result<(), Why> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).map_err(|_| DAMAGED)?;
    let endian = header.endian().map_err(|_| DAMAGED)?;
    let flags = target.facts.e_flags.adds_up;
    if header.e_flags(endian).0 & !flags != target.e_flags & !flags {
        return Err(CONVENTION);
    }
    let sections = header.sections(endian, bytes).map_err(|_| DAMAGED)?;
    let section = |name: &str| sections.section_by_name(endian, name.as_bytes()).map(|(_, section)| section);
    let information = section(gimli::SectionId::DebugInfo.name()).ok_or(NONE)?;
    if information.sh_flags(endian).contains(elf::SHF_COMPRESSED) {
        return Err(COMPRESSED);
    }
    let contents = |name: &str| section(name).and_then(|s| s.data(endian, bytes).ok()).unwrap_or_default();
    let information = DebugInfo::new(contents)?;
    let starts: BTreeSet<u64> = object.functions.iter().map(|function| function.address).collect();
    // GCC 12 for some architectures says that a function begins behind the room that it has left.
    let behind = |function: &Function| function.site.wrapping_add(function.bytes.len() as u64);
    let wanted: BTreeSet<u64> = starts.iter().copied().chain(object.functions.iter().map(behind)).collect();
    let known = information.functions(&wanted);
    for function in &mut object.functions {
        let behind = Some(behind(function)).filter(|at| function.entries.is_empty() && !starts.contains(at));
        let found = known.get(&function.address).or_else(|| known.get(&behind?));
        let signature = match found {
            _ if function.name.contains('.') => Signature::none(CLONE),
            None => Signature::none(information.absent()),
            Some(Err(why)) => Signature::none(why),
            Some(Ok(declared)) => Signature::new(declared, target),
        };
        function.signature = Some(signature);
    }
    Ok(())
}
