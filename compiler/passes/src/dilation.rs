//! Dilated convolutions as plain ones, by space to batch. With dilation `d`, results a distance of `d` apart read
//! input elements a distance of `d` apart: these make `d` images along each axis, which are convolved plainly.

use crate::{PassError, Rewriter};
use hone_graph::ValueId;
use hone_ops::{Pad, PadMode, Reshape, Transpose};

/// Packed images `[N, C / c, H * d, W * e, c]` as `[N * d * e, C / c, H, W, c]`, for dilations `[d, e]`.
pub(crate) fn space_to_batch(
    rewriter: &mut Rewriter,
    node: &str,
    value: ValueId,
    dilations: [usize; 2],
) -> Result<ValueId, PassError> {
    let [n, channels, h, w, c] = extents(rewriter, value);
    let [d, e] = dilations;
    let shape = vec![n, channels, h / d, d, w / e, e, c];
    let split = rewriter.add_simple(node, Reshape { shape }, &[value])?;
    let permutation = vec![0, 3, 5, 1, 2, 4, 6];
    let batched = rewriter.add_simple(node, Transpose { permutation }, &[split])?;
    let shape = vec![n * d * e, channels, h / d, w / e, c];
    rewriter.add_simple(node, Reshape { shape }, &[batched])
}

/// The inverse of [`space_to_batch`], of which `[rows, columns]` are kept.
pub(crate) fn batch_to_space(
    rewriter: &mut Rewriter,
    node: &str,
    value: ValueId,
    dilations: [usize; 2],
    kept: [usize; 2],
) -> Result<ValueId, PassError> {
    let [n, channels, h, w, c] = extents(rewriter, value);
    let [d, e] = dilations;
    let shape = vec![n / (d * e), d, e, channels, h, w, c];
    let batched = rewriter.add_simple(node, Reshape { shape }, &[value])?;
    let permutation = vec![0, 3, 4, 1, 5, 2, 6];
    let split = rewriter.add_simple(node, Transpose { permutation }, &[batched])?;
    let shape = vec![n / (d * e), channels, h * d, w * e, c];
    let whole = rewriter.add_simple(node, Reshape { shape }, &[split])?;
    let excess = [h * d - kept[0], w * e - kept[1]];
    if excess == [0, 0] {
        return Ok(whole);
    }
    let end = vec![0, 0, -(excess[0] as i64), -(excess[1] as i64), 0];
    let cut = Pad { begin: vec![0; 5], end, mode: PadMode::Constant, value: 0.0 };
    rewriter.add_simple(node, cut, &[whole])
}

fn extents(rewriter: &Rewriter, value: ValueId) -> [usize; 5] {
    let shape = &rewriter.target().tensor_type(value).shape;
    std::array::from_fn(|axis| shape.get(axis).copied().unwrap_or(1))
}
