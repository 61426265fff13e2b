//! Recurrent layers whose weights a quantizer left, or a conversion to 16 bits.

use crate::case::Case;
use hone_driver::Target;
use hone_machine::Machine;
use hone_ops::{Activation, BinaryFunction, Direction, Gru, Lstm, Rnn};
use hone_types::DataType;

/// Units from which on the weights of `gates` gates leave the second-level cache of this machine as `f32`.
fn many_units(gates: usize) -> usize {
    let target = Target::host().unwrap();
    let machine = Machine::with_vectors(target.vector_bytes, target.vector_registers);
    (machine.of_processor(&target.cpu).panel_limit() / (4 * gates)).isqrt() + 17
}

#[test]
fn weights_of_signed_bytes_with_one_scale() {
    let hidden = many_units(1);
    let mut case = Case::new();
    let x = case.input(&[3, 2, 8]);
    let w = case.constant(&[1, hidden, 8]);
    let bytes = case.integers(DataType::I8, &[1, hidden, hidden]);
    let scale = case.number(1e-4, DataType::F32);
    let r = case.scaled_by(bytes, 0.0, scale);
    let layer = Rnn {
        hidden,
        direction: Direction::Forward,
        activations: vec![Activation::Tanh],
        clip: None,
        batch_first: false,
    };
    let y = case.node(layer, &[x, w, r]);
    case.check_storing(DataType::I8, y);
}

/// For one row, whose weights are read as they are stored, and for several, for which they are packed.
#[test]
fn weights_of_16_bits() {
    let hidden = many_units(3);
    for rows in [1, 4] {
        let mut case = Case::new();
        let x = case.input(&[2, rows, 8]);
        let w = case.constant(&[1, 3 * hidden, 8]);
        let bytes = case.integers(DataType::I8, &[1, 3 * hidden, hidden]);
        let scale = case.number(2f64.powi(-11), DataType::F32);
        let wide = case.cast(DataType::F32, bytes);
        // Numbers of bfloat16 that are no multiples of 1/255 of the largest.
        let numbers = case.binary(BinaryFunction::Multiply, wide, wide);
        let numbers = case.cast(DataType::BF16, numbers);
        let numbers = case.cast(DataType::F32, numbers);
        let r = case.binary(BinaryFunction::Multiply, numbers, scale);
        let smaller = case.number(2f64.powi(-9), DataType::F32);
        let r = case.binary(BinaryFunction::Multiply, r, smaller);
        let layer = Gru {
            hidden,
            direction: Direction::Forward,
            activations: vec![Activation::Sigmoid, Activation::Tanh],
            clip: None,
            linear_before_reset: false,
            batch_first: false,
        };
        let y = case.node(layer, &[x, w, r]);
        case.check_storing(DataType::BF16, y);
    }
}

#[test]
fn weights_of_unsigned_bytes_with_a_scale_for_each_unit() {
    let hidden = many_units(3);
    let mut case = Case::new();
    let x = case.input(&[2, 1, 8]);
    let w = case.constant(&[1, 3 * hidden, 8]);
    let bytes = case.unsigned(255, &[1, 3 * hidden, hidden]);
    let scales = case.smaller_constant(&[1, 3 * hidden, 1], 5e3);
    let r = case.scaled_by(bytes, 100.0, scales);
    let layer = Gru {
        hidden,
        direction: Direction::Reverse,
        activations: vec![Activation::Sigmoid, Activation::Tanh],
        clip: None,
        linear_before_reset: false,
        batch_first: false,
    };
    let y = case.node(layer, &[x, w, r]);
    case.check_storing(DataType::I16, y);
}

/// Steps of one row, of rows that a tile does not divide, and of columns that fill no block; scales for all and for each
/// unit.
#[test]
fn bytes_by_weights_of_bytes() {
    for (rows, hidden, is_by_unit) in [(1, 64, false), (3, 20, true), (7, 36, false)] {
        let mut case = Case::new();
        let x = case.input(&[3, rows, 8]);
        let mut weights = |inputs: usize| {
            let bytes = case.integers(DataType::I8, &[2, 4 * hidden, inputs]);
            let scales = match is_by_unit {
                true => case.smaller_constant(&[2, 4 * hidden, 1], 1e3),
                false => case.number(1e-3, DataType::F32),
            };
            case.scaled_by(bytes, 0.0, scales)
        };
        let (w, r) = (weights(8), weights(hidden));
        let gates = [Activation::Sigmoid, Activation::Tanh, Activation::Tanh];
        let layer = Lstm {
            hidden,
            direction: Direction::Bidirectional,
            activations: gates.repeat(2),
            clip: None,
            input_forget: false,
            batch_first: false,
            rounds_operands: true,
        };
        let y = case.node(layer, &[x, w, r]);
        match Target::host().unwrap().multiplies_faster(DataType::I8) {
            true => case.check_storing(DataType::I8, y),
            false => case.check(y),
        }
    }
}
