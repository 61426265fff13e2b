//! Products of matrices as programs.

use super::numbers;
use hone_codegen::nvptx::{Architecture, Module, ProductOptions, Tiles, product};
use hone_tensor::{Builder, Combiner, Expr, Program};
use hone_types::{DataType, Tensor, TensorType};

/// A product, and how its operands lie.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Types of the operands.
    pub dtypes: [DataType; 2],
    /// Products.
    pub batch: usize,
    /// Rows, columns and depth.
    pub extents: [usize; 3],
    /// Whether operands lie with the depth as their last axis: `[m, k]` and `[n, k]`; else `[k, m]` and `[k, n]`.
    pub by_depth: [bool; 2],
}

/// `max(a . b + bias, 0)`, of bytes in 32 bits, else rounded to the operands' type, of matrices of which there are
/// `batch`.
pub fn program(sizes: &Sizes) -> (Program, Vec<Tensor>) {
    let Sizes { dtypes, batch, extents: [m, n, k], by_depth } = *sizes;
    let (sum, result) = match dtypes[0].is_float() {
        true => (DataType::F32, dtypes[0]),
        false => (DataType::I32, DataType::I32),
    };
    let shape = |side: usize, across: usize| match by_depth[side] {
        true => [batch, across, k],
        false => [batch, k, across],
    };
    let (a, b) = (shape(0, m), shape(1, n));
    let mut builder = Builder::new();
    let left = builder.input("a", &TensorType::new(dtypes[0], a));
    let right = builder.input("b", &TensorType::new(dtypes[1], b));
    let bias = builder.input("bias", &TensorType::new(sum, [n]));
    let sums = TensorType::new(sum, [batch, m, n]);
    let extended = |value: Expr, dtype| if dtype == sum { value } else { value.cast(sum) };
    let products = builder.reduce("sum", &sums, &[k], Combiner::Sum, |i, r| {
        let load = |buffer, side: usize, across: &Expr| {
            let (across, depth) = (across.clone(), r[0].clone());
            let indices = if by_depth[side] { [across, depth] } else { [depth, across] };
            let load = Expr::Load(buffer, [vec![i[0].clone()], indices.to_vec()].concat());
            extended(load, dtypes[side])
        };
        load(left, 0, &i[1]) * load(right, 1, &i[2])
    });
    let y = builder.map("y", &TensorType::new(result, [batch, m, n]), |i| {
        let biased = Expr::Load(products, i.to_vec()) + Expr::Load(bias, vec![i[2].clone()]);
        let bounded = biased.maximum(Expr::Constant(0.0, sum));
        if result == sum { bounded } else { bounded.cast(result) }
    });
    builder.output(y);
    let inputs = vec![numbers(dtypes[0], &a, 0), numbers(dtypes[1], &b, 1), numbers(sum, &[n], 2)];
    (builder.finish(), inputs)
}

/// The module of a product in such tiles, of which `f32` may be rounded to TF32.
pub fn with_tiles(
    program: &Program,
    architecture: Architecture,
    tiles: Option<Tiles>,
) -> Option<Module> {
    product(program, architecture, &ProductOptions { tiles, rounded: true }, "k").unwrap()
}

/// The same of what is a product.
pub fn module(program: &Program, architecture: Architecture, tiles: Tiles) -> Module {
    with_tiles(program, architecture, Some(tiles)).expect("it is a product")
}
