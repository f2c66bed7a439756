//! The words that a prototype may have: words without effect on how a value is passed, and typedefs.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};

/// The words of C's own types.
const OF_C: &str = "void char short int long signed unsigned float double __int128";

/// The words before a tag.
const TAGGED: &str = "struct union enum";

/// The keywords before a list of attributes.
const ATTRIBUTE: &str = "__attribute__ __attribute attribute";

/// Words without effect on how a value is passed.
const IGNORED: &str = "const volatile restrict __restrict __restrict__ register extern static inline __inline \
    __inline__ __const __const__ __volatile __volatile__ __extension__ __always_inline noinline __noinline notrace \
    asmlinkage __visible __must_check __init __exit __ref __sched __lockfunc __cpuidle __cold __pure __weak __used \
    __maybe_unused __always_unused __malloc __deprecated __noreturn noinline_for_stack noinline_for_tracing \
    __attribute_const__ __bpf_kfunc __user __kernel __iomem __percpu __rcu __force _Noreturn noinstr";

/// Words without effect on how a value is passed, with parentheses behind them.
const IGNORED_WITH_ARGUMENTS: &str = "__acquires __releases __must_hold __cond_acquires __printf __scanf \
    __alloc_size __realloc_size __nonnull __section __diagnose_as";

/// Attributes that do not move arguments and results. All other attributes are refused, because some move them, and no
/// list of those is complete.
const ATTRIBUTES: &str = "noinline noclone noipa always_inline gnu_inline flatten artificial const pure malloc nothrow \
    leaf nonnull returns_nonnull warn_unused_result nodiscard fallthrough cold hot unused maybe_unused used retain deprecated \
    unavailable error warning format format_arg section visibility externally_visible weak alias noreturn returns_twice \
    alloc_size alloc_align assume_aligned access sentinel constructor destructor optimize no_reorder noplt \
    no_instrument_function patchable_function_entry no_profile_instrument_function no_stack_protector stack_protect \
    no_stack_limit no_split_stack no_sanitize no_sanitize_address no_sanitize_thread no_sanitize_undefined \
    no_sanitize_coverage nocf_check may_alias noderef address_space context btf_type_tag btf_decl_tag btf_tag \
    no_icf nomerge minsize optnone disable_tail_calls not_tail_called";

/// Typedefs of integers and pointers by size in bytes: those of C, and of the kernel where it differs (`dev_t`).
const TYPEDEFS: &[(u32, &str)] = &[
    (1, "bool _Bool u8 s8 __u8 __s8 uint8_t int8_t u_char blk_status_t"),
    (2, "u16 s16 __u16 __s16 uint16_t int16_t __le16 __be16 u_short ushort umode_t"),
    (
        4,
        "u32 s32 __u32 __s32 uint32_t int32_t __le32 __be32 u_int uint gfp_t fmode_t mode_t pid_t uid_t gid_t kuid_t \
        kgid_t dev_t clockid_t __wsum __poll_t vm_fault_t netdev_tx_t irqreturn_t blk_opf_t slab_flags_t \
        isolate_mode_t key_serial_t rwf_t",
    ),
    (
        8,
        "u64 s64 __u64 __s64 uint64_t int64_t __le64 __be64 u_long ulong size_t ssize_t ptrdiff_t intptr_t uintptr_t \
        loff_t off_t ino_t time64_t ktime_t sector_t pgoff_t phys_addr_t dma_addr_t resource_size_t cycles_t \
        netdev_features_t pte_t pmd_t pud_t pgd_t pgprot_t",
    ),
    (16, "u128 s128 __u128 __s128 __int128_t __uint128_t"),
];

/// Words of C that may change how a value is passed, or that this parser does not read, and their replacements.
const REFUSED: &[(&str, &str)] = &[
    ("_Atomic", "the type without it, if it is a number or a pointer"),
    ("_Complex", "a struct of two numbers, or its size and alignment"),
    ("__complex__", "a struct of two numbers, or its size and alignment"),
    ("_Alignas", "size and alignment of the struct, `{ 16, 16 }`"),
    ("alignas", "size and alignment of the struct, `{ 16, 16 }`"),
    ("__aligned", "size and alignment of the struct, `{ 16, 16 }`"),
    ("__packed", "size and alignment of the struct, `{ 16, 1 }`"),
    ("typeof", "the type that it is"),
    ("__typeof__", "the type that it is"),
    ("asm", "the prototype without it, and the symbol's name in it"),
    ("__asm__", "the prototype without it, and the symbol's name in it"),
    ("__declspec", "`__attribute__((...))`"),
];

/// The meaning of a known identifier.
#[derive(Clone, Copy)]
pub(super) enum Known {
    /// One of C's own types, or a part of its name.
    OfC,
    /// A tag follows.
    Tagged,
    /// Attributes follow.
    Attribute,
    Ignored,
    /// The word and the parentheses behind it have no effect.
    IgnoredWithArguments,
    Typedef(u32),
    /// The word is refused; this text says what would be valid.
    Refused(&'static str),
}

/// A hash map of all words of the tables.
static KNOWN: LazyLock<FxHashMap<&str, Known>> = LazyLock::new(|| {
    let all = |words: &'static str, known: Known| words.split_whitespace().map(move |word| (word, known));
    let typedefs = TYPEDEFS.iter().flat_map(|(size, names)| all(names, Known::Typedef(*size)));
    let refused = REFUSED.iter().map(|(word, valid)| (*word, Known::Refused(valid)));
    let ignored = all(IGNORED, Known::Ignored).chain(all(IGNORED_WITH_ARGUMENTS, Known::IgnoredWithArguments));
    let of_c = all(OF_C, Known::OfC).chain(all(TAGGED, Known::Tagged)).chain(all(ATTRIBUTE, Known::Attribute));
    ignored.chain(of_c).chain(typedefs).chain(refused).collect()
});

/// The meaning of a word in the tables, if it is known.
pub(super) fn known(word: &str) -> Option<Known> {
    KNOWN.get(word).copied()
}

static HARMLESS: LazyLock<FxHashSet<&str>> = LazyLock::new(|| ATTRIBUTES.split_whitespace().collect());

/// Does this attribute leave arguments and results where they are?
pub(super) fn is_harmless(attribute: &str) -> bool {
    HARMLESS.contains(attribute.trim_matches('_'))
}

/// The part of messages that lists valid types.
pub(super) const VALID_TYPES: &str = "valid: C's own types, pointers, enums, the kernel's typedefs such as u32, size_t and gfp_t, \
    and structs as `struct s { long a; int b; } x` or, by size and alignment, `struct s { 16, 8 } x`";
