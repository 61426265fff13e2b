//! What a run is held to.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Ends the run with an error unless all elements of its input (`bool`, any shape) are true. It has no outputs and
/// stays in the graph although nothing reads it. Shapes that a model declares and that the values of its inputs
/// decide are compiled as declared, under such a condition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Require {
    /// What is said where the condition does not hold.
    pub message: String,
}

impl Require {
    /// Name in text forms.
    pub const NAME: &'static str = "require";
}

impl Operator for Require {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let condition = required(Self::NAME, inputs, 0)?;
        match condition.dtype == DataType::Bool && inputs.len() == 1 {
            true => Ok(Vec::new()),
            false => Err(InferError::new(format!("{condition} is no truth value"))),
        }
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_compiled(&self) -> bool {
        false
    }

    fn is_required(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let condition = required(Self::NAME, inputs, 0)?;
        match condition.bytes().iter().all(|byte| *byte != 0) {
            true => Ok(Vec::new()),
            false => Err(OpError::Value(self.message.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_condition_must_hold_for_every_element() {
        let own = Require { message: "it is not so".into() };
        let holds = |values: &[bool]| {
            let condition = Tensor::from_elements([values.len()], values).unwrap();
            assert!(own.infer(&[Some(condition.tensor_type())]).unwrap().is_empty());
            own.reference(&[Some(&condition)]).map_err(|error| error.to_string())
        };
        assert!(holds(&[true, true]).unwrap().is_empty());
        assert!(holds(&[]).unwrap().is_empty());
        assert_eq!(holds(&[true, false]).unwrap_err(), "it is not so");
        let number = TensorType::new(DataType::I64, []);
        assert!(own.infer(&[Some(&number)]).is_err() && own.infer(&[]).is_err());
    }
}
