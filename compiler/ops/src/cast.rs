//! Conversion between element types.

use crate::express::{input, only_output};
use crate::number::Number;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[i] = input[i]` as another element type, by the rules of ONNX `Cast`: floats become
/// integers by cutting towards zero, integers keep their low bits, anything but zero is true.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cast {
    /// The element type of the output.
    #[serde(with = "crate::serde_forms::data_type_name")]
    pub to: DataType,
}

impl Cast {
    /// Name in text forms.
    pub const NAME: &'static str = "cast";
}

impl Operator for Cast {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        Ok(vec![crate::shape::bounded(self.to, input.shape.clone())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let (from, to) = (input.dtype(), self.to);
        let shape = input.shape();
        let tensor = match (from, to) {
            _ if from == to => input.clone(),
            // Straight to f32: by way of f64 some values would be rounded twice.
            (DataType::I64, DataType::F32) => {
                let values: Vec<f32> = input.to_i64().iter().map(|value| *value as f32).collect();
                Tensor::from_elements(shape, &values)?
            }
            (DataType::U64, DataType::F32) => {
                let values = input.to_i64();
                let values: Vec<f32> = values.iter().map(|value| *value as u64 as f32).collect();
                Tensor::from_elements(shape, &values)?
            }
            _ if from.is_float() || to.is_float() => Tensor::from_f64(to, shape, &input.to_f64())?,
            _ => i64::write(&output, &input.to_i64())?,
        };
        Ok(vec![tensor])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        Some(vec![
            builder.map("cast", &output, |point| Expr::Load(x, point.to_vec()).cast(self.to)),
        ])
    }
}
