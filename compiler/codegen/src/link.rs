//! Object files to one shared object, or to a program that needs no library.

use crate::error::{CodegenError, Result};
use crate::{ObjectCode, Target};
use std::path::PathBuf;
use std::process::Command;

/// Linkers that are looked for, best first: program, and the arguments that make it a linker.
const LINKERS: [(&str, &[&str]); 4] = [
    ("ld.lld-19", &[]),
    ("ld.lld", &[]),
    ("/usr/lib/llvm-19/bin/ld.lld", &[]),
    ("rust-lld", &["-flavor", "gnu"]),
];

/// Links objects to one shared object that needs no library. Equal objects give equal bytes. Symbols
/// that nothing defines are an error.
pub fn link(objects: &[ObjectCode], target: &Target) -> Result<Vec<u8>> {
    let objects: Vec<&[u8]> = objects.iter().map(|object| object.bytes.as_slice()).collect();
    let options = ["-shared", "-z", "defs", "-z", "relro", "--hash-style=gnu"];
    run_linker(&objects, target, &options)
}

/// Links an object to a static executable that begins at `_start`.
pub(crate) fn link_executable(object: &[u8], target: &Target) -> Result<Vec<u8>> {
    run_linker(&[object], target, &["-static", "--entry=_start"])
}

fn run_linker(objects: &[&[u8]], target: &Target, options: &[&str]) -> Result<Vec<u8>> {
    let directory = tempfile::tempdir()?;
    let output = directory.path().join("linked");
    let mut inputs = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let input = directory.path().join(format!("{index:06}.o"));
        std::fs::write(&input, object)?;
        inputs.push(input);
    }
    // A response file, as thousands of objects do not fit a command line.
    let list = directory.path().join("inputs");
    let lines: Vec<String> =
        inputs.iter().map(|input| format!("\"{}\"\n", input.display())).collect();
    std::fs::write(&list, lines.concat())?;
    let (program, flavor) = linker()?;
    let run = Command::new(program)
        .args(flavor)
        .args(options)
        .args(["-z", "noexecstack", "--build-id=none", "--strip-all", "--no-dynamic-linker"])
        .arg("--threads=1")
        .args(emulation(target))
        .arg(format!("@{}", list.display()))
        .arg("-o")
        .arg(&output)
        .output()?;
    if !run.status.success() {
        let message = String::from_utf8_lossy(&run.stderr).trim().to_string();
        return Err(CodegenError::Link { message });
    }
    Ok(std::fs::read(&output)?)
}

/// The linker's name of the target's format; taken from the first object where there is none.
fn emulation(target: &Target) -> Vec<&'static str> {
    let arch = target.triple.split('-').next().unwrap_or_default();
    match arch {
        "x86_64" => vec!["-m", "elf_x86_64"],
        "aarch64" => vec!["-m", "aarch64linux"],
        "riscv64" => vec!["-m", "elf64lriscv"],
        _ => vec![],
    }
}

fn linker() -> Result<(PathBuf, &'static [&'static str])> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = LINKERS.iter().find_map(|(name, flavor)| {
        let direct = PathBuf::from(name);
        let candidate = if direct.is_absolute() {
            Some(direct).filter(|program| program.is_file())
        } else {
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
        };
        candidate.map(|program| (program, *flavor))
    });
    found.ok_or_else(|| CodegenError::NoLinker {
        looked_for: LINKERS.map(|(name, _)| name).join(", "),
    })
}
