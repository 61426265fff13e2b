//! Runs a kernel: block after block, all lanes of a block abreast.
//!
//! Of the lanes that do not wait those with the lowest instruction run next, all together. So lanes that went
//! different ways meet again where the ways do, and a block that needs a barrier it does not have computes the right
//! numbers all the same: what finds it is the trace of accesses ([`crate::memory`]).

use crate::memory::{Accessor, Global, Traced, UNWRITTEN};
use crate::program::{Entry, Operation, Register, Source};
use crate::warpgroup::{WARPGROUP, Warpgroup};
use anyhow::{Context, Result, bail, ensure};

/// More instructions than this, over all lanes, are taken for a loop without an end.
const MOST_INSTRUCTIONS: u64 = 1 << 34;

/// What a register holds that nothing has been written to: no number.
const UNSET: u64 = 0xfff8_dead_7fc0_dead;

/// Bytes of a row of a matrix, and of a large asynchronous copy: a fourth of what the banks give at once.
pub(crate) const CHUNK: usize = 16;

/// Lanes of a warp.
pub const WARP: usize = 32;

/// What a launch took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Instructions over all lanes.
    pub instructions: u64,
    /// Reads of matrices and copies of chunks of 16 bytes that have to wait because another of the same eight lanes
    /// accesses the same banks of shared memory.
    pub conflicts: u64,
}

/// Runs a kernel, of which every block gets so many bytes of shared memory besides those that it declares.
///
/// # Errors
/// A race, an access out of bounds or misaligned, lanes that do not wait alike, and what else no device would do;
/// with the instruction, the block and the lane.
pub fn launch(
    entry: &Entry,
    global: &mut Global,
    arguments: &[u64],
    [blocks, lanes]: [[usize; 3]; 2],
    requested_bytes: usize,
) -> Result<Statistics> {
    ensure!(arguments.len() == entry.parameters.len(), "{} arguments", arguments.len());
    ensure!(
        entry.lanes.is_none_or(|required| required == lanes),
        "the kernel requires {:?}",
        entry.lanes
    );
    let count = lanes.iter().product::<usize>();
    let shared_bytes = entry.requested.map_or(entry.shared, |start| start + requested_bytes);
    let mut statistics = Statistics::default();
    for number in 0..blocks.iter().product::<usize>() {
        let coordinates =
            [number % blocks[0], number / blocks[0] % blocks[1], number / blocks[0] / blocks[1]];
        let shared = Traced::new("shared memory".to_string(), vec![UNWRITTEN; shared_bytes]);
        let mut block = Block {
            entry,
            global,
            arguments,
            shared,
            local: vec![UNWRITTEN; entry.local * count],
            registers: vec![UNSET; entry.registers * count],
            count,
            sizes: [lanes, blocks],
            coordinates,
            number: number as u32,
            epoch: 0,
            copies: vec![Copies::default(); count],
            fences: vec![0; count],
            visible_fences: vec![0; count],
            warpgroups: vec![Warpgroup::default(); count.div_ceil(WARPGROUP)],
            statistics,
        };
        let ran = block.run();
        statistics = block.statistics;
        ran.with_context(|| format!("kernel '{}', block {coordinates:?}", entry.name))?;
    }
    global.forget();
    Ok(statistics)
}

/// Where a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Waiting,
    Ended,
}

/// Copies into shared memory that a lane has started.
#[derive(Clone, Default)]
pub(crate) struct Copies {
    /// Not yet in a group: address and bytes.
    pub(crate) open: Vec<(u64, Vec<u8>)>,
    /// In groups, oldest first.
    pub(crate) groups: Vec<Vec<(u64, Vec<u8>)>>,
}

pub(crate) struct Block<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) global: &'a mut Global,
    pub(crate) arguments: &'a [u64],
    pub(crate) shared: Traced,
    pub(crate) local: Vec<u8>,
    /// By register, then lane.
    pub(crate) registers: Vec<u64>,
    pub(crate) count: usize,
    /// Lanes of a block, blocks of the launch.
    pub(crate) sizes: [[usize; 3]; 2],
    pub(crate) coordinates: [usize; 3],
    pub(crate) number: u32,
    pub(crate) epoch: u32,
    pub(crate) copies: Vec<Copies>,
    /// How often each lane has made what it wrote visible to asynchronous reads, and those after which all have waited.
    pub(crate) fences: Vec<u32>,
    pub(crate) visible_fences: Vec<u32>,
    pub(crate) warpgroups: Vec<Warpgroup>,
    pub(crate) statistics: Statistics,
}

