//! Normalisations of rows that lie in blocks of channels: the same results, in vectors that do not cross a block.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_machine::Machine;
use hone_tensor::{Builder, Combiner, Expr, Program, interpret, verify};
use hone_tune::{Preferred, schedule_as};
use hone_types::{DataType, Tensor, TensorType};

const LANES: usize = 4;
const NAME: &str = "rows";

fn machine() -> Machine {
    Machine::with_vectors(4 * LANES, 32)
}

/// Small whole numbers, so that no order of additions makes a difference.
fn numbers(shape: &[usize]) -> Tensor {
    let of = TensorType::new(DataType::F32, shape.to_vec());
    let value = |index: usize| ((index * 7 + index / 3) % 11) as f64 - 4.0;
    let values: Vec<f64> = (0..of.elements()).map(value).collect();
    Tensor::from_f64(of.dtype, of.shape, &values).unwrap()
}

/// `y[p, c] = x[c / block, p, c % block] - sum over k of x[k / block, p, k % block]` of so many positions and channels.
fn centred(positions: usize, channels: usize, block: usize) -> (Program, Vec<Tensor>) {
    let of = |shape: &[usize]| TensorType::new(DataType::F32, shape.to_vec());
    let shape = [channels.div_ceil(block), positions, block];
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&shape));
    let read = |position: &Expr, channel: &Expr| {
        let outer = channel.clone().floor_divide(block.into());
        Expr::Load(x, vec![outer, position.clone(), channel.clone().modulo(block.into())])
    };
    let sums = builder
        .reduce("sums", &of(&[positions]), &[channels], Combiner::Sum, |i, k| read(&i[0], &k[0]));
    let y = builder.map("y", &of(&[positions, channels]), |i| {
        read(&i[0], &i[1]) - Expr::Load(sums, vec![i[0].clone()])
    });
    builder.output(y);
    (builder.finish(), vec![numbers(&shape)])
}

/// Whether the sum is in vectors of partial results, after it was checked that the program computes as before.
fn is_in_vectors((plain, inputs): &(Program, Vec<Tensor>)) -> bool {
    let scheduled = schedule_as(plain.clone(), &machine(), NAME, &mut Preferred).unwrap();
    let program = scheduled.schedule.program();
    verify(program).unwrap();
    assert_eq!(interpret(program, inputs).unwrap(), interpret(plain, inputs).unwrap());
    let mut names = program.blocks_in_order().into_iter().map(|block| &program.blocks[block].name);
    names.any(|name| name.contains("_parts"))
}

#[test]
fn sums_over_blocks_of_channels_are_in_vectors() {
    for channels in [12, 18, 40] {
        assert!(is_in_vectors(&centred(6, channels, LANES)), "{channels} channels");
    }
    assert!(is_in_vectors(&centred(6, 24, 2 * LANES)));
}

#[test]
fn sums_over_blocks_that_vectors_cross_are_not() {
    assert!(!is_in_vectors(&centred(6, 15, 3)));
    assert!(!is_in_vectors(&centred(6, 24, 6)));
}
