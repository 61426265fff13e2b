//! What of a program runs as one launch on a device: the loops over blocks, and what each block does.
//!
//! A top-level statement is a launch, as is each statement in the body of a loop that is bound to the
//! grid. A statement without bound loops is a launch of one block of one lane.

use crate::{Axis, Expr, Level, Loop, LoopKind, Program, Scope, Statement, VarId};

/// One launch.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The loops bound to the grid around it, outermost first: it is launched for each of their
    /// iterations.
    pub repeated: Vec<&'a Loop>,
    /// The loops over its blocks, outermost first.
    pub blocks: Vec<&'a Loop>,
    /// What each block does.
    pub body: &'a [Statement],
}

impl Loop {
    /// The axis it is bound to.
    pub fn axis(&self) -> Option<Axis> {
        match self.kind {
            LoopKind::Bound(axis) => Some(axis),
            _ => None,
        }
    }

    /// Whether it is bound to an axis of this level.
    pub fn is_bound_to(&self, level: Level) -> bool {
        self.axis().is_some_and(|axis| axis.level == level)
    }
}

impl Program {
    /// The launches of the program in the order in which they first run.
    pub fn launches(&self) -> Vec<Launch<'_>> {
        let mut launches = Vec::new();
        collect(&self.body, &mut vec![], &mut launches);
        launches
    }

    /// Whether anything of it is made for a device: bound loops, `sync`s or shared memory.
    pub fn is_bound(&self) -> bool {
        let mut bound = self.buffers.iter().any(|(_, own)| own.scope == Scope::Shared);
        for statement in &self.body {
            statement.visit(&mut |statement| {
                bound |= match statement {
                    Statement::Loop(own) => own.axis().is_some(),
                    Statement::Sync(_) => true,
                    Statement::Realize(_) => false,
                };
            });
        }
        bound
    }
}

fn collect<'a>(
    body: &'a [Statement],
    repeated: &mut Vec<&'a Loop>,
    launches: &mut Vec<Launch<'a>>,
) {
    for statement in body {
        match statement {
            Statement::Loop(own) if own.is_bound_to(Level::Grid) => {
                repeated.push(own);
                collect(&own.body, repeated, launches);
                repeated.pop();
            }
            // Launches are in order already.
            Statement::Sync(Level::Grid) => {}
            _ => launches.push(Launch::of(statement, repeated.clone())),
        }
    }
}

impl<'a> Launch<'a> {
    /// The launch of a statement below the given loops that are bound to the grid.
    pub fn of(statement: &'a Statement, repeated: Vec<&'a Loop>) -> Self {
        let mut launch = Launch { repeated, blocks: vec![], body: std::slice::from_ref(statement) };
        while let [Statement::Loop(own)] = launch.body
            && own.is_bound_to(Level::Block)
        {
            launch.blocks.push(own);
            launch.body = &own.body;
        }
        launch
    }

    /// Every loop that is bound to an axis of the lanes.
    pub fn lane_loops(&self) -> Vec<&'a Loop> {
        let mut loops = Vec::new();
        for statement in self.body {
            statement.visit(&mut |statement| {
                if let Statement::Loop(own) = statement
                    && own.is_bound_to(Level::Lane)
                {
                    loops.push(&**own);
                }
            });
        }
        loops
    }

    /// Number of blocks along `x`, `y` and `z`.
    pub fn grid(&self) -> [usize; 3] {
        extents(&self.blocks)
    }

    /// Number of lanes of a block along `x`, `y` and `z`: the largest extent of the loops that are bound
    /// to each.
    pub fn lanes(&self) -> [usize; 3] {
        extents(&self.lane_loops())
    }

    /// Whether lanes wait for each other in a statement.
    pub fn waits(statement: &Statement) -> bool {
        let mut waits = false;
        statement.visit(&mut |own| waits |= matches!(own, Statement::Sync(Level::Block)));
        waits
    }

    /// Whether an expression has the same value on all lanes: it mentions neither variables of `lanes` nor
    /// memory.
    pub fn is_uniform(expr: &Expr, lanes: &[VarId]) -> bool {
        let mut uniform = true;
        expr.visit(&mut |part| {
            uniform &= match part {
                Expr::Var(var) => !lanes.contains(var),
                Expr::Load(..) => false,
                _ => true,
            };
        });
        uniform
    }
}

fn extents(loops: &[&Loop]) -> [usize; 3] {
    let mut extents = [1; 3];
    for own in loops {
        if let Some(axis) = own.axis() {
            let extent = own.extent.as_integer().and_then(|extent| usize::try_from(extent).ok());
            let place = &mut extents[axis.dimension as usize];
            *place = (*place).max(extent.unwrap_or(1));
        }
    }
    extents
}
