# SPDX-License-Identifier: MIT OR Apache-2.0
# How Unicorn is built where cargo finds .cargo/config.toml: without 32-bit ARM, which its crate's feature for arm64 drags in
# and nothing here runs, a fifth of the code; and with -O2, which compiles in three quarters of the time of -O3, CMake's own
# choice. -O1 would take half, and runs short pieces of code a fifth slower.
set(UNICORN_ARCH "x86;aarch64;riscv" CACHE STRING "" FORCE)
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "" FORCE)
