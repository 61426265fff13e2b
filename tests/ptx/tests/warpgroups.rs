//! Products of warpgroups: `wgmma.mma_async` in the interpreter of PTX, by `ptxas`, and the mix of instructions of their main
//! loop.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::products::{Sizes, module, program, with_tiles};
use common::{Change, Products, changed, late, main_loop, moved, noticed, unordered};
use hone_codegen::nvptx::{Architecture, Multiplier, ProductOptions, Tiles, product};
use hone_device_tests::count;
use hone_ptx_tests::Ptxas;
use hone_tensor::interpret;
use hone_types::{DataType, Tensor};

const LAYOUTS: [[bool; 2]; 4] = [[true, false], [true, true], [false, false], [false, true]];

fn check(products: &mut Products, sizes: Sizes, tiles: Tiles) {
    let (program, inputs) = program(&sizes);
    let expected = interpret(&program, &inputs).unwrap();
    let module = with_tiles(&program, Architecture::Sm90a, Some(tiles));
    let module = module.unwrap_or_else(|| panic!("{sizes:?} {tiles:?}: {program}"));
    assert!(module.text.contains("wgmma.mma_async"), "{tiles:?}");
    let case = (&program, &inputs[..], &expected[..]);
    products.check(&module, Architecture::Sm90a, case, &(&sizes, &tiles));
}

#[test]
fn products_compute_the_same_by_warpgroups() {
    use DataType::{BF16, F16, F32, I8, U8};
    let mut products = Products::default();
    for (first, tiles) in Tiles::WARPGROUPS.into_iter().enumerate() {
        let [m, n] = tiles.block;
        let mut add = |number: usize, dtypes: [DataType; 2], by_depth: [bool; 2]| {
            // Fewer, as many and more tiles of the depth than stages.
            let rounds = [1, 2, 4, 7][(first + number) % 4];
            let depth = tiles.depth(dtypes[0].bytes()) * rounds;
            let batch = if number == 3 { 2 } else { 1 };
            check(&mut products, Sizes { dtypes, batch, extents: [m, n, depth], by_depth }, tiles);
        };
        for (number, by_depth) in LAYOUTS.into_iter().enumerate() {
            add(number, [[F16; 2], [BF16; 2]][(first + number) % 2], by_depth);
        }
        add(first, [F32; 2], [true, true]);
        add(first + 1, [[I8; 2], [U8; 2]][first % 2], [true, true]);
    }
    products.finish("products of warpgroups");
}

#[test]
fn products_in_tiles_that_are_not_whole_compute_the_same() {
    let product = |dtype: DataType, extents: [usize; 3], by_depth: [bool; 2]| Sizes {
        dtypes: [dtype; 2],
        batch: 1,
        extents,
        by_depth,
    };
    use DataType::{BF16, F16, F32, U8};
    let sizes = [
        product(F16, [49, 72, 32], [true, false]),
        product(F16, [130, 31, 104], [true, true]),
        product(BF16, [7, 300, 8], [true, true]),
        product(F16, [136, 24, 37], [false, false]),
        product(BF16, [264, 5, 136], [false, true]),
        Sizes { batch: 3, ..product(F16, [17, 48, 88], [true, false]) },
        product(F32, [19, 21, 20], [true, true]),
        product(U8, [50, 70, 80], [true, true]),
    ];
    let mut products = Products::default();
    for (number, sizes) in sizes.into_iter().enumerate() {
        for tiles in [Tiles::WARPGROUPS[number % 3], Tiles::WARPGROUPS[3 + (number + 1) % 3]] {
            check(&mut products, sizes, tiles);
        }
    }
    products.finish("products of warpgroups in tiles that are not whole");
}

