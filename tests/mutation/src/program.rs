//! Single faults in loop programs: what a bug of a schedule or of the code generator would compute.

use hone_model_builder::Random;
use hone_tensor::{
    BinaryOp, BlockBody, Buffer, Combiner, Expr, Program, Role, Statement, interpret,
};
use hone_types::{DataType, Tensor, TensorError, TensorType};

/// A fault, and where.
pub struct Fault {
    /// The program with the fault.
    pub program: Program,
    /// What was changed, for reports.
    pub description: String,
}

/// A number below `bound`, which is not 0.
pub fn below(random: &mut Random, bound: usize) -> usize {
    (random.bits() % bound as u64) as usize
}

/// One fault drawn at random; `None` where the drawn one does not exist in this program.
pub fn draw(program: &Program, random: &mut Random) -> Option<Fault> {
    match below(random, 8) {
        0 => shorter_loop(program, random),
        1 => other_start(program, random),
        2 => dropped_predicate(program, random),
        _ => changed_expression(program, random),
    }
}

/// Whether the fault changes what the program computes, and computes it inside of its buffers: judged by
/// the interpreter on random inputs. `weights` has the bytes of each parameter that is a constant.
pub fn changes(
    program: &Program,
    faulty: &Program,
    weights: &[Option<&[u8]>],
    random: &mut Random,
) -> bool {
    let mut inputs = Vec::new();
    for (position, id) in program.parameters().into_iter().enumerate() {
        let buffer = &program.buffers[id];
        if !matches!(buffer.role, Role::Input(_)) {
            continue;
        }
        let tensor = match weights.get(position).copied().flatten() {
            Some(bytes) => {
                let tensor_type = TensorType::new(buffer.dtype, buffer.shape.clone());
                Tensor::from_bytes(tensor_type, bytes.to_vec())
            }
            None => random_tensor(buffer, random),
        };
        let Ok(tensor) = tensor else { return false };
        inputs.push(tensor);
    }
    let (Ok(want), Ok(got)) = (interpret(program, &inputs), interpret(faulty, &inputs)) else {
        return false;
    };
    want.iter().zip(&got).any(|(want, got)| {
        let mut pairs = want.to_f64().into_iter().zip(got.to_f64());
        // What the interpreter's unwritten memory shows is a NaN.
        pairs.any(|(want, got)| got.is_nan() || (want - got).abs() > 1e-3 * (want.abs() + 1e-3))
    })
}

/// Random content of the kind that a buffer takes.
fn random_tensor(buffer: &Buffer, random: &mut Random) -> Result<Tensor, TensorError> {
    let mut element = || match buffer.dtype {
        dtype if dtype.is_float() => f64::from(random.normal()),
        DataType::U8 => below(random, 256) as f64,
        DataType::I8 => below(random, 256) as f64 - 128.0,
        // Indices: small ones are inside of any table.
        _ => below(random, 2) as f64,
    };
    let values: Vec<f64> = (0..buffer.elements()).map(|_| element()).collect();
    Tensor::from_f64(buffer.dtype, buffer.shape.clone(), &values)
}

/// A loop that leaves out its last iteration: a wrong tail.
fn shorter_loop(program: &Program, random: &mut Random) -> Option<Fault> {
    let mut program = program.clone();
    let mut count = 0;
    each_extent(&mut program.body, &mut |extent| {
        count += usize::from(extent.as_integer() > Some(1))
    });
    let chosen = below(random, count.max(1));
    let (mut place, mut description) = (0, None);
    each_extent(&mut program.body, &mut |extent| {
        let Some(value) = extent.as_integer().filter(|value| *value > 1) else { return };
        if place == chosen {
            *extent = Expr::Integer(value - 1);
            description = Some(format!("a loop of {value} iterations leaves out the last"));
        }
        place += 1;
    });
    Some(Fault { program, description: description? })
}

fn each_extent(body: &mut [Statement], visit: &mut dyn FnMut(&mut Expr)) {
    for statement in body {
        if let Statement::Loop(inner) = statement {
            visit(&mut inner.extent);
            each_extent(&mut inner.body, visit);
        }
    }
}

