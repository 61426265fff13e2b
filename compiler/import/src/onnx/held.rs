//! Values of inputs that decide a shape: a run is held to what the model declares.
//!
//! Shapes are fixed when compiling. Where a model declares the shape that such a value decides, the model is compiled
//! for that shape, and a condition is added that ends a run in which the value decides another one. Where several
//! settings give the declared shape (the axes of a reduction), each is compiled and a run takes its own.

use super::builder::{Builder, Operand};
use super::node::Node;
use super::shorthands::Step;
use crate::NodeError;
use hone_ops::{BinaryFunction as B, If, ReduceFunction, Require};
use hone_types::{DataType, Tensor};

/// Most settings that are compiled for one node.
pub(super) const MOST_SETTINGS: usize = 64;

impl Builder {
    /// Ends a run in which not all elements of `condition` are true.
    ///
    /// # Errors
    /// A condition that is known not to hold.
    pub fn require(
        &mut self,
        condition: Operand,
        message: impl Into<String>,
    ) -> Result<(), NodeError> {
        let message = message.into();
        match self.tensor(condition).map(|known| known.bytes().contains(&0)) {
            Some(false) => Ok(()),
            Some(true) => Err(NodeError::Invalid(message)),
            None => self.apply_all(Require { message }, &[Some(condition)]).map(|_| ()),
        }
    }

    /// The values of an input as integers: those of a constant, else those that the model's declarations imply, to
    /// which a run is held. `None` stands for any value.
    ///
    /// # Errors
    /// A value that is neither a constant nor implied.
    pub fn integers_held(
        &mut self,
        node: &Node,
        place: usize,
        implied: Option<Vec<Option<i64>>>,
    ) -> Result<Vec<i64>, NodeError> {
        let operand = node.input(place)?;
        let count = self.tensor_type(operand).elements();
        if self.tensor(operand).is_some() || count == 0 {
            return self.integers_of(node, place);
        }
        let implied = implied.filter(|own| own.len() == count && self.rank(operand) <= 1);
        let implied = implied.ok_or_else(|| self.not_constant(node, place))?;
        let allowed: Vec<Vec<i64>> =
            implied.iter().map(|own| own.iter().copied().collect()).collect();
        self.hold(node, place, &allowed)?;
        Ok(implied.into_iter().map(|own| own.unwrap_or(1)).collect())
    }

    /// As [`Builder::integers_held`], of one value.
    ///
    /// # Errors
    /// As there.
    pub fn integer_held(
        &mut self,
        node: &Node,
        place: usize,
        implied: Option<usize>,
    ) -> Result<i64, NodeError> {
        let implied = implied.map(|own| vec![Some(own as i64)]);
        match self.integers_held(node, place, implied)?.as_slice() {
            [value] => Ok(*value),
            other => Err(NodeError::invalid(format!(
                "input number {place} has {} elements, not one",
                other.len()
            ))),
        }
    }

    /// Holds each value of an input to one of those that are allowed for it; to any where none is named.
    ///
    /// # Errors
    /// What an operator refuses.
    pub fn hold(
        &mut self,
        node: &Node,
        place: usize,
        allowed: &[Vec<i64>],
    ) -> Result<(), NodeError> {
        let operand = node.input(place)?;
        let values = self.cast(operand, DataType::I64)?;
        let values = self.reshape(values, vec![allowed.len()])?;
        let most = allowed.iter().map(Vec::len).max().unwrap_or(0);
        let free: Vec<bool> = allowed.iter().map(Vec::is_empty).collect();
        let mut holds = self.constant(Tensor::from_elements([free.len()], &free)?);
        for choice in 0..most {
            let listed: Vec<i64> = allowed
                .iter()
                .map(|own| own.get(choice).or(own.last()).copied().unwrap_or(0))
                .collect();
            let listed = self.integers(&listed)?;
            let equal = self.binary(B::Equal, values, listed)?;
            holds = self.binary(B::Or, holds, equal)?;
        }
        let name = node.input_names.get(place).cloned().unwrap_or_default();
        let told: Vec<String> = allowed.iter().map(|own| told(own)).collect();
        let told = told.join(", ");
        self.require(
            holds,
            format!("input '{name}' must be [{told}], by the shapes that the model declares"),
        )
    }

