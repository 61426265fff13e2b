//! Attention: orders of axes, shared heads, steps, rows without a key.

use super::{Case, case, tensor};
use hone_ops::*;
use hone_types::{DataType, Tensor};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DataType::F32, DataType::F64, DataType::F16] {
        let operands = [[3, 5, 4], [3, 7, 4], [3, 7, 2]].map(|shape| tensor(dtype, shape));
        cases.push(case(attention([0, 1, 2], vec![]), &operands));
    }
    cases.push(turned());
    cases.push(shared());
    cases.extend(masked());
    cases.extend(hidden());
    cases.push(part());
    cases
}

fn attention<const RANK: usize>(places: [usize; RANK], steps: Vec<ScoreStep>) -> Attention {
    let [query, key, value, output] = [(); 4].map(|()| places.to_vec());
    let (scale, empty_rows) = (0.5, EmptyRows::NotNumbers);
    Attention { query, key, value, output, scale, steps, empty_rows, rounded: None, part: None }
}

fn f32s(shape: &[usize]) -> Tensor {
    super::f32s(shape)
}

/// Heads between rows and sizes, keys turned, and the result as the queries.
fn turned() -> Case {
    let places = attention([1, 0, 2], vec![]);
    let operation = Attention { key: vec![0, 2, 1], ..places };
    case(operation, &[f32s(&[5, 2, 3]), f32s(&[2, 3, 6]), f32s(&[6, 2, 4])])
}

/// Four heads of queries for two of keys, all for one of values.
fn shared() -> Case {
    let operands = [f32s(&[2, 4, 3, 2]), f32s(&[2, 2, 5, 2]), f32s(&[1, 1, 5, 3])];
    case(attention([0, 1, 2, 3], vec![]), &operands)
}

fn masked() -> Vec<Case> {
    let operands = [f32s(&[2, 3, 4]), f32s(&[2, 5, 4]), f32s(&[2, 5, 4])];
    let steps = vec![
        ScoreStep::Add,
        ScoreStep::Multiply(0.25),
        ScoreStep::Tanh,
        ScoreStep::KeepWhere { otherwise: -1e9 },
        ScoreStep::ReplaceWhere { instead: f64::NEG_INFINITY },
    ];
    // No row is hidden as a whole.
    let hidden = |place: usize, count: usize| -> Vec<f64> {
        (0..count).map(|own| f64::from(u8::from(own % 5 == place))).collect()
    };
    let bools =
        |shape: &[usize], values: &[f64]| Tensor::from_f64(DataType::Bool, shape, values).unwrap();
    let kept: Vec<f64> = hidden(1, 5).iter().map(|own| 1.0 - own).collect();
    let masks = [f32s(&[1, 5, 3]), bools(&[1, 5, 1], &kept), bools(&[2, 5, 3], &hidden(4, 30))];
    let all: Vec<Tensor> = operands.iter().chain(&masks).cloned().collect();
    vec![case(attention([0, 1, 2], steps), &all)]
}

/// The second of two rows sees nothing.
fn hidden() -> Vec<Case> {
    let infinite = f64::NEG_INFINITY;
    let bias = [0.0, infinite, -1.0, infinite, infinite, infinite];
    let bias = Tensor::from_f64(DataType::F32, [3, 2], &bias).unwrap();
    let operands = [f32s(&[2, 4]), f32s(&[3, 4]), f32s(&[3, 2]), bias];
    [EmptyRows::NotNumbers, EmptyRows::Zero, EmptyRows::ZeroWhereNan]
        .map(|empty_rows| {
            let plain = attention([0, 1], vec![ScoreStep::Add]);
            case(Attention { empty_rows, ..plain }, &operands)
        })
        .into()
}

/// Two of five queries, which look at three of six keys; the mask is of all.
fn part() -> Case {
    let operands = [[2, 5, 4], [1, 6, 4], [2, 6, 2], [2, 6, 5]].map(|shape| f32s(&shape));
    let part = Some(AttentionPart { query: 2, queries: 2, key: 1, keys: 3 });
    case(Attention { part, ..attention([0, 1, 2], vec![ScoreStep::Add]) }, &operands)
}