/// Large products get warpgroups, small ones and those of other architectures do not.
#[test]
fn the_model_gives_large_products_to_warpgroups() {
    let chosen = |extents: [usize; 3], architecture: Architecture| {
        let sizes = Sizes { dtypes: [DataType::F16; 2], batch: 1, extents, by_depth: [true, true] };
        let (program, _) = program(&sizes);
        let options = ProductOptions::default();
        let module = product(&program, architecture, &options, "k").unwrap().unwrap();
        let form = module.text.split("wgmma.mma_async.sync.aligned.").nth(1);
        form.map(|rest| rest.split('.').next().unwrap().to_string())
    };
    let found = |extents| chosen(extents, Architecture::Sm90a);
    assert_eq!(found([4096, 4096, 4096]).as_deref(), Some("m64n256k16"));
    assert_eq!(found([1024, 2048, 1024]).as_deref(), Some("m64n128k16"));
    assert_eq!(found([64, 64, 64]), None);
    assert_eq!(found([16, 1024, 1024]), None);
    assert_eq!(chosen([4096, 4096, 4096], Architecture::Sm89), None);
}

/// The loop of 128 x 256 x 64 of two warpgroups that Triton 3.9 makes for sm_90, which copies by TMA: 129 instructions for 4
/// products.
const TRITON: (usize, usize) = (129, 4);

#[test]
fn main_loops_hold_little_but_products() {
    let Some(ptxas) = Ptxas::of_tests().unwrap() else { return };
    for tiles in Tiles::WARPGROUPS {
        for by_depth in [[true, true], [true, false]] {
            let (dtypes, extents) = ([DataType::F16; 2], [4096; 3]);
            let (program, _) = program(&Sizes { dtypes, batch: 1, extents, by_depth });
            let module = module(&program, Architecture::Sm90a, tiles);
            let assembled = ptxas.assemble(&module.text, "sm_90a").unwrap();
            let resources = &assembled.resources[0];
            assert_eq!((resources.spill_stores, resources.spill_loads), (0, 0), "{resources:?}");
            let Some(sass) = ptxas.disassemble(&assembled.cubin).unwrap() else { return };
            let (all, counts) = main_loop(&sass, &["HGMMA", "LDGSTS"]);
            let copies = (tiles.block[0] + tiles.block[1]) * tiles.depth_bytes / 16 / tiles.lanes();
            println!(
                "sm_90a, {:?} by {} bytes, depth last {by_depth:?}: {} registers; main loop of {all} instructions, of them \
                 {counts:?} HGMMA, LDGSTS: {:.1} others for each HGMMA",
                tiles.block,
                tiles.depth_bytes,
                resources.registers,
                (all - counts[0]) as f64 / counts[0] as f64
            );
            assert_eq!(counts, [tiles.depth_bytes / 32, copies], "{sass}");
            assert!(all <= TRITON.0, "{all} instructions\n{sass}");
            assert!(tiles.depth_bytes < 128 || counts[0] == TRITON.1);
        }
    }
}

