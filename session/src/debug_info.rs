//! The arguments and results of functions, by debug information (DWARF).

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use codegen::words::proto::{Class, Scalar, Struct, Type};
use gimli::{Attribute, AttributeValue, DwAt, DwLang, Dwarf, EndianSlice, LittleEndian, UnitOffset};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;
/// Why something is not known, for people.
type Why = &'static str;

/// There is nothing of a function.
pub const NONE: Why = "no debug information: compile with -g";
const SPLIT: Why = "its debug information is in another file: compile without -gsplit-dwarf";
/// It makes no sense.
pub const DAMAGED: Why = "its debug information is damaged";
const ELSEWHERE: Why = "a part of its debug information is in another file";
const LANGUAGE: Why = "not a function of C or C++";
const UNDECLARED: Why = "defined without a prototype";
const CHANGED: Why = "the compiler may have changed its parameters";
const TWO: Why = "debug information has two prototypes for it";
const STRANGE: Why = "of a type that is not read";
const STRUCT: Why = "a structure by value";
const FLOAT: Why = "a floating-point number";
const WIDE: Why = "a number of 16 bytes";

/// A longer chain of types, or of entries for one function, is no program's.
const DEEPEST: usize = 32;
/// The largest structure that a call may pass in registers, in bytes; the largest result.
const LARGEST: u64 = 16;
/// The largest vector register, in bytes.
const VECTOR: u64 = 64;
/// How often each byte is read at most, on average: once to find functions, and some times for their types.
const AGAIN: usize = 32;
/// Bytes of an entry without its children.
const ENTRY: usize = 16;
/// Members of a structure of that size.
const MOST_MEMBERS: usize = 16;

/// The kind of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number with a sign.
    Signed,
    /// An unsigned number.
    Unsigned,
    /// An address.
    Pointer,
    /// 0 or 1.
    Boolean,
}

/// A number in the low bytes of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// The size in bytes; the bits above may have any value.
    pub bytes: u8,
    /// The kind.
    pub kind: Kind,
}

/// A value as a call passes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// For the calling convention.
    pub passed: Type,
    /// The way to read it, or the reason why that is not possible.
    pub number: Result<Number, Why>,
}

/// What a function is declared to take and to return. Where a type is not known, it is not known either where what comes behind it is
/// passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Declared {
    /// The parameters with their names.
    pub parameters: Vec<(String, Result<Value, Why>)>,
    /// The result.
    pub result: Option<Result<Value, Why>>,
}

/// An entry: its unit's index, and where it is in that.
type At = (usize, UnitOffset);

/// The debug information of a file.
pub struct DebugInfo<'a> {
    dwarf: Dwarf<Slice<'a>>,
    /// By ascending offset.
    units: Vec<Unit<'a>>,
    /// How many bytes may still be read again: references that meet in one place could make it any number.
    again: Cell<usize>,
}

impl<'a> DebugInfo<'a> {
    /// That in these sections, of which those that are not there are empty.
    ///
    /// # Errors
    /// It is damaged.
    pub fn new(section: impl Fn(&str) -> &'a [u8]) -> Result<DebugInfo<'a>, Why> {
        let load = |id: gimli::SectionId| Ok::<_, Why>(EndianSlice::new(section(id.name()), LittleEndian));
        let dwarf = Dwarf::load(load)?;
        let (mut units, mut headers) = (Vec::new(), dwarf.units());
        while let Some(header) = headers.next().map_err(|_| DAMAGED)? {
            units.push(dwarf.unit(header).map_err(|_| DAMAGED)?);
        }
        let again = section(gimli::SectionId::DebugInfo.name()).len().saturating_mul(AGAIN);
        Ok(DebugInfo { dwarf, units, again: Cell::new(again) })
    }

    /// Why there is nothing of a function.
    pub fn absent(&self) -> Why {
        if self.units.iter().any(|unit| unit.dwo_id.is_some()) { SPLIT } else { NONE }
    }

    /// The functions that begin at these addresses, as far as they are known.
    pub fn functions(&self, wanted: &BTreeSet<u64>) -> HashMap<u64, Result<Declared, Why>> {
        let mut all: HashMap<u64, Result<Declared, Why>> = HashMap::new();
        for (index, unit) in self.units.iter().enumerate() {
            let mut entries = unit.entries();
            // What is behind damage is not known.
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() != gimli::DW_TAG_subprogram {
                    continue;
                }
                let begins = self.begins(unit, entry);
                for address in begins.into_iter().filter(|address| wanted.contains(address)) {
                    let declared = self.declared((index, entry.offset()));
                    let known = all.entry(address).or_insert_with(|| declared.clone());
                    if *known != declared {
                        *known = Err(TWO);
                    }
                }
            }
        }
        all
    }

