//! The first of the three parts of a convolution by Winograd's minimal filtering.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::winograd::{combination, input_matrix, pick, transform};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Cuts `x` `[N, C / c, Z.., H, W, c]` into tiles of `m + 2` by `m + 2`, `m` apart, and transforms each by
/// `B^T d B`: the result is `[m + 2, m + 2, C / c, N, Z.., (H - 2) / m, (W - 2) / m, c]`. `m` must divide
/// `H - 2` and `W - 2`. `Z..` are the spatial axes before the last two, if there are any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WinogradInput {
    /// Results a side of a tile, `m`.
    pub tile: usize,
}

impl WinogradInput {
    /// Name in text forms.
    pub const NAME: &'static str = "winograd_input";
}

impl Operator for WinogradInput {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        let tiles = |extent: usize| {
            let inner = extent.checked_sub(2).filter(|inner| inner.is_multiple_of(self.tile));
            inner.map(|inner| inner / self.tile)
        };
        let none = || InferError::new(format!("{x} has no tiles of {}", self.tile));
        let [batch, blocks, outer @ .., height, width, lanes] = &x.shape[..] else {
            return Err(none());
        };
        let (Some(rows), Some(columns), Some(_)) =
            (tiles(*height), tiles(*width), input_matrix(self.tile))
        else {
            return Err(none());
        };
        let side = self.tile + 2;
        let shape = [&[side, side, *blocks, *batch], outer, &[rows, columns, *lanes]].concat();
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let x = required(Self::NAME, inputs, 0)?;
        let output = self.infer(&[Some(x.tensor_type())])?.remove(0);
        let matrix = input_matrix(self.tile).unwrap_or_default();
        let [side, _, blocks, batch, outer @ .., rows, columns, lanes] = &output.shape[..] else {
            return Err(OpError::Value("the result has seven axes or more".to_string()));
        };
        let [height, width] = [3, 2].map(|back| x.shape()[x.shape().len() - back]);
        let depth: usize = outer.iter().product();
        let values = x.to_f64();
        let planes = output.elements() / (side * side).max(1);
        let mut result = vec![0.0; output.elements()];
        for place in 0..planes {
            let (lane, column) = (place % lanes, place / lanes % columns);
            let row = place / (lanes * columns) % rows;
            let image = place / (lanes * columns * rows) % (batch * depth);
            let block = place / (lanes * columns * rows * batch * depth);
            let image = (image / depth * blocks + block) * depth + image % depth;
            let tile: Vec<f64> = (0..side * side)
                .map(|n| {
                    let (y, x) = (row * self.tile + n / side, column * self.tile + n % side);
                    values[((image * height + y) * width + x) * lanes + lane]
                })
                .collect();
            for (plane, value) in transform(matrix, &tile).into_iter().enumerate() {
                result[plane * planes + place] = value;
            }
        }
        Ok(vec![Tensor::from_f64(output.dtype, output.shape, &result)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = inputs.first().copied().flatten()?;
        let x_type = builder.tensor_type(x);
        let output = self.infer(&[Some(&x_type)]).ok()?.remove(0);
        let (matrix, dtype) = (input_matrix(self.tile)?, output.dtype);
        // Rows first: [C / c, N, Z.., rows, columns, i, b, c].
        let (inner, lanes) = output.shape[2..].split_at(output.rank() - 3);
        let half = [inner, &output.shape[..2], lanes].concat();
        let half = TensorType::new(dtype, half);
        // Where the rows of tiles stand.
        let at = inner.len() - 2;
        let rows = builder.map("transform_rows", &half, |point| {
            let read = |a: usize| {
                let mut indices = vec![point[1].clone(), point[0].clone()];
                indices.extend_from_slice(&point[2..at]);
                indices.push(point[at].clone() * self.tile + Expr::from(a));
                indices.push(point[at + 1].clone() * self.tile + point[at + 3].clone());
                indices.push(point[at + 4].clone());
                Expr::Load(x, indices)
            };
            pick(&point[at + 2], matrix.iter().map(|row| combination(row, dtype, &read)).collect())
        });
        Some(vec![builder.map("transform_columns", &output, |point| {
            let read = |b: usize| {
                let mut indices = point[2..at + 4].to_vec();
                indices.extend([point[0].clone(), b.into(), point[at + 4].clone()]);
                Expr::Load(rows, indices)
            };
            pick(&point[1], matrix.iter().map(|row| combination(row, dtype, &read)).collect())
        })])
    }
}
