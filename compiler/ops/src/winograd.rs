//! Winograd's minimal filtering, F(m x m, 3 x 3) (Lavin and Gray, CVPR 2016): what its three
//! operators share. A convolution with a 3x3 window becomes a transformation of tiles of `m + 2` by
//! `m + 2` inputs, one matrix product for each place of a tile, and a transformation to `m` by `m`
//! results: `(m + 2)^2` multiplications instead of `9 m^2`. A window `Z.. x 3 x 3` over further axes, as over the frames
//! of a video, is filtered so over the last two: the products of its other positions are summed between the
//! transformations, which each image along those axes needs once.

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

/// Transforms the weights `[O, C, Z.., 3, 3]` of a convolution for tiles of `tile` results a side:
/// `U = G w G^T`, packed as `[m + 2, m + 2, ceil(O / o), C / c, Z.., c, o]` for [`crate::WinogradMultiply`].
/// `c` must divide C; O is filled up with zeros. Computed in `f64`.
///
/// # Errors
/// Other weights, and other sides than [`WINOGRAD_TILES`].
pub fn winograd_weights(
    weights: &Tensor,
    tile: usize,
    c: usize,
    o: usize,
) -> Result<Tensor, OpError> {
    let transform = matrices(tile).map(|own| own.weights);
    let ([outputs, channels, taps @ .., 3, 3], Some(transform)) = (weights.shape(), transform)
    else {
        return Err(no_transform(weights, tile));
    };
    if !channels.is_multiple_of(c) {
        return Err(no_transform(weights, tile));
    }
    let (side, blocks, count) = (tile + 2, outputs.div_ceil(o), taps.iter().product::<usize>());
    let values = weights.to_f64();
    let plane = blocks * channels * count * o;
    let mut transformed = vec![0.0f64; side * side * plane];
    for (position, window) in values.chunks_exact(9).enumerate() {
        let (output, channel, tap) =
            (position / (channels * count), position / count % channels, position % count);
        let block = output / o * (channels / c) + channel / c;
        let place = ((block * count + tap) * c + channel % c) * o + output % o;
        for (row, left) in transform.iter().enumerate() {
            for (column, right) in transform.iter().enumerate() {
                let sum: f64 = (0..9).map(|n| left[n / 3] * window[n] * right[n % 3]).sum();
                transformed[(row * side + column) * plane + place] = sum;
            }
        }
    }
    let shape = [&[side, side, blocks, channels / c], taps, &[c, o]].concat();
    Ok(Tensor::from_f64(weights.dtype(), shape, &transformed)?)
}

fn no_transform(weights: &Tensor, tile: usize) -> OpError {
    OpError::Value(format!("weights {} have no transform for tile {tile}", weights.tensor_type()))
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
