//! Any bytes: the importer returns, within its limits.

#![no_main]

use hone_import::{FoldingLimits, ImportOptions, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        structure_bytes: 16 << 20,
        constant_bytes: 32 << 20,
        folding: FoldingLimits {
            result_bytes: 1 << 20,
            operations: 1 << 20,
            all_operations: 1 << 22,
        },
        nodes: 10_000,
        ..Limits::default()
    };
    let options = ImportOptions { limits, ..ImportOptions::default() };
    let _ = hone_import::import(bytes, &options);
    let _ = hone_import::signature(bytes);
});
