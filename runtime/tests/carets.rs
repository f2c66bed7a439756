//! The kernel's own tests of its parsers as a witness: each line of them has a caret before what is wrong, and its comment has
//! the error's name. They are read where the kernel's sources are kept.

use tramptool_runtime::definition::{Definitions, Machine, Symbol};

struct Kernel;

impl Machine for Kernel {
    fn symbol(&self, name: &str) -> Symbol {
        match name {
            "vfs_read" => Symbol::One(0x1000),
            "kfree" | "do_exit" | "kernel_clone" => Symbol::One(0x2000),
            _ => Symbol::None,
        }
    }
    fn is_function(&self, address: u64) -> bool {
        [0x1000, 0x2000].contains(&address)
    }
    fn is_instruction(&self, address: u64) -> bool {
        // The site of `vfs_read` has five bytes.
        !(0x1001..0x1005).contains(&address)
    }
    fn is_traceable(&self, address: u64) -> bool {
        self.is_function(address)
    }
    fn is_register(&self, name: &str) -> bool {
        name == "ax"
    }
}

/// Names that need type information, which only the kernel has.
const BTF: [&str; 10] = [
    "BAD_VAR_ARGS",
    "DOUBLE_ARGS",
    "NO_BTFARG",
    "NO_RETVAL",
    "NO_PTR_STRCT",
    "NO_BTF_FIELD",
    "BAD_HYPHEN",
    "BAD_TYPE4STR",
    "BAD_TP_NAME",
    "NOSUP_BTFARG",
];

/// The lines of a test: what is written, the error's name.
fn lines(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.replace("'$REG", "%ax'");
        let Some((_, rest)) = line.split_once("check_error ") else { continue };
        let quote = &rest[..1];
        let Some((command, comment)) = rest[1..].rsplit_once('#') else { continue };
        let Some((command, _)) = command.rsplit_once(quote) else { continue };
        let command = match quote {
            "\"" => command.replace("\\\\", "\\").replace("\\\"", "\""),
            _ => command.to_owned(),
        };
        let name = comment.split_whitespace().next().unwrap().replace("TOO_LOG", "TOO_LONG");
        found.push((command.replace("$FUNCTION_FORK", "kernel_clone"), name));
    }
    found
}

#[test]
#[ignore = "needs the kernel's sources: TRAMPTOOL_KERNEL_CACHE"]
fn the_kernels_own_tests_agree() {
    let tests = kernel_cache::directory().unwrap().join("linux-source-7.3/tools/testing/selftests/ftrace/test.d");
    let mut checked = 0;
    for (file, event) in [
        ("kprobe/kprobe_syntax_errors.tc", "p:kprobes/testevent kernel_clone"),
        ("dynevent/fprobe_syntax_errors.tc", "f:fprobes/testevent kernel_clone"),
    ] {
        let path = tests.join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for (marked, name) in lines(&text) {
            // What is read by type is refused as a whole. Kernels of today keep arguments for the return.
            if marked == "f vfs_read $retval ^$arg1"
                || BTF.contains(&&*name)
                || name.starts_with("TYPECAST")
                || marked.contains("$arg*")
                || marked.contains("=(")
            {
                continue;
            }
            let command = marked.replace('^', "");
            let column = marked.find('^').unwrap();
            let mut list: Definitions<8> = Definitions::default();
            let existing = if name == "DIFF_PROBE_TYPE" { event.to_owned() } else { format!("{event} abcd=\\1") };
            if marked.contains("testevent") {
                list.line(&existing, &Kernel).unwrap();
            }
            let problem = list.line(&command, &Kernel).expect_err(&marked);
            assert_eq!((problem.problem.name(), problem.column), (&*name, column), "{file}: {marked}");
            checked += 1;
        }
    }
    assert!(checked > 75, "{checked}");
    println!("{checked} lines agree");
}
