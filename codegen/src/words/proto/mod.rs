//! C prototypes: parameters and result of a function, as far as a calling convention depends on them.
//!
//! One prototype is read, without a preprocessor and without declarations before it. So typedefs are those of the
//! kernel and of `stdint.h`, and a struct by value says what is in it: `struct pair { long a; double b; } p`, or only
//! its size and alignment, `struct pair { 16, 8 } p`, which is for members that are no floating-point numbers.

mod lex;
mod parse;
mod types;
mod words;

pub use types::{Class, MOST_ARGS, MOST_BYTES, Prototype, Scalar, Struct, Type};

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> (Option<u32>, Vec<u32>) {
        let proto = Prototype::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        (proto.result.map(|r| r.size()), proto.args.iter().map(Type::size).collect())
    }

    #[test]
    fn prototypes_of_the_kernel_are_read() {
        assert_eq!(sizes("void kfree_skb(struct sk_buff *skb)"), (None, vec![8]));
        assert_eq!(sizes("extern void __must_check *kmalloc(size_t size, gfp_t flags);"), (Some(8), vec![8, 4]));
        let text = "static inline ssize_t vfs_read(struct file *, char __user *buf, size_t, loff_t *pos)";
        assert_eq!(sizes(text), (Some(8), vec![8; 4]));
        assert_eq!(sizes("int f(void)"), (Some(4), vec![]));
        assert_eq!(sizes("int f(int (*old_style)())"), (Some(4), vec![8]));
        let text =
            "unsigned long long (f)(const unsigned char x, s16 y, enum hrtimer_mode mode, u64 a[static 4], bool b)";
        assert_eq!(sizes(text), (Some(8), vec![1, 2, 4, 8, 1]));
        assert_eq!(sizes("void (*signal(int sig, void (*func)(int)))(int)"), (Some(8), vec![4, 8]));
        assert_eq!(sizes("long f(unknown_t *p, int cb(unknown_t *, struct s), unsigned)"), (Some(8), vec![8, 8, 4]));
        assert_eq!(sizes("__int128 f(long double x, float y, double const z)"), (Some(16), vec![16, 4, 8]));
        assert_eq!(sizes("struct big { 40, 8 } f(union u { 8, 8 } x)"), (Some(40), vec![8]));
    }

    #[test]
    fn what_says_nothing_about_arguments_is_skipped() {
        let text = "static int __sched __acquires(lock) f(int a /* count */, struct rq *rq __attribute__((unused))) \
                    __releases(lock) __attribute__((nonnull(2), __noinline__, section(\".text.x\"))); // C";
        assert_eq!(sizes(text), (Some(4), vec![4, 8]));
        assert_eq!(Prototype::parse(text).unwrap().name, "f");
    }

    #[test]
    fn a_struct_is_defined_once() {
        let proto = Prototype::parse("struct s { long a; double b; } f(struct s x, struct s *p, struct s y)").unwrap();
        assert_eq!(proto.result.as_ref(), Some(&proto.args[0]));
        assert_eq!((&proto.args[1], &proto.args[2]), (&types::POINTER, &proto.args[0]));
        assert_eq!(sizes("void f(union u { 16, 8 } x, union u y)"), (None, vec![16, 16]));
    }

    #[test]
    fn members_are_laid_out_as_c_does() {
        let text = "void f(struct s { char a; struct { short b, *c; } in; } *p, struct t { char a[3]; float b; } x)";
        let proto = Prototype::parse(text).unwrap();
        let Type::Struct(t) = &proto.args[1] else { panic!("{:?}", proto.args) };
        let at: Vec<(u32, u32)> = t.members.iter().map(|(at, m)| (*at, m.size)).collect();
        assert_eq!((t.size, t.align, at), (8, 4, vec![(0, 1), (1, 1), (2, 1), (4, 4)]));
        assert_eq!(proto.args[0], types::POINTER);
    }

    /// The message, and what is above its caret.
    fn refused(text: &str) -> (String, String) {
        let error = Prototype::parse(text).expect_err(text);
        let mark = error.mark().unwrap_or_default();
        let lines: Vec<&str> = mark.lines().collect();
        let column = lines[1].find('^').unwrap();
        (error.to_string(), lines[0].chars().skip(column).take(6).collect())
    }

    #[test]
    fn what_is_refused_is_marked() {
        for (text, part, place) in [
            ("int printk(const char *fmt, ...)", "variable number", "...)"),
            ("void f(int a, sk_buff_t skb)", "unknown type 'sk_buff_t'", "sk_buf"),
            ("void f(int a, struct list_head l)", "`struct list_head`", "struct"),
            ("void f(struct s { long a[3]; } x)", "24 bytes; valid: up to 16", "struct"),
            ("void f(int,int,int,int,int,int,int,int,int,int,int,int,u8)", "valid: up to 12", "u8)"),
            ("void f(int a, void b)", "type void", "void b"),
            ("f(int a)", "name and a result", "f(int "),
            ("int x", "no function", "int x"),
            ("int (*f)(int)", "no function", "int (*"),
            ("int f(int a", "no `,`", ""),
            ("int f(int a) int", "more than one", "int"),
            ("int f(long float a)", "no type together", "long f"),
            ("int f(struct s { int a : 3; } x)", "bit-field", ": 3; }"),
            ("int f(struct s { 3, 2 } x)", "a multiple", "3, 2 }"),
            ("int f(struct s { } x)", "without members", "{ } x)"),
            ("int f(union u { int a; } x)", "union", "int a;"),
            ("int f(int a; int b)", "no `,`", "; int "),
            ("int f(int $a)", "character", "$a)"),
            ("", "no type", ""),
            // gcc passes each of these in another place than the type without the attribute.
            ("void f(int x __attribute__((vector_size(16))))", "attribute `vector_size`", "vector"),
            ("void f(struct s { char a; long b; } __attribute__((packed)) x)", "attribute `packed`", "packed"),
            ("void __attribute__((__ms_abi__)) f(int x)", "attribute `__ms_abi__`", "__ms_a"),
            ("void __attribute__((noinline, regparm(3))) f(int x)", "attribute `regparm`", "regpar"),
            ("void f(int x __attribute__((mode(TI))))", "attribute `mode`", "mode(T"),
            ("void f(int a, struct s { long a; } x __attribute__((aligned(16))))", "attribute `aligned`", "aligne"),
            ("void f(__packed struct s { 16, 1 } x)", "`__packed`", "__pack"),
            ("[[gnu::ms_abi]] void f(int x)", "brackets", "[[gnu:"),
            ("int f()", "before C23", "()"),
            ("int f(int a) { return a; }", "a body", "{ retu"),
            ("int f(_Atomic int a)", "`_Atomic`", "_Atomi"),
            ("void f(double _Complex z)", "`_Complex`", "_Compl"),
            ("int __odd f(int a)", "`__odd` before `f`", "__odd "),
            ("__odd int f(int a)", "`__odd` before `int`", "__odd "),
            ("int __odd(l) f(int a)", "`__odd(...)` before `f`", "f(int "),
            ("void f(int a, int __odd b)", "`__odd` before `b`", "__odd "),
            ("void f(struct s { long a; } x, struct s { int a; } y)", "another `struct s`", "{ int "),
            ("void f(struct s x, struct s { 8, 8 } y)", "members of `struct s` are unknown", "struct"),
            ("int f(int a /* b)", "comment", "/* b)"),
            ("int f(struct s { char a[99999999]; } x)", "number", "999999"),
            ("int f(struct s { char a[9999999][9999999]; } x)", "beyond all measure", "a[9999"),
        ] {
            let (message, at) = refused(text);
            assert!(message.contains(part) && message.contains("valid: "), "{text}: {message}");
            assert_eq!(at, place, "{text}: {message}");
        }
    }

    #[test]
    fn nesting_ends() {
        for open in ["(", "int (*f)(", "struct { ", "int f(int (*a)(", "int *(*(*("] {
            assert!(Prototype::parse(&open.repeat(10_000)).is_err());
        }
    }
}
