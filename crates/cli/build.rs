//! Says how the program is linked, so that it starts quickly.

use std::env;
use std::fs;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    // Where rustc links with LLVM's linker, which knows both options.
    if [target("OS"), target("ARCH"), target("ENV")] != ["linux", "x86_64", "gnu"] {
        return;
    }
    // Cold functions stand apart, so that the pages with the others are fewer.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    // 56,000 pointers are adjusted whenever the program starts. The list of them is read for that: 1.4 MB, or 16 KB when packed,
    // which glibc takes since 2.36. The engine's C++ library needs that version anyway; a program without the engine does not.
    let engine = env::var_os("CARGO_FEATURE_LOCAL").is_some();
    if engine && env::var("HOST") == env::var("TARGET") && takes_packed_list() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Tells whether the C library of this machine does; it says so by the version of a symbol.
fn takes_packed_list() -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6"));
    let bytes = library.and_then(|path| fs::read(path).ok()).unwrap_or_default();
    let version = b"GLIBC_ABI_DT_RELR";
    bytes.windows(version.len()).any(|window| window == version)
}
