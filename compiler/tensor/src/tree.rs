//! Finding one's way in the loop tree.
//!
//! A place in the tree is a *path*: the position in the program's body, then the position in that
//! loop's body, and so on. Paths are for use at once; a change to the tree makes them stale.

use crate::{
    Block, BlockBody, BlockId, BufferId, Domain, Expr, Loop, Program, Realize, Statement, VarId,
};

impl Statement {
    /// Calls `visit` on the statement and everything below it, in order of execution.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Statement)) {
        visit(self);
        if let Statement::Loop(own) = self {
            own.body.iter().for_each(|statement| statement.visit(visit));
        }
    }

    /// The blocks that stand at or below it, in order of execution.
    pub fn blocks(&self) -> Vec<BlockId> {
        let mut blocks = Vec::new();
        self.visit(&mut |statement| {
            if let Statement::Realize(realize) = statement {
                blocks.push(realize.block);
            }
        });
        blocks
    }

    fn find(&self, wanted: &dyn Fn(&Statement) -> bool, path: &mut Vec<usize>) -> bool {
        if wanted(self) {
            return true;
        }
        let Statement::Loop(own) = self else { return false };
        find_in(&own.body, wanted, path)
    }
}

fn find_in(body: &[Statement], wanted: &dyn Fn(&Statement) -> bool, path: &mut Vec<usize>) -> bool {
    for (place, statement) in body.iter().enumerate() {
        path.push(place);
        if statement.find(wanted, path) {
            return true;
        }
        path.pop();
    }
    false
}

impl Program {
    fn find(&self, wanted: &dyn Fn(&Statement) -> bool) -> Option<Vec<usize>> {
        let mut path = Vec::new();
        find_in(&self.body, wanted, &mut path).then_some(path)
    }

    /// The place of a block; `None` where it no longer stands in the tree.
    pub fn find_block(&self, block: BlockId) -> Option<Vec<usize>> {
        self.find(&|statement| matches!(statement, Statement::Realize(own) if own.block == block))
    }

    /// The place of the loop over `var`.
    pub fn find_loop(&self, var: VarId) -> Option<Vec<usize>> {
        self.find(&|statement| matches!(statement, Statement::Loop(own) if own.var == var))
    }

    /// The statement at a place.
    pub fn statement(&self, path: &[usize]) -> Option<&Statement> {
        let (last, above) = path.split_last()?;
        self.body_at(above)?.get(*last)
    }

    /// The statement at a place, for change.
    pub fn statement_mut(&mut self, path: &[usize]) -> Option<&mut Statement> {
        let (last, above) = path.split_last()?;
        self.body_at_mut(above)?.get_mut(*last)
    }

    /// The body of the loop at a place; of the program for the empty path.
    pub fn body_at(&self, path: &[usize]) -> Option<&Vec<Statement>> {
        path.iter().try_fold(&self.body, |body, place| match body.get(*place)? {
            Statement::Loop(own) => Some(&own.body),
            Statement::Realize(_) | Statement::Sync(_) => None,
        })
    }

    /// The body of the loop at a place, for change; of the program for the empty path.
    pub fn body_at_mut(&mut self, path: &[usize]) -> Option<&mut Vec<Statement>> {
        path.iter().try_fold(&mut self.body, |body, place| match body.get_mut(*place)? {
            Statement::Loop(own) => Some(&mut own.body),
            Statement::Realize(_) | Statement::Sync(_) => None,
        })
    }

    /// The loop over `var`.
    pub fn loop_of(&self, var: VarId) -> Option<&Loop> {
        match self.statement(&self.find_loop(var)?)? {
            Statement::Loop(own) => Some(own),
            Statement::Realize(_) | Statement::Sync(_) => None,
        }
    }

    /// The loop over `var`, for change.
    pub fn loop_of_mut(&mut self, var: VarId) -> Option<&mut Loop> {
        let path = self.find_loop(var)?;
        match self.statement_mut(&path)? {
            Statement::Loop(own) => Some(own),
            Statement::Realize(_) | Statement::Sync(_) => None,
        }
    }

