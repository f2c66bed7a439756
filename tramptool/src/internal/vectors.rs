//! Analysis of an object's code: does it touch vector registers?

use std::path::Path;

use codegen::arch::machine::{Goes, Machine};
use codegen::ask::kind::Kind;
use codegen::backend::Backend;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use codegen::words::input;
use emu_tests::disassemble;
use link::Input;
use object::elf::{STT_GNU_IFUNC, STT_SECTION, STV_DEFAULT};
use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{
    Object, ObjectKind, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionKind, SymbolIndex,
};

use super::proof::Proof;

/// Try to prove that all these functions of the object at `path` leave vector registers alone. `form` is the kind of
/// trampoline that calls them; `None` stands for any.
///
/// # Errors
/// The object cannot be read, or as [`general_registers_only`].
pub(crate) fn all_general(path: &Path, callees: &[&str], form: Option<Kind>, target: &Target) -> Result<Proof> {
    let backend = super::backend(target.facts.name)?;
    let name = path.display().to_string();
    let bytes =
        input::bytes(path).map_err(|e| Error::new(format!("cannot read {name}: {e}; valid: an object file")))?;
    let input = Input { name: &name, bytes: &bytes };
    for callee in callees {
        if let fails @ Proof::Fails(_) = general_registers_only(backend, target, form, &input, callee)? {
            return Ok(fails);
        }
    }
    Ok(Proof::Holds)
}

/// Try to prove that no code that `symbol` of this object may run touches a vector register. All code of the object
/// counts. Calls to other objects, through pointers, or to definitions that the link may replace prevent a proof.
///
/// # Errors
/// A file that is no object for `target`, without `symbol`, or with code that may not run on the stack it will have.
pub fn general_registers_only(
    backend: &dyn Backend,
    target: &Target,
    form: Option<Kind>,
    input: &Input,
    symbol: &str,
) -> Result<Proof> {
    let machine = backend.machine();
    let object = read(machine, target, input)?;
    let file = &object.0;
    let functions = || file.symbols().filter(|s| s.is_definition() && object.is_code(s));
    let Some(handler) = functions().find(|s| s.name() == Ok(symbol) && !s.is_local()) else {
        let names = functions().filter(|s| !s.is_local()).filter_map(|s| s.name().ok()).collect::<Vec<_>>();
        return Err(Error::unknown(&format!("handler in {}", input.name), symbol, names));
    };
    let Found { vector, unknown } = object.code(machine)?;
    if let Some(what) = &vector
        && target.stack_align < target.facts.abi.sp_align
    {
        return Err(Error::new(format!(
            "{}: {what}, and the stack is aligned to {} bytes only; valid: {}a handler compiled for general registers only",
            input.name,
            target.stack_align,
            aligning(backend, target, form).map_or(String::new(), |set| format!("{set}, or "))
        )));
    }
    let weak = handler.is_weak().then(|| format!("{symbol} is weak: the link may take another definition"));
    Ok(match vector.or(weak).or(unknown) {
        None => Proof::Holds,
        Some(why) => Proof::Fails(format!("{}: {why}", input.name)),
    })
}

/// The option, as `name=value`, that aligns the stack as the psABI requires, if trampolines of this form exist with it.
fn aligning(backend: &dyn Backend, target: &Target, form: Option<Kind>) -> Option<String> {
    target.convention.offered().find_map(|(rule, option)| {
        let aligns = |value: &usize| {
            let other = backend.target(target.convention, target.choices.with(rule.index, *value));
            other.is_ok_and(|t| t.stack_align >= t.facts.abi.sp_align && form.is_none_or(|kind| t.frame(kind).is_ok()))
        };
        let value = (0..option.values.len()).find(aligns)?;
        Some(format!("{}={}", option.name, option.values.get(value)?))
    })
}

fn read<'a>(machine: &Machine, target: &Target, input: &Input<'a>) -> Result<Code<'a>> {
    let what = || format!("valid: an object for {}", target.facts.name);
    let file = ElfFile64::parse(input.bytes).map_err(|e| Error::new(format!("{}: {e}; {}", input.name, what())))?;
    if file.kind() != ObjectKind::Relocatable
        || file.elf_header().e_machine.get(file.endian()).0 != target.facts.machine
    {
        return Err(Error::new(format!("{}: no object for {}; {}", input.name, target.facts.name, what())));
    }
    if (file.elf_header().e_flags.get(file.endian()).0 ^ target.e_flags) & machine.e_flags_abi != 0 {
        return Err(Error::new(format!(
            "{}: compiled for another float ABI than {}; valid: an object for these options",
            input.name,
            target.describe()
        )));
    }
    Ok(Code(file))
}

/// The findings in code, as reasons against a proof.
#[derive(Default)]
struct Found {
    /// An instruction that uses vector registers.
    vector: Option<String>,
    /// A call or jump to unknown code, or bytes that are no instructions.
    unknown: Option<String>,
}

