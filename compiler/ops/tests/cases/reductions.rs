//! Products, reductions, normalizations.

use super::{Case, case, f32s, tensor};
use hone_ops::*;
use hone_types::{DataType, Tensor};

pub fn cases() -> Vec<Case> {
    let mut cases = products();
    cases.extend(packed_products());
    cases.extend(products_of_bits());
    cases.extend(tops());
    cases.extend(dot_products());
    cases.extend(reductions());
    cases.extend(normalizations());
    cases
}

fn products() -> Vec<Case> {
    let pairs: [(&[usize], &[usize]); 9] = [
        (&[3, 4], &[4, 5]),
        (&[2, 1, 3, 4], &[5, 4, 2]),
        (&[4], &[4]),
        (&[4], &[2, 4, 3]),
        (&[2, 3, 4], &[4]),
        (&[9, 7], &[7, 1]),
        (&[2, 0], &[0, 3]),
        (&[0, 2], &[2, 3]),
        (&[1, 1], &[1, 1]),
    ];
    let types = [DataType::F32, DataType::F64, DataType::F16, DataType::I32, DataType::I8];
    pairs
        .iter()
        .flat_map(|(left, right)| {
            types.map(|dtype| case(MatMul {}, &[tensor(dtype, *left), tensor(dtype, *right)]))
        })
        .collect()
}

fn packed_products() -> Vec<Case> {
    let packed = |columns: usize, left: &[usize], right: &[usize]| {
        case(PackedMatMul { columns }, &[f32s(left), f32s(right)])
    };
    vec![
        packed(5, &[2, 3, 4], &[2, 4, 3]),
        packed(5, &[2, 3, 4], &[2, 2, 4, 3]),
        packed(8, &[4], &[1, 4, 8]),
        packed(1, &[0, 2], &[1, 2, 4]),
    ]
}

fn products_of_bits() -> Vec<Case> {
    let bits = |shape: &[usize]| {
        let bytes = tensor(DataType::U8, shape).to_f64();
        let bytes: Vec<u8> = bytes.iter().map(|own| (*own as u8).wrapping_mul(37)).collect();
        Tensor::from_elements(shape, &bytes).unwrap()
    };
    let bytes = |shape: &[usize]| tensor(DataType::I8, shape);
    // Zero points have four bits.
    let zeros = |shape: &[usize]| {
        let elements: usize = shape.iter().product();
        let zeros: Vec<u8> = (0..elements).map(|own| (own * 5 % 16) as u8).collect();
        Tensor::from_elements(shape, &zeros).unwrap()
    };
    let bits_of = WeightBits::Four;
    let product = |columns| PackedBlockMatMul { columns, bits: bits_of };
    let optional = |operator: PackedBlockMatMul, inputs: &[Option<Tensor>]| Case {
        operator: Op::new(operator),
        inputs: inputs.to_vec(),
        is_folded: false,
    };
    vec![
        case(DequantizeBlocks { depth: 7, bits: bits_of }, &[bits(&[3, 2, 2]), f32s([3, 2])]),
        case(
            DequantizeBlocks { depth: 8, bits: bits_of },
            &[bits(&[3, 2, 2]), f32s([3, 2]), zeros(&[3, 2])],
        ),
        case(
            DequantizeBlocks { depth: 7, bits: WeightBits::Eight },
            &[bits(&[3, 2, 4]), f32s([3, 2])],
        ),
        case(product(5), &[f32s([2, 3, 4]), bits(&[2, 3, 2, 4, 1]), f32s([2, 3, 4])]),
        case(
            PackedBlockMatMul { columns: 5, bits: WeightBits::Eight },
            &[f32s([2, 3, 4]), bits(&[2, 3, 4, 4, 1]), f32s([2, 3, 4])],
        ),
        case(
            PackedBlockMatMul { columns: 6, bits: WeightBits::Eight },
            &[bytes(&[2, 3, 8]), bits(&[2, 3, 2, 4, 4]), f32s([2, 3, 4]), f32s([2, 3])],
        ),
        optional(
            product(5),
            &[
                Some(f32s([2, 2, 3, 4])),
                Some(bits(&[2, 3, 2, 4, 1])),
                Some(f32s([2, 3, 4])),
                None,
                Some(zeros(&[2, 3, 4])),
            ],
        ),
        case(
            product(6),
            &[bytes(&[2, 3, 16]), bits(&[2, 3, 2, 4, 4]), f32s([2, 3, 4]), f32s([2, 3])],
        ),
        case(
            product(8),
            &[
                bytes(&[1, 2, 8]),
                bits(&[1, 2, 1, 8, 4]),
                f32s([1, 2, 8]),
                f32s([1, 2]),
                zeros(&[1, 2, 8]),
            ],
        ),
    ]
}

