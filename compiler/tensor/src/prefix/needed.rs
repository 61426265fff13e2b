//! Which instances of blocks, and which elements of inputs, are needed.

use super::value::{Site, Value};
use super::{Contents, Need, Part, Positions, Prefix, at_least, ways};
use crate::{
    BinaryOp, BlockBody, BlockId, BufferId, Combiner, Expr, IteratorKind, LoopKind, Program, Role,
    Statement, VarId,
};
use hone_types::Id;
use std::collections::BTreeMap;

impl Prefix {
    /// What is needed of a program in the plain loop order, where `outputs` is needed of its outputs, in their order.
    /// `contents` are those of its buffers, `extent` is the bound. Only reductions of the blocks that are `exact` end with
    /// the size: what their operands hold behind it is not needed.
    pub fn of(
        program: &Program,
        (extent, contents): (usize, &[Contents]),
        outputs: &[Need],
        exact: &dyn Fn(BlockId) -> bool,
    ) -> Self {
        let mut needs = vec![Need::Nothing; program.buffers.len()];
        let roles = program.parameters().into_iter();
        let written =
            roles.filter(|buffer| matches!(program.buffers[*buffer].role, Role::Output(_)));
        for (buffer, need) in written.zip(outputs) {
            needs[buffer.index()] = need.clone();
        }
        let (parts, stepped) = (BTreeMap::new(), BTreeMap::new());
        let mut walk = Walk { program, extent, contents, exact, needs, parts, stepped };
        for statement in program.body.iter().rev() {
            let blocks = statement.blocks();
            let reads_itself = |id: &BlockId| program.blocks[*id].reads(program.blocks[*id].buffer);
            match &blocks[..] {
                [id] if !reads_itself(id) => walk.block(*id),
                _ => walk.steps(statement, &blocks),
            }
        }
        let inputs = program.parameters().into_iter();
        let inputs =
            inputs.filter(|buffer| matches!(program.buffers[*buffer].role, Role::Input(_)));
        let inputs = inputs.map(|buffer| walk.needs[buffer.index()].clone()).collect();
        Self { parts: walk.parts, stepped: walk.stepped, buffers: program.buffers.len(), inputs }
    }
}

struct Walk<'a> {
    program: &'a Program,
    extent: usize,
    contents: &'a [Contents],
    exact: &'a dyn Fn(BlockId) -> bool,
    /// Of each buffer, by the readers so far.
    needs: Vec<Need>,
    parts: BTreeMap<BlockId, Part>,
    stepped: BTreeMap<BlockId, Option<VarId>>,
}

impl<'a> Walk<'a> {
    fn block(&mut self, id: BlockId) {
        let block = &self.program.blocks[id];
        let site = Site { program: self.program, block, contents: self.contents };
        let mut part = Part { buffer: Some(block.buffer), ..Part::default() };
        let need = &self.needs[block.buffer.index()];
        if *need == Need::Nothing {
            return;
        }
        let ways = need.ways().iter();
        part.stored =
            ways.filter_map(|own| site.position(block.buffer, &block.indices, *own)).collect();
        // A size is at least one.
        let mut before = vec![Expr::Integer(0)];
        before.extend(part.stored.iter().cloned());
        block.indices.iter().for_each(|index| self.read(&site, index, &before));
        match &block.body {
            BlockBody::Map(value) => self.read(&site, value, &before),
            BlockBody::Reduce { combiner, initial, value } => {
                initial.iter().for_each(|initial| self.read(&site, initial, &before));
                let reduced = block.iterators.iter().filter(|own| {
                    own.kind == IteratorKind::Reduction
                        && own.extent == self.extent
                        && (self.exact)(id)
                        && changes_nothing(&site, *combiner, value, own.var)
                });
                part.reduced = reduced.map(|own| own.var).collect();
                before.extend(part.reduced.iter().map(|var| Expr::Var(*var)));
                self.read(&site, value, &before);
            }
        }
        self.parts.insert(id, part);
    }

    /// Blocks that go in steps. An iteration reads what it and earlier ones stored, never what later ones do. So where all
    /// that is needed of what is stored lies at the position that the iteration is, or behind it, iterations of the size
    /// and more are not needed, and the others read what they read at their position. Else everything is needed.
    fn steps(&mut self, statement: &Statement, blocks: &[BlockId]) {
        let step = self.step(statement, blocks);
        let before: Vec<Expr> = step.iter().map(|step| Expr::Var(*step)).collect();
        for id in blocks {
            let block = &self.program.blocks[*id];
            self.stepped.insert(*id, step);
            if step.is_some() {
                self.read_at_step(*id, &before);
                let part =
                    Part { buffer: Some(block.buffer), stored: before.clone(), ..Part::default() };
                self.parts.insert(*id, part);
                continue;
            }
            let read = |place: &usize| block.reads(BufferId::from_index(*place));
            for place in (0..self.needs.len()).filter(read) {
                self.needs[place] = Need::Everything;
            }
        }
    }

