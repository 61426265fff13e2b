//! Normalisations whose mean and variance are taken along the dimension.

use super::{Added, Step, sums};
use crate::dynamic_padding::bounded::{Along, Behind, Bounded};
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Cast, GroupNormalization, InstanceNormalization, Reduce,
    ReduceFunction, Reshape, Unary, UnaryFunction,
};
use hone_types::DataType;

/// Instance and group normalisation: of samples each by itself, or with sums over what is before the size, divided by how
/// many elements that are.
pub(super) fn add(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let first = step.input(0)?;
    step.others_are_whole(new, 1)?;
    let axes = new.along(first).to_vec();
    if axes.iter().any(|along| along.axis == 1) {
        return Err("normalises channels, which are the dimension".to_owned());
    }
    if axes.iter().all(|along| along.axis == 0) {
        return step.copy(new);
    }
    let (channels, operation) = (new.graph().tensor_type(first).shape[1], &step.node.operation);
    let found = if let Some(instance) = operation.downcast::<InstanceNormalization>() {
        (channels, instance.epsilon)
    } else if let Some(group) = operation.downcast::<GroupNormalization>() {
        (group.groups, group.epsilon)
    } else {
        return Err("is no normalisation".to_owned());
    };
    let lines = Lines::new(new, step, first, found)?;
    Ok(vec![lines.normalized(new, step)?])
}

/// What has a mean and a variance each: `[batch, groups, channels of a group, spatial...]`.
struct Lines {
    name: String,
    value: ValueId,
    /// Type of the values that come, and that sums are taken in.
    types: [DataType; 2],
    /// Shape of the values that come.
    shape: Vec<usize>,
    epsilon: f64,
    /// The number of elements of a line at the size.
    count: ValueId,
}

impl Lines {
    fn new(
        new: &mut Bounded,
        step: &Step<'_>,
        first: ValueId,
        (groups, epsilon): (usize, f64),
    ) -> Result<Self, String> {
        let name = step.node.name.clone();
        let (shape, dtype) = {
            let tensor = new.graph().tensor_type(first);
            (tensor.shape.clone(), tensor.dtype)
        };
        let mut entries = new.along(first).to_vec();
        let extended = if dtype == DataType::F64 { dtype } else { DataType::F32 };
        let mut value = first;
        if dtype != extended {
            value = new.add(&name, Cast { to: extended }, &[value])?;
        }
        let of_group = shape[1].checked_div(groups).ok_or("has no groups")?;
        let split = [&[shape[0], groups, of_group], &shape[2..]].concat();
        value = new.add(&name, Reshape { shape: split }, &[value])?;
        entries.iter_mut().filter(|along| along.axis > 1).for_each(|along| along.axis += 1);
        new.set(value, entries.clone());
        let is_fixed = |axis: &usize| entries.iter().all(|along| along.axis != axis + 1);
        let fixed = (2..shape.len()).filter(is_fixed).map(|axis| shape[axis]).product::<usize>();
        let lengths = entries.iter().filter(|along| along.axis > 1).map(|along| along.length);
        let lengths: Vec<_> = lengths.collect();
        let count = sums::count(new, &lengths, fixed * of_group, extended)?;
        Ok(Self { name, value, types: [dtype, extended], shape, epsilon, count })
    }

    fn binary(
        &self,
        new: &mut Bounded,
        function: BinaryFunction,
        values: [ValueId; 2],
    ) -> Result<ValueId, String> {
        new.add(&self.name, Binary::new(function), &values)
    }

    /// The mean of the elements of each line before the size, or of their squares.
    fn mean(
        &self,
        new: &mut Bounded,
        mut value: ValueId,
        function: ReduceFunction,
    ) -> Result<ValueId, String> {
        for along in new.along(value).to_vec() {
            if along.axis > 1 {
                value = new.filled(value, along.axis, 0.0)?;
            }
        }
        let axes = (2..self.shape.len() + 1).collect();
        let sum = new.add(&self.name, Reduce { function, axes, keep_axes: true }, &[value])?;
        self.binary(new, BinaryFunction::Divide, [sum, self.count])
    }

    fn normalized(&self, new: &mut Bounded, step: &Step<'_>) -> Result<ValueId, String> {
        let mean = self.mean(new, self.value, ReduceFunction::Sum)?;
        let distance = self.binary(new, BinaryFunction::Subtract, [self.value, mean])?;
        let entries = new.along(self.value).iter();
        let entries = entries.map(|along| Along { behind: Behind::Anything, ..*along });
        let entries: Vec<Along> = entries.collect();
        new.set(distance, entries);
        let variance = self.mean(new, distance, ReduceFunction::SumSquare)?;
        let epsilon = new.numbers(self.types[1], &[], &[self.epsilon])?;
        let variance = self.binary(new, BinaryFunction::Add, [variance, epsilon])?;
        let deviation = new.add(&self.name, Unary::new(UnaryFunction::Sqrt), &[variance])?;
        let scaled = self.binary(new, BinaryFunction::Divide, [distance, deviation])?;
        let joined = Reshape { shape: self.shape.clone() };
        let mut value = new.add(&self.name, joined, &[scaled])?;
        for (index, function) in [(1, BinaryFunction::Multiply), (2, BinaryFunction::Add)] {
            let parameter = self.parameter(new, step.input(index)?)?;
            value = self.binary(new, function, [value, parameter])?;
        }
        let [dtype, extended] = self.types;
        if dtype != extended {
            value = new.add(&self.name, Cast { to: dtype }, &[value])?;
        }
        Ok(value)
    }

    /// A number for each channel.
    fn parameter(&self, new: &mut Bounded, value: ValueId) -> Result<ValueId, String> {
        let mut shape = vec![1; self.shape.len() - 1];
        shape[0] = self.shape[1];
        let value = new.add(&self.name, Reshape { shape }, &[value])?;
        let [dtype, extended] = self.types;
        match dtype == extended {
            true => Ok(value),
            false => new.add(&self.name, Cast { to: extended }, &[value]),
        }
    }
}
