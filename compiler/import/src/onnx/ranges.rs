//! Between which numbers the elements of short lists of integers lie, by what they are computed of.
//!
//! How many elements a run finds lies between none and all that there is room for. What a model computes of that number
//! before it makes a shape of it (minima, sums, products, lists of it and of constants) is followed by interval
//! arithmetic: the upper end is the room that such a shape needs. A list that is not followed has no ranges; ranges
//! that are known always hold. Floats are followed while they are whole numbers that their type holds exactly, since
//! models take a number of elements to floats and back.

use super::builder::{Builder, Operand};
use hone_ops::{
    ArgReduce, Binary, BinaryFunction as B, Cast, Concat, Expand, Gather, OneHot, Op, Reduce,
    ReduceFunction, Reshape, Select, Slice, Unary, UnaryFunction,
};
use hone_types::{DataType, Tensor, TensorType};

/// Most elements of a list that is followed.
const MOST: usize = 64;

/// Both ends of an interval of integers; truth values are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The lower end.
    pub least: i64,
    /// The upper end.
    pub most: i64,
}

impl Range {
    /// Of one number.
    pub fn exact(value: i64) -> Self {
        Self { least: value, most: value }
    }

    /// The number, where there is one alone.
    pub fn only(self) -> Option<i64> {
        (self.least == self.most).then_some(self.least)
    }

    fn truth(is: Option<bool>) -> Self {
        match is {
            Some(is) => Self::exact(i64::from(is)),
            None => Self { least: 0, most: 1 },
        }
    }

    /// Of any number of an integer type, or any truth value.
    pub fn any(dtype: DataType) -> Self {
        let (least, most) = ends_of(dtype);
        Self { least, most }
    }

    fn joined(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }
}

impl Builder {
    /// The ranges of a list's elements, in row-major order; `None` of one that is not followed.
    pub(super) fn ranges(&self, operand: Operand) -> Option<Vec<Range>> {
        let of = self.tensor_type(operand);
        if !is_followed(of) {
            return None;
        }
        match self.tensor(operand) {
            Some(known) if known.dtype() == DataType::Bool => {
                Some(known.bytes().iter().map(|own| Range::exact(i64::from(*own != 0))).collect())
            }
            Some(known) if known.dtype().is_float() => {
                known.to_f64().into_iter().map(|own| whole(own, known.dtype())).collect()
            }
            Some(known) => Some(known.to_i64().into_iter().map(Range::exact).collect()),
            None => self.ranges.get(&operand).cloned(),
        }
    }

    /// The same, and any number for each element of a list that is not followed and that a run computes of floats.
    pub(super) fn ranges_or_any(&self, operand: Operand) -> Option<Vec<Range>> {
        self.ranges(operand).or_else(|| {
            let of = self.tensor_type(operand);
            let is_open = is_followed(of) && !of.dtype.is_float() && self.is_measured(operand);
            is_open.then(|| vec![Range::any(of.dtype); of.elements()])
        })
    }

    /// Says that a number lies between none and `most`.
    pub(super) fn note_count(&mut self, count: Operand, most: usize) {
        let Ok(most) = i64::try_from(most) else { return };
        if self.tensor(count).is_none() && self.tensor_type(count).elements() == 1 {
            self.ranges.insert(count, vec![Range { least: 0, most }]);
        }
    }

    /// The ranges of the one result of an operator, of type `of`, where it is followed.
    pub(super) fn result_ranges(
        &self,
        operator: &Op,
        inputs: &[Option<Operand>],
        of: &TensorType,
    ) -> Option<Vec<Range>> {
        if !is_followed(of) {
            return None;
        }
        let found = self.followed(operator, inputs, of)?;
        let holds = found.len() == of.elements() && found.iter().all(|own| fits(*own, of.dtype));
        holds.then_some(found)
    }

    /// A constant of which every element is known from its range, as the extents are that a run does not decide. No
    /// floats: a range does not say which zero it is.
    pub(super) fn known_by_ranges(&mut self, ranges: &[Range], of: &TensorType) -> Option<Operand> {
        if of.dtype.is_float() {
            return None;
        }
        let values: Vec<i64> = ranges.iter().map(|own| own.only()).collect::<Option<_>>()?;
        let shape = of.shape.clone();
        let tensor = match of.dtype {
            DataType::I64 => Tensor::from_elements(shape, &values),
            DataType::I32 => {
                let narrow: Option<Vec<i32>> =
                    values.iter().map(|own| i32::try_from(*own).ok()).collect();
                Tensor::from_elements(shape, &narrow?)
            }
            _ => Tensor::from_elements(
                shape,
                &values.iter().map(|own| *own != 0).collect::<Vec<_>>(),
            ),
        };
        Some(self.constant(tensor.ok()?))
    }

