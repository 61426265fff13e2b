//! What tensor expressions share.

use crate::operator::Operator;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{DataType, Tensor, TensorType};

/// The buffer of input `place`, where it is given.
pub(crate) fn input(inputs: &[Option<BufferId>], place: usize) -> Option<BufferId> {
    inputs.get(place).copied().flatten()
}

/// Type of the only output.
pub(crate) fn only_output(
    operator: &impl Operator,
    builder: &Builder,
    inputs: &[Option<BufferId>],
) -> Option<TensorType> {
    let types: Vec<Option<TensorType>> =
        inputs.iter().map(|buffer| buffer.map(|buffer| builder.tensor_type(buffer))).collect();
    let types: Vec<Option<&TensorType>> = types.iter().map(Option::as_ref).collect();
    Some(operator.infer(&types).ok()?.remove(0))
}

/// The type sums of `dtype` are kept in: narrow floats would lose too much.
pub(crate) fn wide(dtype: DataType) -> DataType {
    match dtype {
        DataType::F16 | DataType::BF16 => DataType::F32,
        _ => dtype,
    }
}

/// `expr`, of type `from`, as `to`.
pub(crate) fn converted(expr: Expr, from: DataType, to: DataType) -> Expr {
    if from == to { expr } else { expr.cast(to) }
}

/// An element of a buffer of type `dtype`, in the type its sums are kept in.
pub(crate) fn load_wide(buffer: BufferId, indices: Vec<Expr>, dtype: DataType) -> Expr {
    converted(Expr::Load(buffer, indices), dtype, wide(dtype))
}

/// A reduction whose result is rounded to `output`'s type; `value` is of its [`wide`] type.
pub(crate) fn reduce(
    builder: &mut Builder,
    name: &str,
    output: &TensorType,
    reduction: &[usize],
    combiner: Combiner,
    value: impl FnOnce(&[Expr], &[Expr]) -> Expr,
) -> BufferId {
    let dtype = wide(output.dtype);
    let result = reduce_in(builder, name, dtype, &output.shape, reduction, combiner, value);
    if dtype == output.dtype {
        return result;
    }
    builder.map("round", output, |point| Expr::Load(result, point.to_vec()).cast(output.dtype))
}

/// A reduction in type `dtype`; over nothing it gives the combiner's identity.
pub(crate) fn reduce_in(
    builder: &mut Builder,
    name: &str,
    dtype: DataType,
    shape: &[usize],
    reduction: &[usize],
    combiner: Combiner,
    value: impl FnOnce(&[Expr], &[Expr]) -> Expr,
) -> BufferId {
    let output = TensorType::new(dtype, shape);
    if reduction.contains(&0) {
        return builder.map(name, &output, |_| combiner.identity(dtype));
    }
    builder.reduce(name, &output, reduction, combiner, value)
}

/// A constant, cut and saturated to its type as stored values are.
pub(crate) fn constant(value: f64, dtype: DataType) -> Expr {
    let stored = Tensor::from_f64(dtype, [], &[value]).map(|scalar| scalar.to_f64());
    Expr::Constant(stored.map_or(value, |stored| stored[0]), dtype)
}

/// Conditions under which a value is read.
#[derive(Default)]
pub(crate) struct Guard(Option<Expr>);

impl Guard {
    /// Adds a condition.
    pub fn require(&mut self, condition: Expr) {
        self.0 = Some(match self.0.take() {
            None => condition,
            Some(others) => others.and(condition),
        });
    }

    /// `value` where all conditions hold, else `otherwise`.
    pub fn value(self, value: Expr, otherwise: Expr) -> Expr {
        match self.0 {
            None => value,
            Some(condition) => condition.select(value, otherwise),
        }
    }
}
