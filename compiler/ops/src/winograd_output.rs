//! The last of the three parts of a convolution by Winograd's minimal filtering.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::packed_convolution::add_bias;
use crate::winograd::{combination, output_matrix, pick, transform};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Transforms tiles of products `[m + 2, m + 2, O / o, N, Z.., rows, columns, o]` by `A^T p A` and puts
/// the results in their places: `[N, O / o, Z.., P, Q, o]`, leaving out what the last tiles have beyond
/// `P` and `Q`. Adds a bias `[O / o, o]`, where there is one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WinogradOutput {
    /// Results a side of a tile, `m`.
    pub tile: usize,
    /// Rows and columns of the result, `P` and `Q`.
    pub spatial: [usize; 2],
}

impl WinogradOutput {
    /// Name in text forms.
    pub const NAME: &'static str = "winograd_output";
}

impl Operator for WinogradOutput {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let p = required(Self::NAME, inputs, 0)?;
        let side = output_matrix(self.tile).map(|matrix| matrix[0].len());
        let tiles = self.spatial.map(|own| own.div_ceil(self.tile.max(1)));
        let none = || InferError::new(format!("{p} holds no tiles of {}", self.tile));
        let [down, across, blocks, batch, outer @ .., rows, columns, lanes] = &p.shape[..] else {
            return Err(none());
        };
        if [Some(*down), Some(*across)] != [side; 2] || [*rows, *columns] != tiles {
            return Err(none());
        }
        if let Some(bias) = inputs.get(1).copied().flatten()
            && (bias.shape != [*blocks, *lanes] || bias.dtype != p.dtype)
        {
            return Err(InferError::new(format!("bias {bias} does not match {p}")));
        }
        let shape = [&[*batch, *blocks], outer, &self.spatial, &[*lanes]].concat();
        Ok(vec![TensorType::new(p.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let p = required(Self::NAME, inputs, 0)?;
        let output = self.infer(&[Some(p.tensor_type())])?.remove(0);
        let matrix = output_matrix(self.tile).unwrap_or_default();
        let bias = inputs.get(1).copied().flatten().map(Tensor::to_f64);
        let [_, _, blocks, batch, outer @ .., rows, columns, lanes] = p.shape() else {
            return Err(OpError::Value("the products have seven axes or more".to_string()));
        };
        let depth: usize = outer.iter().product();
        let values = p.to_f64();
        let side = self.tile + 2;
        let planes = values.len() / (side * side);
        let mut result = vec![0.0; output.elements()];
        for place in 0..planes {
            let (lane, column) = (place % lanes, place / lanes % columns);
            let row = place / (lanes * columns) % rows;
            let image = place / (lanes * columns * rows) % (batch * depth);
            let block = place / (lanes * columns * rows * batch * depth);
            let image = (image / depth * blocks + block) * depth + image % depth;
            let tile: Vec<f64> = (0..side * side).map(|n| values[n * planes + place]).collect();
            let offset = bias.as_ref().map_or(0.0, |bias| bias[block * lanes + lane]);
            for (n, value) in transform(matrix, &tile).into_iter().enumerate() {
                let (y, x) = (row * self.tile + n / self.tile, column * self.tile + n % self.tile);
                if y >= self.spatial[0] || x >= self.spatial[1] {
                    continue;
                }
                let line = image * self.spatial[0] + y;
                result[(line * self.spatial[1] + x) * lanes + lane] = value + offset;
            }
        }
        Ok(vec![Tensor::from_f64(output.dtype, output.shape, &result)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let p = inputs.first().copied().flatten()?;
        let p_type = builder.tensor_type(p);
        let output = self.infer(&[Some(&p_type)]).ok()?.remove(0);
        let (matrix, dtype) = (output_matrix(self.tile)?, output.dtype);
        // Rows first: [N, O / o, Z.., rows, columns, i, b, o].
        let [side, _, blocks, batch, outer @ .., lanes] = &p_type.shape[..] else { return None };
        let half = [&[*batch, *blocks], outer, &[self.tile, *side, *lanes]].concat();
        let half = TensorType::new(dtype, half);
        // Where the rows stand.
        let at = output.rank() - 3;
        let rows = builder.map("transform_rows", &half, |point| {
            let read = |a: usize| {
                let mut indices = vec![a.into(), point[at + 3].clone(), point[1].clone()];
                indices.push(point[0].clone());
                indices.extend_from_slice(&point[2..at + 2]);
                indices.push(point[at + 4].clone());
                Expr::Load(p, indices)
            };
            pick(&point[at + 2], matrix.iter().map(|row| combination(row, dtype, &read)).collect())
        });
        let side = Expr::from(self.tile);
        let columns = builder.map("transform_columns", &output, |point| {
            let within = |axis: usize| point[axis].clone().modulo(side.clone());
            let tile = |axis: usize| point[axis].clone().floor_divide(side.clone());
            let read = |b: usize| {
                let mut indices = point[..at].to_vec();
                indices.extend([tile(at), tile(at + 1), within(at), b.into()]);
                indices.push(point[at + 2].clone());
                Expr::Load(rows, indices)
            };
            pick(&within(at + 1), matrix.iter().map(|row| combination(row, dtype, &read)).collect())
        });
        Some(vec![add_bias(builder, columns, inputs.get(1).copied().flatten(), &output)])
    }
}
