//! Functions of one and two values, choices, conversions.

use crate::case::Case;
use hone_ops::{BinaryFunction as B, Cast, Select, UnaryFunction as U};
use hone_types::DataType;

/// Smooth functions, each between bounds inside of where it is defined.
#[test]
fn smooth_functions_of_one_value() {
    let functions = [
        (U::Negate, -2.0, 2.0),
        (U::Exp, -2.0, 2.0),
        (U::Log, 0.5, 3.0),
        (U::Sqrt, 0.5, 3.0),
        (U::Reciprocal, 0.5, 3.0),
        (U::Tanh, -2.0, 2.0),
        (U::Erf, -2.0, 2.0),
        (U::Sigmoid, -3.0, 3.0),
        (U::Sin, -3.0, 3.0),
        (U::Cos, -3.0, 3.0),
        (U::Tan, -1.0, 1.0),
        (U::Asin, -0.8, 0.8),
        (U::Acos, -0.8, 0.8),
        (U::Atan, -3.0, 3.0),
        (U::Sinh, -2.0, 2.0),
        (U::Cosh, -2.0, 2.0),
        (U::Asinh, -3.0, 3.0),
        (U::Acosh, 1.5, 4.0),
        (U::Atanh, -0.8, 0.8),
    ];
    for (seed, (function, from, to)) in functions.into_iter().enumerate() {
        println!("{function:?}");
        let mut case = Case::new(seed as u64);
        let x = case.input(&[3, 5], from, to);
        let y = case.unary(function, x);
        case.check_twice(y);
    }
}

#[test]
fn functions_with_kinks_and_steps() {
    for function in [U::Abs, U::Relu, U::Sign, U::Floor, U::Ceil, U::Round] {
        println!("{function:?}");
        let mut case = Case::new(31);
        let x = case.input_of(&[2, 3], &[-1.7, -0.3, 0.2, 0.4, 1.3, 2.8]);
        // A second way to the result, by which it is not the constant zero.
        let y = case.unary(function, x);
        let y = case.binary(B::Multiply, y, x);
        case.check(y);
    }
}

#[test]
fn functions_of_two_values_that_broadcast() {
    let shapes: [[&[usize]; 2]; 5] = [
        [&[3, 4], &[3, 4]],
        [&[2, 3, 4], &[4]],
        [&[3, 1], &[2, 1, 5]],
        [&[], &[2, 3]],
        [&[1, 1], &[3]],
    ];
    for function in [B::Add, B::Subtract, B::Multiply, B::Divide, B::Power] {
        for (seed, [left, right]) in shapes.into_iter().enumerate() {
            println!("{function:?} {left:?} {right:?}");
            let mut case = Case::new(seed as u64);
            let (a, b) = (case.input(left, 0.5, 2.0), case.input(right, 0.5, 2.0));
            let y = case.binary(function, a, b);
            case.check_twice(y);
        }
    }
}

#[test]
fn functions_of_two_values_with_kinks() {
    for function in [B::Minimum, B::Maximum, B::Modulo, B::Remainder, B::LeakyMultiply] {
        println!("{function:?}");
        let mut case = Case::new(5);
        let a = case.input_of(&[2, 3], &[-1.7, -0.3, 0.2, 0.45, 1.3, 2.75]);
        let b = case.input_of(&[3], &[0.9, -0.7, 0.6]);
        let y = case.binary(function, a, b);
        case.check(y);
    }
}

/// Of two equal values each gets a half; of a power of zero nothing is infinite that is not.
#[test]
fn ties_and_zeros() {
    let mut case = Case::new(1);
    let (a, b) = (case.input_of(&[2], &[1.0, 2.0]), case.input_of(&[2], &[1.0, 3.0]));
    let y = case.binary(B::Maximum, a, b);
    assert_eq!(case.values_of(y), [vec![0.5, 0.0], vec![0.5, 1.0]]);
    let mut case = Case::new(1);
    let a = case.input_of(&[3], &[0.0, 0.0, 2.0]);
    let b = case.input_of(&[3], &[0.0, 2.0, 0.0]);
    let y = case.binary(B::Power, a, b);
    assert_eq!(case.values_of(y), [vec![0.0; 3], vec![0.0, 0.0, 2f64.ln()]]);
}

#[test]
fn powers_with_constant_exponents() {
    for exponent in [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0] {
        println!("{exponent}");
        let mut case = Case::new(3);
        let x = case.input(&[4], 0.5, 2.0);
        let exponent = case.constant(&[], &[exponent]);
        let y = case.binary(B::Power, x, exponent);
        let y = case.binary(B::Multiply, y, x);
        case.check_twice(y);
    }
}

#[test]
fn choices_and_conversions() {
    let mut case = Case::new(8);
    let (a, b) = (case.input(&[2, 3], -1.0, 1.0), case.input(&[2, 1], -1.0, 1.0));
    let c = case.input_of(&[3], &[0.5, -0.5, 0.7]);
    let zero = case.constant(&[], &[0.0]);
    let condition = case.binary(B::Less, c, zero);
    let y = case.node(Select {}, &[condition, a, b]);
    let y = case.binary(B::Multiply, y, c);
    case.check_twice(y);
    // By way of a narrower float, and of an integer, through which nothing passes.
    let mut case = Case::new(8);
    let x = case.input_of(&[3], &[0.5, -1.5, 2.0]);
    let narrow = case.node(Cast { to: DataType::F32 }, &[x]);
    let wide = case.node(Cast { to: DataType::F64 }, &[narrow]);
    let whole = case.node(Cast { to: DataType::I64 }, &[x]);
    let cut = case.node(Cast { to: DataType::F64 }, &[whole]);
    let y = case.binary(B::Multiply, wide, cut);
    assert_eq!(case.values_of(y), [vec![0.0, -1.0, 2.0]]);
}
