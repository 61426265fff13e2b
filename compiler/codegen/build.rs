//! Compiles the C++ part against the headers of the LLVM that `llvm-sys` has found.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/targets/table.cpp");
    let config = std::env::var("DEP_LLVM_19_CONFIG_PATH")
        .unwrap_or_else(|_| panic!("llvm-sys, a dependency, does not say where llvm-config is"));
    let output = Command::new(&config)
        .arg("--includedir")
        .output()
        .unwrap_or_else(|error| panic!("{config} could not be started: {error}"));
    assert!(output.status.success(), "{config} --includedir failed: {output:?}");
    let include = String::from_utf8_lossy(&output.stdout);
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .flag_if_supported("-fno-rtti")
        .flag_if_supported("-fno-exceptions")
        .flag_if_supported("-Wno-unused-parameter")
        .include(include.trim())
        .file("src/targets/table.cpp")
        .compile("hone_targets");
}
