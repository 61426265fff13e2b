//! Running sums, which processors compute in rows.

use crate::case::Case;
use hone_graph::ValueId;
use hone_ops::{BinaryFunction, CumulativeSum};
use hone_types::DataType;

/// Small whole numbers made of any, so that all types sum them exactly.
fn whole_numbers(case: &mut Case, x: ValueId, dtype: DataType) -> ValueId {
    let eight = case.number(8.0, DataType::F32);
    let larger = case.binary(BinaryFunction::Multiply, x, eight);
    let whole = case.cast(DataType::I32, larger);
    case.cast(dtype, whole)
}

/// Running sums along the last axis in every direction; exclusive ones too.
fn sums_along_lines(shape: &[usize], dtype: DataType) {
    for ways in 0..4 {
        let (exclusive, reverse) = (ways & 1 > 0, ways & 2 > 0);
        let axis = shape.len() - 1;
        let sum = CumulativeSum { axis, exclusive, reverse, product: false, in_rows: false };
        let mut case = Case::new();
        let x = case.input(shape);
        let x = if dtype == DataType::F32 { x } else { whole_numbers(&mut case, x, dtype) };
        let y = case.node(sum, &[x]);
        let y = if dtype == DataType::F32 { y } else { case.cast(DataType::F32, y) };
        case.check(y);
    }
}

#[test]
fn lines_of_whole_rows() {
    sums_along_lines(&[3, 64], DataType::F32);
    sums_along_lines(&[32], DataType::F32);
}

#[test]
fn lines_that_end_inside_of_rows() {
    sums_along_lines(&[2, 3, 50], DataType::F32);
    sums_along_lines(&[1, 17], DataType::F32);
}

#[test]
fn lines_of_several_chunks() {
    // 2 chunks of 300 rows, which threads share.
    sums_along_lines(&[1, 16 * 600], DataType::F32);
    // 523 rows are a prime: chunks go beyond the end.
    sums_along_lines(&[2, 16 * 522 + 5], DataType::F32);
}

#[test]
fn rows_of_wider_numbers_are_several_registers() {
    sums_along_lines(&[2, 64], DataType::F64);
    sums_along_lines(&[2, 40], DataType::I64);
}

#[test]
fn sums_of_narrow_numbers_are_wide() {
    sums_along_lines(&[2, 64], DataType::F16);
}

#[test]
fn products_and_other_axes_are_walked() {
    for (axis, product) in [(0, false), (1, true)] {
        let sum = CumulativeSum { axis, exclusive: false, reverse: false, product, in_rows: false };
        let mut case = Case::new();
        let x = case.input(&[20, 24]);
        let y = case.node(sum, &[x]);
        case.check(y);
    }
}
