//! Links what is shipped so that starting it touches little memory.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if linux && std::env::var_os("CARGO_FEATURE_STATIC_LLVM").is_some() {
        // LLVM holds a million pointers. Packed, the list of where they are takes kilobytes, not tens of
        // megabytes that every start reads. Needs glibc 2.36 or newer where the program runs.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
