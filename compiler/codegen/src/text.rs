//! Indices as messages show them.

use hone_tensor::{BinaryOp, Expr, Program};

/// `expr` with the names of `program`'s variables.
pub(crate) fn index(program: &Program, expr: &Expr) -> String {
    match expr {
        Expr::Integer(value) => value.to_string(),
        Expr::Var(var) => {
            program.vars.get(*var).map_or_else(|| var.to_string(), |var| var.name.clone())
        }
        Expr::Binary(op, left, right) => {
            let (left, right) = (index(program, left), index(program, right));
            match op {
                BinaryOp::Add => format!("{left} + {right}"),
                BinaryOp::Subtract => format!("{left} - ({right})"),
                BinaryOp::Multiply => format!("({left}) * {right}"),
                BinaryOp::FloorDivide => format!("({left}) / ({right})"),
                BinaryOp::Modulo => format!("({left}) % ({right})"),
                other => format!("{other:?}({left}, {right})"),
            }
        }
        Expr::Load(buffer, _) => format!("{}[…]", program.buffers[*buffer].name),
        other => format!("{other:?}"),
    }
}
