//! The upper or lower triangle of matrices.

use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The elements `[..., row, column]` with `column - row >= diagonal` (upper) or `<= diagonal`
/// (lower); zeros elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trilu {
    /// Whether the upper triangle is kept, else the lower.
    pub upper: bool,
    /// The diagonal up to which elements are kept; 0 is the main one, positive ones are above it.
    pub diagonal: i64,
}

impl Trilu {
    /// Name in text forms.
    pub const NAME: &'static str = "trilu";
}

impl Operator for Trilu {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        if input.rank() < 2 {
            return Err(InferError::new(format!("{input} is no matrix")));
        }
        Ok(vec![input.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let shape = input.shape();
        let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let width = input.dtype().bytes();
        let mut bytes = input.bytes().to_vec();
        for (row, elements) in bytes.chunks_exact_mut((columns * width).max(1)).enumerate() {
            for (column, element) in elements.chunks_exact_mut(width).enumerate() {
                let above = column as i64 - (row % rows.max(1)) as i64;
                if !(if self.upper { above >= self.diagonal } else { above <= self.diagonal }) {
                    element.fill(0);
                }
            }
        }
        Ok(vec![Tensor::from_bytes(input.tensor_type().clone(), bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        // Beyond the matrix every diagonal is alike.
        let diagonal = self.diagonal.clamp(-(1 << 40), 1 << 40);
        Some(vec![builder.map("trilu", &output, |point| {
            let above = point[point.len() - 1].clone() - point[point.len() - 2].clone();
            let kept = if self.upper {
                Expr::Integer(diagonal).less_equal(above)
            } else {
                above.less_equal(diagonal.into())
            };
            kept.select(Expr::Load(x, point.to_vec()), Expr::Constant(0.0, output.dtype))
        })])
    }
}
