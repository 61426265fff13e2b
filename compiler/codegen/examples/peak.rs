//! Register tiles of the matrix product against this machine's measured peak, data in the nearest
//! cache: `cargo run --release -p hone-codegen --example peak`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/support/common.rs"]
mod common;
#[path = "../tests/support/gemm.rs"]
mod gemm;

use common::{Memory, load};
use gemm::{Sizes, scheduled};
use std::time::Instant;

/// A tile to time: its sizes, code and buffers.
struct Entry {
    sizes: Sizes,
    code: common::Loaded,
    buffers: [Memory; 3],
    best: f64,
}

fn main() {
    let machine = hone_codegen::probe().unwrap();
    println!("{machine:#?}");
    let tiles = [(14, 2), (12, 2), (9, 3), (8, 3), (6, 4), (5, 5), (28, 1)];
    let mut entries: Vec<Entry> = Vec::new();
    for (rows, vectors) in tiles {
        for unroll in [1, 2, 4] {
            let (m, n) = (rows * 4, 16 * vectors);
            let sizes = Sizes { m, n, k: 256, rows, lanes: 16, vectors, unroll };
            let code = load(&scheduled(sizes));
            let buffers = [m * 256, 256 * n, m * n].map(|count| Memory::of(&vec![0; 4 * count]));
            entries.push(Entry { sizes, code, buffers, best: f64::INFINITY });
        }
    }
    let mut peak: f64 = machine.f32_gflops;
    for round in 0..200 {
        for entry in &mut entries {
            let table = entry.buffers.each_mut().map(Memory::pointer);
            let (kernel, tasks) = (entry.code.entry(0), entry.code.kernels[0].tasks as i64);
            let start = Instant::now();
            for _ in 0..10 {
                // SAFETY: the table holds the kernel's buffers; it uses no scratch memory.
                unsafe { kernel(table.as_ptr(), 0, tasks, std::ptr::null_mut()) };
            }
            entry.best = entry.best.min(start.elapsed().as_secs_f64() / 10.0);
        }
        if round % 50 == 49 {
            peak = peak.max(hone_codegen::probe().unwrap().f32_gflops);
        }
    }
    for Entry { sizes, best, .. } in &entries {
        let rate = 2.0 * (sizes.m * sizes.n * sizes.k) as f64 / best / 1e9;
        let Sizes { rows, vectors, unroll, .. } = sizes;
        println!(
            "{rows:2} x {:2} k by {unroll}: {rate:6.1} GFLOP/s, {:5.1} % of peak",
            vectors * 16,
            100.0 * rate / peak
        );
    }
}
