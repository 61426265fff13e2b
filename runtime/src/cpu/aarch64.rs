//! AArch64: the bits that Linux puts into the auxiliary vector.
//!
//! Bit positions are those of Linux' `asm/hwcap.h`, names those of LLVM.

/// Name, word (0 for `AT_HWCAP`, 1 for `AT_HWCAP2`), bits that must all be set.
const FEATURES: &[(&str, usize, u64)] = &[
    ("fp-armv8", 0, 1),
    ("neon", 0, 1 << 1),
    ("aes", 0, 1 << 3 | 1 << 4),
    ("sha2", 0, 1 << 5 | 1 << 6),
    ("crc", 0, 1 << 7),
    ("lse", 0, 1 << 8),
    ("fullfp16", 0, 1 << 9 | 1 << 10),
    ("rdm", 0, 1 << 12),
    ("jsconv", 0, 1 << 13),
    ("complxnum", 0, 1 << 14),
    ("rcpc", 0, 1 << 15),
    ("ccpp", 0, 1 << 16),
    ("dotprod", 0, 1 << 20),
    ("sve", 0, 1 << 22),
    ("fp16fml", 0, 1 << 23),
    ("sve2", 1, 1 << 1),
    ("f32mm", 1, 1 << 10),
    ("f64mm", 1, 1 << 11),
    ("i8mm", 1, 1 << 13),
    ("bf16", 1, 1 << 14),
    ("sme", 1, 1 << 23),
];

/// The names of all features that this file can probe.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FEATURES.iter().map(|feature| feature.0)
}

/// Whether this machine has the feature; no for one that this file does not know.
pub(super) fn has(name: &str) -> bool {
    let Some(&(_, word, bits)) = FEATURES.iter().find(|feature| feature.0 == name) else {
        // The architecture's base level is what makes it AArch64.
        return name == "v8a";
    };
    let kind = if word == 0 { libc::AT_HWCAP } else { libc::AT_HWCAP2 };
    // SAFETY: reads this process's auxiliary vector; 0 for an entry that is not there.
    let found = unsafe { libc::getauxval(kind) };
    found & bits == bits
}
