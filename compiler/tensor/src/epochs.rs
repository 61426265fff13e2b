//! Which accesses of a launch may meet: between two `sync`s, on different lanes of one block.
//!
//! Two blocks may run in one epoch where a way leads from one to the other, through the statements
//! between them and around the loops around both, on which no `sync` stands. They conflict where one
//! writes what the other accesses, in shared or global memory, and equal indices do not mean the same
//! lane. This is the analysis of GPUVerify (Betts et al., OOPSLA 2012) on a tree of loops instead of a
//! program: what two lanes do is compared, with the variables of serial loops of one kept apart from
//! those of the other.

use crate::independence::{determines, same_iteration};
use crate::{
    BlockBody, BlockId, BufferId, Domain, Expr, Launch, Level, Loop, Program, Scope, Statement,
    VarId,
};
use hone_types::Id;

/// Two blocks of which different lanes may access one element in one epoch, at least one of them writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The block that runs first.
    pub first: BlockId,
    /// The one that follows with no `sync` between; the same where lanes of one block meet.
    pub second: BlockId,
    /// What both access.
    pub buffer: BufferId,
}

impl Conflict {
    /// The conflict in words.
    pub fn text(&self, program: &Program) -> String {
        let name = |block: BlockId| &program.blocks[block].name;
        let (first, second) = (name(self.first), name(self.second));
        let buffer = &program.buffers[self.buffer].name;
        match self.first == self.second {
            true => format!("several lanes may access the same element of '{buffer}' in '{first}'"),
            false => format!(
                "no sync stands on a way from '{first}' to '{second}', which may access the same \
                 element of '{buffer}' on other lanes"
            ),
        }
    }
}

impl Program {
    /// The first conflict of a launch; `None` where lanes never meet.
    pub fn conflict(&self, launch: &Launch<'_>) -> Option<Conflict> {
        if launch.lanes() == [1; 3] {
            return None;
        }
        let flow = Flow::of(launch);
        for first in &flow.blocks {
            for second in flow.reached(*first) {
                let Some(buffer) = self.meeting(*first, second, launch) else { continue };
                return Some(Conflict { first: *first, second, buffer });
            }
            // Lanes run one statement side by side.
            if let Some(buffer) = self.meeting(*first, *first, launch) {
                return Some(Conflict { first: *first, second: *first, buffer });
            }
        }
        None
    }

    /// A buffer in which two blocks may meet on different lanes.
    fn meeting(&self, first: BlockId, second: BlockId, launch: &Launch<'_>) -> Option<BufferId> {
        let written = [self.blocks[first].buffer, self.blocks[second].buffer];
        written.into_iter().find(|buffer| {
            let scope = self.buffers[*buffer].scope;
            let shared = matches!(scope, Scope::Global | Scope::Shared);
            shared && self.meets(first, second, *buffer, launch)
        })
    }

    fn meets(
        &self,
        first: BlockId,
        second: BlockId,
        buffer: BufferId,
        launch: &Launch<'_>,
    ) -> bool {
        let (Some(one), Some(other)) =
            (Site::of(self, first, buffer), Site::of(self, second, buffer))
        else {
            return false;
        };
        let apart = other.apart_from(&one, self.vars.len());
        let alike = one.vars == other.vars;
        one.accesses.iter().any(|a| {
            let pairs = other.accesses.iter().zip(&apart.accesses);
            let mut meeting = pairs.filter(|(b, _)| a.writes || b.writes);
            meeting.any(|(b, renamed)| {
                let same = alike && a.indices == b.indices && one.determines_lane(a, launch);
                !same && !one.same_lane(a, &apart, renamed, launch)
            })
        })
    }
}

/// A block where it stands, with its accesses to one buffer.
struct Site<'a> {
    loops: Vec<&'a Loop>,
    /// The variables of `loops`, as they are called here.
    vars: Vec<VarId>,
    domain: Domain,
    accesses: Vec<Access>,
}

struct Access {
    indices: Vec<Expr>,
    writes: bool,
}

impl<'a> Site<'a> {
    fn of(program: &'a Program, block: BlockId, buffer: BufferId) -> Option<Self> {
        let path = program.find_block(block)?;
        let (own, realize) = (&program.blocks[block], program.realize_of(block)?);
        let domain = program.domain_at(&path);
        let access = |indices: &[Expr], writes| Access {
            indices: indices.iter().map(|index| realize.resolve(own, index, &domain)).collect(),
            writes,
        };
        let mut accesses: Vec<Access> =
            own.loads(buffer).into_iter().map(|load| access(load, false)).collect();
        if own.buffer == buffer {
            accesses.push(access(&own.indices, true));
            if matches!(own.body, BlockBody::Reduce { .. }) {
                accesses.push(access(&own.indices, false));
            }
        }
        let loops = program.enclosing(&path);
        let vars = loops.iter().map(|own| own.var).collect();
        Some(Self { loops, vars, domain, accesses })
    }

