//! Products of tiles: what the machine code computes is what the nest computes, on machines with tile registers and
//! without them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use common::run_on;
use hone_codegen::{Target, assembly};
use hone_schedule::Schedule;
use hone_tensor::{Builder, Combiner, Expr, Intrinsic, Program, Scope, VarId, interpret};
use hone_types::{DataType, Tensor, TensorType};

const LANES: usize = 16;

/// A product and how it is cut.
#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    /// Blocks of 16 columns.
    blocks: usize,
    /// Groups of terms.
    groups: usize,
    /// Rows of a part of a tile, at most 16.
    part: usize,
    /// Groups of a step, at most 16.
    step: usize,
    /// Row parts and column blocks of a tile.
    tile: (usize, usize),
    /// Whether the operand of the rows is the intrinsic's second one.
    swapped: bool,
    /// Whether the sums begin with numbers that are no zeros.
    continues: bool,
}

const WHOLE: Case = Case {
    rows: 32,
    blocks: 4,
    groups: 32,
    part: 16,
    step: 16,
    tile: (2, 2),
    swapped: false,
    continues: false,
};

const CASES: [Case; 10] = [
    WHOLE,
    Case { swapped: true, ..WHOLE },
    Case { continues: true, ..WHOLE },
    // Rows that end inside of a part, between two parts, and parts of fewer rows.
    Case { rows: 37, blocks: 3, tile: (2, 1), ..WHOLE },
    Case { rows: 48, tile: (2, 2), ..WHOLE },
    Case { rows: 28, part: 14, step: 9, groups: 27, ..WHOLE },
    // As many columns as one part of rows leaves registers for; more operands than registers; one step.
    Case { rows: 7, part: 7, tile: (1, 4), ..WHOLE },
    Case { rows: 48, blocks: 2, tile: (3, 2), ..WHOLE },
    Case { groups: 5, step: 5, ..WHOLE },
    // More sums than registers.
    Case { rows: 64, tile: (4, 2), ..WHOLE },
];

/// `y[m, j] = sum of a[m, k] * b[j / 16, k / d, j % 16, k % d]`, on tiles.
fn product(intrinsic: Intrinsic, case: Case) -> (Program, Program) {
    let run = intrinsic.depth() as usize;
    let sum = intrinsic.result();
    let [first, second] = *intrinsic.operands() else { panic!("{intrinsic:?}") };
    let (a_type, b_type) = if case.swapped { (second, first) } else { (first, second) };
    let mut builder = Builder::new();
    let a = builder.input("a", &TensorType::new(a_type, [case.rows, case.groups, run]));
    let b = builder.input("b", &TensorType::new(b_type, [case.blocks, case.groups, LANES, run]));
    let output = TensorType::new(sum, [case.rows, case.blocks, LANES]);
    let sums = builder.reduce("sums", &output, &[case.groups, run], Combiner::Sum, |point, k| {
        let left = Expr::Load(a, vec![point[0].clone(), k[0].clone(), k[1].clone()]);
        let right = vec![point[1].clone(), k[0].clone(), point[2].clone(), k[1].clone()];
        let right = Expr::Load(b, right);
        if case.swapped {
            right.cast(sum) * left.cast(sum)
        } else {
            left.cast(sum) * right.cast(sum)
        }
    });
    let stored = builder.map("store", &output, |point| Expr::Load(sums, point.to_vec()));
    builder.output(stored);
    let plain = builder.finish();
    let mut schedule = Schedule::new(plain.clone());
    let (sums, store) = (schedule.block("sums").unwrap(), schedule.block("store").unwrap());
    let loops = schedule.loops(store);
    let (row_tiles, rows) = schedule.split(loops[0], case.part * case.tile.0).unwrap();
    let (column_tiles, columns) = schedule.split(loops[1], case.tile.1).unwrap();
    schedule.reorder(&[column_tiles, row_tiles, columns, rows]).unwrap();
    schedule.compute_at(sums, row_tiles).unwrap();
    schedule.set_scope(sums, Scope::Scratch).unwrap();
    let loops: Vec<VarId> = schedule.loops(sums)[2..].to_vec();
    let [rows, columns, lanes, groups, terms] = loops[..] else { panic!("{loops:?}") };
    let (parts, rows) = schedule.split(rows, case.part).unwrap();
    let (steps, groups) = schedule.split(groups, case.step).unwrap();
    schedule.reorder(&[steps, parts, columns, rows, lanes, groups, terms]).unwrap();
    let initial = schedule.decompose_reduction(sums, steps).unwrap();
    schedule.unroll(parts).unwrap();
    schedule.unroll(columns).unwrap();
    schedule.tensorize(rows, intrinsic).unwrap();
    schedule.verify().unwrap();
    let mut program = schedule.into_program();
    if case.continues {
        program.blocks[initial].body = hone_tensor::BlockBody::Map(Expr::Constant(3.0, sum));
    }
    let plain = if case.continues { program.clone() } else { plain };
    (plain, program)
}