    /// The variable of a loop whose iterations of the size and more are not needed.
    fn step(&self, statement: &Statement, blocks: &[BlockId]) -> Option<VarId> {
        let Statement::Loop(own) = statement else { return None };
        let extent = usize::try_from(own.extent.as_integer()?).ok()?;
        let is_step = own.kind == LoopKind::Serial && extent == self.extent;
        let step = Expr::Var(own.var);
        let is_behind = |id: &BlockId| {
            let block = &self.program.blocks[*id];
            let site = Site { program: self.program, block, contents: self.contents };
            let need = &self.needs[block.buffer.index()];
            *need == Need::Nothing
                || need.ways().iter().any(|way| {
                    let index = site.position(block.buffer, &block.indices, *way);
                    index.is_some_and(|index| at_least(block, &index, &step))
                })
        };
        (is_step && blocks.iter().all(is_behind)).then_some(own.var)
    }

    /// Adds all that a block reads at steps before the size.
    fn read_at_step(&mut self, id: BlockId, before: &[Expr]) {
        let block = &self.program.blocks[id];
        let site = Site { program: self.program, block, contents: self.contents };
        block.indices.iter().for_each(|index| self.read(&site, index, before));
        match &block.body {
            BlockBody::Map(value) => self.read(&site, value, before),
            BlockBody::Reduce { initial, value, .. } => {
                initial.iter().for_each(|initial| self.read(&site, initial, before));
                self.read(&site, value, before);
            }
        }
    }

    /// Adds what an expression reads where each of the indices `before` is less than the size.
    fn read(&mut self, site: &Site<'a>, expr: &Expr, before: &[Expr]) {
        match expr {
            Expr::Load(buffer, indices) => {
                indices.iter().for_each(|index| self.read(site, index, before));
                let need = self.need(site, *buffer, indices, before);
                let known = &mut self.needs[buffer.index()];
                *known = std::mem::take(known).and(need);
            }
            Expr::Select(condition, then, otherwise) => {
                self.read(site, condition, before);
                let mut chosen = before.to_vec();
                implied(site, condition, &mut chosen);
                self.read(site, then, &chosen);
                self.read(site, otherwise, before);
            }
            _ => expr.operands().into_iter().for_each(|operand| self.read(site, operand, before)),
        }
    }

    /// What an access needs of a buffer.
    fn need(&self, site: &Site<'a>, buffer: BufferId, indices: &[Expr], before: &[Expr]) -> Need {
        let mut known: Vec<Positions> = self.needs[buffer.index()].ways().to_vec();
        known.extend(self.needs[site.block.buffer.index()].ways());
        let behind = site.contents(buffer).map(|own| own.behind.iter().map(|own| own.0));
        known.extend(behind.into_iter().flatten());
        let is_before = |positions: &Positions| {
            let index = site.position(buffer, indices, *positions);
            index.is_some_and(|index| before.iter().any(|own| at_least(site.block, own, &index)))
        };
        let ways = ways(self.program, buffer, self.extent, known).into_iter();
        Need::before(ways.filter(is_before).collect())
    }
}

/// Whether terms of a reduction with `var` the size or more change nothing.
fn changes_nothing(site: &Site<'_>, combiner: Combiner, value: &Expr, var: VarId) -> bool {
    let is_float = value.dtype(site.program).is_float();
    match (combiner, site.value(value, Some(&Expr::Var(var)))) {
        (Combiner::Sum, Value::Weight) => true,
        (Combiner::Sum, Value::Number(number)) => number == 0.0,
        (Combiner::Product, Value::Number(number)) => number == 1.0,
        (Combiner::Maximum, Value::Number(number)) => is_float && number == f64::NEG_INFINITY,
        (Combiner::Minimum, Value::Number(number)) => is_float && number == f64::INFINITY,
        _ => false,
    }
}

/// Adds indices that are less than the size where a condition holds.
fn implied(site: &Site<'_>, condition: &Expr, before: &mut Vec<Expr>) {
    match condition {
        Expr::Binary(BinaryOp::And, left, right) => {
            implied(site, left, before);
            implied(site, right, before);
        }
        Expr::Binary(BinaryOp::Less, left, right) => {
            if let (Value::Position(index), Value::Size) =
                (site.value(left, None), site.value(right, None))
            {
                before.push(index);
            }
        }
        Expr::Load(buffer, indices) => {
            let behind = site.contents(*buffer).map_or(&[][..], |own| &own.behind);
            let is_false = |own: &&(Positions, super::Behind)| own.1 == super::Behind::Number(0.0);
            let found = behind.iter().filter(is_false);
            before.extend(found.filter_map(|own| site.position(*buffer, indices, own.0)));
        }
        _ => {}
    }
}
