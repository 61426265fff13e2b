//! Running sums.

use crate::express::{input, load_wide, only_output, reduce, wide};
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::check_axis;
use crate::shape::{around, output_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The sum of all elements up to each one along an axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CumulativeSum {
    /// The axis summed along.
    pub axis: usize,
    /// Whether the element itself is left out.
    pub exclusive: bool,
    /// Whether to sum from the end.
    pub reverse: bool,
}

impl CumulativeSum {
    /// Name in text forms.
    pub const NAME: &'static str = "cumulative_sum";
}

impl Operator for CumulativeSum {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        Ok(vec![input.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let (outer, extent, inner) = around(&output.shape, self.axis);
        Ok(vec![with_number!(output.dtype, Own => {
            let mut values = Own::read(input);
            for line in 0..outer * inner {
                let first = line / inner * extent * inner + line % inner;
                let mut sum = Own::ZERO;
                for step in 0..extent {
                    let step = if self.reverse { extent - 1 - step } else { step };
                    let value = &mut values[first + step * inner];
                    let before = sum;
                    sum = sum.plus(*value);
                    *value = if self.exclusive { before } else { sum };
                }
            }
            Own::write(&output, &values)?
        })])
    }

    /// A triangular reduction: every element sums all of its axis that counts for it.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        let extent = output.shape[self.axis];
        let zero = Expr::Constant(0.0, wide(output.dtype));
        let sums =
            reduce(builder, "cumulative_sum", &output, &[extent], Combiner::Sum, |point, by| {
                let mut read = point.to_vec();
                read[self.axis] = by[0].clone();
                let (own, other) = (point[self.axis].clone(), by[0].clone());
                let counts = match (self.reverse, self.exclusive) {
                    (false, false) => other.less_equal(own),
                    (false, true) => other.less(own),
                    (true, false) => own.less_equal(other),
                    (true, true) => own.less(other),
                };
                counts.select(load_wide(x, read, output.dtype), zero)
            });
        Some(vec![sums])
    }
}
