//! The register-tiled matrix product: right, and free of spills.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support {
    mod common;
    pub mod gemm;
    pub use common::*;
}
use support::gemm::{Sizes, plain, scheduled};
use support::{f32s, random, run, to_f32s, worst};

fn check(sizes: Sizes) {
    let tile = sizes.lanes * sizes.vectors;
    let tiles = sizes.n.div_ceil(tile);
    let a = random(sizes.m * sizes.k, 1);
    let b = random(tiles * sizes.k * tile, 2);
    let mut expected = Vec::new();
    for i in 0..sizes.m {
        for j in 0..sizes.n {
            let product = |k: usize| {
                let b = b[(j / tile * sizes.k + k) * tile + j % tile];
                f64::from(a[i * sizes.k + k]) * f64::from(b)
            };
            expected.push((0..sizes.k).map(product).sum());
        }
    }
    for program in [plain(sizes), scheduled(sizes)] {
        let actual = to_f32s(&run(&program, &[f32s(&a), f32s(&b)])[0]);
        let error = worst(&actual, &expected);
        assert!(error < 1e-5, "error {error}");
    }
}

#[test]
fn whole_tiles() {
    check(Sizes { m: 28, n: 64, k: 48, rows: 14, lanes: 16, vectors: 2, unroll: 4 });
}

#[test]
fn tails_in_rows_and_columns() {
    check(Sizes { m: 31, n: 75, k: 12, rows: 14, lanes: 16, vectors: 2, unroll: 4 });
}

#[test]
fn smaller_than_a_tile() {
    check(Sizes { m: 3, n: 5, k: 4, rows: 14, lanes: 16, vectors: 2, unroll: 4 });
}
