//! `sum[lane] += a[k] * (w[lane, k] & 15) + b[k] * (w[lane, k] >> 4)` over fours of bytes: two signed bytes that all
//! lanes read, and the two numbers of four bits without a sign that a byte of each lane holds.

use super::{Description, Extent, Term};
use crate::BinaryOp;
use hone_types::DataType;

/// The product of a signed byte and four bits of a byte, in 32 bits.
const fn product(byte: &'static Term, bits: &'static Term) -> Term {
    Term::Binary(BinaryOp::Multiply, byte, bits)
}

const LOW: Term =
    Term::Binary(BinaryOp::And, &Term::Operand(2), &Term::Constant(15.0, DataType::U8));
const HIGH: Term =
    Term::Binary(BinaryOp::ShiftRight, &Term::Operand(2), &Term::Constant(4.0, DataType::U8));

pub(super) const DESCRIPTION: Description = Description {
    name: "dot_i8_u4",
    loops: &[Extent::Lanes, Extent::Exactly(4)],
    operands: &[DataType::I8, DataType::I8, DataType::U8],
    result: DataType::I32,
    result_steps: &[1, 0],
    term: Term::Binary(
        BinaryOp::Add,
        &product(&Term::Cast(DataType::I32, &Term::Operand(0)), &Term::Cast(DataType::I32, &LOW)),
        &product(&Term::Cast(DataType::I32, &Term::Operand(1)), &Term::Cast(DataType::I32, &HIGH)),
    ),
    layouts: &[&[&[0, 1], &[0, 1], &[4, 1]]],
};
