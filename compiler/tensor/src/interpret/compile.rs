//! Turns a program into a form that runs quickly: iterators replaced by their bindings, integer and
//! floating-point expressions apart, sums of variables flat.

use super::evaluate::{Float, Int, Value};
use super::{Address, InterpretError};
use crate::sum::Sum;
use crate::{
    Axis, BinaryOp, Block, BlockBody, BlockId, BufferId, Combiner, Domain, Expr, IteratorKind,
    Launch, Level, LoopKind, Program, Realize, Scope, Statement, UnaryOp,
};
use hone_types::{DataType, Id};

pub(super) enum Node {
    Loop {
        slot: usize,
        extent: Int,
        body: Vec<Node>,
        /// Whether a `sync` is inside.
        waits: bool,
    },
    /// A parallel loop, and the memory of one thread used in it.
    Parallel {
        slot: usize,
        extent: Int,
        private: Vec<BufferId>,
        body: Vec<Node>,
    },
    /// A loop over blocks of a device, with what is below it.
    Launch(Box<Launched>),
    /// A loop over the lanes of a block: each runs the iteration of its place.
    Lanes {
        slot: usize,
        dimension: usize,
        extent: usize,
        body: Vec<Node>,
        waits: bool,
    },
    /// What runs where a condition holds.
    Where {
        condition: Int,
        body: Vec<Node>,
    },
    Sync,
    Action(Box<Action>),
}

impl Node {
    fn no_op() -> Self {
        Node::Loop { slot: 0, extent: Int::Constant(0), body: vec![], waits: false }
    }

    /// Whether lanes wait for each other in it.
    pub(super) fn waits(&self) -> bool {
        match self {
            Node::Loop { waits, .. } | Node::Lanes { waits, .. } => *waits,
            Node::Sync => true,
            Node::Parallel { .. } | Node::Launch(_) | Node::Where { .. } | Node::Action(_) => false,
        }
    }
}

/// A launch.
pub(super) struct Launched {
    /// Variables of the loops over blocks, with their extents.
    pub(super) grid: Vec<(usize, i64)>,
    pub(super) lanes: [usize; 3],
    pub(super) blocks: Vec<BlockId>,
    pub(super) shared: Vec<BufferId>,
    /// Memory of one lane.
    pub(super) private: Vec<BufferId>,
    pub(super) body: Vec<Node>,
}

/// One block at its place.
pub(super) struct Action {
    pub(super) block: BlockId,
    pub(super) predicate: Option<Int>,
    pub(super) target: Address,
    pub(super) dtype: DataType,
    pub(super) update: Update,
    /// Dimensions of the launch's lanes along which the first one runs it alone.
    pub(super) first_along: [bool; 3],
}

pub(super) enum Update {
    Store(Value),
    Combine { combiner: Combiner, first: Vec<Int>, initial: Option<Value>, value: Value },
}

pub(super) fn program(program: &Program) -> Result<Vec<Node>, InterpretError> {
    Compiler { program, first_along: [false; 3] }.statements(&program.body, &Domain::default())
}

#[derive(Clone, Copy)]
struct Compiler<'a> {
    program: &'a Program,
    /// Dimensions of the launch's lanes that no loop around is bound to.
    first_along: [bool; 3],
}

