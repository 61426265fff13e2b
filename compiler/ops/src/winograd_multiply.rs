//! The second of the three parts of a convolution by Winograd's minimal filtering.

use crate::Cast;
use crate::interleave::{
    at, dot_of, multiply, place, places, plain_type, product, separate, sum_type,
};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::sums::{COLUMNS, Products, for_each_chunk};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// One matrix product for each place of a tile: v `[a, a, C / c, N, Z.., rows, columns, c]`, u `[a, a,
/// O / o, C / c, K.., c, o]`; the result is `[a, a, O / o, N, Y.., rows, columns, o]`. Along the axes `Z..` it sums over a
/// window `K..` without padding, as a convolution does. Weights of a narrow type are interleaved, `[a, a, O / o,
/// C / c, K.., c / d, o, d]`; the result has then the type of the sums. Its floating-point operations are counted as those of
/// the convolution it stands for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WinogradMultiply {
    /// Steps between windows, one for each axis of `Z..`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strides: Vec<usize>,
    /// Distance between the elements of a window, one for each axis of `Z..`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dilations: Vec<usize>,
}

impl WinogradMultiply {
    /// Name in text forms.
    pub const NAME: &'static str = "winograd_multiply";

    /// Extents along the axes `Y..`; `None` where the axes or windows do not fit.
    fn results(&self, extents: &[usize], window: &[usize]) -> Option<Vec<usize>> {
        let axes = [extents.len(), window.len(), self.strides.len(), self.dilations.len()];
        let steps = self.strides.iter().zip(&self.dilations);
        let result =
            |((extent, taps), (stride, dilation)): ((&usize, &usize), (&usize, &usize))| {
                let read = taps.checked_sub(1)?.checked_mul(*dilation)?;
                Some(extent.checked_sub(1)?.checked_sub(read)?.checked_div(*stride)? + 1)
            };
        let alike = axes.iter().all(|count| *count == axes[0]);
        extents.iter().zip(window).zip(steps).map(result).collect::<Option<_>>().filter(|_| alike)
    }
}

