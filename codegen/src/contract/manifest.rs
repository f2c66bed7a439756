//! A contract in the format of the manifest.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::arch::harden::ReturnGuard;
use crate::ask::frame::{Content, Stores};
use crate::contract::Contract;
use crate::words::abi::Abi;
use crate::words::program::Bracket;

impl Contract {
    /// Must callees leave vector registers alone, because some are live and none is saved?
    pub(super) fn general_only(&self) -> bool {
        let result = self.kind.programs().map(|programs| programs.result).unwrap_or_default();
        let live = self.kind.live();
        self.vectors_kept == 0
            && live.is_none_or(|live| {
                live.vectors + result.vectors > 0 && live.saved_vectors() + result.saved_vectors() == 0
            })
    }
}

fn words(content: Content, abi: &Abi) -> String {
    match content {
        Content::Reg(r) => abi.name(r).to_owned(),
        Content::Own(r) => format!("{}, which the trampoline uses for itself", abi.name(r)),
        Content::Result(r) => format!("{}, once the function has returned", abi.name(r)),
        Content::Vector(_) => "vector argument register".into(),
        Content::VectorResult(_) => "vector result register, once the function has returned".into(),
        Content::StackWord(n) => format!("word {n} of the function's stack arguments"),
        Content::Cookie => "cookie of the program that is called".into(),
        Content::Session(n) => format!("word of session {n}, 0 before it runs"),
        Content::Ip => "first byte of the site".into(),
        Content::Pc => "address where the traced function goes on".into(),
        Content::ParentIp => "return address of the traced function".into(),
        Content::SiteSp => "sp at the site".into(),
        Content::ExitSp => "sp when the return arrived".into(),
        Content::Flags => "flags".into(),
        Content::Const(n) => format!("{n:#x}"),
        Content::Direct => "0; a direct trampoline's address stored here is honoured".into(),
        Content::Unfilled => "not filled".into(),
    }
}

/// Two functions around another.
#[derive(Serialize)]
struct AroundOut<'a> {
    enter: &'a str,
    exit: &'a str,
    argument: Option<&'a str>,
}

fn around(bracket: &Bracket) -> AroundOut<'_> {
    AroundOut { enter: &bracket.enter, exit: &bracket.exit, argument: bracket.argument.as_deref() }
}

impl Serialize for Contract {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct FieldOut<'a> {
            symbol: &'a str,
            member: &'a str,
            offset: i32,
            holds: String,
            filled: bool,
            stores_take_effect: bool,
        }
        #[derive(Serialize)]
        struct ProgramOut<'a> {
            attach: &'static str,
            symbol: &'a str,
            cookie: u64,
            around: Option<AroundOut<'a>>,
        }
        let around_programs = &self.stated.around_programs;
        let programs: Vec<ProgramOut> = self
            .programs
            .iter()
            .enumerate()
            .map(|(n, p)| ProgramOut {
                attach: p.attach.option().trim_start_matches('-'),
                symbol: &p.symbol,
                cookie: p.cookie.cast_unsigned(),
                around: around_programs.get(n).map(|program| around(&program.around)),
            })
            .collect();
        let flags = self.kind.programs().map(|programs| programs.flags()).unwrap_or_default();
        let fields: Vec<FieldOut> = self
            .frame
            .fields
            .iter()
            .map(|f| FieldOut {
                symbol: f.symbol,
                member: f.member,
                offset: f.offset,
                holds: words(f.content, &self.facts.abi),
                filled: f.content != Content::Unfilled,
                stores_take_effect: f.stores == Stores::TakeEffect,
            })
            .collect();
        let unfilled: Vec<&str> =
            self.frame.fields.iter().filter(|f| f.content == Content::Unfilled).map(|f| f.member).collect();
        let mut s = serializer.serialize_struct("Contract", 28)?;
        s.serialize_field("calls", &self.callee)?;
        s.serialize_field("programs", &programs)?;
        s.serialize_field("programs_flags", &flags)?;
        s.serialize_field("around_all", &self.stated.around_function.as_ref().map(around))?;
        s.serialize_field("traced", &self.traced)?;
        s.serialize_field("handler", if self.general_only() { "general registers only" } else { "any registers" })?;
        s.serialize_field("kept", &self.reg_names(self.kept))?;
        s.serialize_field("clobbered", &self.reg_names(self.clobbered))?;
        s.serialize_field("flags_kept", &self.flags_kept)?;
        s.serialize_field("direct", &self.direct)?;
        s.serialize_field("direct_jumps", &self.direct_jumps)?;
        s.serialize_field("early_direct", &self.early_direct)?;
        s.serialize_field("stack_align", &self.stack_align)?;
        s.serialize_field("stack_realigned", &self.realigned)?;
        s.serialize_field("landing_pad", &self.landing_pad)?;
        s.serialize_field("entry_pad", &self.entry_pad)?;
        s.serialize_field("type_before", &self.type_before)?;
        s.serialize_field("guard", &self.guard.map(ReturnGuard::name))?;
        s.serialize_field("unpaired_returns", &self.unpaired)?;
        s.serialize_field("mispredicted_returns", &self.mispredicted)?;
        s.serialize_field("direct_mispredicted_returns", &self.direct_mispredicted)?;
        s.serialize_field("frame_pointer_marks_regs", &self.marks_regs)?;
        s.serialize_field("frame_struct", self.frame.c_struct)?;
        s.serialize_field("frame_struct_bytes", &self.frame.c_size)?;
        s.serialize_field("frame_bytes", &self.frame.size)?;
        s.serialize_field("frame", &fields)?;
        s.serialize_field("not_filled", &unfilled)?;
        s.end()
    }
}