    /// Which axes an input names: a sum of powers of two, a scalar of `i64`, which has as many bits as the input has
    /// elements where these name axes of `rank` and none twice.
    ///
    /// # Errors
    /// What an operator refuses.
    pub fn axes_key(&mut self, operand: Operand, rank: usize) -> Step {
        let count = self.tensor_type(operand).elements();
        let axes = self.cast(operand, DataType::I64)?;
        let axes = self.reshape(axes, vec![count, 1])?;
        let all: Vec<i64> = (0..rank as i64).collect();
        let powers: Vec<i64> = (0..rank).map(|axis| 1i64 << axis.min(62)).collect();
        let negative: Vec<i64> = all.iter().map(|axis| axis - rank as i64).collect();
        let [all, negative, powers] = [all, negative, powers].map(|own| self.integers(&own));
        let (all, negative, powers) = (all?, negative?, powers?);
        let front = self.binary(B::Equal, axes, all)?;
        let back = self.binary(B::Equal, axes, negative)?;
        let named = self.binary(B::Or, front, back)?;
        let none = self.scalar(DataType::I64, 0.0)?;
        let bits = self.select(named, powers, none)?;
        self.reduce(ReduceFunction::Sum, bits, vec![0, 1], false)
    }

    /// What `make` gives for the key, a scalar of `i64`, that the run has; a run is held to one of `keys`. All results
    /// have one type.
    ///
    /// # Errors
    /// What `make` refuses; no keys, or too many.
    pub fn choose(
        &mut self,
        key: Operand,
        keys: &[i64],
        message: &str,
        make: &mut dyn FnMut(&mut Self, i64) -> Step,
    ) -> Step {
        if keys.is_empty() || keys.len() > MOST_SETTINGS {
            return Err(NodeError::unsupported(format!("a choice of {} settings", keys.len())));
        }
        self.require_key(key, keys, message)?;
        self.branches(key, keys, make)
    }

    /// Holds a key to one of `keys`.
    ///
    /// # Errors
    /// What an operator refuses.
    pub fn require_key(
        &mut self,
        key: Operand,
        keys: &[i64],
        message: &str,
    ) -> Result<(), NodeError> {
        let listed = self.integers(keys)?;
        let equal = self.binary(B::Equal, key, listed)?;
        let equal = self.cast(equal, DataType::I64)?;
        let found = self.reduce(ReduceFunction::Sum, equal, vec![0], false)?;
        let known = self.with_scalar(B::Greater, found, 0.0)?;
        self.require(known, message)
    }

    fn branches(
        &mut self,
        key: Operand,
        keys: &[i64],
        make: &mut dyn FnMut(&mut Self, i64) -> Step,
    ) -> Step {
        let (first, rest) = match keys {
            [only] => return make(self, *only),
            [first, rest @ ..] => (*first, rest),
            [] => return Err(NodeError::invalid("there is nothing to choose")),
        };
        let own = self.constant(Tensor::scalar(first));
        let condition = self.binary(B::Equal, key, own)?;
        self.begin_region();
        let result = make(self, first)?;
        let then = self.end_region(&[result])?;
        self.begin_region();
        let result = self.branches(key, rest, make)?;
        let otherwise = self.end_region(&[result])?;
        let operands = [condition].into_iter().chain(then.captured).chain(otherwise.captured);
        let operands: Vec<Option<Operand>> = operands.map(Some).collect();
        self.apply_optional(If { then: then.graph, otherwise: otherwise.graph }, &operands)
    }
}

/// Sets of `count` of `rank` axes, as sums of powers of two; `None` where there are too many.
pub(super) fn subsets(rank: usize, count: usize) -> Option<Vec<i64>> {
    if rank > 12 || count > rank {
        return None;
    }
    let all = 0..1i64 << rank;
    Some(all.filter(|own| own.count_ones() as usize == count).collect())
}

/// The axes of a set.
pub(super) fn members(set: i64) -> Vec<usize> {
    (0..62).filter(|axis| set >> axis & 1 == 1).collect()
}

fn told(allowed: &[i64]) -> String {
    match allowed {
        [] => "anything".to_string(),
        [only] => only.to_string(),
        many => many.iter().map(i64::to_string).collect::<Vec<_>>().join(" or "),
    }
}