/// A reduction that starts from another value, or combines otherwise.
fn other_start(program: &Program, random: &mut Random) -> Option<Fault> {
    let mut program = program.clone();
    let blocks = program.blocks_in_order();
    let id = blocks[below(random, blocks.len())];
    let block = &mut program.blocks[id];
    let BlockBody::Reduce { combiner, initial, .. } = &mut block.body else { return None };
    let description = match (below(random, 2), &initial) {
        (0, Some(start)) => {
            let one = start.clone().binary(BinaryOp::Add, start.clone());
            *initial = Some(match start {
                Expr::Constant(value, dtype) if *value == 0.0 => Expr::Constant(1.0, *dtype),
                _ => one,
            });
            format!("the sums of {} start from another value", block.name)
        }
        _ => {
            *combiner = match combiner {
                Combiner::Sum => Combiner::Maximum,
                Combiner::Maximum => Combiner::Minimum,
                _ => Combiner::Sum,
            };
            format!("{} combines by another operation", block.name)
        }
    };
    Some(Fault { program, description })
}

/// A block that runs where its predicate forbids it: a wrong border.
fn dropped_predicate(program: &Program, random: &mut Random) -> Option<Fault> {
    let mut program = program.clone();
    let blocks = program.blocks_in_order();
    let id = blocks[below(random, blocks.len())];
    let path = program.find_block(id)?;
    let Statement::Realize(realize) = program.statement_mut(&path)? else { return None };
    realize.predicate.take()?;
    let name = program.blocks[id].name.clone();
    Some(Fault { program, description: format!("{name} runs outside of its predicate") })
}

/// One node of one expression replaced: another lane, channel, border, zero point or scale.
fn changed_expression(program: &Program, random: &mut Random) -> Option<Fault> {
    let mut program = program.clone();
    let blocks = program.blocks_in_order();
    let id = blocks[below(random, blocks.len())];
    let sizes: Vec<usize> = program.blocks[id].expressions().into_iter().map(nodes).collect();
    let total: usize = sizes.iter().sum();
    let chosen = below(random, total.max(1));
    let (mut place, mut description) = (0, None);
    let kind = random.bits();
    let name = program.blocks[id].name.clone();
    program.blocks[id].map_expressions(&mut |expr| {
        replace(expr, &mut place, &mut |position, node| {
            if position != chosen {
                return None;
            }
            let (changed, what) = alter(node, kind)?;
            description = Some(format!("{name}: {what}"));
            Some(changed)
        })
    });
    Some(Fault { program, description: description? })
}

fn nodes(expr: &Expr) -> usize {
    let mut count = 0;
    expr.visit(&mut |_| count += 1);
    count
}

/// The expression with the nodes for which `change` gives one replaced; nodes are numbered from `place` on,
/// outermost first.
fn replace(
    expr: &Expr,
    place: &mut usize,
    change: &mut dyn FnMut(usize, &Expr) -> Option<Expr>,
) -> Expr {
    let here = *place;
    *place += 1;
    match change(here, expr) {
        Some(changed) => changed,
        None => expr.map_operands(&mut |operand| replace(operand, place, change)),
    }
}

/// Another node in place of one, and what it is.
fn alter(node: &Expr, kind: u64) -> Option<(Expr, &'static str)> {
    use BinaryOp::{Add, Divide, Less, LessEqual, Maximum, Minimum, Multiply, Subtract};
    let up = kind.is_multiple_of(2);
    Some(match node {
        Expr::Integer(value) => (
            Expr::Integer(if up { value + 1 } else { value - 1 }),
            "an index or a bound is off by one",
        ),
        Expr::Constant(value, dtype) if dtype.is_float() && up => {
            (Expr::Constant(value * 1.25, *dtype), "a scale is a quarter too large")
        }
        Expr::Constant(value, dtype) => {
            (Expr::Constant(value + 1.0, *dtype), "a zero point or an offset is off by one")
        }
        Expr::Load(buffer, indices) if indices.len() > 1 => {
            let mut indices = indices.clone();
            let last = indices.len() - 1;
            indices.swap(last, if up { 0 } else { last - 1 });
            (Expr::Load(*buffer, indices), "two axes of an access are swapped")
        }
        Expr::Binary(op, left, right) => {
            let other = match op {
                Add => Subtract,
                Subtract => Add,
                Multiply => Add,
                Divide => Multiply,
                Minimum => Maximum,
                Maximum => Minimum,
                Less => LessEqual,
                LessEqual => Less,
                _ => return None,
            };
            (Expr::Binary(other, left.clone(), right.clone()), "another operation is computed")
        }
        Expr::Select(condition, then, otherwise) => (
            Expr::Select(condition.clone(), otherwise.clone(), then.clone()),
            "the sides of a condition are swapped",
        ),
        _ => return None,
    })
}
