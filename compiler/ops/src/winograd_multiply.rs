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

/// One matrix product for each place of a tile: v `[a, a, C / c, N, rows, columns, c]`, u `[a, a,
/// O / o, C / c, c, o]`; the result is `[a, a, O / o, N, rows, columns, o]`. Weights of a narrow type are
/// interleaved, `[a, a, O / o, C / c, c / d, o, d]`; the result has then the type of the sums. Its
/// floating-point operations are counted as those of the convolution it stands for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WinogradMultiply {}

impl WinogradMultiply {
    /// Name in text forms.
    pub const NAME: &'static str = "winograd_multiply";
}

impl Operator for WinogradMultiply {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (v, u) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let narrow = usize::from(dot_of(u.dtype).is_some());
        let plain = plain_type(u);
        let fits = v.rank() == 7
            && u.rank() == 6 + narrow
            && multiply(v.dtype, u.dtype)
            && v.shape[..2] == u.shape[..2]
            && v.shape[2] == u.shape[3]
            && v.shape[6] == plain.shape[4];
        if !fits {
            return Err(InferError::new(format!("tiles {v} and weights {u} do not match")));
        }
        let mut shape = v.shape.clone();
        (shape[2], shape[6]) = (u.shape[2], plain.shape[5]);
        Ok(vec![TensorType::new(sum_type(u.dtype), shape)])
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
        let (blocks, lanes) = (u.shape()[3], u.shape()[4]);
        let (wide, out_lanes) = (u.shape()[2], u.shape()[5]);
        let tiles: usize = v.shape()[3..6].iter().product();
        let depth = blocks * lanes;
        let left = rows_of_tiles(&v.to_f64(), [blocks, tiles, lanes]);
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
        let depth = [&[u_type.shape[3]], &places(&u_type)[..]].concat();
        let sums = builder.reduce("products", &output, &depth, Combiner::Sum, |point, reduced| {
            let mut tile = point[..2].to_vec();
            tile.push(reduced[0].clone());
            tile.extend_from_slice(&point[3..6]);
            tile.push(place(&u_type, &reduced[1..]));
            let mut weight = point[..3].to_vec();
            weight.push(reduced[0].clone());
            weight.extend(at(&reduced[1..], &point[6]));
            product(Expr::Load(v, tile), Expr::Load(u, weight), u_type.dtype)
        });
        Some(vec![builder.map("store", &output, |point| Expr::Load(sums, point.to_vec()))])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let depth = inputs
            .get(1)
            .copied()
            .flatten()
            .map_or(0, |u| plain_type(u).shape[3..5].iter().product::<usize>());
        let direct = |output: &TensorType| {
            let side = output.shape[0] as u64;
            let planes = output.elements() as u64 / (side * side).max(1);
            2 * 9 * side.saturating_sub(2).pow(2) * planes * depth as u64
        };
        outputs.iter().map(direct).sum()
    }
}
/// `[.., blocks, tiles, lanes]` as `[.., tiles, blocks, lanes]`.
fn rows_of_tiles(values: &[f64], [blocks, tiles, lanes]: [usize; 3]) -> Vec<f64> {
    let mut rows = Vec::with_capacity(values.len());
    for plane in values.chunks_exact((blocks * tiles * lanes).max(1)) {
        for tile in 0..tiles {
            for block in 0..blocks {
                rows.extend_from_slice(&plane[(block * tiles + tile) * lanes..][..lanes]);
            }
        }
    }
    rows
}
