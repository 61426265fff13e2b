//! Element-wise operators and moves of elements.

use super::{Case, case, f32s, i64s, tensor};
use hone_ops::*;
use hone_types::{DataType, Tensor};

pub fn cases() -> Vec<Case> {
    let mut cases = element_wise();
    cases.extend(moves());
    cases.extend(pads());
    cases.extend(indexed());
    cases
}

fn element_wise() -> Vec<Case> {
    let mut cases = vec![
        case(Unary::new(UnaryFunction::Tanh), &[f32s([2, 3])]),
        case(Binary::new(BinaryFunction::Subtract), &[f32s([2, 1, 3]), f32s([4, 1])]),
        case(Select {}, &[tensor(DataType::Bool, [3, 1]), f32s([2, 1, 4]), f32s([])]),
        case(
            Select {},
            &[tensor(DataType::Bool, []), tensor(DataType::I8, [5]), tensor(DataType::I8, [1])],
        ),
        case(Trilu { upper: true, diagonal: 0 }, &[f32s([2, 3, 4])]),
        case(Trilu { upper: false, diagonal: -1 }, &[f32s([4, 3])]),
        case(Trilu { upper: true, diagonal: i64::MAX }, &[tensor(DataType::I64, [2, 2])]),
        case(Trilu { upper: false, diagonal: i64::MIN }, &[f32s([2, 0, 3])]),
    ];
    for dtype in DataType::all().filter(|dtype| dtype.is_integer()) {
        let (left, right) = (tensor(dtype, [2, 3]), tensor(dtype, [3]));
        for function in [BinaryFunction::BitAnd, BinaryFunction::BitOr, BinaryFunction::BitXor] {
            cases.push(case(Binary::new(function), &[left.clone(), right.clone()]));
        }
        cases.push(case(Unary::new(UnaryFunction::BitNot), &[left]));
    }
    for from in DataType::all() {
        for to in DataType::all() {
            cases.push(case(Cast { to }, &[tensor(from, [7, 3])]));
        }
    }
    let large = i64s([4], &[-1, 300, (1 << 53) + 1, i64::MIN]);
    cases.push(case(Cast { to: DataType::F32 }, std::slice::from_ref(&large)));
    cases.push(case(Cast { to: DataType::U8 }, std::slice::from_ref(&large)));
    cases.push(case(Cast { to: DataType::Bool }, &[large]));
    cases
}

fn moves() -> Vec<Case> {
    let slice = |starts: &[usize], steps: &[i64], extents: &[usize]| Slice {
        starts: starts.to_vec(),
        steps: steps.to_vec(),
        extents: extents.to_vec(),
    };
    let reshape =
        |from: &[usize], to: &[usize]| case(Reshape { shape: to.to_vec() }, &[f32s(from)]);
    vec![
        reshape(&[2, 3, 4], &[4, 6]),
        reshape(&[2, 12, 5], &[2, 3, 4, 5]),
        reshape(&[2, 3, 4, 5], &[1, 6, 1, 20]),
        reshape(&[6, 1, 4], &[3, 8]),
        reshape(&[1, 1], &[]),
        reshape(&[], &[1, 1, 1]),
        reshape(&[0, 3], &[3, 0, 2]),
        case(Transpose { permutation: vec![2, 0, 1] }, &[f32s([2, 3, 4])]),
        case(Transpose { permutation: vec![1, 0] }, &[tensor(DataType::Bool, [1, 5])]),
        case(Transpose { permutation: vec![0, 2, 1] }, &[f32s([2, 0, 4])]),
        case(Transpose { permutation: vec![] }, &[f32s([])]),
        case(slice(&[1, 4, 0], &[1, -2, 3], &[2, 3, 2]), &[f32s([3, 5, 6])]),
        case(slice(&[2], &[-1], &[3]), &[tensor(DataType::F64, [3])]),
        case(slice(&[7, 0], &[1, 1], &[0, 2]), &[f32s([3, 2])]),
        case(slice(&[1], &[i64::MIN], &[1]), &[f32s([3])]),
        case(
            Concat { axis: 1 },
            &[f32s([2, 1, 3]), f32s([2, 4, 3]), f32s([2, 0, 3]), f32s([2, 2, 3])],
        ),
        case(Concat { axis: 0 }, &[f32s([0, 2]), f32s([0, 2])]),
        case(Concat { axis: 0 }, &[tensor(DataType::I32, [3])]),
        case(Join { axis: 1 }, &[f32s([1, 2, 3]), f32s([1, 0, 3]), f32s([1, 4, 3])]),
        case(Join { axis: 0 }, &[tensor(DataType::I32, [3]), tensor(DataType::I32, [2])]),
        case(Expand { shape: vec![2, 1, 3, 4] }, &[f32s([5, 3, 1])]),
        case(Expand { shape: vec![] }, &[f32s([2])]),
        case(Expand { shape: vec![0, 2] }, &[f32s([1, 2])]),
        case(Tile { repeats: vec![2, 1, 3] }, &[f32s([2, 3, 2])]),
        case(Tile { repeats: vec![4] }, &[f32s([1])]),
        case(Tile { repeats: vec![0, 2] }, &[f32s([2, 3])]),
        case(Pack { axis: 1, block: 4 }, &[f32s([2, 5, 3])]),
        case(Unpack { axis: 1, extent: 5 }, &[f32s([2, 2, 3, 4])]),
    ]
}

