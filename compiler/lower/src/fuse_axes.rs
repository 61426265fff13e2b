//! Axis fusion: neighbouring axes that every access indexes in order become one.
//!
//! Two neighbouring axes of a block are *fused* when each access that mentions either of them
//! uses both, bare and in order, on neighbouring axes of exactly their extents. An element-wise
//! kernel becomes one flat loop this way, and a convolution with a 1x1 window and stride 1 iterates over its
//! pixels as one axis, whatever the image's shape.

use hone_tensor::{Block, BlockBody, BufferId, Builder, Expr, IteratorKind, Program, Role, VarId};
use hone_types::TensorType;
use std::collections::{HashMap, HashSet};

/// A boundary between fusible axes of a buffer: between axis `.1` and the next.
type Boundary = (BufferId, usize);

/// The program with all fusible axes fused. Blocks must be in the plain loop order, as a
/// [`Builder`] leaves them.
pub fn fuse_axes(program: Program) -> Program {
    let mut program = program;
    loop {
        let boundaries = fusible_boundaries(&program);
        let Some(boundaries) = first_connected(&program, &boundaries) else { return program };
        program = rebuild(&program, &boundaries);
    }
}

/// Every boundary that may be removed: the maximum set on which all accesses agree.
fn fusible_boundaries(program: &Program) -> HashSet<Boundary> {
    let mut boundaries: HashSet<Boundary> = program
        .buffers
        .iter()
        .flat_map(|(id, buffer)| (1..buffer.shape.len()).map(move |axis| (id, axis - 1)))
        .collect();
    loop {
        let before = boundaries.len();
        for (_, block) in program.blocks.iter() {
            let pairs = fused_pairs(program, block, &boundaries);
            for (buffer, indices) in accesses(block) {
                for axis in 1..indices.len() {
                    let fusible = match pair_of(&indices[axis - 1], &indices[axis]) {
                        Some(pair) => pairs.contains(&pair),
                        None => both_zero(program, buffer, axis, &indices),
                    };
                    if !fusible {
                        boundaries.remove(&(buffer, axis - 1));
                    }
                }
            }
        }
        if boundaries.len() == before {
            return boundaries;
        }
    }
}

fn both_zero(program: &Program, buffer: BufferId, axis: usize, indices: &[Expr]) -> bool {
    let shape = &program.buffers[buffer].shape;
    let zero = |axis: usize| shape[axis] == 1 && indices[axis] == Expr::Integer(0);
    zero(axis - 1) && zero(axis)
}

fn pair_of(first: &Expr, second: &Expr) -> Option<(VarId, VarId)> {
    match (first, second) {
        (Expr::Var(first), Expr::Var(second)) => Some((*first, *second)),
        _ => None,
    }
}

/// Neighbouring axes of a block that occur only as pairs across boundaries in `boundaries`.
fn fused_pairs(
    program: &Program,
    block: &Block,
    boundaries: &HashSet<Boundary>,
) -> HashSet<(VarId, VarId)> {
    let neighbours = block.iterators.windows(2).filter(|pair| pair[0].kind == pair[1].kind);
    neighbours
        .filter(|pair| {
            let (first, second) = (pair[0].var, pair[1].var);
            let mut paired = 0;
            for (buffer, indices) in accesses(block) {
                for axis in 1..indices.len() {
                    let shape = &program.buffers[buffer].shape;
                    let whole = shape[axis - 1] == pair[0].extent && shape[axis] == pair[1].extent;
                    let same = pair_of(&indices[axis - 1], &indices[axis]) == Some((first, second));
                    if same && whole && boundaries.contains(&(buffer, axis - 1)) {
                        paired += 1;
                    }
                }
            }
            mentions(block, first) == paired && mentions(block, second) == paired
        })
        .map(|pair| (pair[0].var, pair[1].var))
        .collect()
}

/// How often a block's expressions mention a variable.
fn mentions(block: &Block, var: VarId) -> usize {
    let mut count = 0;
    let mut visit = |expr: &Expr| {
        expr.visit(&mut |part| {
            count += usize::from(matches!(part, Expr::Var(other) if *other == var))
        });
    };
    block.indices.iter().for_each(&mut visit);
    match &block.body {
        BlockBody::Map(value) => visit(value),
        BlockBody::Reduce { value, initial, .. } => {
            visit(value);
            initial.iter().for_each(visit);
        }
    }
    count
}

/// Every access of a block: its store, then its loads.
fn accesses(block: &Block) -> Vec<(BufferId, Vec<Expr>)> {
    let mut accesses = vec![(block.buffer, block.indices.clone())];
    let mut visit = |expr: &Expr| {
        if let Expr::Load(buffer, indices) = expr {
            accesses.push((*buffer, indices.clone()));
        }
    };
    match &block.body {
        BlockBody::Map(value) => value.visit(&mut visit),
        BlockBody::Reduce { value, initial, .. } => {
            value.visit(&mut visit);
            initial.iter().for_each(|initial| initial.visit(&mut visit));
        }
    }
    accesses
}

/// The first set of linked boundaries that can be removed at once.
fn first_connected(program: &Program, boundaries: &HashSet<Boundary>) -> Option<HashSet<Boundary>> {
    let mut order: Vec<Boundary> = boundaries.iter().copied().collect();
    order.sort_unstable();
    order.into_iter().map(|boundary| connected(program, boundary)).find(is_plain)
}

