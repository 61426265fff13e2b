//! Programs that use all of a block, and those of the schedule cases.

#![allow(clippy::unwrap_used)]

use hone_schedule::Trace;
use hone_tensor::{Builder, Combiner, Expr, Program, Role, parse};
use hone_types::{DataType, Tensor, TensorType};
use std::path::Path;

/// Small whole numbers, so that every order of a sum gives the same.
fn numbers(dtype: DataType, shape: &[usize]) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|index: usize| ((index * 7 + index / 3) % 5) as f64 - 2.0)
        .collect();
    Tensor::from_f64(dtype, shape, &values).unwrap()
}

/// `max(a . b, 0)` in `f32`, of matrices `[batch, m, k]` and `[batch, k, n]` of whole numbers, and its inputs.
pub fn product(dtype: DataType, [batch, m, n, k]: [usize; 4]) -> (Program, Vec<Tensor>) {
    let (a, b) = ([batch, m, k], [batch, k, n]);
    let mut builder = Builder::new();
    let left = builder.input("a", &TensorType::new(dtype, a));
    let right = builder.input("b", &TensorType::new(dtype, b));
    let shape = TensorType::new(DataType::F32, [batch, m, n]);
    let sum = builder.reduce("sum", &shape, &[k], Combiner::Sum, |i, r| {
        let load = |buffer, indices| Expr::Load(buffer, indices).cast(DataType::F32);
        let (left, right) = match dtype {
            DataType::F32 => (
                Expr::Load(left, vec![i[0].clone(), i[1].clone(), r[0].clone()]),
                Expr::Load(right, vec![i[0].clone(), r[0].clone(), i[2].clone()]),
            ),
            _ => (
                load(left, vec![i[0].clone(), i[1].clone(), r[0].clone()]),
                load(right, vec![i[0].clone(), r[0].clone(), i[2].clone()]),
            ),
        };
        left * right
    });
    let y = builder.map("y", &shape, |i| {
        Expr::Load(sum, i.to_vec()).maximum(Expr::Constant(0.0, DataType::F32))
    });
    builder.output(y);
    (builder.finish(), vec![numbers(dtype, &a), numbers(dtype, &b)])
}

/// Sums of squares of rows, less 100, and its input.
pub fn sums(rows: usize, columns: usize) -> (Program, Vec<Tensor>) {
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(DataType::F32, [rows, columns]));
    let shape = TensorType::new(DataType::F32, [rows]);
    let sum = builder.reduce("sum", &shape, &[columns], Combiner::Sum, |i, r| {
        let load = || Expr::Load(x, vec![i[0].clone(), r[0].clone()]);
        load() * load()
    });
    let y = builder
        .map("y", &shape, |i| Expr::Load(sum, i.to_vec()) - Expr::Constant(100.0, DataType::F32));
    builder.output(y);
    (builder.finish(), vec![numbers(DataType::F32, &[rows, columns])])
}

/// All bit patterns of a type of 16 bits: widened, times a number in `f32`, and times one in `f64`.
pub fn sixteen_bits(dtype: DataType) -> (Program, Vec<Tensor>) {
    let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let all = Tensor::from_bytes(TensorType::new(dtype, [1 << 16]), bits).unwrap();
    let mut builder = Builder::new();
    let x = builder.input("x", all.tensor_type());
    let wide = TensorType::new(DataType::F32, [1 << 16]);
    let widened = builder.map("wide", &wide, |i| Expr::Load(x, i.to_vec()).cast(DataType::F32));
    let back = builder.map("back", all.tensor_type(), |i| {
        let load = Expr::Load(x, i.to_vec()).cast(DataType::F32);
        (load * Expr::Constant(1.001, DataType::F32)).cast(dtype)
    });
    let double = builder.map("double", all.tensor_type(), |i| {
        let load = Expr::Load(x, i.to_vec()).cast(DataType::F64);
        (load * Expr::Constant(1.0 + 1e-9, DataType::F64)).cast(dtype)
    });
    [widened, back, double].into_iter().for_each(|output| builder.output(output));
    (builder.finish(), vec![all])
}

/// The cases of the schedule primitives: name, plain program, and its steps where the case accepts them.
pub fn schedule_cases() -> Vec<(String, Program, Option<Trace>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schedules");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let Some((program, rest)) = text.split_once("--- steps\n") else { continue };
        let (steps, outcome) = rest.split_once("--- ").unwrap();
        let trace = outcome.starts_with("program").then(|| steps.parse().unwrap());
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        cases.push((name, parse(program).unwrap(), trace));
    }
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

/// Small whole numbers for every input of a program.
pub fn whole_inputs(program: &Program) -> Vec<Tensor> {
    let buffers = program.parameters().into_iter().map(|buffer| &program.buffers[buffer]);
    let given = buffers.filter(|buffer| matches!(buffer.role, Role::Input(_)));
    given
        .map(|buffer| {
            let values: Vec<f64> = (0..buffer.elements())
                .map(|index| ((index * 31 + index / 5) % 7) as f64 - 3.0)
                .collect();
            Tensor::from_f64(buffer.dtype, buffer.shape.clone(), &values).unwrap()
        })
        .collect()
}
