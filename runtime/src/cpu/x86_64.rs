//! x86-64: the bits of CPUID, and that the system saves the registers that a feature uses.
//!
//! Bit positions are those of the Intel and AMD architecture manuals, volumes on CPUID.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// State components of XCR0 that the system must have enabled.
const NONE: u64 = 0;
const AVX: u64 = 0x6;
const AVX512: u64 = 0xe6;
const AMX: u64 = 0x6_0000;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;

/// Features that share a register of CPUID: leaf, subleaf, register, then name, bit and needed state.
struct Group(u32, u32, usize, &'static [(&'static str, u32, u64)]);

const GROUPS: &[Group] = &[
    Group(
        1,
        0,
        C,
        &[
            ("sse3", 0, NONE),
            ("pclmul", 1, NONE),
            ("ssse3", 9, NONE),
            ("fma", 12, AVX),
            ("cx16", 13, NONE),
            ("sse4.1", 19, NONE),
            ("sse4.2", 20, NONE),
            ("crc32", 20, NONE),
            ("movbe", 22, NONE),
            ("popcnt", 23, NONE),
            ("aes", 25, NONE),
            ("xsave", 26, NONE),
            ("avx", 28, AVX),
            ("f16c", 29, AVX),
            ("rdrnd", 30, NONE),
        ],
    ),
    Group(
        1,
        0,
        D,
        &[
            ("x87", 0, NONE),
            ("cx8", 8, NONE),
            ("cmov", 15, NONE),
            ("mmx", 23, NONE),
            ("fxsr", 24, NONE),
            ("sse", 25, NONE),
            ("sse2", 26, NONE),
        ],
    ),
    Group(
        7,
        0,
        B,
        &[
            ("fsgsbase", 0, NONE),
            ("bmi", 3, NONE),
            ("avx2", 5, AVX),
            ("bmi2", 8, NONE),
            ("avx512f", 16, AVX512),
            ("evex512", 16, AVX512),
            ("avx512dq", 17, AVX512),
            ("rdseed", 18, NONE),
            ("adx", 19, NONE),
            ("avx512ifma", 21, AVX512),
            ("clflushopt", 23, NONE),
            ("clwb", 24, NONE),
            ("avx512cd", 28, AVX512),
            ("sha", 29, NONE),
            ("avx512bw", 30, AVX512),
            ("avx512vl", 31, AVX512),
        ],
    ),
    Group(
        7,
        0,
        C,
        &[
            ("avx512vbmi", 1, AVX512),
            ("avx512vbmi2", 6, AVX512),
            ("gfni", 8, NONE),
            ("vaes", 9, AVX),
            ("vpclmulqdq", 10, AVX),
            ("avx512vnni", 11, AVX512),
            ("avx512bitalg", 12, AVX512),
            ("avx512vpopcntdq", 14, AVX512),
            ("rdpid", 22, NONE),
            ("cldemote", 25, NONE),
            ("movdiri", 27, NONE),
            ("movdir64b", 28, NONE),
        ],
    ),
    Group(
        7,
        0,
        D,
        &[
            ("avx512vp2intersect", 8, AVX512),
            ("serialize", 14, NONE),
            ("amx-bf16", 22, AMX),
            ("avx512fp16", 23, AVX512),
            ("amx-tile", 24, AMX),
            ("amx-int8", 25, AMX),
        ],
    ),
    Group(
        7,
        1,
        A,
        &[
            ("sha512", 0, AVX),
            ("avxvnni", 4, AVX),
            ("avx512bf16", 5, AVX512),
            ("amx-fp16", 21, AMX),
            ("avxifma", 23, AVX),
        ],
    ),
    Group(
        7,
        1,
        D,
        &[
            ("avxvnniint8", 4, AVX),
            ("avxneconvert", 5, AVX),
            ("amx-complex", 8, AMX),
            ("avxvnniint16", 10, AVX),
        ],
    ),
    Group(0xd, 1, A, &[("xsaveopt", 0, NONE), ("xsavec", 1, NONE), ("xsaves", 3, NONE)]),
    Group(
        0x8000_0001,
        0,
        C,
        &[("sahf", 0, NONE), ("lzcnt", 5, NONE), ("sse4a", 6, NONE), ("prfchw", 8, NONE)],
    ),
    Group(0x8000_0001, 0, D, &[("64bit", 29, NONE)]),
    Group(0x8000_0008, 0, B, &[("clzero", 0, NONE), ("wbnoinvd", 9, NONE)]),
];

/// The names of all features that this file can probe.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.3.iter().map(|feature| feature.0))
}

/// Whether this machine has the feature; no for one that this file does not know.
pub(super) fn has(name: &str) -> bool {
    for &Group(leaf, subleaf, register, features) in GROUPS {
        if let Some(&(_, bit, state)) = features.iter().find(|feature| feature.0 == name) {
            let present = cpuid(leaf, subleaf)[register] >> bit & 1 == 1;
            return present && enabled(state) && (state != AMX || tiles_permitted());
        }
    }
    false
}

/// The registers EAX, EBX, ECX and EDX; zeros for a leaf that this processor does not have.
fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let most = __cpuid(leaf & 0x8000_0000).eax;
    if leaf > most || (leaf == 7 && subleaf > __cpuid_count(7, 0).eax) {
        return [0; 4];
    }
    let r = __cpuid_count(leaf, subleaf);
    [r.eax, r.ebx, r.ecx, r.edx]
}

/// Whether the system saves all these state components on a switch of threads.
fn enabled(state: u64) -> bool {
    const OSXSAVE: u32 = 27;
    if state == NONE {
        return true;
    }
    if cpuid(1, 0)[C] >> OSXSAVE & 1 == 0 {
        return false;
    }
    // SAFETY: OSXSAVE says that the instruction exists and the system uses it.
    let saved = unsafe { saved_state() };
    saved & state == state
}

#[target_feature(enable = "xsave")]
fn saved_state() -> u64 {
    // SAFETY: register 0 always exists; the feature is the caller's to have checked.
    unsafe { _xgetbv(0) }
}

/// Asks Linux to let this process use tile registers, which it must before the first use.
fn tiles_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: a plain system call without pointers; asking again is harmless.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}
