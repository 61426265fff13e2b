//! The same elements under another shape.

use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The input's elements in row-major order under another shape of the same size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reshape {
    /// Extents of the output.
    pub shape: Vec<usize>,
}

impl Reshape {
    /// Name in text forms.
    pub const NAME: &'static str = "reshape";
}

impl Operator for Reshape {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = bounded(input.dtype, self.shape.clone())?;
        bounded(input.dtype, input.shape.clone())?;
        if output.elements() != input.elements() {
            return Err(InferError::new(format!("{input} has no reshape to {output}")));
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn is_view(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        Ok(vec![input.reshaped(self.shape.clone())?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        let own = builder.tensor_type(x);
        Some(vec![builder.map("reshape", &output, |point| {
            Expr::Load(x, reshaped_indices(&own.shape, &output.shape, point))
        })])
    }
}

/// Indices into a tensor of shape `input` for the point of its reshape to `output`. Both shapes are
/// cut into the smallest groups of axes of equal size, so that axes which stay keep their index.
fn reshaped_indices(input: &[usize], output: &[usize], point: &[Expr]) -> Vec<Expr> {
    let mut read = Vec::with_capacity(input.len());
    let mut begin = 0;
    while read.len() < input.len() {
        let (mut own_end, mut end) = (read.len() + 1, begin);
        let mut own_size = input[read.len()];
        let mut size: usize = 1;
        while own_size != size || own_size == 0 {
            let grow_output = size < own_size || own_end == input.len();
            if grow_output && end < output.len() {
                size *= output[end];
                end += 1;
            } else if own_end < input.len() {
                own_size *= input[own_end];
                own_end += 1;
            } else {
                break;
            }
        }
        group_indices(
            &input[read.len()..own_end],
            &output[begin..end],
            &point[begin..end],
            &mut read,
        );
        begin = end;
    }
    read
}

/// Appends the indices of one group of axes.
fn group_indices(input: &[usize], output: &[usize], point: &[Expr], read: &mut Vec<Expr>) {
    let mut flat = Expr::Integer(0);
    for (index, extent) in point.iter().zip(output).filter(|(_, extent)| **extent != 1) {
        flat = match flat.as_integer() {
            Some(0) => index.clone(),
            _ => flat * *extent + index.clone(),
        };
    }
    let mut stride: usize = input.iter().product();
    let mut outermost = true;
    for extent in input {
        stride /= (*extent).max(1);
        if *extent == 1 {
            read.push(Expr::Integer(0));
            continue;
        }
        let whole =
            if stride == 1 { flat.clone() } else { flat.clone().floor_divide(stride.into()) };
        read.push(if outermost { whole } else { whole.modulo((*extent).into()) });
        outermost = false;
    }
}
