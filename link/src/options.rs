//! Options of a link.

use codegen::arch::site::Site;

/// The options of a link.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the image.
    pub base: u64,
    /// Bytes before the first section of the image.
    pub skip: u64,
    /// The alignment of code in bytes, whatever the inputs require, so that it begins exactly at the requested address.
    pub code_align: Option<u64>,
    /// Traced functions whose site goes to a trampoline: (function, trampoline). All other sites do nothing.
    pub patch: Vec<(String, String)>,
    /// Traced functions whose site jumps to a trampoline, for paired trampolines: (function, trampoline).
    pub jump: Vec<(String, String)>,
    /// The symbol of the `ftrace_ops` for these functions, if they were compiled with room for its address.
    pub ops: Option<String>,
    /// Call slots to patch, so that they call another function: (label of the slot, function).
    pub calls: Vec<(String, String)>,
    /// Symbols that no input defines, with their addresses.
    pub define: Vec<(String, u64)>,
    /// The number of first inputs whose definitions win over those of the others.
    pub first: usize,
    /// The bytes of stub functions for undefined symbols, for objects that are judged by themselves. With it, padding that a
    /// relaxing linker would shorten stays.
    pub stub: Option<&'static [u8]>,
    /// How the tracer writes sites; all sites are first disabled, as at boot. If `None`, sites stay as the compiler left them,
    /// and none can be switched on.
    pub site: Option<&'static Site>,
    /// Functions that must exist, besides those that an input refers to. Undefined ones become stubs too.
    pub wanted: Vec<String>,
    /// Aliases: a symbol that no input defines, and the defined one whose address it takes.
    pub alias: Vec<(String, &'static str)>,
    /// Keep the relocations of the inputs, as `ld --emit-relocs` does.
    pub references: bool,
    /// Only for looking at: a relocation that is not known here, or does not reach, stays as it is. Thread-local data has no place, and
    /// what refers to it has no relocation.
    pub glance: bool,
}

impl Default for Options {
    fn default() -> Options {
        let none = Vec::new;
        Options {
            base: 0x40_0000,
            skip: 0,
            code_align: None,
            patch: none(),
            jump: none(),
            ops: None,
            calls: none(),
            define: Vec::new(),
            wanted: Vec::new(),
            first: 0,
            stub: None,
            site: None,
            alias: Vec::new(),
            references: false,
            glance: false,
        }
    }
}
