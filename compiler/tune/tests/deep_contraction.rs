//! Sums of many products that are cut into parts: the same results, with every decision that the template asks for.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_machine::Machine;
use hone_tensor::{Builder, Combiner, Expr, Program, interpret, verify};
use hone_tune::{Preferred, Question, Source, schedule, schedule_as};
use hone_types::{DataType, Tensor, TensorType};

const LANES: usize = 4;
const NAME: &str = "deep_contraction";

/// A machine of so little second-level cache that panels of a few hundred products do not stay in it.
fn machine() -> Machine {
    Machine { l2_bytes: 64 << 10, ..Machine::with_vectors(4 * LANES, 32) }
}

/// Small whole numbers, so that no order of additions makes a difference.
fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let of = TensorType::new(DataType::F32, shape.to_vec());
    let value = |index: usize| ((index * 7 + index / 3 + seed) % 11) as f64 - 4.0;
    let values: Vec<f64> = (0..of.elements()).map(value).collect();
    Tensor::from_f64(of.dtype, of.shape, &values).unwrap()
}

fn of(shape: impl Into<Vec<usize>>) -> TensorType {
    TensorType::new(DataType::F32, shape.into())
}

type Case = (Program, Vec<Tensor>);

/// `y[m, j] = max(sum over k of a[m, k] * b[j / width, k, j % width], c[j])`, with panels as the compiler packs them.
fn packed([rows, columns, depth]: [usize; 3]) -> Case {
    let width = 2 * LANES;
    let shapes = [vec![rows, depth], vec![columns.div_ceil(width), depth, width], vec![columns]];
    let mut builder = Builder::new();
    let (a, b) = (builder.input("a", &of(&shapes[0][..])), builder.input("b", &of(&shapes[1][..])));
    let c = builder.input("c", &of(&shapes[2][..]));
    let sums = of([rows, shapes[1][0], width]);
    let sums = builder.reduce("sums", &sums, &[depth], Combiner::Sum, |i, k| {
        let right = vec![i[1].clone(), k[0].clone(), i[2].clone()];
        Expr::Load(a, vec![i[0].clone(), k[0].clone()]) * Expr::Load(b, right)
    });
    let y = builder.map("y", &of([rows, columns]), |i| {
        let panel = i[1].clone().floor_divide(width.into());
        let read = vec![i[0].clone(), panel, i[1].clone().modulo(width.into())];
        Expr::Load(sums, read).maximum(Expr::Load(c, vec![i[1].clone()]))
    });
    builder.output(y);
    let inputs = shapes.iter().enumerate().map(|(seed, shape)| numbers(shape, seed)).collect();
    (builder.finish(), inputs)
}

/// `y[n, m, j] = max(sum over k of a[n, m, k] * b[k, j], 0)`.
fn plain([batch, rows, columns, depth]: [usize; 4]) -> Case {
    let shapes = [vec![batch, rows, depth], vec![depth, columns]];
    let mut builder = Builder::new();
    let (a, b) = (builder.input("a", &of(&shapes[0][..])), builder.input("b", &of(&shapes[1][..])));
    let shape = of([batch, rows, columns]);
    let sums = builder.reduce("sums", &shape, &[depth], Combiner::Sum, |i, k| {
        let left = vec![i[0].clone(), i[1].clone(), k[0].clone()];
        Expr::Load(a, left) * Expr::Load(b, vec![k[0].clone(), i[2].clone()])
    });
    let zero = || Expr::Constant(0.0, DataType::F32);
    let y = builder.map("y", &shape, |i| Expr::Load(sums, i.to_vec()).maximum(zero()));
    builder.output(y);
    (builder.finish(), vec![numbers(&shapes[0], 0), numbers(&shapes[1], 1)])
}

/// A convolution of channels packed by a vector: `[images, blocks, side, side, lanes]` by `window` squared.
fn convolution([images, taken, given, side, window, stride]: [usize; 6]) -> Case {
    let shapes =
        [vec![images, taken, side, side, LANES], vec![given, taken, window, window, LANES, LANES]];
    let mut builder = Builder::new();
    let (x, w) = (builder.input("x", &of(&shapes[0][..])), builder.input("w", &of(&shapes[1][..])));
    let results = (side - window) / stride + 1;
    let shape = of([images, given, results, results, LANES]);
    let reduced = [taken, window, window, LANES];
    let sums = builder.reduce("sums", &shape, &reduced, Combiner::Sum, |i, k| {
        let at = |axis: usize| i[axis].clone() * stride + k[axis - 1].clone();
        let left = vec![i[0].clone(), k[0].clone(), at(2), at(3), k[3].clone()];
        let mut right = vec![i[1].clone()];
        right.extend_from_slice(k);
        right.push(i[4].clone());
        Expr::Load(x, left) * Expr::Load(w, right)
    });
    let zero = || Expr::Constant(0.0, DataType::F32);
    let y = builder.map("y", &shape, |i| Expr::Load(sums, i.to_vec()).maximum(zero()));
    builder.output(y);
    (builder.finish(), vec![numbers(&shapes[0], 0), numbers(&shapes[1], 1)])
}

/// Programs whose columns, rows and parts of rows are no multiples of their tiles.
fn programs() -> Vec<Case> {
    vec![
        packed([17, 70, 2048]),
        packed([150, 12, 1792]),
        plain([1, 19, 14, 4096]),
        plain([3, 23, 10, 4096]),
        convolution([2, 128, 3, 4, 3, 1]),
        convolution([1, 448, 3, 7, 1, 2]),
    ]
}

fn check((plain, inputs): &Case, source: &mut dyn Source) {
    let expected = interpret(plain, inputs).unwrap();
    let scheduled = schedule_as(plain.clone(), &machine(), NAME, source).unwrap();
    let program = scheduled.schedule.program();
    verify(program).unwrap();
    assert_eq!(interpret(program, inputs).unwrap(), expected);
    let names = program.blocks_in_order().into_iter().map(|block| &program.blocks[block].name);
    assert!(names.into_iter().any(|name| name.contains("_parts")));
}

#[test]
fn sums_whose_panels_leave_the_cache_keep_their_results() {
    for case in programs() {
        check(&case, &mut Preferred);
        // No other template is asked first.
        assert_eq!(schedule(case.0, &machine()).unwrap().template, NAME);
    }
}

#[test]
fn what_stays_in_cache_or_is_read_once_or_has_no_parts_is_refused() {
    let refused =
        |case: Case| schedule_as(case.0, &machine(), NAME, &mut Preferred).unwrap_err().to_string();
    assert!(refused(packed([37, 70, 64])).contains("stay in cache or are read once"));
    assert!(refused(packed([2, 70, 2048])).contains("stay in cache or are read once"));
    // A prime number of products has no equal parts.
    assert!(refused(packed([17, 70, 2053])).contains("no part of the sum"));
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
    for case in &programs() {
        for seed in 0..4 {
            check(case, &mut Sequence(seed));
        }
    }
}