/// Whole numbers, so that no order of additions makes a difference; bytes use their range.
fn inputs(program: &Program) -> Vec<Tensor> {
    let parameters = program.parameters();
    let inputs = parameters.iter().map(|id| &program.buffers[*id]).take(parameters.len() - 1);
    let values = |index: usize, buffer: &hone_tensor::Buffer| {
        let low = if buffer.dtype == DataType::U8 { 0.0 } else { -100.0 };
        let values = common::random(buffer.elements(), index as u64 + 5);
        let value = |value: &f32| (f64::from(*value).abs() * 220.0 + low).floor();
        let values: Vec<f64> = values.iter().map(value).collect();
        Tensor::from_f64(buffer.dtype, buffer.shape.clone(), &values).unwrap()
    };
    inputs.enumerate().map(|(index, buffer)| values(index, buffer)).collect()
}

fn of_tiles() -> impl Iterator<Item = Intrinsic> {
    Intrinsic::ALL.into_iter().filter(|intrinsic| intrinsic.is_of_tiles())
}

fn check(target: &Target) {
    for (intrinsic, case) in of_tiles().flat_map(|intrinsic| CASES.map(|case| (intrinsic, case))) {
        let (plain, tensorized) = product(intrinsic, case);
        let inputs = inputs(&plain);
        let expected = interpret(&plain, &inputs).unwrap();
        assert_eq!(interpret(&tensorized, &inputs).unwrap(), expected, "{intrinsic:?}, {case:?}");
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.bytes().to_vec()).collect();
        let actual = run_on(&tensorized, &bytes, target);
        assert_eq!(expected[0].bytes(), actual[0], "{intrinsic:?} on {}, {case:?}", target.cpu);
    }
}

#[test]
fn tiles_compute_what_their_nest_does() {
    let host = Target::host().unwrap();
    if of_tiles().all(|intrinsic| !host.has_intrinsic(intrinsic)) {
        eprintln!("this machine has no tile registers: the nest is what runs");
    }
    check(&host);
}

#[test]
fn machines_without_tile_registers_run_the_nest() {
    let host = Target::host().unwrap();
    let cpu = if host.triple.starts_with("x86_64") { "x86-64" } else { "generic" };
    check(&Target::new(&host.triple, cpu, vec![]).unwrap());
    if host.triple.starts_with("x86_64") {
        let off = ["-amx-bf16", "-amx-int8", "-amx-tile"].map(String::from);
        let features = [host.features.clone(), off.to_vec()].concat();
        let target = Target::new(&host.triple, &host.cpu, features).unwrap();
        assert!(of_tiles().all(|intrinsic| !target.has_intrinsic(intrinsic)));
        check(&target);
    }
}

/// How often lines of assembly have each of some instructions.
fn counts(text: &str, names: &[&str]) -> Vec<usize> {
    let count = |name: &&str| text.lines().filter(|line| line.contains(*name)).count();
    names.iter().map(count).collect()
}

#[test]
fn sums_stay_in_tile_registers() {
    let target = Target::new("x86_64-unknown-linux-gnu", "sapphirerapids", vec![]).unwrap();
    let text = |intrinsic, case| assembly(&product(intrinsic, case).1, &target).unwrap();
    let names = ["ldtilecfg", "tilezero", "tileloadd", "tdp", "tilestored", "tilerelease"];
    for (intrinsic, swapped, name) in [
        (Intrinsic::TILE_BF16, false, "tdpbf16ps"),
        (Intrinsic::TILE_U8_I8, false, "tdpbusd"),
        (Intrinsic::TILE_U8_I8, true, "tdpbsud"),
    ] {
        let text = text(intrinsic, Case { swapped, ..WHOLE });
        // One configuration in front of all loops, and four products for two tiles of each operand.
        assert_eq!(counts(&text, &names), [1, 4, 4, 4, 4, 1], "{text}");
        assert_eq!(counts(&text, &[name]), [4], "{text}");
    }
    // Sums that go on are read; tiles of two shapes have a configuration each.
    let continued = text(Intrinsic::TILE_BF16, Case { continues: true, ..WHOLE });
    assert_eq!(counts(&continued, &names), [1, 0, 8, 4, 4, 1], "{continued}");
    let tail = Case { rows: 37, blocks: 3, tile: (2, 1), ..WHOLE };
    let tail = text(Intrinsic::TILE_BF16, tail);
    assert_eq!(counts(&tail, &["ldtilecfg", "tilerelease"]), [2, 1], "{tail}");
}