    /// The addresses at which the parts of a function begin.
    fn begins(&self, unit: &Unit<'a>, entry: &Entry<'a>) -> Vec<u64> {
        if let Some(ranges) = entry.attr_value(gimli::DW_AT_ranges) {
            let ranges = self.dwarf.attr_ranges(unit, ranges).ok().flatten();
            let next = |list: &mut gimli::RngListIter<Slice<'a>>| list.next().ok().flatten();
            return ranges.map_or(Vec::new(), |mut list| {
                std::iter::from_fn(|| next(&mut list)).map(|range| range.begin).collect()
            });
        }
        let low = entry.attr_value(gimli::DW_AT_low_pc);
        low.and_then(|low| self.dwarf.attr_address(unit, low).ok().flatten()).into_iter().collect()
    }

    fn reads(&self, bytes: usize) -> Result<(), Why> {
        self.again.set(self.again.get().checked_sub(bytes).ok_or(DAMAGED)?);
        Ok(())
    }

    fn entry(&self, (unit, offset): At) -> Result<Entry<'a>, Why> {
        self.reads(ENTRY)?;
        self.units.get(unit).and_then(|unit| unit.entry(offset).ok()).ok_or(DAMAGED)
    }

    /// The entries right below one.
    fn children(&self, (unit, offset): At) -> Result<Vec<Entry<'a>>, Why> {
        let mut all = Vec::new();
        let mut entries = self.units.get(unit).and_then(|u| u.entries_at_offset(offset).ok()).ok_or(DAMAGED)?;
        let parent = entries.next_dfs().map_err(|_| DAMAGED)?.is_some_and(Entry::has_children);
        let mut child = if parent { entries.next_dfs().map_err(|_| DAMAGED)? } else { None };
        while let Some(found) = child.filter(|found| found.depth() == 1) {
            self.reads(ENTRY)?;
            all.push(found.clone());
            child = entries.next_sibling().map_err(|_| DAMAGED)?;
        }
        self.reads(entries.offset().0.saturating_sub(offset.0))?;
        Ok(all)
    }

    /// The entry that an attribute of one names.
    fn named(&self, unit: usize, entry: &Entry<'a>, name: DwAt) -> Result<Option<At>, Why> {
        match entry.attr_value(name) {
            None => Ok(None),
            Some(AttributeValue::UnitRef(offset)) => Ok(Some((unit, offset))),
            Some(AttributeValue::DebugInfoRef(offset)) => {
                let behind =
                    self.units.partition_point(|u| u.header.debug_info_offset().is_some_and(|at| at <= offset));
                let unit = behind.checked_sub(1).ok_or(DAMAGED)?;
                let inside = offset.to_unit_offset(&self.units.get(unit).ok_or(DAMAGED)?.header);
                Ok(Some((unit, inside.ok_or(DAMAGED)?)))
            }
            Some(_) => Err(ELSEWHERE),
        }
    }

    fn text(&self, unit: usize, entry: &Entry<'a>, name: DwAt) -> String {
        let unit = self.units.get(unit);
        let text = unit.zip(entry.attr_value(name)).and_then(|(u, value)| self.dwarf.attr_string(u, value).ok());
        text.map_or_else(String::new, |text| text.to_string_lossy().into_owned())
    }

    /// An entry of a function, and those that it completes: that of its declaration, or of what is common to its copies.
    fn chain(&self, first: At) -> Result<Vec<(At, Entry<'a>)>, Why> {
        let mut chain = vec![(first, self.entry(first)?)];
        while let Some(((unit, _), last)) = chain.last().filter(|_| chain.len() < DEEPEST) {
            let next = match self.named(*unit, last, gimli::DW_AT_abstract_origin)? {
                None => self.named(*unit, last, gimli::DW_AT_specification)?,
                origin => origin,
            };
            let Some(next) = next else { return Ok(chain) };
            chain.push((next, self.entry(next)?));
        }
        Err(DAMAGED)
    }

    fn declared(&self, first: At) -> Result<Declared, Why> {
        let chain = self.chain(first)?;
        let attr = |name| chain.iter().find_map(|(at, entry)| Some((at.0, entry, entry.attr(name)?)));
        let unit = chain.last().map_or(first.0, |(at, _)| at.0);
        let (plus, producer) = self.language(unit)?;
        let llvm = producer.contains("clang");
        let convention = attr(gimli::DW_AT_calling_convention).map(|(_, _, value)| value.value());
        let normal = convention.is_none_or(|c| c == AttributeValue::CallingConvention(gimli::DW_CC_normal));
        // LLVM changes parameters of functions that nobody else calls, and leaves the declaration as it was.
        let local = attr(gimli::DW_AT_external).is_none() && llvm;
        if !normal || local {
            return Err(CHANGED);
        }
        let parameters = self.parameters(&chain)?;
        if !plus && !parameters.is_empty() && attr(gimli::DW_AT_prototyped).is_none() {
            return Err(UNDECLARED);
        }
        let mut named = Vec::new();
        for ((unit, _), entry) in &parameters {
            let name = self.text(*unit, entry, gimli::DW_AT_name);
            // With one register left, clang before 18 has half of such a number there, and psABIs none of it.
            let halved = |value: &Value| llvm && value.number == Err(WIDE);
            let value = self.value(*unit, entry, plus, false);
            named.push((name, value.and_then(|value| if halved(&value) { Err(WIDE) } else { Ok(value) })));
        }
        let result = attr(gimli::DW_AT_type).map(|(unit, entry, _)| self.value(unit, entry, plus, true));
        Ok(Declared { parameters: named, result })
    }

    /// Is the unit's language C++? And its compiler.
    fn language(&self, unit: usize) -> Result<(bool, String), Why> {
        let root = self.units.get(unit).map(|u| u.header.root_offset()).ok_or(DAMAGED)?;
        let root = self.entry((unit, root))?;
        let Some(AttributeValue::Language(language)) = root.attr_value(gimli::DW_AT_language) else {
            return Err(LANGUAGE);
        };
        let plus = match language {
            gimli::DW_LANG_C89 | gimli::DW_LANG_C | gimli::DW_LANG_C99 | gimli::DW_LANG_C11 | gimli::DW_LANG_C17 => {
                false
            }
            gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20 => true,
            DwLang(_) => return Err(LANGUAGE),
        };
        Ok((plus, self.text(unit, &root, gimli::DW_AT_producer)))
    }

    /// The parameters of a function, as they are declared. A copy may be without those that the compiler itself has declared; one that
    /// is without others is not called as its declaration says.
    fn parameters(&self, chain: &[(At, Entry<'a>)]) -> Result<Vec<(At, Entry<'a>)>, Why> {
        let of = |(unit, offset): At| -> Result<Vec<(At, Entry<'a>)>, Why> {
            let all = self.children((unit, offset))?.into_iter();
            Ok(all.filter(|e| e.tag() == gimli::DW_TAG_formal_parameter).map(|e| ((unit, e.offset()), e)).collect())
        };
        let (first, entry) = chain.first().ok_or(DAMAGED)?;
        let own = of(*first)?;
        let Some(origin) = self.named(first.0, entry, gimli::DW_AT_abstract_origin)? else { return Ok(own) };
        let mut own =
            own.iter().map(|((unit, _), own)| self.named(*unit, own, gimli::DW_AT_abstract_origin)).peekable();
        let mut kept = Vec::new();
        for (at, entry) in of(origin)? {
            if own.next_if_eq(&Ok(Some(at))).is_some() {
                kept.push((at, entry));
            } else if !entry.has_attr(gimli::DW_AT_artificial) {
                return Err(CHANGED);
            }
        }
        if own.next().is_none() { Ok(kept) } else { Err(CHANGED) }
    }

    /// The type of a parameter or of a function's result.
    fn value(&self, unit: usize, entry: &Entry<'a>, plus: bool, result: bool) -> Result<Value, Why> {
        let (at, entry) = self.type_of(unit, entry)?;
        if !matches!(entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type) {
            return self.scalar(at.0, &entry);
        }
        // A result of that size is in memory, or where no argument is: in vector registers. But a vector alone may be in one of those in
        // place of memory.
        if result && size(&entry) > LARGEST {
            let scalar = size(&entry) > VECTOR || self.begins_with_scalar(at, &entry, DEEPEST)?;
            return if scalar { Ok(in_memory()) } else { Err(STRUCT) };
        }
        let convention = entry.attr_value(gimli::DW_AT_calling_convention);
        if convention == Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference)) {
            return Ok(if result { in_memory() } else { Value { passed: POINTER, number: Err(STRUCT) } });
        }
        let bytes =
            u32::try_from(size(&entry)).ok().filter(|bytes| (1..=LARGEST as u32).contains(bytes)).ok_or(STRUCT)?;
        let mut members = Vec::new();
        let copied = plus && convention.is_none();
        self.members((at, 0), copied, DEEPEST, &mut members)?;
        let align = members.iter().map(|(_, m)| m.size).max().ok_or(STRUCT)?;
        let packed = members.iter().any(|(at, m)| !at.is_multiple_of(m.size)) || !bytes.is_multiple_of(align);
        if packed {
            return Err(STRUCT);
        }
        Ok(Value { passed: Type::Struct(Struct { size: bytes, align, members }), number: Err(STRUCT) })
    }

    /// Does this type begin with a number or a pointer? False if there is nothing in it.
    fn begins_with_scalar(&self, at: At, entry: &Entry<'a>, depth: usize) -> Result<bool, Why> {
        let depth = depth.checked_sub(1).ok_or(DAMAGED)?;
        match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                for child in self.children(at)? {
                    let inside = matches!(child.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance);
                    if inside && !child.has_attr(gimli::DW_AT_external) {
                        let (at, entry) = self.type_of(at.0, &child)?;
                        if self.begins_with_scalar(at, &entry, depth)? {
                            return Ok(true);
                        }
                    }
                }
                Ok(false)
            }
            gimli::DW_TAG_array_type if !entry.has_attr(gimli::DW_AT_GNU_vector) => {
                let (at, entry) = self.type_of(at.0, entry)?;
                self.begins_with_scalar(at, &entry, depth)
            }
            _ => self.scalar(at.0, entry).map(|_| true),
        }
    }

    /// The type of an entry, without names and qualifiers.
    fn type_of(&self, unit: usize, entry: &Entry<'a>) -> Result<(At, Entry<'a>), Why> {
        let mut at = self.named(unit, entry, gimli::DW_AT_type)?.ok_or(STRANGE)?;
        for _ in 0..DEEPEST {
            let entry = self.entry(at)?;
            if entry.has_attr(gimli::DW_AT_alignment) {
                return Err(STRANGE);
            }
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type => at = self.named(at.0, &entry, gimli::DW_AT_type)?.ok_or(STRANGE)?,
                _ => return Ok((at, entry)),
            }
        }
        Err(DAMAGED)
    }

    fn scalar(&self, unit: usize, entry: &Entry<'a>) -> Result<Value, Why> {
        match entry.tag() {
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                Ok(Value { passed: POINTER, number: Ok(Number { bytes: 8, kind: Kind::Pointer }) })
            }
            gimli::DW_TAG_base_type => base(entry),
            gimli::DW_TAG_enumeration_type if entry.has_attr(gimli::DW_AT_type) => {
                let (_, under) = self.type_of(unit, entry)?;
                if under.tag() == gimli::DW_TAG_base_type { base(&under) } else { Err(STRANGE) }
            }
            gimli::DW_TAG_union_type => Err(STRUCT),
            _ => Err(STRANGE),
        }
    }

    /// The scalars in a structure that lies at this offset of another. If it is `copied` as C++ does, none of its kind may have a
    /// constructor or a destructor: the call would pass its address.
    fn members(
        &self,
        ((unit, offset), base): (At, u32),
        copied: bool,
        depth: usize,
        all: &mut Vec<(u32, Scalar)>,
    ) -> Result<(), Why> {
        let depth = depth.checked_sub(1).ok_or(DAMAGED)?;
        let name = self.text(unit, &self.entry((unit, offset))?, gimli::DW_AT_name);
        let bare = name.split('<').next().unwrap_or_default();
        for child in self.children((unit, offset))? {
            match child.tag() {
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance => {}
                gimli::DW_TAG_subprogram if copied => {
                    let function = self.text(unit, &child, gimli::DW_AT_name);
                    let makes = function.starts_with('~') || function.split('<').next() == Some(bare);
                    if makes || child.has_attr(gimli::DW_AT_virtuality) {
                        return Err(STRUCT);
                    }
                    continue;
                }
                gimli::DW_TAG_variant_part => return Err(STRUCT),
                _ => continue,
            }
            if child.has_attr(gimli::DW_AT_external) || child.has_attr(gimli::DW_AT_declaration) {
                continue;
            }
            let bits = [gimli::DW_AT_bit_size, gimli::DW_AT_bit_offset, gimli::DW_AT_data_bit_offset];
            let other = bits.into_iter().chain([gimli::DW_AT_virtuality, gimli::DW_AT_alignment]);
            let at = child.attr(gimli::DW_AT_data_member_location).and_then(Attribute::udata_value);
            let at = at.and_then(|at| base.checked_add(u32::try_from(at).ok()?)).filter(|at| u64::from(*at) < LARGEST);
            let at = at.filter(|_| !other.into_iter().any(|name| child.has_attr(name))).ok_or(STRUCT)?;
            let (inner, entry) = self.type_of(unit, &child)?;
            if matches!(entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type) {
                self.members((inner, at), copied, depth, all)?;
                continue;
            }
            match self.scalar(inner.0, &entry)?.passed {
                Type::Scalar(scalar) if all.len() < MOST_MEMBERS && scalar.size <= 8 => all.push((at, scalar)),
                _ => return Err(STRUCT),
            }
        }
        Ok(())
    }
}

