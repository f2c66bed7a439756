//! What a link is asked for.

use codegen::arch::site::Site;

/// How to link.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the image.
    pub base: u64,
    /// Bytes before its first section.
    pub skip: u64,
    /// Code is aligned to so many bytes and no more, whatever the inputs say: it begins just where it is asked to.
    pub code_align: Option<u64>,
    /// Traced functions whose site goes to a trampoline: (function, trampoline). All other sites do nothing.
    pub patch: Vec<(String, String)>,
    /// The same by a jump, for paired trampolines.
    pub jump: Vec<(String, String)>,
    /// The `ftrace_ops` of these functions: what those carry that were compiled with room for its address.
    pub ops: Option<String>,
    /// Call slots that call something else than they were assembled with: (label of the slot, function).
    pub calls: Vec<(String, String)>,
    /// Symbols that no input defines, with their addresses.
    pub define: Vec<(String, u64)>,
    /// The first so many inputs come before the others: what both define is theirs.
    pub first: usize,
    /// For objects that are judged as they are, not built into anything: undefined symbols name functions with these
    /// bytes, and padding that a relaxing linker would shorten stays.
    pub stub: Option<&'static [u8]>,
    /// How the tracer writes sites: all are disabled, as at boot. Without it they stay as the compiler left them, and none
    /// can be switched on.
    pub site: Option<&'static Site>,
    /// Functions that there must be, beside those that an input refers to: `stub` stands in for them too.
    pub wanted: Vec<String>,
    /// Symbols that no input defines, and the defined ones whose addresses they take.
    pub alias: Vec<(&'static str, &'static str)>,
    /// Keep what the inputs refer to, as `ld --emit-relocs` does.
    pub references: bool,
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
        }
    }
}
