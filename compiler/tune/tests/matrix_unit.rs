//! What the template for registers of tiles makes of products: the same results, with every decision that it asks for.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_machine::Machine;
use hone_tensor::{Builder, Combiner, Expr, Program, interpret, verify};
use hone_tune::{Preferred, Question, Source, schedule_as};
use hone_types::{DataType, Tensor, TensorType};

const LANES: usize = 16;
const NAME: &str = "matrix_unit";

fn machine() -> Machine {
    Machine { has_tiles: true, ..Machine::with_vectors(4 * LANES, 32) }
}

/// Small whole numbers, so that no order of additions makes a difference.
fn numbers(of: &TensorType, seed: usize) -> Tensor {
    let low = if of.dtype == DataType::U8 { 0 } else { 4 };
    let value = |index: usize| ((index * 7 + index / 3 + seed) % 11) as f64 - f64::from(low);
    let values: Vec<f64> = (0..of.elements()).map(value).collect();
    Tensor::from_f64(of.dtype, of.shape.clone(), &values).unwrap()
}

/// Types of rows, of columns and of sums, and how many terms a group has.
type Types = (DataType, DataType, DataType, usize);

const BYTES: Types = (DataType::U8, DataType::I8, DataType::I32, 4);
const BF16: Types = (DataType::BF16, DataType::BF16, DataType::F32, 2);

fn inputs(types: &[TensorType]) -> Vec<Tensor> {
    types.iter().enumerate().map(|(seed, of)| numbers(of, seed)).collect()
}

/// `y[m, j] = max(sum over k of a[m, k] * b[j / 32, k / d, j % 32, k % d], 0)`.
fn product(
    (rows_type, columns_type, sum, run): Types,
    [rows, columns, groups]: [usize; 3],
) -> (Program, Vec<Tensor>) {
    let (width, mut builder) = (2 * LANES, Builder::new());
    let panels = columns.div_ceil(width);
    let types = [
        TensorType::new(rows_type, [rows, groups * run]),
        TensorType::new(columns_type, [panels, groups, width, run]),
    ];
    let (a, b) = (builder.input("a", &types[0]), builder.input("b", &types[1]));
    let shape = TensorType::new(sum, [rows, panels, width]);
    let sums = builder.reduce("sums", &shape, &[groups, run], Combiner::Sum, |i, k| {
        let term = k[0].clone() * run + k[1].clone();
        let left = Expr::Load(a, vec![i[0].clone(), term]);
        let right = vec![i[1].clone(), k[0].clone(), i[2].clone(), k[1].clone()];
        left.cast(sum) * Expr::Load(b, right).cast(sum)
    });
    let y = builder.map("y", &TensorType::new(sum, [rows, columns]), |i| {
        let panel = i[1].clone().floor_divide(width.into());
        let read = vec![i[0].clone(), panel, i[1].clone().modulo(width.into())];
        Expr::Load(sums, read).maximum(Expr::Constant(0.0, sum))
    });
    builder.output(y);
    (builder.finish(), inputs(&types))
}

/// A convolution of channels packed by 16: `[1, blocks, side, side, 16]` by `window` squared, with a stride.
fn convolution(types: Types, extents: [usize; 5]) -> (Program, Vec<Tensor>) {
    convolution_of_blocks(types, [LANES, LANES], extents)
}

/// The same of channels packed by `taken`, with results packed by `given`.
fn convolution_of_blocks(
    (rows_type, columns_type, sum, run): Types,
    [taken, given]: [usize; 2],
    [inputs_of, outputs, side, window, stride]: [usize; 5],
) -> (Program, Vec<Tensor>) {
    let mut builder = Builder::new();
    let groups = taken / run;
    let types = [
        TensorType::new(rows_type, [1, inputs_of, side, side, taken]),
        TensorType::new(columns_type, [outputs, inputs_of, window, window, groups, given, run]),
    ];
    let (x, w) = (builder.input("x", &types[0]), builder.input("w", &types[1]));
    let results = (side - window) / stride + 1;
    let shape = TensorType::new(sum, [1, outputs, results, results, given]);
    let reduced = [inputs_of, window, window, groups, run];
    let sums = builder.reduce("sums", &shape, &reduced, Combiner::Sum, |i, k| {
        let at = |axis: usize| i[axis].clone() * stride + k[axis - 1].clone();
        let channel = k[3].clone() * run + k[4].clone();
        let left = vec![i[0].clone(), k[0].clone(), at(2), at(3), channel];
        let mut right = vec![i[1].clone()];
        right.extend_from_slice(&k[..4]);
        right.extend([i[4].clone(), k[4].clone()]);
        Expr::Load(x, left).cast(sum) * Expr::Load(w, right).cast(sum)
    });
    let y = builder
        .map("y", &shape, |i| Expr::Load(sums, i.to_vec()).maximum(Expr::Constant(0.0, sum)));
    builder.output(y);
    (builder.finish(), inputs(&types))
}

