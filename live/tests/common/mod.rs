//! A library with functions to attach to, compiled by gcc with room at their entries.

use std::ffi::CString;
use std::process::Command;
use std::time::Duration;

use tramptool_live::{Live, Policy};

/// Functions of C.
#[allow(dead_code, reason = "some tests use the others")]
pub const C: &str = "functions.c twin.c";

/// Functions of C++ that are left by other ways than their return.
#[allow(dead_code, reason = "some tests use the others")]
pub const THROW: &str = "throw.cc";

/// The library. It stays loaded.
pub struct Functions {
    handle: *mut libc::c_void,
    directory: tempfile::TempDir,
}

/// Whether the compiler leaves room at entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiled {
    WithRoom,
    AsUsual,
}

/// Room at the entries, as gcc makes it for this machine.
fn room() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "-fpatchable-function-entry=2",
        "riscv64" => "-fpatchable-function-entry=4",
        _ => "-fpatchable-function-entry=5",
    }
}

/// Indirect branches find landing pads, where a machine insists on them. Files of the compiler may have none.
fn guarded() -> &'static [&'static str] {
    match std::env::consts::ARCH {
        "aarch64" => &["-mbranch-protection=standard", "-mno-outline-atomics", "-nostartfiles", "-Wl,-z,force-bti"],
        _ => &[],
    }
}

/// What a test is attached by. Threads may be long in answering, on a machine that has no time; an emulator's own never do.
#[allow(dead_code, reason = "some tests have a policy of their own")]
pub fn live() -> Live {
    let mut policy = Policy::default();
    if std::env::consts::ARCH == "x86_64" {
        policy.patience = Duration::from_secs(60);
    }
    Live::new(policy).unwrap()
}

impl Functions {
    /// Compile and load those of this file.
    pub fn load(source: &str, compiled: Compiled) -> Functions {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("functions.so");
        let compiler = if source.ends_with(".cc") { "g++" } else { "gcc" };
        let gcc = format!("{}-linux-gnu-{compiler}", std::env::consts::ARCH);
        let sources = source.split(' ').map(|name| format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR")));
        let mut command = Command::new(&gcc);
        command.args(["-O2", "-fPIC", "-shared", "-pthread"]).args(guarded()).args(sources).arg("-o").arg(&library);
        if compiled == Compiled::WithRoom {
            command.args([room(), "-DROOM"]);
        }
        assert!(command.status().unwrap_or_else(|e| panic!("{gcc}: {e}")).success(), "{gcc}");
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: the library has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{}", library.display());
        Functions { handle, directory }
    }

    /// Unload it.
    #[allow(dead_code, reason = "some tests keep theirs")]
    pub fn unload(self) {
        // SAFETY: nobody is in it.
        assert_eq!(unsafe { libc::dlclose(self.handle) }, 0);
    }

    /// Load it again.
    #[allow(dead_code, reason = "some tests keep theirs")]
    pub fn load_again(self) -> Functions {
        let path = CString::new(self.directory.path().join("functions.so").to_str().unwrap()).unwrap();
        // SAFETY: nobody is in it, and it has no constructors.
        let handle = unsafe {
            assert_eq!(libc::dlclose(self.handle), 0);
            libc::dlopen(path.as_ptr(), libc::RTLD_NOW)
        };
        assert!(!handle.is_null());
        Functions { handle, ..self }
    }

    /// Where something is in it.
    pub fn address(&self, name: &str) -> *const () {
        let c_name = CString::new(name).unwrap();
        // SAFETY: both are there.
        let at = unsafe { libc::dlsym(self.handle, c_name.as_ptr()) };
        assert!(!at.is_null(), "{name}");
        at as *const ()
    }

    /// A function of this type.
    pub fn get<F: Copy>(&self, name: &str) -> F {
        let at = self.address(name);
        assert_eq!(size_of::<F>(), size_of::<*const ()>());
        // SAFETY: callers know the function's type.
        unsafe { std::mem::transmute_copy(&at) }
    }
}
