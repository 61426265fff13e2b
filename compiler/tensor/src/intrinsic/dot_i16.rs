//! `sum[lane] += a[k] * b[lane, k]` over pairs of signed integers of 16 bits.

use super::{Description, Extent, Term};
use crate::BinaryOp;
use hone_types::DataType;

pub(super) const DESCRIPTION: Description = Description {
    name: "dot_i16",
    loops: &[Extent::Lanes, Extent::Exactly(2)],
    operands: &[DataType::I16, DataType::I16],
    result: DataType::I32,
    result_steps: &[1, 0],
    term: Term::Binary(
        BinaryOp::Multiply,
        &Term::Cast(DataType::I32, &Term::Operand(0)),
        &Term::Cast(DataType::I32, &Term::Operand(1)),
    ),
    layouts: &[&[&[0, 1], &[2, 1]], &[&[2, 1], &[0, 1]]],
};