    /// A block's one place in the tree.
    pub fn realize_of(&self, block: BlockId) -> Option<&Realize> {
        match self.statement(&self.find_block(block)?)? {
            Statement::Realize(realize) => Some(realize),
            Statement::Loop(_) | Statement::Sync(_) => None,
        }
    }

    /// The loops around the statement at a place, outermost first; the statement is not among them.
    pub fn enclosing(&self, path: &[usize]) -> Vec<&Loop> {
        (1..path.len())
            .filter_map(|depth| match self.statement(&path[..depth]) {
                Some(Statement::Loop(own)) => Some(&**own),
                _ => None,
            })
            .collect()
    }

    /// The loops around a place as a domain: what is known of their variables there.
    pub fn domain_at(&self, path: &[usize]) -> Domain {
        let mut domain = Domain::default();
        self.enclosing(path).into_iter().for_each(|own| domain.push(own.var, &own.extent));
        domain
    }

    /// All blocks of the tree, in order of execution.
    pub fn blocks_in_order(&self) -> Vec<BlockId> {
        self.body.iter().flat_map(Statement::blocks).collect()
    }

    /// Blocks of the tree that write a buffer, in order of execution.
    pub fn writers(&self, buffer: BufferId) -> Vec<BlockId> {
        let mut blocks = self.blocks_in_order();
        blocks.retain(|block| self.blocks[*block].buffer == buffer);
        blocks
    }

    /// Blocks of the tree that load from a buffer, in order of execution.
    pub fn readers(&self, buffer: BufferId) -> Vec<BlockId> {
        let mut blocks = self.blocks_in_order();
        blocks.retain(|block| self.blocks[*block].reads(buffer));
        blocks
    }
}

impl Block {
    /// The expressions of the block: its indices, then those of its body.
    pub fn expressions(&self) -> Vec<&Expr> {
        let mut expressions: Vec<&Expr> = self.indices.iter().collect();
        match &self.body {
            BlockBody::Map(value) => expressions.push(value),
            BlockBody::Reduce { initial, value, .. } => {
                expressions.extend(initial);
                expressions.push(value);
            }
        }
        expressions
    }

    /// Replaces every expression of the block by `change` of it.
    pub fn map_expressions(&mut self, change: &mut dyn FnMut(&Expr) -> Expr) {
        self.indices.iter_mut().for_each(|index| *index = change(index));
        match &mut self.body {
            BlockBody::Map(value) => *value = change(value),
            BlockBody::Reduce { initial, value, .. } => {
                initial.iter_mut().for_each(|initial| *initial = change(initial));
                *value = change(value);
            }
        }
    }

    /// Whether the block loads from `buffer`.
    pub fn reads(&self, buffer: BufferId) -> bool {
        !self.loads(buffer).is_empty()
    }

    /// The indices of every load from `buffer`.
    pub fn loads(&self, buffer: BufferId) -> Vec<&[Expr]> {
        let mut loads = Vec::new();
        for expr in self.expressions() {
            collect_loads(expr, buffer, &mut loads);
        }
        loads
    }

    /// The value of the body: what a map stores, what each point of a reduction contributes.
    pub fn value(&self) -> &Expr {
        match &self.body {
            BlockBody::Map(value) | BlockBody::Reduce { value, .. } => value,
        }
    }
}

fn collect_loads<'a>(expr: &'a Expr, buffer: BufferId, loads: &mut Vec<&'a [Expr]>) {
    if let Expr::Load(own, indices) = expr
        && *own == buffer
    {
        loads.push(indices);
    }
    expr.operands().into_iter().for_each(|operand| collect_loads(operand, buffer, loads));
}

impl Realize {
    /// An expression of the realized block with its iterators replaced by their bindings: over loop
    /// variables only. Simplified by what `domain`, that of the loops around the block, knows; loops
    /// that run once are put in as 0.
    pub fn resolve(&self, block: &Block, expr: &Expr, domain: &Domain) -> Expr {
        let bound = expr.substitute(&|var| {
            let place = block.iterators.iter().position(|iterator| iterator.var == var)?;
            self.bindings.get(place).cloned()
        });
        let once = |var: VarId| domain.range(var).is_some_and(|own| own.min == 0 && own.max == 0);
        domain.simplify(&bound.substitute(&|var| once(var).then_some(Expr::Integer(0))))
    }
}
