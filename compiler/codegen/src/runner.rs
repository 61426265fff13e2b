//! A program that holds memory and calls kernels for a process outside of an emulator.
//!
//! Its code is `runner.ll`, whose head lists the requests that it serves; it is compiled and linked here, so
//! that running code for another architecture needs no compiler and no library of that architecture.

use crate::Target;
use crate::compile::object;
use crate::error::{CodegenError, Result};
use crate::link::link_executable;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;

/// How an architecture enters a program and calls the system. Linux, 64 bits.
struct System {
    /// The architecture, by LLVM's name.
    arch: &'static str,
    /// The architecture's plainest processor, by the API's names.
    platform: (&'static str, &'static str),
    /// What `runner.ll` leaves open.
    words: [(&'static str, &'static str); 10],
}

/// Numbers of the system calls are those of `asm/unistd_64.h` on x86-64, and of
/// `asm-generic/unistd.h` on the others.
const SYSTEMS: [System; 3] = [
    System {
        arch: "x86_64",
        platform: ("amd64", "x86-64"),
        words: [
            ("align_stack", "andq $-16, %rsp"),
            ("jump", "call"),
            ("instruction", "syscall"),
            ("registers", "={ax},{ax},{di},{si},{dx},{r10},{r8},{r9},~{rcx},~{r11},~{memory}"),
            ("read", "0"),
            ("write", "1"),
            ("map", "9"),
            ("unmap", "11"),
            ("exit", "231"),
            ("clock", "228"),
        ],
    },
    System {
        arch: "aarch64",
        platform: ("arm64", ""),
        words: [
            ("align_stack", ""),
            ("jump", "bl"),
            ("instruction", "svc #0"),
            ("registers", "={x0},{x8},{x0},{x1},{x2},{x3},{x4},{x5},~{memory}"),
            ("read", "63"),
            ("write", "64"),
            ("map", "222"),
            ("unmap", "215"),
            ("exit", "94"),
            ("clock", "113"),
        ],
    },
    System {
        arch: "riscv64",
        platform: ("riscv64", ""),
        words: [
            ("align_stack", ""),
            ("jump", "call"),
            ("instruction", "ecall"),
            ("registers", "={x10},{x17},{x10},{x11},{x12},{x13},{x14},{x15},~{memory}"),
            ("read", "63"),
            ("write", "64"),
            ("map", "222"),
            ("unmap", "215"),
            ("exit", "94"),
            ("clock", "113"),
        ],
    },
];

/// The runner of an architecture, by LLVM's name of it, as a static executable for Linux. It uses
/// only what every processor of the architecture has.
///
/// # Errors
/// An architecture that there is no runner for; no linker.
pub fn runner(arch: &str) -> Result<Vec<u8>> {
    const SYMBOL: &str = "runner";
    let system = SYSTEMS.iter().find(|system| system.arch == arch);
    let system = system.ok_or_else(|| CodegenError::Target {
        target: arch.to_string(),
        message: "there is no runner for it".to_string(),
    })?;
    let (platform, cpu) = system.platform;
    let target = Target::for_platform("linux", platform, cpu)?;
    let mut text = include_str!("runner.ll").to_string();
    for (word, meaning) in system.words {
        text = text.replace(&format!("{{{word}}}"), meaning);
    }
    let context = Context::create();
    let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), SYMBOL);
    let module = context.create_module_from_ir(buffer).map_err(|message| {
        let (symbol, message) = (SYMBOL.to_string(), message.to_string());
        CodegenError::Malformed { symbol, message }
    })?;
    link_executable(&object(&module, &target, SYMBOL)?, &target)
}
