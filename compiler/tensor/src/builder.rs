//! Adds blocks to a program, each under a plain loop nest of its own.

use crate::{
    Block, BlockBody, Buffer, BufferId, Combiner, Expr, Iterator, IteratorKind, Loop, LoopKind,
    Program, Realize, Role, Scope, Statement, VarId,
};
use hone_types::{DataType, TensorType};
use std::collections::HashMap;

/// Iterator variables handed to the closures of [`Builder`], outermost first.
pub type Indices<'a> = &'a [Expr];

/// Builds a program block by block. Operators define themselves through it: each call adds one
/// buffer and the block that computes it, under one loop per iterator, after all earlier ones.
#[derive(Debug, Default)]
pub struct Builder {
    program: Program,
    parameters: usize,
    block_names: HashMap<String, usize>,
    /// Loops that are open, outermost first, with what stands in them.
    open: Vec<(VarId, usize, Vec<Statement>)>,
}

impl Builder {
    /// A builder of an empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a read-only parameter.
    pub fn input(&mut self, name: &str, tensor_type: &TensorType) -> BufferId {
        let role = Role::Input(self.parameters);
        self.parameters += 1;
        self.add_buffer(name, tensor_type, role)
    }

    /// Makes a computed buffer a parameter that the caller receives.
    pub fn output(&mut self, buffer: BufferId) {
        self.program.buffers[buffer].role = Role::Output(self.parameters);
        self.parameters += 1;
    }

    /// Element type and shape of a buffer.
    pub fn tensor_type(&self, buffer: BufferId) -> TensorType {
        let buffer = &self.program.buffers[buffer];
        TensorType::new(buffer.dtype, buffer.shape.clone())
    }

    /// Whether a buffer is the result of a reduction.
    pub fn is_reduced(&self, buffer: BufferId) -> bool {
        let mut blocks = self.program.blocks.iter();
        let own = blocks.find(|(_, block)| block.buffer == buffer);
        own.is_some_and(|(_, block)| matches!(block.body, BlockBody::Reduce { .. }))
    }

    /// Element type of an expression.
    pub fn dtype(&self, expr: &Expr) -> DataType {
        expr.dtype(&self.program)
    }

    /// Computes a new buffer point by point: `buffer[i...] = value(i...)`.
    pub fn map(
        &mut self,
        name: &str,
        tensor_type: &TensorType,
        value: impl FnOnce(Indices) -> Expr,
    ) -> BufferId {
        let spatial = self.iterators(&tensor_type.shape, IteratorKind::Spatial, "i");
        let value = value(&variables(&spatial));
        self.add_block(name, tensor_type, spatial, vec![], BlockBody::Map(value))
    }

    /// Computes a new buffer by reduction: `buffer[i...] = initial` combined with `value(i..., r...)`
    /// over all `r` in the box of extents `reduction`. `initial` is the combiner's identity.
    pub fn reduce(
        &mut self,
        name: &str,
        tensor_type: &TensorType,
        reduction: &[usize],
        combiner: Combiner,
        value: impl FnOnce(Indices, Indices) -> Expr,
    ) -> BufferId {
        let spatial = self.iterators(&tensor_type.shape, IteratorKind::Spatial, "i");
        let reduced = self.iterators(reduction, IteratorKind::Reduction, "r");
        let value = value(&variables(&spatial), &variables(&reduced));
        let initial = Some(combiner.identity(tensor_type.dtype));
        let body = BlockBody::Reduce { combiner, initial, value };
        self.add_block(name, tensor_type, spatial, reduced, body)
    }

    /// Opens a loop: blocks that are added until [`Builder::end_loop`] stand in it, one after another,
    /// and are computed anew in each of its iterations. Gives its variable, which their expressions
    /// may mention.
    pub fn begin_loop(&mut self, name: &str, extent: usize) -> Expr {
        let var = self.program.add_var(name);
        self.open.push((var, extent, vec![]));
        Expr::Var(var)
    }