const POINTER: Type = Type::Scalar(Scalar { size: 8, class: Class::Pointer });

/// A result for which the caller has made room.
fn in_memory() -> Value {
    let passed = Type::Struct(Struct { size: 2 * LARGEST as u32, align: 8, members: Vec::new() });
    Value { passed, number: Err(STRUCT) }
}

fn size(entry: &Entry) -> u64 {
    entry.attr(gimli::DW_AT_byte_size).and_then(Attribute::udata_value).unwrap_or_default()
}

/// A number of the language.
fn base(entry: &Entry) -> Result<Value, Why> {
    let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(gimli::DW_AT_encoding) else { return Err(STRANGE) };
    let bytes = u8::try_from(size(entry)).map_err(|_| STRANGE)?;
    let kind = match encoding {
        _ if entry.has_attr(gimli::DW_AT_bit_size) => return Err(STRANGE),
        gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => Some(Kind::Signed),
        gimli::DW_ATE_unsigned | gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => Some(Kind::Unsigned),
        gimli::DW_ATE_boolean => Some(Kind::Boolean),
        gimli::DW_ATE_float => None,
        _ => return Err(STRANGE),
    };
    let scalar = |class| Type::Scalar(Scalar { size: bytes.into(), class });
    match (kind, bytes) {
        (Some(kind), 1 | 2 | 4 | 8) => Ok(Value { passed: scalar(Class::Integer), number: Ok(Number { bytes, kind }) }),
        (Some(_), 16) => Ok(Value { passed: scalar(Class::Integer), number: Err(WIDE) }),
        (None, 4 | 8 | 16) => Ok(Value { passed: scalar(Class::Float), number: Err(FLOAT) }),
        _ => Err(STRANGE),
    }
}
