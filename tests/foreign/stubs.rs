//! What is called in a callback's place.

use crate::case::{ARCH, Case};

/// The clauses that fail with this code.
fn failing(code: &str) -> (Vec<String>, String) {
    let text = format!(
        "    .globl my_stub\n    .type my_stub, @function\nmy_stub:\n    {code}\n    .size my_stub, . - my_stub\n"
    );
    let contract = format!(
        "arch = \"{ARCH}\"\nabout = \"nothing is done\"\n[[trampoline]]\nsymbol = \"my_stub\"\nkind = \"stub\"\nstack-align = 8\n"
    );
    let (_, out, err) = Case::new(&text, &contract).check();
    assert_eq!(err, "", "{out}");
    let clauses = out.lines().filter_map(|line| line.strip_prefix("FAIL ")?.split(' ').next());
    (clauses.map(str::to_owned).collect(), out)
}

#[test]
fn it_leaves_everything_as_it_was() {
    for (code, clauses) in [
        ("ret", &[][..]),
        ("ret $8", &["P7"]),
        ("xor %eax, %eax\n ret", &["P1"]),
        ("inc %rbx\n ret", &["P5"]),
        (".cfi_startproc\n ret\n .cfi_endproc", &[]),
        (".cfi_startproc\n .cfi_adjust_cfa_offset 8\n ret\n .cfi_endproc", &["P12"]),
        (".cfi_startproc\n .cfi_offset %rip, -16\n ret\n .cfi_endproc", &["P12"]),
        (".cfi_startproc\n .cfi_return_column %xmm0\n .cfi_offset %xmm0, -8\n ret\n .cfi_endproc", &["P12"]),
    ] {
        let (found, report) = failing(code);
        assert_eq!(found, clauses, "{code}: {report}");
    }
}
