//! An object that GNU as makes of text, with a contract, in a directory of its own.

use std::process::{Command, Output};

/// What most cases are written for.
pub const ARCH: &str = "x86_64";

/// A direct-call trampoline that keeps two argument registers.
pub const TRAMPOLINE: &str = "
    .globl  my_tramp
    .type   my_tramp, @function
my_tramp:
    push    %rbp
    mov     %rsp, %rbp
    push    %rdi
    push    %rsi
    call    my_direct_func
    call    other_helper
    pop     %rsi
    pop     %rdi
    leave
    ret
    .size   my_tramp, . - my_tramp
";

pub struct Case {
    pub dir: tempfile::TempDir,
}

impl Case {
    pub fn new(text: &str, contract: &str) -> Case {
        let case = Case { dir: tempfile::tempdir().unwrap() };
        case.contract(contract);
        case.assemble("t", &text.replace("my_direct_func", "direct_func"));
        case
    }

    pub fn contract(&self, text: &str) {
        std::fs::write(self.dir.path().join("t.toml"), text).unwrap();
    }

    pub fn run(&self, program: &str, args: &[&str]) -> (Option<i32>, String, String) {
        text(Command::new(program).args(args).current_dir(&self.dir).output().unwrap())
    }

    pub fn assemble(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(format!("{name}.S")), text).unwrap();
        let out = format!("{name}.o");
        let (code, _, err) = self.run("x86_64-linux-gnu-as", &[&format!("{name}.S"), "-o", &out]);
        assert_eq!(code, Some(0), "{err}");
    }

    pub fn tool(&self, args: &[&str]) -> (Option<i32>, String, String) {
        self.run(env!("CARGO_BIN_EXE_tramptool"), args)
    }

    pub fn check(&self) -> (Option<i32>, String, String) {
        self.tool(&["check", "--object", "t.o", "--contract", "t.toml"])
    }
}

/// A report in one line: where its lines are broken is a matter of the terminal.
pub fn flat(text: &str) -> String {
    text.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn text(run: Output) -> (Option<i32>, String, String) {
    let utf8 = |bytes| String::from_utf8(bytes).unwrap();
    (run.status.code(), utf8(run.stdout), utf8(run.stderr))
}
