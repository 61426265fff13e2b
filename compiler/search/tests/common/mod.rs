//! Programs that several tests search.

use hone_tensor::{Builder, Combiner, Expr, Program};
use hone_types::{DataType, TensorType};

/// `y[m, n] = sum over k of a[m, k] * b[k, n]`.
pub fn product(m: usize, n: usize, k: usize) -> Program {
    let tensor = |shape: &[usize]| TensorType::new(DataType::F32, shape);
    let mut builder = Builder::new();
    let a = builder.input("a", &tensor(&[m, k]));
    let b = builder.input("b", &tensor(&[k, n]));
    let sum = tensor(&[m, n]);
    let s = builder.reduce("s", &sum, &[k], Combiner::Sum, |i, r| {
        Expr::Load(a, vec![i[0].clone(), r[0].clone()])
            * Expr::Load(b, vec![r[0].clone(), i[1].clone()])
    });
    let y = builder.map("y", &sum, |i| Expr::Load(s, i.to_vec()));
    builder.output(y);
    builder.finish()
}
