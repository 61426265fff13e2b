//! Operators without an expression: what the runtime computes itself, and views of memory.

use super::{Case, f32s, tensor};
use hone_ops::*;
use hone_types::{DataType, Tensor};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        plain(NonZero {}, &[tensor(DataType::I8, [2, 5])]),
        plain(NonZero {}, &[f32s([])]),
        plain(Compress { axis: Some(1) }, &[f32s([2, 4]), tensor(DataType::Bool, [3])]),
        plain(Compress { axis: None }, &[f32s([2, 4]), tensor(DataType::Bool, [8])]),
        plain(Unique { axis: Some(0), sorted: true }, &[tensor(DataType::Bool, [4, 2])]),
        plain(Unique { axis: None, sorted: false }, &[tensor(DataType::I64, [3, 4])]),
        plain(
            NonMaxSuppression { centers: false, most: 2 },
            &[f32s([1, 5, 4]), f32s([1, 2, 5]), Tensor::scalar(2i64)],
        ),
        plain(Require { message: "no \"reason\"".into() }, &[Tensor::scalar(true)]),
    ];
    for (from, to) in [(DataType::F32, DataType::U32), (DataType::I8, DataType::U8)] {
        cases.push(plain(BitCast { to }, &[tensor(from, [3, 2])]));
    }
    cases
}

fn plain(operator: impl Operator, inputs: &[Tensor]) -> Case {
    Case { is_folded: true, ..super::case(operator, inputs) }
}