    /// Closes the loop that was opened last.
    pub fn end_loop(&mut self) {
        if let Some((var, extent, body)) = self.open.pop() {
            let (extent, kind) = (Expr::from(extent), LoopKind::Serial);
            self.place(Statement::Loop(Box::new(Loop { var, extent, kind, body })));
        }
    }

    /// Adds a buffer that [`Builder::store`] computes later: blocks before may read what earlier
    /// iterations of an open loop store in it.
    pub fn reserve(&mut self, name: &str, tensor_type: &TensorType) -> BufferId {
        self.add_buffer(name, tensor_type, Role::Temporary)
    }

    /// Computes, in each iteration of the open loops, one slice of a reserved buffer:
    /// `buffer[at, i...] = value(i...)` for all `i` in `shape`.
    pub fn store(
        &mut self,
        name: &str,
        buffer: BufferId,
        at: Expr,
        shape: &[usize],
        value: impl FnOnce(Indices) -> Expr,
    ) {
        let spatial = self.iterators(shape, IteratorKind::Spatial, "i");
        let points = variables(&spatial);
        let value = value(&points);
        let indices = std::iter::once(at).chain(points).collect();
        self.add_nest(name, buffer, spatial, indices, BlockBody::Map(value));
    }

    /// Computes, in each iteration of the open loops, elements of a reserved buffer, wherever they lie:
    /// `element` gives for each `i` in `shape` the indices of one, and its value.
    pub fn store_elements(
        &mut self,
        name: &str,
        buffer: BufferId,
        shape: &[usize],
        element: impl FnOnce(Indices) -> (Vec<Expr>, Expr),
    ) {
        let spatial = self.iterators(shape, IteratorKind::Spatial, "i");
        let (indices, value) = element(&variables(&spatial));
        self.add_nest(name, buffer, spatial, indices, BlockBody::Map(value));
    }

    /// Computes a new buffer point by point, in order: `buffer[i...] = value(i..., buffer)`, where the
    /// value may read what earlier points stored.
    pub fn scan(
        &mut self,
        name: &str,
        tensor_type: &TensorType,
        value: impl FnOnce(Indices, BufferId) -> Expr,
    ) -> BufferId {
        let buffer = self.add_buffer(name, tensor_type, Role::Temporary);
        let spatial = self.iterators(&tensor_type.shape, IteratorKind::Spatial, "i");
        let points = variables(&spatial);
        let value = value(&points, buffer);
        self.add_nest(name, buffer, spatial, points, BlockBody::Map(value));
        buffer
    }

    /// The program; loops that are still open are closed.
    pub fn finish(mut self) -> Program {
        while !self.open.is_empty() {
            self.end_loop();
        }
        self.program
    }

    /// Puts a statement after all others.
    fn place(&mut self, statement: Statement) {
        match self.open.last_mut() {
            Some((_, _, body)) => body.push(statement),
            None => self.program.body.push(statement),
        }
    }

    fn add_buffer(&mut self, name: &str, tensor_type: &TensorType, role: Role) -> BufferId {
        self.program.buffers.push(Buffer {
            name: name.to_string(),
            dtype: tensor_type.dtype,
            shape: tensor_type.shape.clone(),
            role,
            scope: Scope::Global,
        })
    }

    fn iterators(&mut self, extents: &[usize], kind: IteratorKind, prefix: &str) -> Vec<Iterator> {
        let program = &mut self.program;
        let named = extents.iter().enumerate();
        named
            .map(|(axis, extent)| {
                let var = program.add_var(format!("{prefix}{axis}"));
                Iterator { var, extent: *extent, kind }
            })
            .collect()
    }

