//! Scalar constant propagation: constants of one element become literals, so that kernels neither load nor
//! depend on them.

use hone_graph::ValueId;
use hone_ops::Graph;
use hone_tensor::{BlockBody, BufferId, Expr, Program, Role};
use hone_types::DataType;
use std::collections::HashMap;

/// Replaces reads of one-element constants by their value and drops those parameters.
pub(crate) fn inline_scalars(
    graph: &Graph,
    mut program: Program,
    parameters: Vec<ValueId>,
) -> (Program, Vec<ValueId>) {
    let mut literals: HashMap<BufferId, Expr> = HashMap::new();
    for (buffer, value) in program.parameters().into_iter().zip(&parameters) {
        if let Some(literal) = literal(graph, *value)
            && matches!(program.buffers[buffer].role, Role::Input(_))
        {
            literals.insert(buffer, literal);
        }
    }
    if literals.is_empty() {
        return (program, parameters);
    }
    for (_, block) in program.blocks.iter_mut() {
        match &mut block.body {
            BlockBody::Map(value) | BlockBody::Reduce { value, .. } => {
                *value = replace(value, &literals);
            }
        }
    }
    let kept: Vec<(BufferId, ValueId)> = program
        .parameters()
        .into_iter()
        .zip(parameters)
        .filter(|(buffer, _)| !literals.contains_key(buffer))
        .collect();
    (without_buffers(program, &literals, &kept), kept.into_iter().map(|(_, value)| value).collect())
}

/// The literal of a one-element constant that a literal can hold.
pub(crate) fn literal(graph: &Graph, value: ValueId) -> Option<Expr> {
    let tensor = graph.constant(value).filter(|tensor| tensor.tensor_type().elements() == 1)?;
    let number = *tensor.to_f64().first()?;
    let exact = match tensor.dtype() {
        DataType::I64 | DataType::U64 => number.abs() < 9.0e15,
        _ => true,
    };
    exact.then_some(Expr::Constant(number, tensor.dtype()))
}

fn replace(expr: &Expr, literals: &HashMap<BufferId, Expr>) -> Expr {
    match expr {
        Expr::Load(buffer, _) if literals.contains_key(buffer) => literals[buffer].clone(),
        _ => as_index(expr.map_operands(&mut |operand| replace(operand, literals))),
    }
}

/// An integer that is converted to an index as that index, of which bounds are known.
fn as_index(expr: Expr) -> Expr {
    let Expr::Cast(DataType::I64, operand) = &expr else { return expr };
    match **operand {
        Expr::Constant(number, dtype) if !dtype.is_float() && dtype != DataType::U64 => {
            Expr::Integer(number as i64)
        }
        _ => expr,
    }
}

/// The program without the buffers of literals; parameters are numbered anew.
fn without_buffers(
    mut program: Program,
    dropped: &HashMap<BufferId, Expr>,
    kept: &[(BufferId, ValueId)],
) -> Program {
    let old = std::mem::take(&mut program.buffers);
    let arguments: HashMap<BufferId, usize> =
        kept.iter().enumerate().map(|(argument, (parameter, _))| (*parameter, argument)).collect();
    let mut renamed: HashMap<BufferId, BufferId> = HashMap::new();
    for (id, buffer) in old.iter().filter(|(id, _)| !dropped.contains_key(id)) {
        let mut buffer = buffer.clone();
        buffer.role = match (buffer.role, arguments.get(&id)) {
            (Role::Input(_), Some(argument)) => Role::Input(*argument),
            (Role::Output(_), Some(argument)) => Role::Output(*argument),
            _ => Role::Temporary,
        };
        renamed.insert(id, program.buffers.push(buffer));
    }
    for (_, block) in program.blocks.iter_mut() {
        block.buffer = renamed[&block.buffer];
        block.indices.iter_mut().for_each(|index| *index = rename(index, &renamed));
        match &mut block.body {
            BlockBody::Map(value) => *value = rename(value, &renamed),
            BlockBody::Reduce { value, initial, .. } => {
                *value = rename(value, &renamed);
                *initial = initial.as_ref().map(|initial| rename(initial, &renamed));
            }
        }
    }
    program
}

fn rename(expr: &Expr, renamed: &HashMap<BufferId, BufferId>) -> Expr {
    let expr = expr.map_operands(&mut |operand| rename(operand, renamed));
    match expr {
        Expr::Load(buffer, indices) => Expr::Load(renamed[&buffer], indices),
        other => other,
    }
}
