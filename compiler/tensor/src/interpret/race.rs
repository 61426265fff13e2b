//! Finds accesses of different lanes and blocks to one element that nothing orders.
//!
//! For each element the last write and the last reads are kept, with the block, the lane and the *epoch*:
//! the number of `sync`s that the block has passed. Accesses of two lanes of a block meet in one epoch,
//! those of two blocks always. Shared memory is poisoned when a block starts: a read of what no lane has
//! written is reported.

use super::evaluate::Fault;
use crate::{BlockId, BufferId, Program, Scope};
use hone_types::Id;
use std::fmt::{self, Display, Formatter};

/// Who accessed an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) statement: BlockId,
    pub(super) block: usize,
    pub(super) lane: [usize; 3],
    epoch: usize,
    pub(super) writes: bool,
}

/// Two accesses that nothing orders.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) buffer: BufferId,
    pub(super) place: usize,
    pub(super) earlier: Access,
    pub(super) now: Access,
}

/// A race: two accesses of one element, on two lanes, at least one of which writes, with nothing that orders them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// The buffer.
    pub buffer: String,
    /// The element's place in it, row by row.
    pub place: usize,
    /// Who accessed it first, in the order in which the interpreter ran the lanes.
    pub earlier: Accessor,
    /// Who accessed it then.
    pub later: Accessor,
}

/// Who takes part in a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The block of the program.
    pub block: String,
    /// Whether it writes.
    pub writes: bool,
    /// The lane on which it runs, along `x`, `y` and `z`.
    pub lane: [usize; 3],
    /// The number of the lane's work-group.
    pub group: usize,
}

impl Display for Race {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Race { buffer, place, earlier, later } = self;
        write!(formatter, "element {place} of '{buffer}' is {earlier}, and {later}")
    }
}

impl Display for Accessor {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Accessor { block, lane, group, .. } = self;
        let access = if self.writes { "written" } else { "read" };
        write!(formatter, "{access} by block '{block}' on lane {lane:?} of work-group {group}")
    }
}

#[derive(Clone, Debug, Default)]
struct Cell {
    write: Option<Access>,
    /// The last readers, of different lanes, and the first one of all.
    reads: [Option<Access>; 3],
}

/// Watches the memory of one launch.
#[derive(Debug)]
pub(super) struct Watch {
    /// By buffer: shared ones, and global ones that the launch writes.
    cells: Vec<Option<Vec<Cell>>>,
    shared: Vec<BufferId>,
    now: Access,
}

impl Watch {
    /// Watches what the given blocks of a program write.
    pub(super) fn of(program: &Program, blocks: &[BlockId]) -> Self {
        let mut cells = vec![None; program.buffers.len()];
        let mut shared = Vec::new();
        for block in blocks {
            let buffer = program.blocks[*block].buffer;
            let own = &program.buffers[buffer];
            if matches!(own.scope, Scope::Global | Scope::Shared) {
                cells[buffer.index()] = Some(vec![Cell::default(); own.elements()]);
            }
        }
        for (buffer, own) in program.buffers.iter().filter(|(_, own)| own.scope == Scope::Shared) {
            shared.push(buffer);
            cells[buffer.index()].get_or_insert_with(|| vec![Cell::default(); own.elements()]);
        }
        let statement = BlockId::from_index(0);
        let now = Access { statement, block: 0, lane: [0; 3], epoch: 0, writes: false };
        Self { cells, shared, now }
    }

    /// A block starts: its shared memory is poisoned.
    pub(super) fn start(&mut self, block: usize) {
        self.now.block = block;
        self.now.epoch = 0;
        for buffer in &self.shared {
            if let Some(cells) = &mut self.cells[buffer.index()] {
                cells.fill(Cell::default());
            }
        }
    }

    /// All lanes of the block have waited.
    pub(super) fn sync(&mut self) {
        self.now.epoch += 1;
    }

    pub(super) fn lane(&mut self, lane: [usize; 3]) {
        self.now.lane = lane;
    }

    pub(super) fn statement(&mut self, statement: BlockId) {
        self.now.statement = statement;
    }

    pub(super) fn access(
        &mut self,
        buffer: BufferId,
        place: usize,
        writes: bool,
    ) -> Result<(), Fault> {
        let Some(cells) = &mut self.cells[buffer.index()] else { return Ok(()) };
        let now = Access { writes, ..self.now };
        let cell = &mut cells[place];
        let reads = if writes { &cell.reads[..] } else { &[] };
        let meets = |own: &&Access| {
            let together = own.block == now.block && own.epoch == now.epoch && own.lane != now.lane;
            own.block != now.block || together
        };
        if let Some(earlier) = cell.write.iter().chain(reads.iter().flatten()).find(meets) {
            let earlier = *earlier;
            return Err(Fault::Race(Box::new(Meeting { buffer, place, earlier, now })));
        }
        if writes {
            cell.write = Some(now);
            return Ok(());
        }
        if cell.write.is_none() && self.shared.contains(&buffer) {
            return Err(Fault::Poisoned { buffer, place, now });
        }
        let [last, before, first] = &mut cell.reads;
        first.get_or_insert(now);
        if last.is_some_and(|own| own.lane != now.lane || own.block != now.block) {
            *before = *last;
        }
        *last = Some(now);
        Ok(())
    }
}