fn pads() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in [PadMode::Constant, PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
        let pad = |begin: &[i64], end: &[i64], value: f64| Pad {
            begin: begin.to_vec(),
            end: end.to_vec(),
            mode,
            value,
        };
        cases.push(case(pad(&[0, 2, 1], &[0, 1, 2], 1.5), &[f32s([2, 3, 4])]));
        cases.push(case(pad(&[-1, 3], &[2, -1], f64::NEG_INFINITY), &[f32s([3, 4])]));
        cases.push(case(pad(&[2, 0], &[1, 0], -7.0), &[tensor(DataType::U8, [1, 2])]));
        cases.push(case(pad(&[7], &[9], 0.0), &[f32s([3])]));
    }
    let grown = Pad { begin: vec![1, 0], end: vec![1, 2], mode: PadMode::Constant, value: 2.0 };
    cases.push(case(grown.clone(), &[f32s([0, 1])]));
    // By a number that is computed.
    cases.push(case(grown, &[tensor(DataType::U8, [2, 3]), tensor(DataType::U8, [1])]));
    cases
}

fn indexed() -> Vec<Case> {
    let indices = i64s([2, 2], &[0, -1, 2, -3]);
    let narrow = Tensor::from_elements([3], &[1_i32, -2, 0]).unwrap();
    let scatter = |axis: usize, reduction: ScatterReduction| ScatterElements::new(axis, reduction);
    let updates = || [f32s([3, 4]), i64s([2, 3], &[0, 1, -1, 2, 0, 1]), f32s([2, 3])];
    let mut cases = vec![
        case(Gather { axis: 1 }, &[f32s([2, 3, 4]), indices.clone()]),
        case(Gather { axis: 0 }, &[tensor(DataType::I64, [2, 1]), narrow]),
        case(Gather { axis: 0 }, &[f32s([4]), i64s([], &[3])]),
        case(Gather { axis: 0 }, &[f32s([0, 2]), i64s([0], &[])]),
        case(GatherElements { axis: 1 }, &[f32s([2, 3]), indices.clone()]),
        case(GatherElements { axis: 0 }, &[f32s([3, 2, 2]), i64s([1, 2, 1], &[-1, 1])]),
        case(GatherNd { batch_axes: 0 }, &[f32s([3, 4, 2]), i64s([2, 2], &[0, 3, -1, -4])]),
        case(GatherNd { batch_axes: 1 }, &[f32s([2, 3, 4]), i64s([2, 2, 1], &[0, 2, -1, 1])]),
        case(GatherNd { batch_axes: 1 }, &[f32s([2, 3]), i64s([2, 1], &[2, -3])]),
        case(OneHot { depth: 4, axis: 1 }, &[i64s([2, 3], &[0, 3, -1, 4, -5, 2]), f32s([2])]),
        case(OneHot { depth: 3, axis: 0 }, &[f32s([2]), tensor(DataType::I32, [2])]),
        case(OneHot { depth: 0, axis: 1 }, &[i64s([2], &[0, 1]), f32s([2])]),
        case(
            ScatterNd::new(ScatterReduction::Add),
            &[f32s([3, 2, 2]), i64s([3, 1], &[0, -1, 0]), f32s([3, 2, 2])],
        ),
        case(
            ScatterNd::new(ScatterReduction::None),
            &[f32s([3, 2]), i64s([2, 2], &[0, -1, 2, 0]), f32s([2])],
        ),
    ];
    for reduction in [ScatterReduction::None, ScatterReduction::Maximum, ScatterReduction::Multiply]
    {
        cases.push(case(scatter(0, reduction), &updates()));
    }
    cases
}