    fn followed(
        &self,
        operator: &Op,
        inputs: &[Option<Operand>],
        of: &TensorType,
    ) -> Option<Vec<Range>> {
        let operand = |place: usize| inputs.get(place).copied().flatten();
        let first = operand(0)?;
        if let Some(computed) = self.of_elements(operator, inputs, of) {
            return Some(computed);
        }
        let own = || self.ranges(first);
        if operator.downcast::<Reshape>().is_some() {
            return own();
        }
        if let Some(concat) = operator.downcast::<Concat>() {
            // One after the other only where nothing lies around the axis.
            let is_outermost = of.shape.iter().take(concat.axis).all(|extent| *extent == 1);
            let parts =
                inputs.iter().map(|own| self.ranges_or_any((*own)?)).collect::<Option<Vec<_>>>()?;
            return is_outermost.then(|| parts.concat());
        }
        if let Some(slice) = operator.downcast::<Slice>() {
            return sliced(&own()?, slice);
        }
        if operator.downcast::<Gather>().is_some() && self.rank(first) == 1 {
            return self.gathered_ranges(first, operand(1)?, of);
        }
        if let Some(hot) = operator.downcast::<OneHot>() {
            return self.one_hot_ranges(hot, (first, operand(1)?), of);
        }
        if operator.downcast::<Expand>().is_some() {
            return self
                .laid_beside(&[first], of)?
                .into_iter()
                .map(|own| own.first().copied())
                .collect();
        }
        if let Some(search) = operator.downcast::<ArgReduce>() {
            let extent = i64::try_from(*self.shape(first).get(search.axis)?).ok()?;
            return Some(vec![Range { least: 0, most: extent.saturating_sub(1) }; of.elements()])
                .filter(|_| extent > 1);
        }
        let reduce = operator.downcast::<Reduce>().filter(|_| of.elements() == 1)?;
        let is_exact = !of.dtype.is_float() || is_search(reduce.function);
        reduced(&own()?, reduce.function).filter(|_| is_exact).map(|own| vec![own])
    }

    /// Functions of one element each of their operands.
    fn of_elements(
        &self,
        operator: &Op,
        inputs: &[Option<Operand>],
        of: &TensorType,
    ) -> Option<Vec<Range>> {
        let operand = |place: usize| inputs.get(place).copied().flatten();
        let first = operand(0)?;
        if operator.downcast::<Cast>().is_some() {
            let is_truth = of.dtype == DataType::Bool;
            let own = self.ranges(first)?.into_iter();
            return Some(own.map(|own| if is_truth { truth(own) } else { own }).collect());
        }
        if let Some(unary) = operator.downcast::<Unary>() {
            let own = self.ranges(first)?.into_iter();
            return own.map(|own| of_unary(unary.function, own)).collect();
        }
        if let Some(binary) = operator.downcast::<Binary>() {
            if self.dtype(first).is_float() && !keeps_whole(binary.function) {
                return None;
            }
            let pairs = self.laid_beside(&[first, operand(1)?], of)?.into_iter();
            return pairs.map(|own| of_binary(binary.function, own[0], own[1])).collect();
        }
        operator.downcast::<Select>()?;
        let all = self.laid_beside(&[first, operand(1)?, operand(2)?], of)?;
        let chosen = all.into_iter().map(|own| match own[0].only() {
            Some(0) => own[2],
            Some(_) => own[1],
            None => own[1].joined(own[2]),
        });
        Some(chosen.collect())
    }

    /// Elements of a list.
    fn gathered_ranges(
        &self,
        list: Operand,
        places: Operand,
        of: &TensorType,
    ) -> Option<Vec<Range>> {
        let own: Vec<Range> = match self.tensor(list) {
            // However long a list is that is known.
            Some(known) => known.to_i64().into_iter().map(Range::exact).collect(),
            None => self.ranges(list)?,
        };
        let any = own.iter().copied().reduce(Range::joined)?;
        let Some(places) = self.ranges(places) else { return Some(vec![any; of.elements()]) };
        let count = own.len() as i64;
        let one = |place: Range| match place.only() {
            Some(place) => {
                let place = if place < 0 { place + count } else { place };
                own.get(usize::try_from(place).ok()?).copied()
            }
            None => Some(any),
        };
        places.into_iter().map(one).collect()
    }