impl Operator for WinogradMultiply {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (v, u) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let none = || InferError::new(format!("tiles {v} and weights {u} do not match"));
        let plain = plain_type(u);
        let [down, across, blocks, batch, outer @ .., rows, columns, lanes] = &v.shape[..] else {
            return Err(none());
        };
        let [out_blocks, in_blocks, window @ .., summed, out_lanes] =
            plain.shape.get(2..).unwrap_or_default()
        else {
            return Err(none());
        };
        let results = self.results(outer, window);
        let fits = multiply(v.dtype, u.dtype)
            && plain.shape[..2] == [*down, *across]
            && in_blocks == blocks
            && summed == lanes;
        let Some(results) = results.filter(|_| fits) else { return Err(none()) };
        let shape =
            [&[*down, *across, *out_blocks, *batch], &results[..], &[*rows, *columns, *out_lanes]];
        Ok(vec![TensorType::new(sum_type(u.dtype), shape.concat())])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (v, u) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = self.infer(&[Some(v.tensor_type()), Some(u.tensor_type())])?.remove(0);
        if dot_of(u.dtype()).is_some() {
            let v = Cast { to: sum_type(u.dtype()) }.reference(&[Some(v)])?;
            return self.reference(&[Some(&v[0]), Some(&separate(u)?)]);
        }
        let (wide, out_lanes) = (u.shape()[2], u.shape()[u.shape().len() - 1]);
        let tiles: usize = output.shape[3..output.rank() - 1].iter().product();
        let depth: usize = u.shape()[3..u.shape().len() - 1].iter().product();
        let left = self.rows_of_tiles(v, u, &output.shape);
        let mut right = u.to_f64();
        // What is read past the last column of the last block is left out of the sums.
        right.resize(right.len() + COLUMNS, 0.0);
        let offsets: Vec<usize> = (0..depth).map(|k| k * out_lanes).collect();
        let mut result = vec![0.0; output.elements()];
        for_each_chunk(&mut result, tiles * out_lanes, |index, sums| {
            let factors = &left[index / wide * tiles * depth..][..tiles * depth];
            let terms = &right[index * depth * out_lanes..];
            Products { factors, terms, offsets: &offsets }.add_to(sums, out_lanes);
        });
        Ok(vec![Tensor::from_f64(output.dtype, output.shape, &result)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (v, u) = (inputs.first().copied().flatten()?, inputs.get(1).copied().flatten()?);
        let (v_type, u_type) = (builder.tensor_type(v), builder.tensor_type(u));
        let output = self.infer(&[Some(&v_type), Some(&u_type)]).ok()?.remove(0);
        let axes = self.strides.len();
        let depth = [&u_type.shape[3..4 + axes], &places(&u_type)[..]].concat();
        let sums = builder.reduce("products", &output, &depth, Combiner::Sum, |point, reduced| {
            let mut tile = point[..2].to_vec();
            tile.extend([reduced[0].clone(), point[3].clone()]);
            let (window, places) = reduced[1..].split_at(axes);
            for (axis, tap) in window.iter().enumerate() {
                let start = point[4 + axis].clone() * self.strides[axis];
                tile.push(start + tap.clone() * self.dilations[axis]);
            }
            tile.extend_from_slice(&point[4 + axes..6 + axes]);
            tile.push(place(&u_type, places));
            let mut weight = point[..3].to_vec();
            weight.push(reduced[0].clone());
            weight.extend_from_slice(window);
            weight.extend(at(places, &point[6 + axes]));
            product(Expr::Load(v, tile), Expr::Load(u, weight), u_type.dtype)
        });
        Some(vec![builder.map("store", &output, |point| Expr::Load(sums, point.to_vec()))])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let depth = inputs
            .get(1)
            .copied()
            .flatten()
            .map_or(0, |u| plain_type(u).shape[3..].iter().rev().skip(1).product::<usize>());
        let direct = |output: &TensorType| {
            let side = output.shape[0] as u64;
            let planes = output.elements() as u64 / (side * side).max(1);
            2 * 9 * side.saturating_sub(2).pow(2) * planes * depth as u64
        };
        outputs.iter().map(direct).sum()
    }
}

impl WinogradMultiply {
    /// What each result sums of v, `[a, a, N, Y.., rows, columns, C / c, K.., c]`.
    fn rows_of_tiles(&self, v: &Tensor, u: &Tensor, output: &[usize]) -> Vec<f64> {
        let (axes, values) = (self.strides.len(), v.to_f64());
        let (extents, lanes) = (&v.shape()[4..4 + axes], v.shape()[6 + axes]);
        let (results, window) = (&output[4..4 + axes], &u.shape()[4..4 + axes]);
        let (blocks, batch) = (v.shape()[2], v.shape()[3]);
        let tiles: usize = v.shape()[4 + axes..6 + axes].iter().product();
        let depth: usize = extents.iter().product();
        let [count, taps]: [usize; 2] = [results.iter().product(), window.iter().product()];
        // Where along `Z..` a tap reads for a result.
        let read = |result: usize, tap: usize| {
            let (mut result, mut tap, mut step, mut place) = (result, tap, 1, 0);
            for axis in (0..axes).rev() {
                let (at, of) = (result % results[axis], tap % window[axis]);
                place += (at * self.strides[axis] + of * self.dilations[axis]) * step;
                step *= extents[axis];
                (result, tap) = (result / results[axis], tap / window[axis]);
            }
            place
        };
        let mut rows = Vec::new();
        for plane in values.chunks_exact((blocks * batch * depth * tiles * lanes).max(1)) {
            for (image, result, tile) in triples(batch, count, tiles) {
                for block in 0..blocks {
                    for tap in 0..taps {
                        let place = (block * batch + image) * depth + read(result, tap);
                        rows.extend_from_slice(&plane[(place * tiles + tile) * lanes..][..lanes]);
                    }
                }
            }
        }
        rows
    }
}

/// Every triple of numbers below three bounds, the last the fastest.
fn triples(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |n| (n / (b * c), n / c % b, n % c))
}
