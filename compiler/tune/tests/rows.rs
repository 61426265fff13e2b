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

/// `y[p] = sum over k of x[k, p]` of so many terms: neighbouring terms are not neighbours in memory.
fn strided(terms: usize, positions: usize) -> Program {
    let of = |shape: &[usize]| TensorType::new(DataType::F32, shape.to_vec());
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&[terms, positions]));
    let y = builder.reduce("sums", &of(&[positions]), &[terms], Combiner::Sum, |i, k| {
        Expr::Load(x, vec![k[0].clone(), i[0].clone()])
    });
    let y = builder.map("y", &of(&[positions]), |i| Expr::Load(y, vec![i[0].clone()]));
    builder.output(y);
    builder.finish()
}

#[test]
fn many_terms_that_are_not_neighbours_are_gathered_into_vectors() {
    for terms in [256, 301, 1024] {
        assert!(is_in_vectors(&(strided(terms, 3), vec![numbers(&[terms, 3])])), "{terms} terms");
    }
    assert!(!is_in_vectors(&(strided(60, 3), vec![numbers(&[60, 3])])));
}

#[test]
fn many_terms_in_blocks_of_rows_are_in_vectors() {
    let of = |shape: &[usize]| TensorType::new(DataType::F32, shape.to_vec());
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&[16, 4, 8]));
    // A transposition of the outer axes, read as one axis of 512 elements.
    let sums = builder.reduce("sums", &of(&[1]), &[512], Combiner::Sum, |_, k| {
        let row = k[0].clone().floor_divide(8.into()).modulo(16.into());
        let outer = k[0].clone().floor_divide(128.into());
        Expr::Load(x, vec![row, outer, k[0].clone().modulo(8.into())])
    });
    let y = builder.map("y", &of(&[1]), |i| Expr::Load(sums, vec![i[0].clone()]));
    builder.output(y);
    assert!(is_in_vectors(&(builder.finish(), vec![numbers(&[16, 4, 8])])));
}

#[test]
fn a_long_sum_that_is_gathered_errs_by_less_than_a_chain() {
    const TERMS: usize = 65_536;
    let values: Vec<f64> =
        (0..TERMS).map(|index| 1.0 + (index * 7919 % 65_521) as f64 / 65_521.0).collect();
    let x = Tensor::from_f64(DataType::F32, [TERMS, 1], &values).unwrap();
    let exact: f64 = x.to_f64().iter().sum();
    let plain = strided(TERMS, 1);
    let scheduled = schedule_as(plain.clone(), &machine(), NAME, &mut Preferred).unwrap();
    let error = |program: &Program| {
        let result = interpret(program, std::slice::from_ref(&x)).unwrap();
        (result[0].to_f64()[0] - exact).abs() / exact
    };
    let (chain, vectors) = (error(&plain), error(scheduled.schedule.program()));
    assert!(vectors < chain / 4.0, "{vectors}, and {chain} of a chain");
}
