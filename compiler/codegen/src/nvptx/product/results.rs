//! What is done with each sum of a product.

use super::emit::{Origin, Product};
use crate::Target;
use crate::error::Result;
use crate::llvm::emitter::Emitter;
use crate::llvm::environment::{Binding, Environment};
use crate::llvm::ir::V;
use hone_tensor::{BufferId, Expr, Program, Range, Realize, Scope, VarId};
use inkwell::values::PointerValue;
use std::collections::HashMap;

/// Computes and stores the results of a lane's sums, which are by rows of 16, columns of 8, and register.
pub(super) fn store<'c>(
    product: &Product<'_, 'c>,
    program: &Program,
    target: &Target,
    mut buffers: HashMap<BufferId, PointerValue<'c>>,
    sums: &[V<'c>],
    origin: Origin<'c>,
) -> Result<()> {
    let (ir, form, [rows, columns]) = (product.ir, product.form, product.tiles.warp);
    let program = with_one_sum(program, form.sums, form.store);
    let dtype = program.buffers[form.sums].dtype;
    let sum = ir.builder.build_alloca(ir.memory_type(dtype), "")?;
    buffers.insert(form.sums, sum);
    let mut environment = Environment::new(program.vars.len());
    let iterators = &program.blocks[form.store].iterators;
    let mut bindings: Vec<Expr> = iterators.iter().map(|_| Expr::Integer(0)).collect();
    for (number, (axis, extent)) in form.batch.iter().enumerate() {
        let var = environment.fresh();
        let range = Range::extent(*extent as i64);
        environment.bind(var, Binding::Running(product.along_batch(number)?, range));
        bindings[*axis] = Expr::Var(var);
    }
    // What is added to the first row and column of a lane is below what its warp has.
    let first = [(origin.row, rows - 8), (origin.column, columns - 7)];
    let mut vars: Vec<VarId> = Vec::new();
    for ((value, added), extent) in first.into_iter().zip(form.extents) {
        let var = environment.fresh();
        let range = Range { min: 0, max: (extent - 1 - added) as i64 };
        environment.bind(var, Binding::Running(value, range));
        vars.push(var);
    }
    let zero = ir.i64(0);
    let mut emitter = Emitter {
        ir,
        program: &program,
        target,
        symbol: &product.kernel.name,
        function: product.function,
        environment,
        buffers,
        moves_pointers: false,
        loops: Vec::new(),
        streams: vec![],
        mask: None,
        active: None,
        conditional: false,
        group: false,
        tasks: (zero, zero),
        tiles: None,
        configured: vec![],
        device: None,
    };
    for (number, value) in sums.iter().enumerate() {
        let (tile, register) = (number / 4, number % 4);
        let row = 16 * (tile / (columns / 8)) + 8 * (register / 2);
        let column = 8 * (tile % (columns / 8)) + register % 2;
        for (axis, (var, added)) in form.axes.iter().zip(vars.iter().zip([row, column])) {
            bindings[*axis] = Expr::Var(*var) + added;
        }
        ir.store(sum, *value, 4)?;
        let realize = Realize { block: form.store, bindings: bindings.clone(), predicate: None };
        emitter.realize(&realize)?;
    }
    Ok(())
}

/// The program with one sum, in a register, in place of all.
fn with_one_sum(program: &Program, sums: BufferId, store: hone_tensor::BlockId) -> Program {
    let mut program = program.clone();
    program.buffers[sums].shape = vec![1];
    program.buffers[sums].scope = Scope::Register;
    program.blocks[store].map_expressions(&mut |expr| first_of(expr, sums));
    program
}

fn first_of(expr: &Expr, sums: BufferId) -> Expr {
    match expr {
        Expr::Load(buffer, _) if *buffer == sums => Expr::Load(sums, vec![Expr::Integer(0)]),
        _ => expr.map_operands(&mut |operand| first_of(operand, sums)),
    }
}
