//! A product of tiles of bytes: `sum[row, column] += a[row, k] * b[k, column]`, `b` with its fours of `k` side by side.
//! One of both is unsigned, the other one signed.

use super::{ANY, Description, Extent, Term};
use crate::BinaryOp;
use hone_types::DataType;

pub(super) const DESCRIPTION: Description = Description {
    name: "tile_u8_i8",
    loops: &[Extent::AtMost(16), Extent::AtMost(16), Extent::AtMost(16), Extent::Exactly(4)],
    operands: &[DataType::U8, DataType::I8],
    result: DataType::I32,
    result_steps: &[ANY, 1, 0, 0],
    term: Term::Binary(
        BinaryOp::Multiply,
        &Term::Cast(DataType::I32, &Term::Operand(0)),
        &Term::Cast(DataType::I32, &Term::Operand(1)),
    ),
    layouts: &[&[&[ANY, 0, 4, 1], &[0, 4, ANY, 1]], &[&[0, 4, ANY, 1], &[ANY, 0, 4, 1]]],
};