    fn add_block(
        &mut self,
        name: &str,
        tensor_type: &TensorType,
        spatial: Vec<Iterator>,
        reduction: Vec<Iterator>,
        body: BlockBody,
    ) -> BufferId {
        let buffer = self.add_buffer(name, tensor_type, Role::Temporary);
        let indices = variables(&spatial);
        let iterators: Vec<Iterator> = spatial.into_iter().chain(reduction).collect();
        self.add_nest(name, buffer, iterators, indices, body);
        buffer
    }

    /// Adds a block under one loop for each iterator.
    fn add_nest(
        &mut self,
        name: &str,
        buffer: BufferId,
        iterators: Vec<Iterator>,
        indices: Vec<Expr>,
        body: BlockBody,
    ) {
        let name = self.unique_block_name(name);
        let loops: Vec<(VarId, usize)> = iterators
            .iter()
            .map(|iterator| {
                let name = self.program.vars[iterator.var].name.clone();
                (self.program.add_var(format!("{name}_loop")), iterator.extent)
            })
            .collect();
        let block = self.program.blocks.push(Block { name, iterators, buffer, indices, body });
        let bindings = loops.iter().map(|(var, _)| Expr::Var(*var)).collect();
        let realize = Statement::Realize(Realize { block, bindings, predicate: None });
        let nest = loops.into_iter().rev().fold(realize, |body, (var, extent)| {
            let (extent, kind) = (Expr::from(extent), LoopKind::Serial);
            Statement::Loop(Box::new(Loop { var, extent, kind, body: vec![body] }))
        });
        self.place(nest);
    }

    fn unique_block_name(&mut self, name: &str) -> String {
        let count = self.block_names.entry(name.to_string()).or_insert(0);
        *count += 1;
        if *count == 1 { name.to_string() } else { format!("{name}.{count}") }
    }
}

fn variables(iterators: &[Iterator]) -> Vec<Expr> {
    iterators.iter().map(|iterator| Expr::Var(iterator.var)).collect()
}

impl Combiner {
    /// The value that changes nothing when combined, in type `dtype`.
    pub fn identity(self, dtype: DataType) -> Expr {
        let value = match self {
            Combiner::Sum => 0.0,
            Combiner::Product => 1.0,
            Combiner::Maximum => least(dtype),
            Combiner::Minimum => largest(dtype),
        };
        Expr::Constant(value, dtype)
    }

    /// `a` combined with `b`.
    pub fn combine(self, a: Expr, b: Expr) -> Expr {
        use crate::BinaryOp::{Add, Maximum, Minimum, Multiply};
        let op = match self {
            Combiner::Sum => Add,
            Combiner::Product => Multiply,
            Combiner::Maximum => Maximum,
            Combiner::Minimum => Minimum,
        };
        a.binary(op, b)
    }
}

/// The least value of a type: negative infinity for floats. The 64-bit limits are not exact in
/// `f64`; conversion saturates, so they come out right.
fn least(dtype: DataType) -> f64 {
    match dtype {
        DataType::I8 => f64::from(i8::MIN),
        DataType::I16 => f64::from(i16::MIN),
        DataType::I32 => f64::from(i32::MIN),
        DataType::I64 => i64::MIN as f64,
        DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64 | DataType::Bool => 0.0,
        DataType::F32 | DataType::F64 | DataType::F16 | DataType::BF16 => f64::NEG_INFINITY,
    }
}

/// The largest value of a type: infinity for floats.
fn largest(dtype: DataType) -> f64 {
    match dtype {
        DataType::I8 => f64::from(i8::MAX),
        DataType::I16 => f64::from(i16::MAX),
        DataType::I32 => f64::from(i32::MAX),
        DataType::I64 => i64::MAX as f64,
        DataType::U8 => f64::from(u8::MAX),
        DataType::U16 => f64::from(u16::MAX),
        DataType::U32 => f64::from(u32::MAX),
        DataType::U64 => u64::MAX as f64,
        DataType::Bool => 1.0,
        DataType::F32 | DataType::F64 | DataType::F16 | DataType::BF16 => f64::INFINITY,
    }
}
