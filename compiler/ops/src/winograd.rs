//! Winograd's minimal filtering, F(m x m, 3 x 3) (Lavin and Gray, CVPR 2016): what its three
//! operators share. A convolution with a 3x3 window becomes a transformation of tiles of `m + 2` by
//! `m + 2` inputs, one matrix product for each place of a tile, and a transformation to `m` by `m`
//! results: `(m + 2)^2` multiplications instead of `9 m^2`.

use crate::operator::OpError;
use hone_tensor::Expr;
use hone_types::{DataType, Tensor};

/// The three matrices for tiles of `m` results: `B^T`, `G` and `A^T`, row by row.
struct Matrices {
    input: &'static [&'static [f64]],
    weights: &'static [&'static [f64]],
    output: &'static [&'static [f64]],
}

const TWO: Matrices = Matrices {
    input: &[
        &[1.0, 0.0, -1.0, 0.0],
        &[0.0, 1.0, 1.0, 0.0],
        &[0.0, -1.0, 1.0, 0.0],
        &[0.0, 1.0, 0.0, -1.0],
    ],
    weights: &[&[1.0, 0.0, 0.0], &[0.5, 0.5, 0.5], &[0.5, -0.5, 0.5], &[0.0, 0.0, 1.0]],
    output: &[&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]],
};

const FOUR: Matrices = Matrices {
    input: &[
        &[4.0, 0.0, -5.0, 0.0, 1.0, 0.0],
        &[0.0, -4.0, -4.0, 1.0, 1.0, 0.0],
        &[0.0, 4.0, -4.0, -1.0, 1.0, 0.0],
        &[0.0, -2.0, -1.0, 2.0, 1.0, 0.0],
        &[0.0, 2.0, -1.0, -2.0, 1.0, 0.0],
        &[0.0, 4.0, 0.0, -5.0, 0.0, 1.0],
    ],
    weights: &[
        &[1.0 / 4.0, 0.0, 0.0],
        &[-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
        &[-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
        &[1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
        &[1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
        &[0.0, 0.0, 1.0],
    ],
    output: &[
        &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
        &[0.0, 1.0, -1.0, 2.0, -2.0, 0.0],
        &[0.0, 1.0, 1.0, 4.0, 4.0, 0.0],
        &[0.0, 1.0, -1.0, 8.0, -8.0, 1.0],
    ],
};

/// Sides of tiles of results that have matrices.
pub const WINOGRAD_TILES: [usize; 2] = [2, 4];

fn matrices(tile: usize) -> Option<&'static Matrices> {
    match tile {
        2 => Some(&TWO),
        4 => Some(&FOUR),
        _ => None,
    }
}

/// `B^T` for tiles of `tile` results a side; `None` for other sides than [`WINOGRAD_TILES`].
pub(crate) fn input_matrix(tile: usize) -> Option<&'static [&'static [f64]]> {
    matrices(tile).map(|own| own.input)
}

/// `A^T` for tiles of `tile` results a side; `None` for other sides than [`WINOGRAD_TILES`].
pub(crate) fn output_matrix(tile: usize) -> Option<&'static [&'static [f64]]> {
    matrices(tile).map(|own| own.output)
}

/// Transforms the weights `[O, C, 3, 3]` of a convolution for tiles of `tile` results a side:
/// `U = G w G^T`, packed as `[m + 2, m + 2, ceil(O / o), C / c, c, o]` for [`crate::WinogradMultiply`].
/// `c` must divide C; O is filled up with zeros. Computed in `f64`.
pub fn winograd_weights(
    weights: &Tensor,
    tile: usize,
    c: usize,
    o: usize,
) -> Result<Tensor, OpError> {
    let fits = weights.shape().len() == 4 && weights.shape()[2..] == [3, 3];
    let transform = matrices(tile).filter(|_| fits && weights.shape()[1].is_multiple_of(c));
    let Some(Matrices { weights: transform, .. }) = transform else {
        let shape = weights.tensor_type();
        return Err(OpError::Value(format!("weights {shape} have no transform for tile {tile}")));
    };
    let (outputs, channels) = (weights.shape()[0], weights.shape()[1]);
    let (side, blocks) = (tile + 2, outputs.div_ceil(o));
    let values = weights.to_f64();
    let mut transformed = vec![0.0f64; side * side * blocks * o * channels];
    for output in 0..outputs {
        for channel in 0..channels {
            let window = &values[(output * channels + channel) * 9..][..9];
            let place = ((output / o * channels) + channel) * o + output % o;
            for (row, left) in transform.iter().enumerate() {
                for (column, right) in transform.iter().enumerate() {
                    let sum: f64 = (0..9).map(|n| left[n / 3] * window[n] * right[n % 3]).sum();
                    let plane = (row * side + column) * blocks * channels * o;
                    transformed[plane + place] = sum;
                }
            }
        }
    }
    let shape = [side, side, blocks, channels / c, c, o];
    Ok(Tensor::from_f64(weights.dtype(), shape, &transformed)?)
}

/// `sum over n of factors[n] * term(n)`, without the terms whose factor is zero.
pub(crate) fn combination(factors: &[f64], dtype: DataType, term: &dyn Fn(usize) -> Expr) -> Expr {
    let mut sum: Option<Expr> = None;
    for (place, factor) in factors.iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
        let size = factor.abs();
        let scaled =
            if size == 1.0 { term(place) } else { term(place) * Expr::Constant(size, dtype) };
        sum = Some(match (sum, *factor < 0.0) {
            (None, false) => scaled,
            (None, true) => scaled * Expr::Constant(-1.0, dtype),
            (Some(sum), false) => sum + scaled,
            (Some(sum), true) => sum - scaled,
        });
    }
    sum.unwrap_or(Expr::Constant(0.0, dtype))
}

/// The choice of place `index`; the last one where the index is beyond.
pub(crate) fn pick(index: &Expr, choices: Vec<Expr>) -> Expr {
    let mut choices = choices.into_iter().enumerate().rev();
    let last = choices.next().map_or(Expr::Integer(0), |(_, last)| last);
    choices
        .fold(last, |rest, (place, choice)| index.clone().equal(place.into()).select(choice, rest))
}

/// `matrix * tile * matrix^T` of a square tile.
pub(crate) fn transform(matrix: &[&[f64]], tile: &[f64]) -> Vec<f64> {
    let side = matrix.first().map_or(0, |row| row.len());
    let mut result = Vec::with_capacity(matrix.len() * matrix.len());
    for left in matrix {
        for right in matrix {
            let sum = (0..side * side).map(|n| left[n / side] * tile[n] * right[n % side]).sum();
            result.push(sum);
        }
    }
    result
}