#[test]
fn every_fault_in_products_of_warpgroups_is_noticed() {
    let mut faults = std::collections::BTreeMap::<&str, usize>::new();
    for (tiles, by_depth) in
        [(Tiles::WARPGROUPS[1], [true, false]), (Tiles::WARPGROUPS[5], [false, true])]
    {
        assert_eq!(tiles.multiplier, Multiplier::Warpgroup);
        let extents = [128, 128, 8 * tiles.depth(2)];
        let (program, inputs) =
            program(&Sizes { dtypes: [DataType::F16; 2], batch: 1, extents, by_depth });
        let expected = interpret(&program, &inputs).unwrap();
        let module = module(&program, Architecture::Sm90a, tiles);
        let noticed = |text: &str| {
            let right = |results: &[Tensor]| results == expected;
            noticed(text, (&program, &module.steps), &inputs, right)
        };
        assert!(!noticed(&module.text));
        let without = |line: &str, word: &str| line.contains(word).then(String::new);
        // The last wait for copies waits for nothing that is still read.
        let copies_late = |line: &str| late(line, "cp.async.wait_group", 1);
        let products_late = |line: &str| late(line, "wgmma.wait_group.sync.aligned", 0);
        let unwaited = |line: &str| without(line, "wgmma.wait_group");
        let uncommitted = |line: &str| without(line, "wgmma.commit_group");
        let unfenced = |line: &str| without(line, "wgmma.fence");
        let invisible = |line: &str| without(line, "fence.proxy.async");
        let barrier = |line: &str| without(line, "bar.sync");
        let copy = |line: &str| moved(line, &["cp.async.cg"], 16);
        let order = |line: &str| descriptor(line, |fixed| fixed ^ 3 << 62);
        let stride = |line: &str| descriptor(line, |fixed| fixed + (16 << 32));
        let later = |line: &str| {
            let adds = line.contains("wgmma.mma_async") && line.contains(", later,");
            adds.then(|| line.replace(", later,", ", always,"))
        };
        let turned = |line: &str| {
            let (before, orders) = line.split_once("1, 1, ")?;
            let other = match orders {
                "0, 0;" => "0, 1;",
                "0, 1;" => "0, 0;",
                "1, 0;" => "1, 1;",
                _ => return None,
            };
            line.contains("wgmma").then(|| format!("{before}1, 1, {other}"))
        };
        let operands = |line: &str| product_with(line, |a, b| [b, a]);
        let stuck = |line: &str| product_with(line, |a, _| [a.clone(), a]);
        let kinds: [(&str, Change<'_>); 15] = [
            ("waits for copies one stage late", &copies_late),
            ("waits for products one group late", &products_late),
            ("products not waited for", &unwaited),
            ("products in no group", &uncommitted),
            ("sums not fenced", &unfenced),
            ("copies not fenced", &invisible),
            ("barriers removed", &barrier),
            ("copies one chunk off", &copy),
            ("orders of chunks wrong", &unordered),
            ("descriptors of another order", &order),
            ("descriptors of another stride", &stride),
            ("sums that do not begin", &later),
            ("operands not transposed", &turned),
            ("operands exchanged", &operands),
            ("descriptors of the wrong operand", &stuck),
        ];
        for (kind, change) in kinds {
            for text in changed(&module.text, change) {
                assert!(noticed(&text), "{kind}: {text}");
                *faults.entry(kind).or_default() += 1;
            }
        }
        for text in steps_off(&module.text) {
            assert!(noticed(&text), "descriptors one step off: {text}");
            *faults.entry("descriptors one step off").or_default() += 1;
        }
        for text in stages_off(&module.text) {
            assert!(noticed(&text), "stages: {text}");
            *faults.entry("stages that begin elsewhere").or_default() += 1;
        }
    }
    println!("PTX of warpgroups: {faults:?}");
    count(faults.values().sum(), "faults in PTX noticed");
    assert_eq!(faults.len(), 17, "{faults:?}");
}

/// A line that makes a descriptor, with other constant bits.
fn descriptor(line: &str, change: impl Fn(u64) -> u64) -> Option<String> {
    let (before, fixed) = line.split_once("or.b64")?;
    let (registers, fixed) = fixed.rsplit_once(", ")?;
    let fixed: i64 = fixed.trim_end_matches(';').parse().ok()?;
    let fixed = Some(fixed as u64).filter(|fixed| fixed >> 62 != 0)?;
    Some(format!("{before}or.b64{registers}, {};", change(fixed) as i64))
}

/// A product with other descriptors.
fn product_with(line: &str, change: impl Fn(String, String) -> [String; 2]) -> Option<String> {
    let (before, rest) = line.split_once("}, ").filter(|_| line.contains("wgmma.mma_async"))?;
    let [a, b, rest] = rest.splitn(3, ", ").collect::<Vec<_>>()[..] else { return None };
    let [a, b] = change(a.to_string(), b.to_string());
    Some(format!("{before}}}, {a}, {b}, {rest}"))
}

/// Texts in which one descriptor of a product is two units (32 bytes) further.
fn steps_off(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in text.lines().filter(|line| line.contains("wgmma.mma_async")) {
        let Some((_, rest)) = line.split_once("}, ") else { continue };
        for register in rest.split(", ").take(2) {
            let added = |line: &str| {
                let defines = line.contains(&format!("add.s64 \t{register}, "));
                defines.then(|| format!("{line}\n\tadd.s64 \t{register}, {register}, 2;"))
            };
            all.extend(changed(text, &added));
        }
    }
    all
}

/// Texts in which the offset of a stage in a round's descriptors is another one: what is shifted by 4 bits.
fn stages_off(text: &str) -> Vec<String> {
    let shift = |line: &str| {
        let shifts = line.trim_start().starts_with("shr.u64") && line.ends_with(", 4;");
        shifts.then(|| line.replace(", 4;", ", 5;"))
    };
    changed(text, &shift)
}
