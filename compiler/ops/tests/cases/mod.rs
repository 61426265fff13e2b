//! Operators on small seeded inputs: extents of one and zero, such that do not divide, negative steps,
//! other element types than `f32`.

#![allow(dead_code)]

mod attention;
mod dependent;
mod images;
mod movement;
mod recurrent;
mod reductions;
mod spatial;
mod text;

use hone_ops::{Op, Operator};
use hone_types::{DataType, Tensor, TensorType};

/// An operator on given inputs.
pub struct Case {
    /// The operator.
    pub operator: Op,
    /// Its inputs; `None` is left out.
    pub inputs: Vec<Option<Tensor>>,
    /// Whether it has no expression with these attributes.
    pub is_folded: bool,
}

impl Case {
    /// The inputs, borrowed.
    pub fn borrowed(&self) -> Vec<Option<&Tensor>> {
        self.inputs.iter().map(Option::as_ref).collect()
    }

    /// Types of the inputs.
    pub fn types(&self) -> Vec<Option<TensorType>> {
        self.inputs.iter().map(|input| Some(input.as_ref()?.tensor_type().clone())).collect()
    }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut cases = movement::cases();
    cases.extend(attention::cases());
    cases.extend(dependent::cases());
    cases.extend(images::cases());
    cases.extend(reductions::cases());
    cases.extend(spatial::cases());
    cases.extend(recurrent::cases());
    cases.extend(text::cases());
    cases
}

fn case(operator: impl Operator, inputs: &[Tensor]) -> Case {
    let inputs = inputs.iter().cloned().map(Some).collect();
    Case { operator: Op::new(operator), inputs, is_folded: false }
}

/// Numbers from -3 to 3 (0 and 1 for truth values, small whole ones for integers) that look random
/// and depend on the shape only.
fn tensor(dtype: DataType, shape: impl Into<Vec<usize>>) -> Tensor {
    let shape = shape.into();
    let mut state = shape.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |state, extent| {
        state.rotate_left(9).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ *extent as u64
    });
    let values: Vec<f64> = (0..shape.iter().product::<usize>())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let real = (state >> 11) as f64 / (1_u64 << 53) as f64 * 6.0 - 3.0;
            match dtype {
                DataType::Bool => f64::from(u8::from(real > 0.0)),
                _ if dtype.is_float() => real,
                _ if dtype.is_signed_integer() => (real * 5.0).round(),
                _ => (real * 5.0).round().abs(),
            }
        })
        .collect();
    Tensor::from_f64(dtype, shape, &values).unwrap()
}

fn f32s(shape: impl Into<Vec<usize>>) -> Tensor {
    tensor(DataType::F32, shape)
}

fn i64s(shape: impl Into<Vec<usize>>, values: &[i64]) -> Tensor {
    Tensor::from_elements(shape, values).unwrap()
}
