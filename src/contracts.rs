//! The contracts that come with the tool, for trampolines that others wrote.

macro_rules! contracts {
    ($($name:literal),*) => {
        /// Name and text of each.
        pub const CONTRACTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../contracts/", $name, ".toml")))),*];
    };
}

contracts!(
    "linux-6.12-x86_64-orc",
    "linux-6.12-x86_64-fp",
    "linux-6.12-arm64",
    "linux-6.12-arm64-call-ops",
    "linux-6.12-riscv64",
    "linux-6.12-riscv64-norvc",
    "linux-6.12-samples-x86_64",
    "linux-6.12-samples-arm64",
    "linux-6.12-samples-riscv64",
    "linux-7.3-x86_64-orc",
    "linux-7.3-x86_64-fp",
    "linux-7.3-arm64",
    "linux-7.3-arm64-call-ops",
    "linux-7.3-riscv64-norvc",
    "linux-7.3-riscv64-clang",
    "linux-7.3-riscv64-cfi",
    "linux-7.3-arm64-cfi",
    "linux-7.3-x86_64-cfi",
    "linux-7.3-samples-x86_64",
    "linux-7.3-samples-arm64",
    "linux-7.3-samples-riscv64",
    "xray-19-x86_64",
    "xray-19-arm64",
    "glibc-2.36-x86_64",
    "glibc-2.36-arm64",
    "glibc-2.36-riscv64",
    "glibc-2.36-tlsdesc-x86_64",
    "glibc-2.36-tlsdesc-arm64"
);
