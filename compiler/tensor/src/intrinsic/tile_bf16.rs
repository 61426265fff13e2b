//! A product of tiles of bfloat16: `sum[row, column] += a[row, k] * b[k, column]`, `b` with its pairs of `k` side by
//! side.

use super::{ANY, Description, Extent, Term};
use crate::BinaryOp;
use hone_types::DataType;

pub(super) const DESCRIPTION: Description = Description {
    name: "tile_bf16",
    loops: &[Extent::AtMost(16), Extent::AtMost(16), Extent::AtMost(16), Extent::Exactly(2)],
    operands: &[DataType::BF16, DataType::BF16],
    result: DataType::F32,
    result_steps: &[ANY, 1, 0, 0],
    term: Term::Binary(
        BinaryOp::Multiply,
        &Term::Cast(DataType::F32, &Term::Operand(0)),
        &Term::Cast(DataType::F32, &Term::Operand(1)),
    ),
    layouts: &[&[&[ANY, 0, 2, 1], &[0, 2, ANY, 1]], &[&[0, 2, ANY, 1], &[ANY, 0, 2, 1]]],
};
