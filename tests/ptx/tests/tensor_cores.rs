//! Products on tensor cores: `mma.sync`, `ldmatrix` and `cp.async` in the interpreter of PTX, by `ptxas`, and the mix of
//! instructions of their main loop.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::products::{Sizes, module, program, with_tiles};
use common::{
    Change, Products, all_architectures, changed, late, main_loop, moved, noticed, unordered,
};
use hone_codegen::nvptx::{Architecture, ProductOptions, Tiles, product};
use hone_device_tests::count;
use hone_ptx_tests::{Ptxas, parse, run};
use hone_tensor::interpret;
use hone_types::{DataType, Tensor};

/// Products in all layouts, types and tiles.
fn cases() -> Vec<(Sizes, Tiles)> {
    use DataType::{BF16, F16, F32, I8, U8};
    let mut cases = Vec::new();
    for tiles in Tiles::ALL {
        let [m, n] = tiles.block;
        let mut add = |number: usize, dtypes: [DataType; 2], by_depth: [bool; 2]| {
            // Fewer, as many and more tiles of the depth than stages.
            let rounds = [1, tiles.stages - 1, tiles.stages + 2, 2][number % 4];
            let depth = tiles.depth(dtypes[0].bytes()) * rounds;
            let (batch, rows) = if number == 0 { (2, 1) } else { (1, 1 + number % 2) };
            let extents = [m * rows, n * (3 - rows).min(2), depth];
            cases.push((Sizes { dtypes, batch, extents, by_depth }, tiles));
        };
        let layouts = [[true, false], [true, true], [false, false], [false, true]];
        for (number, by_depth) in layouts.into_iter().enumerate() {
            add(number, [F16; 2], by_depth);
            add(number, [BF16; 2], by_depth);
        }
        let others = [[F32, F32], [I8, I8], [U8, I8], [I8, U8], [U8, U8]];
        for (number, dtypes) in others.into_iter().enumerate() {
            add(number, dtypes, [true, true]);
        }
    }
    cases
}

#[test]
fn products_compute_the_same_on_tensor_cores() {
    let mut products = Products::default();
    for (sizes, tiles) in cases() {
        let (program, inputs) = program(&sizes);
        let expected = interpret(&program, &inputs).unwrap();
        for architecture in all_architectures() {
            if architecture == Architecture::Sm75 {
                assert!(with_tiles(&program, architecture, Some(tiles)).is_none());
                continue;
            }
            let module = module(&program, architecture, tiles);
            let case = (&program, &inputs[..], &expected[..]);
            products.check(&module, architecture, case, &(&sizes, &tiles));
        }
    }
    products.finish("products on tensor cores");
}

/// Products of which some tiles are not whole: along rows, columns, the depth, and all of them.
fn tails() -> Vec<Sizes> {
    use DataType::{BF16, F16, F32, I8, U8};
    let product = |dtype: DataType, extents: [usize; 3], by_depth: [bool; 2]| Sizes {
        dtypes: [dtype; 2],
        batch: 1,
        extents,
        by_depth,
    };
    vec![
        product(F16, [49, 72, 32], [true, false]),
        product(F16, [33, 31, 64], [true, true]),
        product(F16, [64, 64, 40], [true, true]),
        product(BF16, [100, 40, 72], [true, false]),
        product(BF16, [7, 1000, 8], [true, true]),
        // Of operands with the depth first any depth will do.
        product(F16, [40, 24, 37], [false, false]),
        product(F16, [72, 200, 3], [false, false]),
        product(F16, [136, 5, 136], [false, true]),
        Sizes { batch: 3, ..product(F16, [17, 48, 88], [true, false]) },
        product(F32, [19, 21, 20], [true, true]),
        Sizes { dtypes: [U8, I8], ..product(I8, [50, 70, 80], [true, true]) },
    ]
}

#[test]
fn products_in_tiles_that_are_not_whole_compute_the_same() {
    let mut products = Products::default();
    for (number, sizes) in tails().into_iter().enumerate() {
        let (program, inputs) = program(&sizes);
        let expected = interpret(&program, &inputs).unwrap();
        for architecture in all_architectures().into_iter().filter(|one| *one != Architecture::Sm75)
        {
            for tiles in [Tiles::ALL[4], Tiles::ALL[number % 4]] {
                let Some(module) = with_tiles(&program, architecture, Some(tiles)) else {
                    panic!("{sizes:?} {tiles:?}: {program}")
                };
                let case = (&program, &inputs[..], &expected[..]);
                products.check(&module, architecture, case, &(&sizes, &tiles));
            }
        }
    }
    products.finish("products in tiles that are not whole");
}

/// What is copied beyond the depth of one operand alone is multiplied by zero.
#[test]
fn copies_beyond_the_depth_are_noticed() {
    for by_depth in [[true, true], [false, false]] {
        let extents = [64, 64, 40];
        let sizes = Sizes { dtypes: [DataType::F16; 2], batch: 1, extents, by_depth };
        let (program, inputs) = program(&sizes);
        let expected = interpret(&program, &inputs).unwrap();
        let module = module(&program, Architecture::Sm80, Tiles::ALL[3]);
        let copy = |line: &str| match line.split_once(", 16, ") {
            Some((before, _)) if line.contains("cp.async") => format!("{before}, 16;\n"),
            _ => format!("{line}\n"),
        };
        let text: String = module.text.lines().map(copy).collect();
        assert_ne!(text.matches(", 16;").count(), module.text.matches(", 16;").count());
        let results = run(&parse(&text).unwrap(), &program, &module.steps, &inputs);
        assert!(results.is_err() || results.unwrap() != expected, "{by_depth:?}: {text}");
    }
}

