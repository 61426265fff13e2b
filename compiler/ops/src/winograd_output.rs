//! The last of the three parts of a convolution by Winograd's minimal filtering.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::packed_convolution::add_bias;
use crate::winograd::{combination, output_matrix, pick, transform};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Transforms tiles of products `[m + 2, m + 2, O / o, N, rows, columns, o]` by `A^T p A` and puts
/// the results in their places: `[N, O / o, P, Q, o]`, leaving out what the last tiles have beyond
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
        let fits = p.rank() == 7
            && side.is_some_and(|side| p.shape[..2] == [side, side])
            && p.shape[4..6] == tiles;
        if !fits {
            return Err(InferError::new(format!("{p} holds no tiles of {}", self.tile)));
        }
        if let Some(bias) = inputs.get(1).copied().flatten()
            && (bias.shape != [p.shape[2], p.shape[6]] || bias.dtype != p.dtype)
        {
            return Err(InferError::new(format!("bias {bias} does not match {p}")));
        }
        let [rows, columns] = self.spatial;
        let shape = [p.shape[3], p.shape[2], rows, columns, p.shape[6]];
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
        let [_, _, blocks, batch, rows, columns, lanes] = p.shape()[..] else {
            return Err(OpError::Value("the products have seven axes".to_string()));
        };
        let values = p.to_f64();
        let side = self.tile + 2;
        let planes = values.len() / (side * side);
        let mut result = vec![0.0; output.elements()];
        for place in 0..planes {
            let (lane, column) = (place % lanes, place / lanes % columns);
            let row = place / (lanes * columns) % rows;
            let image = place / (lanes * columns * rows) % batch;
            let block = place / (lanes * columns * rows * batch);
            let tile: Vec<f64> = (0..side * side).map(|n| values[n * planes + place]).collect();
            let offset = bias.as_ref().map_or(0.0, |bias| bias[block * lanes + lane]);
            for (n, value) in transform(matrix, &tile).into_iter().enumerate() {
                let (y, x) = (row * self.tile + n / self.tile, column * self.tile + n % self.tile);
                if y >= self.spatial[0] || x >= self.spatial[1] {
                    continue;
                }
                let line = (image * blocks + block) * self.spatial[0] + y;
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
        // Rows first: [N, O / o, rows, columns, i, b, o].
        let s = &p_type.shape;
        let half = TensorType::new(dtype, [s[3], s[2], s[4], s[5], self.tile, s[1], s[6]]);
        let rows = builder.map("transform_rows", &half, |point| {
            let read = |a: usize| {
                let mut indices = vec![a.into(), point[5].clone(), point[1].clone()];
                indices.extend([point[0].clone(), point[2].clone(), point[3].clone()]);
                indices.push(point[6].clone());
                Expr::Load(p, indices)
            };
            pick(&point[4], matrix.iter().map(|row| combination(row, dtype, &read)).collect())
        });
        let side = Expr::from(self.tile);
        let columns = builder.map("transform_columns", &output, |point| {
            let within = |axis: usize| point[axis].clone().modulo(side.clone());
            let tile = |axis: usize| point[axis].clone().floor_divide(side.clone());
            let read = |b: usize| {
                let mut indices = point[..2].to_vec();
                indices.extend([tile(2), tile(3), within(2), b.into(), point[4].clone()]);
                Expr::Load(rows, indices)
            };
            pick(&within(3), matrix.iter().map(|row| combination(row, dtype, &read)).collect())
        });
        Some(vec![add_bias(builder, columns, inputs.get(1).copied().flatten(), &output)])
    }
}