impl Block<'_> {
    fn run(&mut self) -> Result<()> {
        let mut next = vec![0usize; self.count];
        let mut states = vec![State::Running; self.count];
        let mut active: Vec<usize> = Vec::with_capacity(self.count);
        loop {
            let running = (0..self.count).filter(|lane| states[*lane] == State::Running);
            let Some(counter) = running.map(|lane| next[lane]).min() else {
                if states.iter().all(|state| *state == State::Ended) {
                    return self.ended();
                }
                self.release(&mut states, &next)?;
                continue;
            };
            active.clear();
            let here = |lane: &usize| states[*lane] == State::Running && next[*lane] == counter;
            active.extend((0..self.count).filter(here));
            let alone =
                states.iter().filter(|state| **state == State::Running).count() == active.len();
            self.together(counter, alone, &active, &mut next, &mut states)?;
        }
    }

    /// All lanes that have not ended wait: they go on, and see what the others have written.
    fn release(&mut self, states: &mut [State], next: &[usize]) -> Result<()> {
        let first = next[states.iter().position(|state| *state == State::Waiting).unwrap_or(0)];
        for (lane, state) in states.iter_mut().enumerate() {
            ensure!(
                *state == State::Waiting && next[lane] == first,
                "divergent barrier: lane {lane} does not wait where others do"
            );
            *state = State::Running;
        }
        self.epoch += 1;
        self.visible_fences.clone_from(&self.fences);
        Ok(())
    }

    fn ended(&self) -> Result<()> {
        let open = |copies: &Copies| !copies.open.is_empty() || !copies.groups.is_empty();
        let lane = self.copies.iter().position(open);
        ensure!(lane.is_none(), "lane {lane:?} ends while its copies are under way");
        let warpgroup = self.warpgroups.iter().position(Warpgroup::is_busy);
        ensure!(warpgroup.is_none(), "warpgroup {warpgroup:?} ends while it multiplies");
        Ok(())
    }

    /// Runs lanes that are at one instruction until they part, or others may join them.
    fn together(
        &mut self,
        start: usize,
        alone: bool,
        active: &[usize],
        next: &mut [usize],
        states: &mut [State],
    ) -> Result<()> {
        let entry = self.entry;
        let mut counter = start;
        loop {
            let Some(instruction) = entry.code.get(counter) else { bail!("runs past the end") };
            if counter != start && instruction.labelled && !alone {
                active.iter().for_each(|lane| next[*lane] = counter);
                return Ok(());
            }
            self.statistics.instructions += active.len() as u64;
            ensure!(self.statistics.instructions < MOST_INSTRUCTIONS, "runs too long");
            if !instruction.sums.is_empty() {
                self.touch_sums(&instruction.sums, active)
                    .with_context(|| format!("instruction '{}'", instruction.text))?;
            }
            let taken = |lane: &usize| match instruction.guard {
                None => true,
                Some((register, wanted)) => {
                    (self.registers[register as usize * self.count + lane] != 0) == wanted
                }
            };
            match instruction.operation {
                Operation::Branch { to } => {
                    let mut taking = 0;
                    for lane in active {
                        let takes = taken(lane);
                        taking += usize::from(takes);
                        next[*lane] = if takes { to } else { counter + 1 };
                    }
                    match taking {
                        0 => counter += 1,
                        all if all == active.len() && alone => counter = to,
                        _ => return Ok(()),
                    }
                    continue;
                }
                Operation::Barrier | Operation::Return => {
                    let wait = matches!(instruction.operation, Operation::Barrier);
                    let state = if wait { State::Waiting } else { State::Ended };
                    for lane in active {
                        let takes = taken(lane);
                        next[*lane] = counter + 1;
                        if takes {
                            states[*lane] = state;
                        }
                    }
                    return Ok(());
                }
                _ => {}
            }
            match instruction.guard {
                None => self.execute(instruction, active),
                Some(_) => {
                    let guarded: Vec<usize> = active.iter().copied().filter(taken).collect();
                    self.execute(instruction, &guarded)
                }
            }
            .with_context(|| format!("instruction '{}'", instruction.text))?;
            counter += 1;
        }
    }

    pub(crate) fn accessor(&self, lane: usize) -> Accessor {
        let (fences, lane) = (self.fences[lane], lane as u32);
        Accessor { block: self.number, lane, epoch: self.epoch, fences }
    }

    /// The value of a source on a lane.
    pub(crate) fn get(&self, source: Source, lane: usize) -> u64 {
        let [lanes, blocks] = self.sizes;
        let value = match source {
            Source::Register(register) => {
                return self.registers[register as usize * self.count + lane];
            }
            Source::Constant(value) => return value,
            Source::Lane(0) => lane % lanes[0],
            Source::Lane(1) => lane / lanes[0] % lanes[1],
            Source::Lane(_) => lane / lanes[0] / lanes[1],
            Source::Lanes(dimension) => lanes[dimension],
            Source::Block(dimension) => self.coordinates[dimension],
            Source::Blocks(dimension) => blocks[dimension],
        };
        value as u64
    }

    pub(crate) fn set(&mut self, register: Register, lane: usize, value: u64) {
        self.registers[register as usize * self.count + lane] = value;
    }

    /// Computes a register on every lane.
    pub(crate) fn each(
        &mut self,
        lanes: &[usize],
        to: Register,
        mut value: impl FnMut(&Self, usize) -> Result<u64>,
    ) -> Result<()> {
        for lane in lanes {
            let value = value(self, *lane).with_context(|| format!("lane {lane}"))?;
            self.set(to, *lane, value);
        }
        Ok(())
    }
}
