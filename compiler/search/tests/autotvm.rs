//! Candidates by what AutoTVM chose, on programs of the same computations.

#![allow(clippy::unwrap_used)]

use hone_machine::Machine;
use hone_search::autotvm::{self, starts};
use hone_search::{Candidate, Record, Space};
use hone_tensor::{Builder, Combiner, Expr, Program};
use hone_types::{DataType, TensorType};

fn tensor(shape: &[usize]) -> TensorType {
    TensorType::new(DataType::F32, shape)
}

/// 64 to 32 channels of 14 × 14 places by a window of 3 × 3, in blocks of 16 channels.
fn convolution() -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &tensor(&[1, 4, 16, 16, 16]));
    let w = builder.input("w", &tensor(&[2, 4, 3, 3, 16, 16]));
    let output = tensor(&[1, 2, 14, 14, 16]);
    let s = builder.reduce("s", &output, &[4, 3, 3, 16], Combiner::Sum, |i, r| {
        let read = vec![
            i[0].clone(),
            r[0].clone(),
            i[2].clone() + r[1].clone(),
            i[3].clone() + r[2].clone(),
            r[3].clone(),
        ];
        let weight = [&[i[1].clone()], r, &[i[4].clone()]].concat();
        Expr::Load(x, read) * Expr::Load(w, weight)
    });
    let y = builder.map("y", &output, |i| Expr::Load(s, i.to_vec()));
    builder.output(y);
    builder.finish()
}

/// 12 rows and 64 columns of sums of 32 products.
fn product() -> Program {
    let mut builder = Builder::new();
    let (a, b) = (builder.input("a", &tensor(&[12, 32])), builder.input("b", &tensor(&[32, 64])));
    let output = tensor(&[12, 64]);
    let s = builder.reduce("s", &output, &[32], Combiner::Sum, |i, r| {
        Expr::Load(a, vec![i[0].clone(), r[0].clone()])
            * Expr::Load(b, vec![r[0].clone(), i[1].clone()])
    });
    let y = builder.map("y", &output, |i| Expr::Load(s, i.to_vec()));
    builder.output(y);
    builder.finish()
}

/// A line of a log.
fn line(task: &str, arguments: &str, entity: &str, seconds: f64) -> String {
    format!(
        r#"{{"input": ["llvm", "{task}", {arguments}, {{}}], "config": {{"index": 1, "code_hash": null, "entity": {entity}}}, "result": [[{seconds}], 0, 1.0, 1.0], "version": 0.2, "tvm_version": "0.8.0"}}"#
    )
}

const CONVOLUTION: &str = r#"[["TENSOR", [1, 64, 14, 14], "float32"], ["TENSOR", [32, 64, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]"#;

fn of_convolution(ow: usize, oc: usize, unrolled: bool, seconds: f64) -> String {
    let entity = format!(
        r#"[["tile_ic", "sp", [-1, 16]], ["tile_oc", "sp", [-1, {oc}]], ["tile_ow", "sp", [-1, {ow}]], ["unroll_kw", "ot", {unrolled}]]"#
    );
    line("conv2d_NCHWc.x86", CONVOLUTION, &entity, seconds)
}

fn records(lines: &[String]) -> Vec<Record> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.json");
    std::fs::write(&path, lines.join("\n")).unwrap();
    let found = autotvm::read_log(&path, 1).unwrap();
    assert!(found.left_out.is_empty(), "{:?}", found.left_out);
    found.records
}

fn space(program: Program) -> Space {
    Space::new(program, Machine::with_vectors(64, 32)).unwrap()
}

fn value(candidate: &Candidate, name: &str) -> Option<i64> {
    let choices = candidate.choices();
    choices.iter().find(|choice| choice.0 == name).map(|choice| choice.1)
}

#[test]
fn a_convolution_begins_with_the_tiles_that_were_fast_there() {
    let lines = [
        of_convolution(7, 16, true, 2e-4),
        of_convolution(14, 16, false, 1e-4),
        of_convolution(2, 32, false, 3e-4),
    ];
    let found = starts(&records(&lines), &space(convolution()), 9);
    assert!(
        found.iter().all(|candidate| candidate.template.ends_with("contraction")),
        "lanes are depthwise's"
    );
    let in_contraction: Vec<&Candidate> =
        found.iter().filter(|candidate| candidate.template == "contraction").collect();
    let tiles: Vec<_> = in_contraction
        .iter()
        .map(|candidate| {
            (value(candidate, "rows").unwrap(), value(candidate, "vectors").unwrap_or(1))
        })
        .collect();
    assert_eq!(tiles, [(14, 1), (7, 1), (2, 2)], "the fastest first");
    // Sums are over blocks, rows, columns and channels: the columns of the window are the third.
    assert_eq!(value(in_contraction[1], "innermost sum"), Some(2));
    assert_eq!(value(in_contraction[1], "unrolled points"), Some(3));
    assert_eq!(value(in_contraction[0], "unrolled points"), Some(1));
    assert_eq!(starts(&records(&lines), &space(convolution()), 1).len(), 1);
}

#[test]
fn a_product_begins_with_both_factors_and_takes_the_nearest_that_it_has() {
    let arguments =
        r#"[["TENSOR", [12, 32], "float32"], ["TENSOR", [64, 32], "float32"], null, "float32"]"#;
    let entity = |rows: usize, columns: usize| {
        format!(
            r#"[["tile_y", "sp", [-1, 1, {rows}]], ["tile_x", "sp", [-1, 1, {columns}]], ["tile_k", "sp", [-1, 8]], ["tile_inner", "sp", [-1, 1]]]"#
        )
    };
    let lines = [
        line("dense_pack.x86", arguments, &entity(6, 32), 1e-5),
        line("dense_pack.x86", arguments, &entity(12, 64), 2e-5),
    ];
    let found = starts(&records(&lines), &space(product()), 9);
    let tiles: Vec<_> = found
        .iter()
        .filter(|candidate| candidate.template == "contraction")
        .map(|candidate| (value(candidate, "rows").unwrap(), value(candidate, "vectors").unwrap()))
        .collect();
    // 12 rows of 4 vectors fill more registers than there are: 6 are the most that fit beside these.
    assert_eq!(tiles, [(6, 2), (6, 4)]);
}

#[test]
fn another_computation_begins_with_nothing() {
    let lines = [of_convolution(7, 16, true, 1e-4)];
    assert!(starts(&records(&lines), &space(product()), 9).is_empty());
    let wider = CONVOLUTION.replace("[1, 64, 14, 14]", "[1, 64, 14, 15]");
    let entity = r#"[["tile_ow", "sp", [-1, 7]]]"#;
    let others = [line("conv2d_NCHWc.x86", &wider, entity, 1e-4)];
    assert!(starts(&records(&others), &space(convolution()), 9).is_empty());
    // What was measured here is no choice of another compiler.
    let mut ours = records(&lines);
    ours[0].kind = hone_search::Kind::Trial;
    assert!(starts(&ours, &space(convolution()), 9).is_empty());
}