impl Compiler<'_> {
    fn statements(&self, body: &[Statement], domain: &Domain) -> Result<Vec<Node>, InterpretError> {
        body.iter().map(|statement| self.statement(statement, domain)).collect()
    }

    fn statement(&self, statement: &Statement, domain: &Domain) -> Result<Node, InterpretError> {
        match statement {
            Statement::Loop(own) => {
                let extent = self.int(&own.extent).map_err(|reason| {
                    let block = format!("loop {}", own.var);
                    InterpretError::Malformed { block, reason }
                })?;
                let mut inner = domain.clone();
                inner.push(own.var, &own.extent);
                let slot = own.var.index();
                if let Some(axis) = own.axis() {
                    return self.bound(statement, axis, (slot, extent), domain);
                }
                let mut body = self.statements(&own.body, &inner)?;
                if let Some(limit) = self.program.limit_of(own.var) {
                    let condition = self.int(&limit.condition()).map_err(|reason| {
                        let block = format!("the limit of loop {}", own.var);
                        InterpretError::Malformed { block, reason }
                    })?;
                    body = vec![Node::Where { condition, body }];
                }
                if own.kind == LoopKind::Parallel {
                    let private = self.private(statement);
                    return Ok(Node::Parallel { slot, extent, private, body });
                }
                Ok(Node::Loop { slot, extent, body, waits: Launch::waits(statement) })
            }
            Statement::Sync(Level::Block) => Ok(Node::Sync),
            // Launches are in order already.
            Statement::Sync(_) => Ok(Node::no_op()),
            Statement::Realize(realize) => {
                let block = &self.program.blocks[realize.block];
                let action = self.action(realize, block, domain).map_err(|reason| {
                    InterpretError::Malformed { block: block.name.clone(), reason }
                })?;
                Ok(Node::Action(Box::new(action)))
            }
        }
    }

    /// A loop that is bound to a device's axis.
    fn bound(
        &self,
        statement: &Statement,
        axis: Axis,
        (slot, extent): (usize, Int),
        domain: &Domain,
    ) -> Result<Node, InterpretError> {
        let Statement::Loop(own) = statement else { return Ok(Node::no_op()) };
        let mut inner = domain.clone();
        inner.push(own.var, &own.extent);
        let waits = Launch::waits(statement);
        match axis.level {
            Level::Grid => {
                let body = self.statements(&own.body, &inner)?;
                Ok(Node::Loop { slot, extent, body, waits: false })
            }
            Level::Block => self.launch(statement, domain),
            Level::Lane => {
                let dimension = axis.dimension as usize;
                let mut compiler = *self;
                compiler.first_along[dimension] = false;
                let body = compiler.statements(&own.body, &inner)?;
                let extent =
                    own.extent.as_integer().and_then(|extent| usize::try_from(extent).ok());
                Ok(Node::Lanes { slot, dimension, extent: extent.unwrap_or(0), body, waits })
            }
        }
    }

    fn launch(&self, statement: &Statement, domain: &Domain) -> Result<Node, InterpretError> {
        let launch = Launch::of(statement, vec![]);
        let mut inner = domain.clone();
        let mut grid = Vec::new();
        for own in &launch.blocks {
            inner.push(own.var, &own.extent);
            grid.push((own.var.index(), own.extent.as_integer().unwrap_or(0)));
        }
        let lanes = launch.lanes();
        let compiler = Compiler { first_along: lanes.map(|extent| extent > 1), ..*self };
        let private = self.private(statement).into_iter();
        let (shared, private) =
            private.partition(|own| self.program.buffers[*own].scope == Scope::Shared);
        Ok(Node::Launch(Box::new(Launched {
            grid,
            lanes,
            blocks: statement.blocks(),
            shared,
            private,
            body: compiler.statements(launch.body, &inner)?,
        })))
    }

    /// The memory of one thread that is written below a statement.
    fn private(&self, statement: &Statement) -> Vec<BufferId> {
        let written = statement.blocks().into_iter().map(|block| self.program.blocks[block].buffer);
        let mut private: Vec<BufferId> =
            written.filter(|own| self.program.buffers[*own].scope != Scope::Global).collect();
        private.sort_unstable();
        private.dedup();
        private
    }

    fn action(&self, realize: &Realize, block: &Block, domain: &Domain) -> Result<Action, String> {
        if realize.bindings.len() != block.iterators.len() {
            return Err("not one binding per iterator".to_string());
        }
        let resolve = |expr: &Expr| realize.resolve(block, expr, domain);
        let indices: Vec<Expr> = block.indices.iter().map(resolve).collect();
        let dtype = self.program.buffers[block.buffer].dtype;
        let update = match &block.body {
            BlockBody::Map(value) => Update::Store(self.value(&resolve(value), dtype)?),
            BlockBody::Reduce { combiner, initial, value } => {
                let reductions = block.iterators.iter().zip(&realize.bindings);
                let first = reductions
                    .filter(|(iterator, _)| iterator.kind == IteratorKind::Reduction)
                    .map(|(_, binding)| self.int(&domain.simplify(binding)));
                let initial = initial.as_ref().map(|initial| self.value(&resolve(initial), dtype));
                Update::Combine {
                    combiner: *combiner,
                    first: first.collect::<Result<_, _>>()?,
                    initial: initial.transpose()?,
                    value: self.value(&resolve(value), dtype)?,
                }
            }
        };
        Ok(Action {
            block: realize.block,
            first_along: self.first_along,
            predicate: realize.predicate.as_ref().map(|own| self.int(own)).transpose()?,
            target: self.address(block.buffer, &indices)?,
            dtype,
            update,
        })
    }

    /// A value to be stored as `dtype`.
    fn value(&self, expr: &Expr, dtype: DataType) -> Result<Value, String> {
        let own = expr.dtype(self.program);
        if own != dtype {
            return Err(format!("a value of {own} is stored as {dtype}: cast it"));
        }
        self.any(expr)
    }

    fn any(&self, expr: &Expr) -> Result<Value, String> {
        match expr.dtype(self.program).is_float() {
            true => self.float(expr).map(Value::Float),
            false => self.int(expr).map(Value::Int),
        }
    }

    fn address(&self, buffer: BufferId, indices: &[Expr]) -> Result<Address, String> {
        let own = &self.program.buffers[buffer];
        if own.shape.len() != indices.len() {
            let (name, rank, given) = (&own.name, own.shape.len(), indices.len());
            return Err(format!("'{name}' has {rank} axes and is accessed with {given} indices"));
        }
        Ok(Address {
            buffer,
            indices: indices.iter().map(|index| self.int(index)).collect::<Result<_, _>>()?,
            shape: own.shape.iter().map(|extent| *extent as i64).collect(),
        })
    }

    fn float(&self, expr: &Expr) -> Result<Float, String> {
        Ok(match expr {
            Expr::Constant(value, dtype) => Float::Constant(super::memory::round(*dtype, *value)),
            Expr::Load(buffer, indices) => Float::Load(self.address(*buffer, indices)?),
            Expr::Unary(op, operand) => Float::Unary(*op, Box::new(self.float(operand)?)),
            Expr::Binary(op, left, right) => Float::Binary(
                *op,
                Box::new(self.float(left)?),
                Box::new(self.float_operand(right)?),
            ),
            Expr::Select(condition, then, otherwise) => Float::Select(
                Box::new(self.int(condition)?),
                Box::new(self.float(then)?),
                Box::new(self.float_operand(otherwise)?),
            ),
            Expr::Cast(dtype, operand) => match self.any(operand)? {
                Value::Float(value) => Float::Round(*dtype, Box::new(value)),
                Value::Int(value) => {
                    let unsigned = operand.dtype(self.program) == DataType::U64;
                    Float::FromInt(*dtype, unsigned, Box::new(value))
                }
            },
            Expr::Integer(_) | Expr::Var(_) => return Err("an index is used as a number".into()),
        })
    }

    fn float_operand(&self, expr: &Expr) -> Result<Float, String> {
        match expr.dtype(self.program).is_float() {
            true => self.float(expr),
            false => Err("operands of one operation differ in type".into()),
        }
    }

    fn int(&self, expr: &Expr) -> Result<Int, String> {
        let dtype = expr.dtype(self.program);
        if dtype.is_float() {
            return Err("a floating-point value is used as an integer".into());
        }
        Ok(match expr {
            Expr::Integer(value) => Int::Constant(*value),
            Expr::Constant(value, _) if dtype == DataType::U64 => {
                Int::Constant(*value as u64 as i64)
            }
            Expr::Constant(value, _) => Int::Constant(*value as i64),
            Expr::Var(var) => Int::Linear(0, vec![(var.index(), 1)]),
            Expr::Load(buffer, indices) => Int::Load(self.address(*buffer, indices)?),
            Expr::Unary(op @ (UnaryOp::IsNan | UnaryOp::IsInfinite), operand) => {
                match self.any(operand)? {
                    Value::Float(value) => Int::Classify(*op, Box::new(value)),
                    Value::Int(_) => Int::Constant(0),
                }
            }
            Expr::Unary(op, operand) => Int::Unary(*op, dtype, Box::new(self.int(operand)?)),
            Expr::Binary(op, left, right) => match linear(expr) {
                Some(linear) => linear,
                None => self.int_binary(*op, left, right)?,
            },
            Expr::Select(condition, then, otherwise) => Int::Select(
                Box::new(self.int(condition)?),
                Box::new(self.int(then)?),
                Box::new(self.int(otherwise)?),
            ),
            Expr::Cast(_, operand) => match self.any(operand)? {
                Value::Float(value) => Int::FromFloat(dtype, Box::new(value)),
                Value::Int(value) => {
                    let from = operand.dtype(self.program);
                    Int::Convert { from, to: dtype, value: Box::new(value) }
                }
            },
        })
    }

    fn int_binary(&self, op: BinaryOp, left: &Expr, right: &Expr) -> Result<Int, String> {
        let dtype = left.dtype(self.program);
        Ok(match (self.any(left)?, self.any(right)?) {
            (Value::Float(left), Value::Float(right)) => {
                Int::Compare(op, Box::new(left), Box::new(right))
            }
            (Value::Int(left), Value::Int(right)) => {
                Int::Binary(op, dtype, Box::new(left), Box::new(right))
            }
            _ => return Err("operands of one operation differ in type".into()),
        })
    }
}

/// A sum of variables, where the expression is one by its form.
fn linear(expr: &Expr) -> Option<Int> {
    let Expr::Binary(BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply, ..) = expr else {
        return None;
    };
    let sum = Sum::of(expr);
    let terms = sum.terms.iter().map(|(atom, factor)| match atom {
        Expr::Var(var) => Some((var.index(), *factor)),
        _ => None,
    });
    Some(Int::Linear(sum.constant, terms.collect::<Option<_>>()?))
}
