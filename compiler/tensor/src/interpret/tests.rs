#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::{Builder, Combiner, Expr, UnaryOp};
use hone_types::DataType::{self, F32, I8, I64};

fn tensor_type(dtype: DataType, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape)
}

#[test]
fn matrix_product() {
    let mut builder = Builder::new();
    let a = builder.input("a", &tensor_type(F32, &[2, 3]));
    let b = builder.input("b", &tensor_type(F32, &[3, 2]));
    let product = builder.reduce("c", &tensor_type(F32, &[2, 2]), &[3], Combiner::Sum, |i, r| {
        Expr::Load(a, vec![i[0].clone(), r[0].clone()])
            * Expr::Load(b, vec![r[0].clone(), i[1].clone()])
    });
    builder.output(product);
    let a = Tensor::from_elements([2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let b = Tensor::from_elements([3, 2], &[1f32, 0.0, 0.0, 1.0, 1.0, 1.0]).unwrap();
    let outputs = interpret(&builder.finish(), &[a, b]).unwrap();
    assert_eq!(outputs[0].elements::<f32>().unwrap(), [4.0, 5.0, 10.0, 11.0]);
}

#[test]
fn guarded_load_may_lie_outside() {
    let mut builder = Builder::new();
    let x = builder.input("x", &tensor_type(F32, &[3]));
    let padded = builder.map("padded", &tensor_type(F32, &[5]), |i| {
        let inside = Expr::Integer(0).less(i[0].clone()).and(i[0].clone().less(Expr::Integer(4)));
        inside.select(Expr::Load(x, vec![i[0].clone() - 1]), Expr::Constant(0.0, F32))
    });
    builder.output(padded);
    let x = Tensor::from_elements([3], &[1f32, 2.0, 3.0]).unwrap();
    let outputs = interpret(&builder.finish(), &[x]).unwrap();
    assert_eq!(outputs[0].elements::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 0.0]);
}

#[test]
fn access_outside_names_block_and_index() {
    let mut builder = Builder::new();
    let x = builder.input("x", &tensor_type(F32, &[3]));
    let shifted =
        builder.map("shifted", &tensor_type(F32, &[3]), |i| Expr::Load(x, vec![i[0].clone() + 1]));
    builder.output(shifted);
    let error = interpret(&builder.finish(), &[Tensor::zeros(tensor_type(F32, &[3]))]).unwrap_err();
    assert_eq!(error.to_string(), "block 'shifted' accesses 'x' at 3 on axis 0 of extent 3");
}

#[test]
fn integers_wrap_and_casts_saturate() {
    let mut builder = Builder::new();
    let x = builder.input("x", &tensor_type(F32, &[2]));
    let cast =
        builder.map("cast", &tensor_type(I8, &[2]), |i| Expr::Load(x, vec![i[0].clone()]).cast(I8));
    let doubled = builder.map("doubled", &tensor_type(I8, &[2]), |i| {
        Expr::Load(cast, vec![i[0].clone()]) + Expr::Load(cast, vec![i[0].clone()])
    });
    builder.output(cast);
    builder.output(doubled);
    let x = Tensor::from_elements([2], &[300f32, -3.7]).unwrap();
    let outputs = interpret(&builder.finish(), &[x]).unwrap();
    assert_eq!(outputs[0].elements::<i8>().unwrap(), [127, -3]);
    assert_eq!(outputs[1].elements::<i8>().unwrap(), [-2, -6]);
}

#[test]
fn empty_reduction_gives_its_initial_value_once() {
    let mut builder = Builder::new();
    let x = builder.input("x", &tensor_type(I64, &[2]));
    let count = builder.reduce("n", &tensor_type(I64, &[]), &[], Combiner::Sum, |_, _| {
        Expr::Load(x, vec![Expr::Integer(1)])
    });
    builder.output(count);
    let x = Tensor::from_elements([2], &[5i64, 7]).unwrap();
    let outputs = interpret(&builder.finish(), &[x]).unwrap();
    assert_eq!(outputs[0].elements::<i64>().unwrap(), [7]);
}

#[test]
fn unwritten_memory_shows_up() {
    let mut builder = Builder::new();
    let x = builder.input("x", &tensor_type(F32, &[2]));
    let root = builder.map("root", &tensor_type(F32, &[2]), |i| {
        Expr::Load(x, vec![i[0].clone()]).unary(UnaryOp::Sqrt)
    });
    let copy =
        builder.map("copy", &tensor_type(F32, &[2]), |i| Expr::Load(root, vec![i[0].clone()]));
    builder.output(copy);
    let mut program = builder.finish();
    program.body.remove(0);
    let outputs = interpret(&program, &[Tensor::zeros(tensor_type(F32, &[2]))]).unwrap();
    assert!(outputs[0].elements::<f32>().unwrap().iter().all(|value| value.is_nan()));
}
