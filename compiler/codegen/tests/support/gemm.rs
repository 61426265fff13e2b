//! A matrix product scheduled by hand the way the schedules do it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use hone_tensor::{
    BinaryOp, Builder, Combiner, Expr, Loop, LoopKind, Program, Realize, Scope, Statement, VarId,
};
use hone_types::{DataType, TensorType};

/// Sizes of a product and of its register tile.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub rows: usize,
    pub lanes: usize,
    pub vectors: usize,
    pub unroll: usize,
}

/// `c[m, n] = sum over k of a[m, k] * b[n / tile][k][n % tile]`, in plain loops.
pub fn plain(sizes: Sizes) -> Program {
    let tile = sizes.lanes * sizes.vectors;
    let mut builder = Builder::new();
    let float = |shape: Vec<usize>| TensorType::new(DataType::F32, shape);
    let a = builder.input("a", &float(vec![sizes.m, sizes.k]));
    let b = builder.input("b", &float(vec![sizes.n.div_ceil(tile), sizes.k, tile]));
    let out = float(vec![sizes.m, sizes.n]);
    let c = builder.reduce("c", &out, &[sizes.k], Combiner::Sum, |i, r| {
        let width = Expr::from(tile);
        let column = vec![
            i[1].clone().floor_divide(width.clone()),
            r[0].clone(),
            i[1].clone().modulo(width),
        ];
        Expr::Load(a, vec![i[0].clone(), r[0].clone()]) * Expr::Load(b, column)
    });
    builder.output(c);
    builder.finish()
}

/// The plain product, tiled: parallel column tiles, rows, then a register tile over a loop in k.
pub fn scheduled(sizes: Sizes) -> Program {
    let mut program = plain(sizes);
    let tile = sizes.lanes * sizes.vectors;
    let (block, out) = (
        program.block_named("c").unwrap(),
        program.blocks[program.block_named("c").unwrap()].buffer,
    );
    // The block accumulates in registers; another copies the tile out.
    let spatial = program.blocks[block].iterators.clone();
    let mut acc = program.buffers[out].clone();
    acc.name = "acc".to_string();
    acc.scope = Scope::Register;
    acc.role = hone_tensor::Role::Temporary;
    acc.shape = vec![sizes.rows, tile];
    let acc = program.buffers.push(acc);
    let (rows, width) = (Expr::from(sizes.rows), Expr::from(tile));
    let inside = |block: &hone_tensor::Block| {
        vec![
            Expr::Var(block.iterators[0].var).modulo(rows.clone()),
            Expr::Var(block.iterators[1].var).modulo(width.clone()),
        ]
    };
    let copy_iterators: Vec<hone_tensor::Iterator> = spatial[..2]
        .iter()
        .map(|iterator| hone_tensor::Iterator { var: program.add_var("w"), ..iterator.clone() })
        .collect();
    let mut copy = program.blocks[block].clone();
    copy.name = "write".to_string();
    copy.iterators = copy_iterators;
    copy.indices = copy.iterators.iter().map(|iterator| Expr::Var(iterator.var)).collect();
    copy.body = hone_tensor::BlockBody::Map(Expr::Load(acc, inside(&copy)));
    let copy = program.blocks.push(copy);
    let indices = inside(&program.blocks[block]);
    program.blocks[block].buffer = acc;
    program.blocks[block].indices = indices;

    let jo = program.add_var("jo");
    let io = program.add_var("io");
    let row_count = Expr::Integer(sizes.rows as i64)
        .binary(BinaryOp::Minimum, Expr::Integer(sizes.m as i64) - Expr::Var(io) * sizes.rows);
    let column_count = Expr::Integer(tile as i64)
        .binary(BinaryOp::Minimum, Expr::Integer(sizes.n as i64) - Expr::Var(jo) * tile);
    let row = |ii: VarId| Expr::Var(io) * sizes.rows + Expr::Var(ii);
    let column = |ji: VarId| Expr::Var(jo) * tile + Expr::Var(ji);
    let make =
        |var, extent: Expr, kind, body| Statement::Loop(Box::new(Loop { var, extent, kind, body }));
    let (ii, ji, ko, ki) = (
        program.add_var("ii"),
        program.add_var("ji"),
        program.add_var("ko"),
        program.add_var("ki"),
    );
    let k = Expr::Var(ko) * sizes.unroll + Expr::Var(ki);
    let update = Realize { block, bindings: vec![row(ii), column(ji), k], predicate: None };
    let vectors =
        make(ji, column_count.clone(), LoopKind::Vectorized, vec![Statement::Realize(update)]);
    let tile_rows = make(ii, row_count.clone(), LoopKind::Unrolled, vec![vectors]);
    let inner = make(ki, Expr::from(sizes.unroll), LoopKind::Unrolled, vec![tile_rows]);
    let outer = make(ko, Expr::from(sizes.k / sizes.unroll), LoopKind::Serial, vec![inner]);
    let (wi, wj) = (program.add_var("wi"), program.add_var("wj"));
    let write = Realize { block: copy, bindings: vec![row(wi), column(wj)], predicate: None };
    let write = make(wj, column_count, LoopKind::Vectorized, vec![Statement::Realize(write)]);
    let write = make(wi, row_count, LoopKind::Unrolled, vec![write]);
    let rows =
        make(io, Expr::from(sizes.m.div_ceil(sizes.rows)), LoopKind::Serial, vec![outer, write]);
    program.body =
        vec![make(jo, Expr::from(sizes.n.div_ceil(tile)), LoopKind::Parallel, vec![rows])];
    program
}