/// All boundaries that accesses link, directly or not, to `boundary`.
fn connected(program: &Program, boundary: Boundary) -> HashSet<Boundary> {
    let mut removed: HashSet<Boundary> = HashSet::from([boundary]);
    loop {
        let before = removed.len();
        for (_, block) in program.blocks.iter() {
            let linked: HashSet<(VarId, VarId)> = accesses(block)
                .iter()
                .flat_map(|(buffer, indices)| pairs_at(*buffer, indices, &removed))
                .collect();
            for (buffer, indices) in accesses(block) {
                for axis in 1..indices.len() {
                    let pair = pair_of(&indices[axis - 1], &indices[axis]);
                    if pair.is_some_and(|pair| linked.contains(&pair)) {
                        removed.insert((buffer, axis - 1));
                    }
                }
            }
        }
        if removed.len() == before {
            return removed;
        }
    }
}

fn pairs_at(
    buffer: BufferId,
    indices: &[Expr],
    boundaries: &HashSet<Boundary>,
) -> Vec<(VarId, VarId)> {
    (1..indices.len())
        .filter(|axis| boundaries.contains(&(buffer, axis - 1)))
        .filter_map(|axis| pair_of(&indices[axis - 1], &indices[axis]))
        .collect()
}

/// Whether no buffer loses two boundaries in a row; such a set is left unchanged.
fn is_plain(boundaries: &HashSet<Boundary>) -> bool {
    boundaries.iter().all(|(buffer, axis)| {
        !axis.checked_sub(1).is_some_and(|before| boundaries.contains(&(*buffer, before)))
    })
}

/// The program with the given boundaries removed.
fn rebuild(program: &Program, boundaries: &HashSet<Boundary>) -> Program {
    let mut builder = Builder::new();
    let mut buffers: HashMap<BufferId, BufferId> = HashMap::new();
    for parameter in program.parameters() {
        let buffer = &program.buffers[parameter];
        if matches!(buffer.role, Role::Input(_)) {
            let fused = fused_type(program, parameter, boundaries);
            buffers.insert(parameter, builder.input(&buffer.name, &fused));
        }
    }
    for (_, block) in program.blocks.iter() {
        let rebuilt = rebuild_block(program, block, boundaries, &buffers, &mut builder);
        buffers.insert(block.buffer, rebuilt);
    }
    for parameter in program.parameters() {
        if matches!(program.buffers[parameter].role, Role::Output(_)) {
            builder.output(buffers[&parameter]);
        }
    }
    builder.finish()
}

fn fused_type(program: &Program, id: BufferId, boundaries: &HashSet<Boundary>) -> TensorType {
    let buffer = &program.buffers[id];
    let mut shape: Vec<usize> = Vec::new();
    for (axis, extent) in buffer.shape.iter().enumerate() {
        match shape.last_mut() {
            Some(last) if boundaries.contains(&(id, axis - 1)) => *last *= extent,
            _ => shape.push(*extent),
        }
    }
    TensorType::new(buffer.dtype, shape)
}

fn rebuild_block(
    program: &Program,
    block: &Block,
    boundaries: &HashSet<Boundary>,
    buffers: &HashMap<BufferId, BufferId>,
    builder: &mut Builder,
) -> BufferId {
    let pairs: HashSet<(VarId, VarId)> = accesses(block)
        .iter()
        .flat_map(|(buffer, indices)| pairs_at(*buffer, indices, boundaries))
        .collect();
    // For each old axis: the new one's position among its kind, or `None` for the second of a pair.
    let mut positions: HashMap<VarId, Option<usize>> = HashMap::new();
    let mut extents: [Vec<usize>; 2] = [vec![], vec![]];
    for (axis, iterator) in block.iterators.iter().enumerate() {
        let list = &mut extents[usize::from(iterator.kind == IteratorKind::Reduction)];
        let before = axis.checked_sub(1).map(|before| block.iterators[before].var);
        if before.is_some_and(|before| pairs.contains(&(before, iterator.var))) {
            if let Some(last) = list.last_mut() {
                *last *= iterator.extent;
            }
            positions.insert(iterator.var, None);
        } else {
            positions.insert(iterator.var, Some(list.len()));
            list.push(iterator.extent);
        }
    }
    let reduction_vars: HashSet<VarId> = block
        .iterators
        .iter()
        .filter(|iterator| iterator.kind == IteratorKind::Reduction)
        .map(|iterator| iterator.var)
        .collect();
    let translate = |expr: &Expr, spatial: &[Expr], reduced: &[Expr]| {
        let vars = |var: VarId| {
            let list = if reduction_vars.contains(&var) { reduced } else { spatial };
            positions.get(&var).copied().flatten().map(|position| list[position].clone())
        };
        translate(expr, boundaries, buffers, &vars)
    };
    let output = fused_type(program, block.buffer, boundaries);
    match &block.body {
        BlockBody::Map(value) => {
            builder.map(&block.name, &output, |point| translate(value, point, &[]))
        }
        BlockBody::Reduce { combiner, value, .. } => {
            builder.reduce(&block.name, &output, &extents[1], *combiner, |point, reduced| {
                translate(value, point, reduced)
            })
        }
    }
}

fn translate(
    expr: &Expr,
    boundaries: &HashSet<Boundary>,
    buffers: &HashMap<BufferId, BufferId>,
    vars: &dyn Fn(VarId) -> Option<Expr>,
) -> Expr {
    match expr {
        Expr::Var(var) => vars(*var).unwrap_or_else(|| expr.clone()),
        Expr::Load(buffer, indices) => {
            let kept = indices.iter().enumerate().filter(|(axis, _)| {
                !axis.checked_sub(1).is_some_and(|before| boundaries.contains(&(*buffer, before)))
            });
            let indices =
                kept.map(|(_, index)| translate(index, boundaries, buffers, vars)).collect();
            Expr::Load(buffers[buffer], indices)
        }
        _ => expr.map_operands(&mut |operand| translate(operand, boundaries, buffers, vars)),
    }
}
