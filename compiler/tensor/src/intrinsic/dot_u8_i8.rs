//! `sum[lane] += a[k] * b[lane, k]` over fours of an unsigned and a signed byte, either of which may be the one
//! that all lanes read.

use super::{Description, Extent, Term};
use crate::BinaryOp;
use hone_types::DataType;

pub(super) const DESCRIPTION: Description = Description {
    name: "dot_u8_i8",
    loops: &[Extent::Lanes, Extent::Exactly(4)],
    operands: &[DataType::U8, DataType::I8],
    result: DataType::I32,
    result_steps: &[1, 0],
    term: Term::Binary(
        BinaryOp::Multiply,
        &Term::Cast(DataType::I32, &Term::Operand(0)),
        &Term::Cast(DataType::I32, &Term::Operand(1)),
    ),
    layouts: &[&[&[0, 1], &[4, 1]], &[&[4, 1], &[0, 1]]],
};