#[test]
fn what_is_no_product_in_whole_chunks_is_left_to_others() {
    let none = |sizes: Sizes| {
        let (program, _) = program(&sizes);
        let module =
            product(&program, Architecture::Sm80, &ProductOptions::default(), "k").unwrap();
        module.is_none()
    };
    let whole = Sizes {
        dtypes: [DataType::F16; 2],
        batch: 1,
        extents: [64, 64, 32],
        by_depth: [true, false],
    };
    assert!(!none(whole));
    assert!(!none(Sizes { extents: [63, 64, 40], ..whole }));
    // Nobody has allowed to leave bits out, and bytes are not transposed.
    assert!(none(Sizes { dtypes: [DataType::F32; 2], by_depth: [true, true], ..whole }));
    assert!(none(Sizes { dtypes: [DataType::I8; 2], extents: [64, 64, 64], ..whole }));
    // Lines that do not begin at multiples of 16 bytes, by the depth and by columns.
    assert!(none(Sizes { extents: [64, 64, 36], ..whole }));
    assert!(none(Sizes { extents: [64, 60, 32], ..whole }));
    // Most of a tile would be filled up.
    assert!(none(Sizes { extents: [7, 64, 32], ..whole }));
}

/// What Triton 3.9 makes of the same tile for sm_80: 183 instructions for 64 products of tensor cores, 16 reads of
/// matrices and 8 copies.
const TRITON: (usize, usize) = (183, 64);

#[test]
fn main_loops_hold_little_but_products() {
    let Some(ptxas) = Ptxas::of_tests().unwrap() else { return };
    for by_depth in [[true, true], [true, false]] {
        let sizes =
            Sizes { dtypes: [DataType::F16; 2], batch: 1, extents: [4096, 4096, 4096], by_depth };
        let (program, _) = program(&sizes);
        for architecture in
            Architecture::ALL.into_iter().filter(|other| *other != Architecture::Sm75)
        {
            let module = module(&program, architecture, Tiles::ALL[0]);
            let assembled = ptxas.assemble(&module.text, architecture.name()).unwrap();
            let resources = &assembled.resources[0];
            assert_eq!((resources.spill_stores, resources.spill_loads), (0, 0), "{resources:?}");
            let Some(sass) = ptxas.disassemble(&assembled.cubin).unwrap() else { return };
            let (all, counts) = main_loop(&sass, &["HMMA", "LDSM", "LDGSTS"]);
            let ratio = (all - counts[0]) as f64 / counts[0] as f64;
            println!(
                "{architecture}, depth last {by_depth:?}: {} registers; main loop of {all} instructions, of them \
                 {counts:?} HMMA, LDSM, LDGSTS: {ratio:.2} others for each HMMA (Triton: {:.2})",
                resources.registers,
                (TRITON.0 - TRITON.1) as f64 / TRITON.1 as f64
            );
            assert_eq!(counts, [64, 16, 8], "{sass}");
            assert!(all <= TRITON.0, "{all} instructions\n{sass}");
        }
    }
}

#[test]
fn every_fault_in_copies_and_matrices_is_noticed() {
    let tiles = Tiles::ALL[4];
    let mut faults = std::collections::BTreeMap::<&str, usize>::new();
    for by_depth in [[true, false], [false, true]] {
        let sizes =
            Sizes { dtypes: [DataType::F16; 2], batch: 1, extents: [32, 64, 256], by_depth };
        let (program, inputs) = program(&sizes);
        let expected = interpret(&program, &inputs).unwrap();
        let module = module(&program, Architecture::Sm80, tiles);
        let noticed = |text: &str| {
            let right = |results: &[Tensor]| results == expected;
            noticed(text, (&program, &module.steps), &inputs, right)
        };
        assert!(!noticed(&module.text));
        // The last one waits for nothing that is still read.
        let late = |line: &str| late(line, "cp.async.wait_group", 1);
        let barrier = |line: &str| line.contains("bar.sync").then(String::new);
        let matrix = |line: &str| moved(line, &["ldmatrix"], 16);
        let copy = |line: &str| moved(line, &["cp.async.cg"], 16);
        let turned = |line: &str| line.contains(".trans").then(|| line.replace(".trans", ""));
        let kinds: [(&str, Change<'_>); 6] = [
            ("waits one stage late", &late),
            ("barriers removed", &barrier),
            ("matrices read one chunk off", &matrix),
            ("copies one chunk off", &copy),
            ("orders of chunks wrong", &unordered),
            ("matrices not transposed", &turned),
        ];
        for (kind, change) in kinds {
            for text in changed(&module.text, change) {
                assert!(noticed(&text), "{kind}: {text}");
                *faults.entry(kind).or_default() += 1;
            }
        }
    }
    println!("PTX on tensor cores: {faults:?}");
    count(faults.values().sum(), "faults in PTX noticed");
    assert_eq!(faults.len(), 6, "{faults:?}");
}
