//! The same bits as elements of another type.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The bytes of the input, of one type, as elements of another one of the same size. Nothing is computed: the result
/// is the input's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BitCast {
    /// Element type of the result.
    #[serde(with = "crate::serde_forms::data_type_name")]
    pub to: DataType,
}

impl BitCast {
    /// Name in text forms.
    pub const NAME: &'static str = "bit_cast";
}

impl Operator for BitCast {
    named!();

    /// Not every byte is a truth value, so none is made.
    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let to = self.to;
        if input.dtype.bytes() != to.bytes() || (to == DataType::Bool && input.dtype != to) {
            return Err(InferError::new(format!("the bits of {input} are no elements of {to}")));
        }
        Ok(vec![bounded(to, input.shape.clone())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_view(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = TensorType::new(self.to, input.shape());
        Ok(vec![Tensor::from_bytes(output, input.bytes().to_vec())?])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bits_stay_and_sizes_must_fit() {
        let x = Tensor::from_elements([2], &[1.0f32, -0.0]).unwrap();
        let to = |to: DataType| BitCast { to };
        let bits = to(DataType::I32).reference(&[Some(&x)]).unwrap();
        assert_eq!(bits[0].to_i64(), [0x3f80_0000, i64::from(i32::MIN)]);
        let back = to(DataType::F32).reference(&[Some(&bits[0])]).unwrap();
        assert_eq!(back[0].bytes(), x.bytes());
        let infer = |own: BitCast, from: DataType| own.infer(&[Some(&TensorType::new(from, [2]))]);
        assert!(infer(to(DataType::I32), DataType::F64).is_err());
        assert!(infer(to(DataType::Bool), DataType::U8).is_err());
        assert_eq!(infer(to(DataType::U8), DataType::Bool).unwrap()[0].dtype, DataType::U8);
    }
}
