//! Channel-packed layout: one axis is cut into blocks, and the places within a block become a new
//! innermost axis. Blocks are filled up with zeros.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `y[.., c / block, .., c % block] = x[.., c, ..]`, zero past the axis's end: `[N, C, H, W]` with
/// axis 1 becomes `[N, ceil(C / block), H, W, block]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pack {
    /// The axis that is cut.
    pub axis: usize,
    /// Elements in a block.
    pub block: usize,
}

/// The inverse of [`Pack`]: drops the filling beyond `extent`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unpack {
    /// The axis that was cut.
    pub axis: usize,
    /// Its extent before it was cut.
    pub extent: usize,
}

impl Pack {
    /// Name in text forms.
    pub const NAME: &'static str = "pack";
}

impl Unpack {
    /// Name in text forms.
    pub const NAME: &'static str = "unpack";
}

impl Operator for Pack {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        if self.axis >= x.rank() || self.block == 0 {
            return Err(InferError::new(format!("axis {} of {x} cannot be packed", self.axis)));
        }
        let mut shape = x.shape.clone();
        shape[self.axis] = shape[self.axis].div_ceil(self.block);
        shape.push(self.block);
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let x = required(Self::NAME, inputs, 0)?;
        let output = self.infer(&[Some(x.tensor_type())])?.remove(0);
        let width = output.dtype.bytes();
        let mut bytes = vec![0; output.bytes()];
        let extent = x.shape()[self.axis];
        let inner: usize = x.shape()[self.axis + 1..].iter().product();
        for (flat, element) in x.bytes().chunks_exact(width).enumerate() {
            let (outer, channel, rest) =
                (flat / (extent * inner), flat / inner % extent, flat % inner);
            let blocks = output.shape[self.axis];
            let block = outer * blocks + channel / self.block;
            let place = (block * inner + rest) * self.block + channel % self.block;
            bytes[place * width..][..width].copy_from_slice(element);
        }
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = inputs.first().copied().flatten()?;
        let x_type = builder.tensor_type(x);
        let output = self.infer(&[Some(&x_type)]).ok()?.remove(0);
        let extent = x_type.shape[self.axis];
        Some(vec![builder.map("pack", &output, |point| {
            let (inner, outer) = (&point[point.len() - 1], &point[..point.len() - 1]);
            let mut read = outer.to_vec();
            let channel = outer[self.axis].clone() * self.block + inner.clone();
            read[self.axis] = channel.clone();
            let value = Expr::Load(x, read);
            if extent.is_multiple_of(self.block) {
                return value;
            }
            channel.less(extent.into()).select(value, Expr::Constant(0.0, output.dtype))
        })])
    }
}

impl Operator for Unpack {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        let blocks = x.shape.get(self.axis).copied().unwrap_or(0);
        let block = x.shape.last().copied().unwrap_or(0);
        if self.axis + 1 >= x.rank() || self.extent.div_ceil(block.max(1)) != blocks {
            let (axis, extent) = (self.axis, self.extent);
            return Err(InferError::new(format!(
                "{x} is no packing of extent {extent} at axis {axis}"
            )));
        }
        let mut shape = x.shape[..x.rank() - 1].to_vec();
        shape[self.axis] = self.extent;
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let x = required(Self::NAME, inputs, 0)?;
        let output = self.infer(&[Some(x.tensor_type())])?.remove(0);
        let width = output.dtype.bytes();
        let (blocks, block) = (x.shape()[self.axis], x.shape()[x.shape().len() - 1]);
        let inner: usize = output.shape[self.axis + 1..].iter().product();
        let mut bytes = Vec::with_capacity(output.bytes());
        for flat in 0..output.elements() {
            let (outer, rest) = (flat / (self.extent * inner), flat % inner);
            let channel = flat / inner % self.extent;
            let cut = outer * blocks + channel / block;
            let place = (cut * inner + rest) * block + channel % block;
            bytes.extend_from_slice(&x.bytes()[place * width..][..width]);
        }
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = inputs.first().copied().flatten()?;
        let x_type = builder.tensor_type(x);
        let output = self.infer(&[Some(&x_type)]).ok()?.remove(0);
        let block = x_type.shape[x_type.rank() - 1];
        Some(vec![builder.map("unpack", &output, |point| {
            let mut read = point.to_vec();
            let channel = point[self.axis].clone();
            read[self.axis] = channel.clone().floor_divide(block.into());
            read.push(channel.modulo(block.into()));
            Expr::Load(x, read)
        })])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn unpack_inverts_pack() {
        let values: Vec<f32> = (0..2 * 5 * 3).map(|value| value as f32).collect();
        let x = Tensor::from_elements([2, 5, 3], &values).unwrap();
        let packed = Pack { axis: 1, block: 4 }.reference(&[Some(&x)]).unwrap().remove(0);
        assert_eq!(packed.shape(), [2, 2, 3, 4]);
        let unpacked = Unpack { axis: 1, extent: 5 }.reference(&[Some(&packed)]).unwrap();
        assert_eq!(unpacked, [x]);
    }
}