    /// Vectors of one value with another in one place, of known places: lists with a number set in them.
    fn one_hot_ranges(
        &self,
        hot: &OneHot,
        (places, values): (Operand, Operand),
        of: &TensorType,
    ) -> Option<Vec<Range>> {
        let places = self.tensor(places)?.to_i64();
        let values = self.ranges_or_any(values)?;
        let [off, on] = values[..] else { return None };
        if hot.axis + 1 != of.rank() {
            return None;
        }
        let depth = i64::try_from(hot.depth).ok()?;
        let row = |place: i64| {
            let place = if place < 0 { place + depth } else { place };
            (0..depth).map(move |own| if own == place { on } else { off })
        };
        Some(places.into_iter().flat_map(row).collect())
    }

    /// For each element of a result the elements of the operands that are laid over it. Only of lists and numbers.
    fn laid_beside(&self, operands: &[Operand], of: &TensorType) -> Option<Vec<Vec<Range>>> {
        let count = of.elements();
        let mut all = vec![Vec::with_capacity(operands.len()); count];
        for operand in operands {
            let own = self.ranges(*operand)?;
            if own.len() != 1 && (own.len() != count || self.shape(*operand) != of.shape) {
                return None;
            }
            for (place, beside) in all.iter_mut().enumerate() {
                beside.push(*own.get(place).or(own.first())?);
            }
        }
        Some(all)
    }
}

/// A part of a list.
fn sliced(own: &[Range], slice: &Slice) -> Option<Vec<Range>> {
    let ([start], [step], [count]) = (&slice.starts[..], &slice.steps[..], &slice.extents[..])
    else {
        return None;
    };
    let start = i64::try_from(*start).ok()?;
    let place = |number: usize| {
        let place = step.checked_mul(i64::try_from(number).ok()?)?.checked_add(start)?;
        usize::try_from(place).ok()
    };
    (0..*count).map(|number| own.get(place(number)?).copied()).collect()
}

/// Whether the result is one of the elements. Sums of floats may be rounded before all is added.
fn is_search(function: ReduceFunction) -> bool {
    matches!(function, ReduceFunction::Maximum | ReduceFunction::Minimum)
}

/// A function of all elements.
fn reduced(own: &[Range], function: ReduceFunction) -> Option<Range> {
    let function = match function {
        ReduceFunction::Sum => B::Add,
        ReduceFunction::Product => B::Multiply,
        ReduceFunction::Maximum => B::Maximum,
        ReduceFunction::Minimum => B::Minimum,
        _ => return None,
    };
    let (first, rest) = own.split_first()?;
    rest.iter().try_fold(*first, |all, one| of_binary(function, all, *one))
}

fn is_followed(of: &TensorType) -> bool {
    let is_integer = matches!(of.dtype, DataType::I64 | DataType::I32 | DataType::Bool);
    (is_integer || of.dtype.is_float()) && (1..=MOST).contains(&of.elements())
}

fn fits(own: Range, dtype: DataType) -> bool {
    let (least, most) = ends_of(dtype);
    own.least >= least && own.most <= most
}

/// The least and the greatest number of a type that is followed; of floats those between which each whole number is
/// one of the type.
fn ends_of(dtype: DataType) -> (i64, i64) {
    let around = |bits: u32| (-(1 << bits), 1 << bits);
    match dtype {
        DataType::Bool => (0, 1),
        DataType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DataType::F64 => around(53),
        DataType::F32 => around(24),
        DataType::F16 => around(11),
        DataType::BF16 => around(8),
        _ => (i64::MIN, i64::MAX),
    }
}

/// The range of a float that is a whole number; `None` of others.
fn whole(value: f64, dtype: DataType) -> Option<Range> {
    let (least, most) = ends_of(dtype);
    let is_whole = value.fract() == 0.0 && (least as f64..=most as f64).contains(&value);
    is_whole.then(|| Range::exact(value as i64))
}

/// Whether a function of whole floats gives whole ones, or truth values.
fn keeps_whole(function: B) -> bool {
    matches!(
        function,
        B::Add
            | B::Subtract
            | B::Multiply
            | B::Minimum
            | B::Maximum
            | B::Less
            | B::LessEqual
            | B::Greater
            | B::GreaterEqual
            | B::Equal
    )
}

fn truth(own: Range) -> Range {
    Range::truth(match own.only() {
        Some(value) => Some(value != 0),
        None if own.least > 0 || own.most < 0 => Some(true),
        None => None,
    })
}

fn of_unary(function: UnaryFunction, own: Range) -> Option<Range> {
    match function {
        UnaryFunction::Negate => {
            Some(Range { least: own.most.checked_neg()?, most: own.least.checked_neg()? })
        }
        // Of whole numbers.
        UnaryFunction::Ceil | UnaryFunction::Floor | UnaryFunction::Round => Some(own),
        UnaryFunction::Not => Some(Range { least: 1 - own.most, most: 1 - own.least }),
        _ => None,
    }
}