/// An object, for its code.
struct Code<'a>(ElfFile64<'a>);

impl<'a> Code<'a> {
    fn is_code(&self, symbol: &ElfSymbol64<'a, '_>) -> bool {
        let section = symbol.section_index().and_then(|i| self.0.section_by_index(i).ok());
        section.is_some_and(|s| s.kind() == SectionKind::Text)
    }

    fn code(&self, machine: &'static Machine) -> Result<Found> {
        let mut found = Found::default();
        for section in self.0.sections().filter(|s| s.kind() == SectionKind::Text) {
            let damaged =
                |e| Error::new(format!("{}: {e}; valid: a whole object", section.name().unwrap_or("a section")));
            let bytes = section.data().map_err(damaged)?;
            let lines = disassemble(machine, bytes, 0)?;
            let mut refers: Vec<(u64, u32, SymbolIndex)> = section.relocations().filter_map(symbolic).collect();
            refers.sort_unstable_by_key(|(at, ..)| *at);
            let mut refers = refers.into_iter().peekable();
            let end = lines.last().map_or(0, |l| l.offset + l.size);
            let mut called = false;
            for line in lines {
                let (mnemonic, operands) = line.text.split_once(' ').unwrap_or((&line.text, ""));
                let operands = operands.trim_start();
                let place = || format!("`{mnemonic} {operands}` at {}", self.place(&section, line.offset as u64));
                if (machine.is_vector)(mnemonic, operands) && found.vector.is_none() {
                    found.vector = Some(format!("{} uses a vector register", place()));
                }
                let goes = (machine.goes)(mnemonic, operands);
                // The second instruction of a call: its target is in the first one's relocation.
                let told = std::mem::take(&mut called);
                if goes == Goes::Anywhere && !told && found.unknown.is_none() {
                    found.unknown = Some(format!("{} goes where a register or memory says", place()));
                }
                while let Some((_, kind, symbol)) = refers.next_if(|(at, ..)| *at < (line.offset + line.size) as u64) {
                    let calls = machine.calls.iter().any(|(known, ..)| *known == kind);
                    called |= calls && goes == Goes::On;
                    if (calls || goes == Goes::To)
                        && found.unknown.is_none()
                        && let Some((name, why)) = self.elsewhere(symbol)
                    {
                        found.unknown = Some(format!("{} goes to `{name}`, which {why}", place()));
                    }
                }
            }
            if end != bytes.len() && found.unknown.is_none() {
                found.unknown = Some(format!("there is no instruction at {}", self.place(&section, end as u64)));
            }
        }
        Ok(found)
    }

    /// The name of a symbol that may be other code than that of this object, and why.
    fn elsewhere(&self, symbol: SymbolIndex) -> Option<(String, &'static str)> {
        let Ok(symbol) = self.0.symbol_by_index(symbol) else {
            return Some(("a symbol".to_owned(), "the object does not have"));
        };
        let why = if symbol.is_undefined() {
            "is not in this object"
        } else if symbol.is_weak() {
            "is weak: the link may take another definition; valid: a function that is not"
        } else if symbol.elf_symbol().st_type() == STT_GNU_IFUNC {
            "is chosen at run time"
        } else if !symbol.is_local() && symbol.elf_symbol().st_visibility() == STV_DEFAULT {
            "another definition may replace if this becomes part of a shared object; valid: a function that is static, or \
             of hidden visibility"
        } else if !self.is_code(&symbol) {
            "is no code"
        } else {
            return None;
        };
        Some((symbol.name().unwrap_or("a symbol").to_owned(), why))
    }

    /// A function or label, and the bytes behind its start; the section where there is none.
    fn place(&self, section: &impl ObjectSection<'a>, offset: u64) -> String {
        // Skip labels that assemblers make.
        let named = |s: &ElfSymbol64| s.name().is_ok_and(|name| !name.is_empty() && !name.starts_with(['.', '$']));
        let here =
            |s: &ElfSymbol64| s.section_index() == Some(section.index()) && s.elf_symbol().st_type() != STT_SECTION;
        let named = self.0.symbols().filter(|s| here(s) && named(s));
        let before = named.filter(|s| s.address() <= offset).max_by_key(|s| s.address());
        let (name, start) = match &before {
            Some(s) => (s.name(), s.address()),
            None => (section.name(), 0),
        };
        format!("{}+{:#x}", name.unwrap_or("?"), offset - start)
    }
}

/// The offset of a relocation, its type, and the symbol to which it refers.
fn symbolic((at, relocation): (u64, object::Relocation)) -> Option<(u64, u32, SymbolIndex)> {
    match (relocation.flags(), relocation.target()) {
        (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(symbol)) => Some((at, r_type.0, symbol)),
        _ => None,
    }
}
