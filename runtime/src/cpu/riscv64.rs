//! RISC-V with 64 bits: the bits that Linux puts into the auxiliary vector.
//!
//! Bits are those of single-letter extensions, counted from `a`, as in Linux' `asm/hwcap.h`; names are
//! those of LLVM. Linux states V only where its version is 1.0 and the system saves its registers.

const FEATURES: &[&str] = &["a", "c", "d", "f", "m", "v"];

/// The names of all features that this file can probe.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FEATURES.iter().copied()
}

/// Whether this machine has the feature; no for one that this file does not know.
pub(super) fn has(name: &str) -> bool {
    if !FEATURES.contains(&name) {
        return false;
    }
    let bit = name.as_bytes()[0] - b'a';
    // SAFETY: reads this process's auxiliary vector; 0 for an entry that is not there.
    let found = unsafe { libc::getauxval(libc::AT_HWCAP) };
    found >> bit & 1 == 1
}