/// The range of a function of two numbers; `None` where an end passes 64 bits, or of a function that is not followed.
fn of_binary(function: B, a: Range, b: Range) -> Option<Range> {
    let ends = |of: &dyn Fn(i64, i64) -> Option<i64>| -> Option<Range> {
        let all = [
            of(a.least, b.least)?,
            of(a.least, b.most)?,
            of(a.most, b.least)?,
            of(a.most, b.most)?,
        ];
        Some(Range { least: *all.iter().min()?, most: *all.iter().max()? })
    };
    match function {
        B::Add => ends(&i64::checked_add),
        B::Subtract => ends(&i64::checked_sub),
        B::Multiply => ends(&i64::checked_mul),
        B::Divide if b.least > 0 => ends(&i64::checked_div),
        B::Modulo if b.least > 0 => Some(Range { least: 0, most: b.most - 1 }),
        B::Minimum => ends(&|a, b| Some(a.min(b))),
        B::Maximum => ends(&|a, b| Some(a.max(b))),
        B::And => ends(&|a, b| Some(a & b)),
        B::Or => ends(&|a, b| Some(a | b)),
        B::Less => Some(Range::truth(is_less(a, b))),
        B::GreaterEqual => Some(Range::truth(is_less(a, b).map(|own| !own))),
        B::Greater => Some(Range::truth(is_less(b, a))),
        B::LessEqual => Some(Range::truth(is_less(b, a).map(|own| !own))),
        B::Equal => Some(Range::truth(match (a.only(), b.only()) {
            (Some(a), Some(b)) => Some(a == b),
            _ if a.most < b.least || b.most < a.least => Some(false),
            _ => None,
        })),
        _ => None,
    }
}

fn is_less(a: Range, b: Range) -> Option<bool> {
    match () {
        () if a.most < b.least => Some(true),
        () if a.least >= b.most => Some(false),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(least: i64, most: i64) -> Range {
        Range { least, most }
    }

    #[test]
    fn ends_are_those_of_all_pairs() {
        let functions = [
            B::Add,
            B::Subtract,
            B::Multiply,
            B::Divide,
            B::Modulo,
            B::Minimum,
            B::Maximum,
            B::Less,
            B::LessEqual,
            B::Greater,
            B::GreaterEqual,
            B::Equal,
        ];
        let of = |function: B, a: i64, b: i64| match function {
            B::Add => a + b,
            B::Subtract => a - b,
            B::Multiply => a * b,
            B::Divide => a / b,
            B::Modulo => a.rem_euclid(b),
            B::Minimum => a.min(b),
            B::Maximum => a.max(b),
            B::Less => i64::from(a < b),
            B::LessEqual => i64::from(a <= b),
            B::Greater => i64::from(a > b),
            B::GreaterEqual => i64::from(a >= b),
            _ => i64::from(a == b),
        };
        for (a, b) in
            [(range(-3, 5), range(1, 4)), (range(2, 2), range(2, 2)), (range(0, 1), range(3, 9))]
        {
            for function in functions {
                let found = of_binary(function, a, b);
                let pairs = (a.least..=a.most)
                    .flat_map(|one| (b.least..=b.most).map(move |two| (one, two)));
                for (one, two) in pairs {
                    let value = of(function, one, two);
                    let holds = found.is_some_and(|own| own.least <= value && value <= own.most);
                    assert!(holds, "{function:?} of {one} and {two} is {value}, not in {found:?}");
                }
            }
        }
        assert_eq!(of_binary(B::Divide, range(1, 2), range(-1, 1)), None);
        assert_eq!(of_binary(B::Multiply, range(0, i64::MAX), range(2, 2)), None);
    }

    #[test]
    fn floats_are_followed_while_they_are_whole_and_exact() {
        assert_eq!(whole(-3.0, DataType::F32), Some(range(-3, -3)));
        assert_eq!(whole(16_777_216.0, DataType::F32), Some(range(1 << 24, 1 << 24)));
        for other in [0.5, 16_777_218.0, f64::NAN, f64::INFINITY] {
            assert_eq!(whole(other, DataType::F32), None, "{other}");
        }
        assert_eq!(whole(16_777_218.0, DataType::F64).map(Range::only), Some(Some(16_777_218)));
        assert!(fits(range(0, 256), DataType::BF16) && !fits(range(0, 257), DataType::BF16));
        assert!(!fits(Range::any(DataType::I32), DataType::F32));
        assert!(keeps_whole(B::Multiply) && !keeps_whole(B::Divide) && !keeps_whole(B::Power));
    }
}