fn dot_products() -> Vec<Case> {
    let dots = |left: &[usize], right: &[usize], dtype: DataType| {
        case(DotProducts {}, &[tensor(dtype, left), tensor(dtype, right)])
    };
    vec![
        dots(&[5, 70], &[1, 70], DataType::F32),
        dots(&[2, 3, 33], &[2, 4, 33], DataType::F32),
        dots(&[3, 7], &[2, 7], DataType::F16),
        dots(&[3, 0], &[2, 0], DataType::F32),
    ]
}

fn tops() -> Vec<Case> {
    let mut cases = Vec::new();
    for largest in [false, true] {
        cases.push(case(TopK::new(2, 1, largest), &[f32s([2, 5, 3])]));
        cases.push(case(TopK::new(6, 0, largest), &[tensor(DataType::Bool, [6])]));
        cases.push(case(TopK::new(3, 1, largest), &[tensor(DataType::U64, [1, 4])]));
        cases.push(case(TopK::new(0, 0, largest), &[f32s([3, 2])]));
        // Few of long lines, which are divided into blocks; integers have equal elements.
        cases.push(case(TopK::new(3, 1, largest), &[f32s([2, 391, 2])]));
        cases.push(case(TopK::new(12, 0, largest), &[tensor(DataType::I32, [1152])]));
        cases.push(case(TopK::new(9, 0, largest), &[f32s([20, 3])]));
        // One after another, by counting ranks, and in blocks, with elements left over.
        for (k, extent) in [(4, 11), (8, 9), (12, 20), (7, 7), (3, 391), (12, 161)] {
            for nans in [1, 2, extent - 1, extent] {
                let strange = strange(3, extent, nans);
                cases.push(case(TopK::new(k, 1, largest), &[strange]));
            }
        }
    }
    cases
}

/// Lines of which so many elements are not numbers, and others zeros of both signs and infinite.
fn strange(lines: usize, extent: usize, nans: usize) -> Tensor {
    // Blocks of a long line do not tell infinity from what is not a number.
    let most = if extent > 128 { -1.0 } else { f32::INFINITY };
    let element = |place: usize| match place * 31 % extent {
        rank if rank < nans => f32::NAN,
        rank if rank % 5 == 4 => [0.0, -0.0, f32::NEG_INFINITY, most][place % 4],
        rank => (rank * 7 % 13) as f32 - 6.0,
    };
    let elements: Vec<f32> = (0..lines * extent).map(element).collect();
    Tensor::from_elements([lines, extent], &elements).unwrap()
}

