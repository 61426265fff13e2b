//! Time to compile and link register-tiled products, on one thread:
//! `cargo run --release -p hone-codegen --example speed`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/support/gemm.rs"]
mod gemm;

use gemm::{Sizes, scheduled};
use hone_codegen::{Options, Target, Unit, compile, kernels, link};
use std::time::Instant;

fn main() {
    let target = Target::host().unwrap();
    let programs: Vec<_> = (0..20)
        .map(|index| {
            let (m, n) = (97 + index, 75);
            scheduled(Sizes { m, n, k: 256, rows: 14, lanes: 16, vectors: 2, unroll: 4 })
        })
        .collect();
    let units: Vec<Unit> =
        programs.iter().map(|program| Unit { symbol: "kernel", program }).collect();
    let options = Options { threads: 1, ..Options::default() };
    let start = Instant::now();
    for unit in &units {
        kernels(unit, &target).unwrap();
    }
    println!("{:?} a kernel for LLVM's input alone", start.elapsed() / units.len() as u32);
    let start = Instant::now();
    let objects = compile(&units, &target, &options).unwrap();
    let each = start.elapsed() / units.len() as u32;
    let start = Instant::now();
    link(&objects[..1], &target).unwrap();
    println!("{each:?} a kernel with all four kinds of tile, {:?} to link one", start.elapsed());
}