fn programs() -> Vec<(Program, Vec<Tensor>)> {
    vec![
        product(BYTES, [37, 70, 20]),
        product(BF16, [64, 64, 16]),
        product(BF16, [5, 96, 33]),
        convolution(BYTES, [2, 3, 9, 3, 1]),
        convolution(BF16, [2, 2, 11, 3, 2]),
        convolution(BYTES, [5, 2, 6, 1, 1]),
        convolution(BF16, [2, 1, 19, 1, 1]),
        convolution_of_blocks(BYTES, [64, 64], [1, 1, 7, 3, 1]),
        convolution_of_blocks(BF16, [32, 16], [2, 2, 9, 3, 2]),
    ]
}

fn check(number: usize, source: &mut dyn Source) -> usize {
    let (plain, inputs) = programs().swap_remove(number);
    let expected = interpret(&plain, &inputs).unwrap();
    let scheduled = schedule_as(plain, &machine(), NAME, source).unwrap();
    let decisions = scheduled.choices().len();
    let program = scheduled.schedule.into_program();
    verify(&program).unwrap();
    assert_eq!(interpret(&program, &inputs).unwrap(), expected, "program {number}");
    decisions
}

#[test]
fn products_keep_their_results() {
    for number in 0..programs().len() {
        assert!(check(number, &mut Preferred) > 0);
    }
}

/// Copies are buffers that the plain program does not have.
#[test]
fn rows_that_lie_as_tiles_read_them_are_not_copied() {
    let copies = |(plain, _): (Program, Vec<Tensor>)| {
        let buffers = plain.buffers.len();
        let scheduled = schedule_as(plain, &machine(), NAME, &mut Preferred).unwrap();
        scheduled.schedule.program().buffers.len() - buffers
    };
    assert_eq!(copies(convolution_of_blocks(BYTES, [64, 64], [2, 1, 7, 3, 1])), 0);
    assert_eq!(copies(convolution_of_blocks(BYTES, [64, 16], [1, 2, 8, 1, 2])), 0);
    assert_eq!(copies(convolution(BYTES, [4, 2, 7, 3, 1])), 1);
}

/// Answers by a sequence of numbers.
struct Sequence(u64);

impl Source for Sequence {
    fn answer(&mut self, question: &Question<'_>) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % question.candidates.len()
    }
}

#[test]
fn every_decision_keeps_the_results() {
    for number in 0..programs().len() {
        for seed in 0..12 {
            check(number, &mut Sequence(seed));
        }
    }
}

#[test]
fn what_tiles_do_not_serve_is_left_to_vectors() {
    let refused = |program: Program, machine: &Machine| {
        schedule_as(program, machine, NAME, &mut Preferred).unwrap_err().to_string()
    };
    let without = Machine::with_vectors(4 * LANES, 32);
    let (program, _) = product(BYTES, [37, 70, 20]);
    assert!(refused(program, &without).contains("no tile registers"));
    let (program, _) = product(BYTES, [2, 70, 20]);
    assert!(refused(program, &machine()).contains("too few rows"));
    let (program, _) = product(BYTES, [37, 70, 8]);
    assert!(refused(program, &machine()).contains("fill no step"));
    // 17 groups are no steps of several.
    let (program, _) = product(BYTES, [37, 70, 17]);
    assert!(refused(program, &machine()).contains("no steps of several groups"));
}
