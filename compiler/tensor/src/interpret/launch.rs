//! Launches: blocks of lanes that wait for each other.
//!
//! Statements with a `sync` inside are gone through by all lanes of a block together, everything between two
//! `sync`s by one lane after the other, in an order that changes with every epoch: ascending, descending,
//! the odd ones first. A block's shared memory and a lane's own memory start unwritten. Blocks run from the
//! last to the first.

use super::compile::{Launched, Node};
use super::memory::Data;
use super::race::Watch;
use super::{InterpretError, Run};
use std::cell::RefCell;

/// One lane: its place in the block, and its memory while another one runs.
struct Lane {
    place: [usize; 3],
    memory: Vec<Data>,
}

/// The lanes of one block on their way.
struct Group<'a> {
    launched: &'a Launched,
    lanes: Vec<Lane>,
    /// Variables that have the lane's place along a dimension.
    slots: Vec<(usize, usize)>,
    /// Parts that were run by one lane after the other.
    parts: usize,
}

impl Run<'_> {
    pub(super) fn launch(&mut self, launched: &Launched) -> Result<(), InterpretError> {
        let watch = Watch::of(self.program, &launched.blocks);
        self.state.memory.watch = Some(RefCell::new(watch));
        let count: i64 = launched.grid.iter().map(|(_, extent)| *extent).product();
        let outcome = (0..count).rev().try_for_each(|number| self.block(launched, number));
        self.state.memory.watch = None;
        self.lane = [0; 3];
        outcome
    }

    fn block(&mut self, launched: &Launched, number: i64) -> Result<(), InterpretError> {
        let mut rest = number;
        for (slot, extent) in launched.grid.iter().rev() {
            self.state.vars[*slot] = rest % extent;
            rest /= extent;
        }
        self.watched(|watch| watch.start(usize::try_from(number).unwrap_or_default()));
        launched.shared.iter().for_each(|own| self.state.memory.forget(self.program, *own));
        let [x, y, z] = launched.lanes;
        let fresh = |place| {
            let memory =
                launched.private.iter().map(|own| Data::unwritten(&self.program.buffers[*own]));
            Lane { place, memory: memory.collect() }
        };
        let places = (0..x * y * z).map(|own| [own % x, own / x % y, own / (x * y)]);
        let lanes = places.map(fresh).collect();
        let mut group = Group { launched, lanes, slots: vec![], parts: 0 };
        self.together(&launched.body, &mut group)
    }

    fn watched(&self, change: impl FnOnce(&mut Watch)) {
        if let Some(watch) = &self.state.memory.watch {
            change(&mut watch.borrow_mut());
        }
    }

    /// Runs nodes by all lanes of a group.
    fn together(&mut self, nodes: &[Node], group: &mut Group<'_>) -> Result<(), InterpretError> {
        for part in nodes.chunk_by(|first, second| !first.waits() && !second.waits()) {
            let [node] = part else {
                self.in_turn(part, group)?;
                continue;
            };
            match node {
                Node::Sync => self.watched(Watch::sync),
                Node::Loop { slot, body, waits: true, .. } => {
                    for value in 0..self.common_extent(node, group)? {
                        self.state.vars[*slot] = value;
                        self.together(body, group)?;
                    }
                }
                Node::Lanes { slot, dimension, extent, body, waits: true } => {
                    let all = group.launched.lanes[*dimension];
                    if *extent != all {
                        let mut outside = [0; 3];
                        outside[*dimension] = (*extent).min(all - 1);
                        return Err(self.divergent(*slot, [0; 3], outside));
                    }
                    group.slots.push((*slot, *dimension));
                    self.together(body, group)?;
                    group.slots.pop();
                }
                _ => self.in_turn(part, group)?,
            }
        }
        Ok(())
    }

    /// Runs nodes without a `sync` by one lane after the other.
    fn in_turn(&mut self, nodes: &[Node], group: &mut Group<'_>) -> Result<(), InterpretError> {
        let count = group.lanes.len();
        group.parts += 1;
        for turn in 0..count {
            let number = match group.parts % 3 {
                0 => turn,
                1 => count - 1 - turn,
                // The odd ones, then the even ones.
                _ if turn < count / 2 => 2 * turn + 1,
                _ => 2 * (turn - count / 2),
            };
            self.as_lane(number, group, |run| run.all(nodes))?;
        }
        Ok(())
    }

    fn as_lane<T>(
        &mut self,
        number: usize,
        group: &mut Group<'_>,
        act: impl FnOnce(&mut Self) -> Result<T, InterpretError>,
    ) -> Result<T, InterpretError> {
        let lane = &mut group.lanes[number];
        self.lane = lane.place;
        group.slots.iter().for_each(|(slot, along)| {
            self.state.vars[*slot] = lane.place[*along] as i64;
        });
        self.watched(|watch| watch.lane(lane.place));
        for (buffer, own) in group.launched.private.iter().zip(&mut lane.memory) {
            self.state.memory.exchange(*buffer, own);
        }
        let outcome = act(self);
        for (buffer, own) in group.launched.private.iter().zip(&mut lane.memory) {
            self.state.memory.exchange(*buffer, own);
        }
        outcome
    }

    /// The extent of a loop with a `sync` inside, which all lanes have to agree on.
    fn common_extent(&mut self, node: &Node, group: &mut Group<'_>) -> Result<i64, InterpretError> {
        let Node::Loop { slot, extent, .. } = node else { return Ok(0) };
        let mut common: Option<i64> = None;
        for number in 0..group.lanes.len() {
            let own = self.as_lane(number, group, |run| {
                run.state.int(extent).map_err(|fault| run.explain("a loop", fault))
            })?;
            if *common.get_or_insert(own) != own {
                return Err(self.divergent(*slot, group.lanes[0].place, group.lanes[number].place));
            }
        }
        Ok(common.unwrap_or(0))
    }

    fn divergent(&self, slot: usize, first: [usize; 3], second: [usize; 3]) -> InterpretError {
        let var = self.program.vars.ids().nth(slot);
        let name = var.map_or_else(String::new, |var| self.program.vars[var].name.clone());
        InterpretError::DivergentSync { target: name, first, second }
    }
}
