//! The layouts of `struct pt_regs` against the kernel's own headers for programs, as a C compiler lays them out.
//!
//! These headers decide every register slot. They do not show what the kernel keeps to itself: the members of
//! `struct pt_regs` after the registers on arm64 and riscv64, listed below, and `struct ftrace_regs` on both.

mod common;

use std::process::Command;

use codegen::ask::frame::{Content, Field, FrameLayout};
use codegen::backend::Backend;
use common::expected::expected;
use object::{Object, ObjectSection};

/// The values of these C expressions, as gcc for this architecture computes them. It refuses a member that is not there.
fn compute(backend: &dyn Backend, expressions: &[String]) -> Vec<i32> {
    let compiler = backend.facts().assembler.replace("-as", "-gcc");
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("t.c"), dir.path().join("t.o"));
    let values = expressions.join(", ");
    let text = format!("#include <stddef.h>\n#include <asm/ptrace.h>\nconst unsigned values[] = {{ {values} }};\n");
    std::fs::write(&source, text).unwrap();
    let run = Command::new(&compiler).args(["-Werror", "-fno-pic", "-c"]).arg(&source).arg("-o").arg(&object).output();
    let run = run.unwrap_or_else(|e| panic!("{compiler}: {e}: install gcc for this architecture"));
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{compiler}: is linux-libc-dev for this architecture installed?\n{errors}");
    let bytes = std::fs::read(&object).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let data = file.section_by_name(".rodata").unwrap().data().unwrap();
    let values: Vec<i32> = data.as_chunks().0.iter().map(|v| i32::from_le_bytes(*v)).collect();
    assert_eq!(values.len(), expressions.len());
    values
}

/// Every frame that is a `struct pt_regs`, under every set of options.
fn frames(backend: &dyn Backend) -> Vec<(String, FrameLayout)> {
    let mut all = Vec::new();
    for target in common::targets(backend) {
        let what = format!("{} ({})", target.facts.name, target.describe());
        // Results are in slots of their registers.
        let frames = target.frames.into_iter().map(|(_, mut frame)| {
            frame.fields.retain(|f| !matches!(f.content, Content::Result(_)));
            frame
        });
        all.extend(frames.filter(|f| f.c_struct == "struct pt_regs").map(|f| (what.clone(), f)));
    }
    all
}

#[test]
fn pt_regs_is_laid_out_as_in_the_kernels_headers() {
    for backend in tool::BACKENDS {
        let (arch, header) = (backend.facts().name, expected(*backend).layout);
        let all = header.private.concat();
        let own = |member: &str| all.iter().position(|m| m == member);
        let frames = frames(*backend);
        assert!(!frames.is_empty(), "{arch}: no frame is a struct pt_regs");
        for (what, frame) in frames {
            let members = frame.fields.iter().filter(|f| !f.member.is_empty());
            let (private, public): (Vec<&Field>, Vec<&Field>) = members.partition(|f| own(f.member).is_some());
            let offset = |f: &&Field| format!("offsetof({}, {})", header.r#struct, header.member(f.member));
            let size = format!("sizeof({})", header.r#struct);
            let values = compute(*backend, &[vec![size], public.iter().map(offset).collect()].concat());
            let size = values[0];
            let theirs: Vec<(&str, i32)> = public.iter().map(|f| f.member).zip(values[1..].iter().copied()).collect();
            let ours: Vec<(&str, i32)> = public.iter().map(|f| (f.member, f.offset)).collect();
            assert_eq!(ours, theirs, "{what}: (left: ours)");
            // Each slot is there once, so the header has no member that we lack.
            let mut slots: Vec<i32> = theirs.into_iter().map(|(_, offset)| offset).collect();
            slots.sort_unstable();
            assert_eq!(slots, (0..size).step_by(8).collect::<Vec<_>>(), "{what}");
            let mut found: Vec<&str> = private.iter().map(|f| f.member).collect();
            found.sort_by_key(|member| own(member));
            assert!(header.private.iter().any(|of| *of == found), "{what}: {found:?}");
            assert!(private.iter().all(|f| size <= f.offset && f.offset <= frame.c_size - 8), "{what}: {private:?}");
            assert!(if private.is_empty() { frame.c_size == size } else { frame.c_size > size }, "{what}");
        }
    }
}
