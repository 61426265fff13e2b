//! Inputs one after another along an axis.

use crate::express::only_output;
use crate::operator::{FusionClass, Graph, OpError, Operator, named, required};
use crate::shape::{around, output_type};
use crate::shape::{bounded, check_axis, check_same_type};
use hone_graph::{InferError, ValueId};
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// All inputs, one after another along `axis`; their other extents are equal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Concat {
    /// The axis that grows.
    pub axis: usize,
}

/// Most inputs that one kernel joins.
const MOST_INPUTS: usize = 64;

impl Concat {
    /// Name in text forms.
    pub const NAME: &'static str = "concat";

    /// The element at `point`. Few tests lead to each part: the parts are halved again and again.
    fn chosen(&self, parts: &[BufferId], extents: &[usize], point: &[Expr]) -> Expr {
        let mut places: Vec<(BufferId, usize)> = Vec::new();
        let mut begin = 0;
        for (part, extent) in parts.iter().zip(extents) {
            if *extent > 0 {
                places.push((*part, begin));
            }
            begin += extent;
        }
        // Nothing is read of an output that has no elements.
        self.among(&places, point).unwrap_or_else(|| Expr::Load(parts[0], point.to_vec()))
    }

    /// The element at `point` of one of the parts that start at the given places.
    fn among(&self, parts: &[(BufferId, usize)], point: &[Expr]) -> Option<Expr> {
        let (part, begin) = *parts.first()?;
        if parts.len() == 1 {
            let mut read = point.to_vec();
            if begin > 0 {
                read[self.axis] = point[self.axis].clone() - begin;
            }
            return Some(Expr::Load(part, read));
        }
        let (before, behind) = parts.split_at(parts.len().div_ceil(2));
        let first_behind = behind.first()?.1;
        let condition = point[self.axis].clone().less(first_behind.into());
        Some(condition.select(self.among(before, point)?, self.among(behind, point)?))
    }
}

impl Operator for Concat {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let first = required(Self::NAME, inputs, 0)?;
        check_axis(first, self.axis)?;
        let mut shape = first.shape.clone();
        for place in 1..inputs.len() {
            let other = required(Self::NAME, inputs, place)?;
            check_same_type(first, &[other])?;
            let fits = other.rank() == first.rank()
                && (0..first.rank())
                    .all(|axis| axis == self.axis || other.shape[axis] == first.shape[axis]);
            let extent = fits.then(|| shape[self.axis].checked_add(other.shape[self.axis]));
            shape[self.axis] = extent.flatten().ok_or_else(|| {
                let axis = self.axis;
                InferError::new(format!("{first} and {other} do not join along axis {axis}"))
            })?;
        }
        Ok(vec![bounded(first.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let output = output_type(self, inputs)?;
        let (outer, _, inner) = around(&output.shape, self.axis);
        let width = output.dtype.bytes();
        let mut bytes = Vec::with_capacity(output.bytes());
        for place in 0..outer {
            for input in inputs.iter().flatten() {
                let length = input.shape()[self.axis] * inner * width;
                bytes.extend_from_slice(&input.bytes()[place * length..][..length]);
            }
        }
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    /// A tree of shorter concatenations: the code of each tests every input.
    fn decompose(
        &self,
        graph: &mut Graph,
        inputs: &[Option<ValueId>],
    ) -> Result<Option<Vec<ValueId>>, InferError> {
        if inputs.len() <= MOST_INPUTS {
            return Ok(None);
        }
        let mut parts = inputs.to_vec();
        while parts.len() > MOST_INPUTS {
            let mut joined = Vec::with_capacity(parts.len().div_ceil(MOST_INPUTS));
            for some in parts.chunks(MOST_INPUTS) {
                joined.push(graph.add_node("concat", self.clone().into(), some)?.first().copied());
            }
            parts = joined;
        }
        graph.add_node("concat", self.clone().into(), &parts).map(Some)
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let output = only_output(self, builder, inputs)?;
        let parts: Option<Vec<BufferId>> = inputs.iter().copied().collect();
        let parts = parts?;
        let extents: Vec<usize> =
            parts.iter().map(|part| builder.tensor_type(*part).shape[self.axis]).collect();
        Some(vec![builder.map("concat", &output, |point| self.chosen(&parts, &extents, point))])
    }
}