fn reductions() -> Vec<Case> {
    use ReduceFunction::*;
    let mut cases = Vec::new();
    for function in [Sum, Mean, Maximum, Minimum, Product, L1, L2, SumSquare, LogSumExp, LogSum] {
        for (axes, keep_axes) in [(vec![1], true), (vec![2, 0], false), (vec![], true)] {
            let reduce = Reduce { function, axes, keep_axes };
            for dtype in [DataType::F32, DataType::I32] {
                // The logarithm of a negative sum is not a number.
                let positive = Unary::new(UnaryFunction::Abs)
                    .reference(&[Some(&tensor(dtype, [2, 3, 4]))])
                    .unwrap();
                cases.push(case(reduce.clone(), &positive));
            }
            cases.push(case(reduce, &[tensor(DataType::F64, [3, 1, 2])]));
        }
        let none = Reduce { function, axes: vec![1], keep_axes: false };
        cases.push(case(none, &[f32s([2, 0])]));
    }
    let infinite =
        Tensor::from_elements([2, 2], &[f32::INFINITY, 1.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
    let log_sum = Reduce { function: LogSumExp, axes: vec![1], keep_axes: false };
    cases.push(case(log_sum, &[infinite.unwrap()]));
    for (maximum, select_last) in [(true, false), (true, true), (false, false), (false, true)] {
        let reduce =
            |axis: usize, keep_axis: bool| ArgReduce { maximum, axis, keep_axis, select_last };
        cases.push(case(reduce(1, true), &[f32s([2, 5, 3])]));
        cases.push(case(reduce(0, false), &[tensor(DataType::Bool, [6, 2])]));
        let strange = [1.0_f32, f32::NAN, 2.0, f32::NAN, 2.0, 2.0];
        cases.push(case(reduce(1, false), &[Tensor::from_elements([2, 3], &strange).unwrap()]));
    }
    for ways in 0..4 {
        let (exclusive, reverse) = (ways & 1 > 0, ways & 2 > 0);
        let sum = CumulativeSum { axis: 1, exclusive, reverse, product: false, in_rows: true };
        cases.push(case(sum.clone(), &[f32s([2, 32])]));
        cases.push(case(sum.clone(), &[tensor(DataType::I32, [3, 21])]));
        // Several chunks, the last of which is not full.
        cases.push(case(sum, &[tensor(DataType::I32, [1, 16 * 520 + 3])]));
    }
    for ways in 0..8 {
        let (exclusive, reverse, product) = (ways & 1 > 0, ways & 2 > 0, ways & 4 > 0);
        let sum = CumulativeSum { axis: 1, exclusive, reverse, product, in_rows: false };
        cases.push(case(sum.clone(), &[f32s([2, 4, 3])]));
        cases.push(case(sum.clone(), &[tensor(DataType::I32, [1, 5])]));
        cases.push(case(sum, &[f32s([1, 0])]));
    }
    cases
}

fn normalizations() -> Vec<Case> {
    let x = || f32s([2, 6, 3, 2]);
    let six = || f32s([6]);
    let positive = || Tensor::from_elements([6], &[0.5_f32, 1.0, 2.0, 3.0, 0.1, 0.7]).unwrap();
    let epsilon = 1e-5;
    let group = |groups: usize| GroupNormalization { groups, epsilon };
    let mut cases = vec![
        case(LayerNormalization { axis: 1, epsilon }, &[f32s([2, 3, 4]), f32s([3, 4]), f32s([4])]),
        case(LayerNormalization { axis: 2, epsilon }, &[f32s([2, 3, 5]), f32s([5])]),
        case(
            LayerNormalization { axis: 1, epsilon },
            &[DataType::F16, DataType::F16].map(|dtype| tensor(dtype, [3, 7])),
        ),
        case(InstanceNormalization { epsilon }, &[x(), six(), six()]),
        case(group(1), &[x(), six(), six()]),
        case(group(3), &[x(), six(), six()]),
        case(group(6), &[f32s([1, 6, 4]), six(), six()]),
        case(BatchNormalization { epsilon }, &[x(), six(), six(), six(), positive()]),
        case(BatchNormalization { epsilon }, &[f32s([3, 6]), six(), six(), six(), positive()]),
        case(LpNormalization { axis: 1, order: 1 }, &[f32s([2, 3, 2])]),
        case(LpNormalization { axis: 0, order: 2 }, &[f32s([4, 1])]),
        case(
            LpNormalization { axis: 0, order: 2 },
            &[Tensor::zeros(f32s([4]).tensor_type().clone())],
        ),
    ];
    for size in [1, 2, 3, 5, 20] {
        let normalization = LocalResponseNormalization { size, alpha: 0.3, beta: 0.75, bias: 2.0 };
        cases.push(case(normalization, &[x()]));
    }
    for log in [false, true] {
        cases.push(case(Softmax { axis: 1, log }, &[f32s([2, 5, 3])]));
        cases.push(case(Softmax { axis: 0, log }, &[tensor(DataType::F16, [9])]));
        cases.push(case(Softmax { axis: 2, log }, &[tensor(DataType::F64, [2, 0, 1])]));
    }
    cases
}
