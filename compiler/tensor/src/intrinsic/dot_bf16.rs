//! `sum[lane] += a[k] * b[lane, k]` over pairs of bfloat16.

use super::{Description, Extent, Term};
use crate::BinaryOp;
use hone_types::DataType;

pub(super) const DESCRIPTION: Description = Description {
    name: "dot_bf16",
    loops: &[Extent::Lanes, Extent::Exactly(2)],
    operands: &[DataType::BF16, DataType::BF16],
    result: DataType::F32,
    result_steps: &[1, 0],
    term: Term::Binary(
        BinaryOp::Multiply,
        &Term::Cast(DataType::F32, &Term::Operand(0)),
        &Term::Cast(DataType::F32, &Term::Operand(1)),
    ),
    layouts: &[&[&[0, 1], &[2, 1]], &[&[2, 1], &[0, 1]]],
};