    /// The same site in other iterations than those of `one`: with new variables from number `next` on, but
    /// for loops over blocks, which are the same, and over lanes, which are called as in `one`.
    fn apart_from(&self, one: &Site<'_>, next: usize) -> Site<'a> {
        let renamed = |(place, own): (usize, &&Loop)| match own.axis() {
            Some(axis) if axis.level == Level::Lane => {
                let alike = one.loops.iter().position(|other| other.axis() == Some(axis));
                alike.map_or(VarId::from_index(next + place), |place| one.vars[place])
            }
            Some(_) => own.var,
            None => VarId::from_index(next + place),
        };
        let vars: Vec<VarId> = self.loops.iter().enumerate().map(renamed).collect();
        let change = |var: VarId| {
            let place = self.vars.iter().position(|own| *own == var)?;
            Some(Expr::Var(vars[place]))
        };
        let mut domain = Domain::default();
        for (own, var) in self.loops.iter().zip(&vars) {
            domain.push(*var, &own.extent.substitute(&change));
        }
        let accesses = self.accesses.iter().map(|own| Access {
            indices: own.indices.iter().map(|index| index.substitute(&change)).collect(),
            writes: own.writes,
        });
        Site { loops: self.loops.clone(), accesses: accesses.collect(), vars, domain }
    }

    /// Whether the indices of an access, in any two iterations of the loops around it in one block, are equal on
    /// one lane only.
    fn determines_lane(&self, access: &Access, launch: &Launch<'_>) -> bool {
        let of_block = |var: VarId| {
            let own = self.loops.iter().find(|own| own.var == var).and_then(|own| own.axis());
            own.is_some_and(|axis| axis.level != Level::Lane)
        };
        let fixed = |atom: &Expr| {
            let mut fixed = true;
            atom.visit(&mut |part| fixed &= !matches!(part, Expr::Var(var) if !of_block(*var)));
            fixed
        };
        (0..3).filter(|dimension| launch.lanes()[*dimension] > 1).all(|dimension| {
            self.lane_along(dimension)
                .is_none_or(|var| determines(&access.indices, var, &self.domain, &fixed))
        })
    }

    /// The variable of the loop over lanes along a dimension.
    fn lane_along(&self, dimension: usize) -> Option<VarId> {
        let bound = |own: &&Loop| {
            let axis = own.axis().filter(|axis| axis.level == Level::Lane);
            axis.is_some_and(|axis| axis.dimension as usize == dimension)
        };
        self.loops.iter().position(bound).map(|place| self.vars[place])
    }

    /// Whether equal indices of two accesses mean the same lane, along every dimension that the launch has.
    fn same_lane(
        &self,
        own: &Access,
        other: &Site<'_>,
        access: &Access,
        launch: &Launch<'_>,
    ) -> bool {
        let lanes = launch.lanes();
        (0..3).filter(|dimension| lanes[*dimension] > 1).all(|dimension| {
            match (self.lane_along(dimension), other.lane_along(dimension)) {
                (Some(var), Some(_)) => same_iteration(
                    (&own.indices, &self.domain),
                    (&access.indices, &other.domain),
                    var,
                ),
                // Outside of a loop over lanes the first lane runs alone.
                (None, None) => true,
                _ => false,
            }
        })
    }
}

/// In which order the blocks and `sync`s of a launch may follow each other.
struct Flow {
    nodes: Vec<Node>,
    blocks: Vec<BlockId>,
}

struct Node {
    /// The block; a loop's head has none.
    block: Option<BlockId>,
    stops: bool,
    next: Vec<usize>,
}

impl Flow {
    fn of(launch: &Launch<'_>) -> Self {
        let mut flow = Flow { nodes: vec![], blocks: vec![] };
        let start = flow.add(None, false, &[]);
        flow.body(launch.body, vec![start]);
        flow
    }

    fn add(&mut self, block: Option<BlockId>, stops: bool, before: &[usize]) -> usize {
        let place = self.nodes.len();
        self.nodes.push(Node { block, stops, next: vec![] });
        before.iter().for_each(|node| self.nodes[*node].next.push(place));
        self.blocks.extend(block);
        place
    }

    /// Adds statements behind the nodes `before`, and gives those that what follows comes behind.
    fn body(&mut self, body: &[Statement], mut before: Vec<usize>) -> Vec<usize> {
        for statement in body {
            before = match statement {
                Statement::Realize(own) => vec![self.add(Some(own.block), false, &before)],
                Statement::Sync(level) => vec![self.add(None, *level == Level::Block, &before)],
                Statement::Loop(own) => {
                    let head = self.add(None, false, &before);
                    let mut last = self.body(&own.body, vec![head]);
                    // A lane runs one iteration of a loop that is bound to lanes.
                    if own.axis().is_none() && own.extent.as_integer() != Some(1) {
                        last.iter().for_each(|node| self.nodes[*node].next.push(head));
                    }
                    if own.extent.as_integer().is_none_or(|extent| extent < 1) {
                        last.push(head);
                    }
                    last
                }
            };
        }
        before
    }

    /// The blocks that may follow `first` with no `sync` between, in order.
    fn reached(&self, first: BlockId) -> Vec<BlockId> {
        let mut seen = vec![false; self.nodes.len()];
        let starts = self.nodes.iter().filter(|node| node.block == Some(first));
        let mut open: Vec<usize> = starts.flat_map(|node| node.next.clone()).collect();
        while let Some(place) = open.pop() {
            if !std::mem::replace(&mut seen[place], true) && !self.nodes[place].stops {
                open.extend(&self.nodes[place].next);
            }
        }
        let reached = self.nodes.iter().zip(&seen).filter(|(_, seen)| **seen);
        reached.filter_map(|(node, _)| node.block).collect()
    }
}
