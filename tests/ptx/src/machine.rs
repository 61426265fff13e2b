//! Runs a kernel: block after block, all lanes of a block abreast.
//!
//! Of the lanes that do not wait those with the lowest instruction run next, all together. So lanes that went
//! different ways meet again where the ways do, and a block that needs a barrier it does not have computes the right
//! numbers all the same: what finds it is the trace of accesses ([`crate::memory`]).

use crate::memory::{Accessor, Global, LOCAL_WINDOW, SHARED_WINDOW, Traced, UNWRITTEN};
use crate::program::{Address, Entry, Instruction, Operation, Register, Source, Space};
use crate::tensor_core;
use crate::types::{Type, binary, compare, convert, fused, unary};
use anyhow::{Context, Result, bail, ensure};

/// More instructions than this, over all lanes, are taken for a loop without an end.
const MOST_INSTRUCTIONS: u64 = 1 << 34;

/// What a register holds that nothing has been written to: no number.
const UNSET: u64 = 0xfff8_dead_7fc0_dead;

/// Bytes of a row of a matrix, and of a large asynchronous copy: a fourth of what the banks give at once.
const CHUNK: usize = 16;

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

/// Runs a kernel.
///
/// # Errors
/// A race, an access out of bounds or misaligned, lanes that do not wait alike, and what else no device would do;
/// with the instruction, the block and the lane.
pub fn launch(
    entry: &Entry,
    global: &mut Global,
    arguments: &[u64],
    blocks: [usize; 3],
    lanes: [usize; 3],
) -> Result<Statistics> {
    ensure!(arguments.len() == entry.parameters.len(), "{} arguments", arguments.len());
    ensure!(entry.lanes.is_none_or(|own| own == lanes), "the kernel requires {:?}", entry.lanes);
    let count = lanes.iter().product::<usize>();
    let mut statistics = Statistics::default();
    for number in 0..blocks.iter().product::<usize>() {
        let place =
            [number % blocks[0], number / blocks[0] % blocks[1], number / blocks[0] / blocks[1]];
        let shared = Traced::new("shared memory".to_string(), vec![UNWRITTEN; entry.shared]);
        let mut block = Block {
            entry,
            global,
            arguments,
            shared,
            local: vec![UNWRITTEN; entry.local * count],
            registers: vec![UNSET; entry.registers * count],
            count,
            sizes: [lanes, blocks],
            place,
            number: number as u32,
            epoch: 0,
            copies: vec![Copies::default(); count],
            statistics,
        };
        let ran = block.run();
        statistics = block.statistics;
        ran.with_context(|| format!("kernel '{}', block {place:?}", entry.name))?;
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
struct Copies {
    /// Not yet in a group: address and bytes.
    open: Vec<(u64, Vec<u8>)>,
    /// In groups, oldest first.
    groups: Vec<Vec<(u64, Vec<u8>)>>,
}

struct Block<'a> {
    entry: &'a Entry,
    global: &'a mut Global,
    arguments: &'a [u64],
    shared: Traced,
    local: Vec<u8>,
    /// By register, then lane.
    registers: Vec<u64>,
    count: usize,
    /// Lanes of a block, blocks of the launch.
    sizes: [[usize; 3]; 2],
    place: [usize; 3],
    number: u32,
    epoch: u32,
    copies: Vec<Copies>,
    statistics: Statistics,
}

impl Block<'_> {
    fn run(&mut self) -> Result<()> {
        let mut next = vec![0usize; self.count];
        let mut states = vec![State::Running; self.count];
        let mut active: Vec<usize> = Vec::with_capacity(self.count);
        loop {
            let running = (0..self.count).filter(|lane| states[*lane] == State::Running);
            let Some(place) = running.map(|lane| next[lane]).min() else {
                if states.iter().all(|own| *own == State::Ended) {
                    return self.ended();
                }
                self.release(&mut states, &next)?;
                continue;
            };
            active.clear();
            let here = |lane: &usize| states[*lane] == State::Running && next[*lane] == place;
            active.extend((0..self.count).filter(here));
            let alone = states.iter().filter(|own| **own == State::Running).count() == active.len();
            self.together(place, alone, &active, &mut next, &mut states)?;
        }
    }

    /// All lanes that have not ended wait: they go on, and see what the others have written.
    fn release(&mut self, states: &mut [State], next: &[usize]) -> Result<()> {
        let first = next[states.iter().position(|own| *own == State::Waiting).unwrap_or(0)];
        for (lane, state) in states.iter_mut().enumerate() {
            ensure!(
                *state == State::Waiting && next[lane] == first,
                "divergent barrier: lane {lane} does not wait where others do"
            );
            *state = State::Running;
        }
        self.epoch += 1;
        Ok(())
    }

    fn ended(&self) -> Result<()> {
        let open = |own: &Copies| !own.open.is_empty() || !own.groups.is_empty();
        let lane = self.copies.iter().position(open);
        ensure!(lane.is_none(), "lane {lane:?} ends while its copies are under way");
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
        let mut place = start;
        loop {
            let Some(instruction) = entry.code.get(place) else { bail!("runs past the end") };
            if place != start && instruction.labelled && !alone {
                active.iter().for_each(|lane| next[*lane] = place);
                return Ok(());
            }
            self.statistics.instructions += active.len() as u64;
            ensure!(self.statistics.instructions < MOST_INSTRUCTIONS, "runs too long");
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
                        next[*lane] = if takes { to } else { place + 1 };
                    }
                    match taking {
                        0 => place += 1,
                        all if all == active.len() && alone => place = to,
                        _ => return Ok(()),
                    }
                    continue;
                }
                Operation::Barrier | Operation::Return => {
                    let wait = matches!(instruction.operation, Operation::Barrier);
                    let state = if wait { State::Waiting } else { State::Ended };
                    for lane in active {
                        let takes = taken(lane);
                        next[*lane] = place + 1;
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
                    let own: Vec<usize> = active.iter().copied().filter(taken).collect();
                    self.execute(instruction, &own)
                }
            }
            .with_context(|| format!("instruction '{}'", instruction.text))?;
            place += 1;
        }
    }

    fn accessor(&self, lane: usize) -> Accessor {
        Accessor { block: self.number, lane: lane as u32, epoch: self.epoch }
    }

    /// The value of a source on a lane.
    fn get(&self, source: Source, lane: usize) -> u64 {
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
            Source::Block(dimension) => self.place[dimension],
            Source::Blocks(dimension) => blocks[dimension],
        };
        value as u64
    }

    fn set(&mut self, register: Register, lane: usize, value: u64) {
        self.registers[register as usize * self.count + lane] = value;
    }

    /// Computes a register on every lane.
    fn each(
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

    fn execute(&mut self, instruction: &Instruction, lanes: &[usize]) -> Result<()> {
        match &instruction.operation {
            Operation::Move { to, from } => {
                self.each(lanes, *to, |own, lane| Ok(own.get(*from, lane)))
            }
            Operation::Parameter { to, number } => {
                let value = self.arguments[*number];
                self.each(lanes, *to, |_, _| Ok(value))
            }
            Operation::Unary { op, ty, to, a } => {
                self.each(lanes, *to, |own, lane| unary(*op, *ty, own.get(*a, lane)))
            }
            Operation::Binary { op, ty, to, a, b } => self.each(lanes, *to, |own, lane| {
                binary(*op, *ty, own.get(*a, lane), own.get(*b, lane))
            }),
            Operation::Fused { ty, to, a, b, c } => self.each(lanes, *to, |own, lane| {
                Ok(fused(*ty, own.get(*a, lane), own.get(*b, lane), own.get(*c, lane)))
            }),
            Operation::Compare { op, unordered, ty, to, a, b } => {
                self.each(lanes, *to, |own, lane| {
                    let (a, b) = (own.get(*a, lane), own.get(*b, lane));
                    Ok(u64::from(compare(*op, *unordered, *ty, a, b)))
                })
            }
            Operation::Select { to, then, otherwise, by } => self.each(lanes, *to, |own, lane| {
                Ok(own.get(if own.get(*by, lane) != 0 { *then } else { *otherwise }, lane))
            }),
            Operation::Convert { to_type, from_type, rounding, saturate, to, a } => {
                self.each(lanes, *to, |own, lane| {
                    convert(*to_type, *from_type, *rounding, *saturate, own.get(*a, lane))
                })
            }
            Operation::Load { space, ty, to, address } => {
                self.load(lanes, *space, *ty, to, *address)
            }
            Operation::Store { space, ty, from, address } => {
                self.store(lanes, *space, *ty, from, *address)
            }
            other => self.execute_rare(other, lanes),
        }
    }

    fn execute_rare(&mut self, operation: &Operation, lanes: &[usize]) -> Result<()> {
        match operation {
            Operation::MultiplyAdd { ty, wide, to, a, b, c } => {
                let double = Type { bits: 2 * ty.bits, ..*ty };
                let result = if *wide { double } else { *ty };
                self.each(lanes, *to, |own, lane| {
                    let product =
                        ty.wide(own.get(*a, lane)).wrapping_mul(ty.wide(own.get(*b, lane)));
                    let sum = product.wrapping_add(result.wide(own.get(*c, lane)));
                    Ok(result.cut(sum as u64))
                })
            }
            Operation::Pack { to, parts, bits } => self.each(lanes, *to, |own, lane| {
                let mask = (1u64 << bits) - 1;
                let part = |(place, part): (usize, &Source)| {
                    (own.get(*part, lane) & mask) << (place as u32 * bits)
                };
                Ok(parts.iter().enumerate().map(part).fold(0, |a, b| a | b))
            }),
            Operation::Unpack { to, from, bits } => {
                let mask = (1u64 << bits) - 1;
                for lane in lanes {
                    let value = self.get(*from, *lane);
                    for (place, to) in to.iter().enumerate() {
                        if let Some(to) = to {
                            self.set(*to, *lane, value >> (place as u32 * bits) & mask);
                        }
                    }
                }
                Ok(())
            }
            Operation::Generic { to, from, space, back } => {
                let window = match space {
                    Space::Local => LOCAL_WINDOW,
                    Space::Shared => SHARED_WINDOW,
                    _ => 0,
                };
                let window = if *back { window.wrapping_neg() } else { window };
                self.each(lanes, *to, |own, lane| Ok(own.get(*from, lane).wrapping_add(window)))
            }
            Operation::Field { ty, to, a, b, c } => self.each(lanes, *to, |own, lane| {
                let (start, length) = (own.get(*b, lane) & 0xff, own.get(*c, lane) & 0xff);
                Ok(field(*ty, own.get(*a, lane), start as u32, length as u32))
            }),
            Operation::Funnel { left, wrap, to, low, high, by } => {
                self.each(lanes, *to, |own, lane| {
                    let both = own.get(*high, lane) << 32 | own.get(*low, lane) & 0xffff_ffff;
                    let by = own.get(*by, lane) as u32;
                    let by = if *wrap { by & 31 } else { by.min(32) };
                    Ok(if *left { (both << by) >> 32 } else { (both >> by) & 0xffff_ffff })
                })
            }
            Operation::Permute { to, a, b, c } => self.each(lanes, *to, |own, lane| {
                let both = own.get(*b, lane) << 32 | own.get(*a, lane) & 0xffff_ffff;
                let choice = own.get(*c, lane);
                Ok((0..4).fold(0, |value, place| {
                    value | permuted(both, choice >> (4 * place)) << (8 * place)
                }))
            }),
            other => self.execute_copies(other, lanes),
        }
    }

    fn execute_copies(&mut self, operation: &Operation, lanes: &[usize]) -> Result<()> {
        match operation {
            Operation::CopyAsync { to, from, bytes } => {
                for lanes in lanes.chunks(8).filter(|_| *bytes == CHUNK) {
                    self.statistics.conflicts += self.conflicts(*to, lanes);
                }
                for lane in lanes {
                    let (to, from) = (self.address(*to, *lane), self.address(*from, *lane));
                    let own = self.read(Space::Global, from, *bytes, *lane)?;
                    let by = self.accessor(*lane);
                    self.shared.await_copy(to, *bytes, by)?;
                    self.copies[*lane].open.push((to, own));
                }
                Ok(())
            }
            Operation::CommitCopies => {
                for lane in lanes {
                    let own = &mut self.copies[*lane];
                    let group = std::mem::take(&mut own.open);
                    own.groups.push(group);
                }
                Ok(())
            }
            Operation::WaitCopies { groups } => {
                for lane in lanes {
                    let by = self.accessor(*lane);
                    let own = &mut self.copies[*lane];
                    let landing = own.groups.len().saturating_sub(*groups);
                    let landed: Vec<_> = own.groups.drain(..landing).flatten().collect();
                    for (to, bytes) in landed {
                        self.shared.land(to, &bytes, by)?;
                    }
                }
                Ok(())
            }
            Operation::LoadMatrix { transposed, to, address } => tensor_core::warps(lanes)?
                .try_for_each(|warp| {
                    for lanes in warp[..8 * to.len()].chunks(8) {
                        self.statistics.conflicts += self.conflicts(*address, lanes);
                    }
                    let rows: Vec<Vec<u8>> = warp[..8 * to.len()]
                        .iter()
                        .map(|lane| {
                            self.read(Space::Shared, self.address(*address, *lane), 16, *lane)
                        })
                        .collect::<Result<_>>()?;
                    for (matrix, register) in to.iter().enumerate() {
                        let rows = &rows[8 * matrix..8 * matrix + 8];
                        for (place, lane) in warp.iter().enumerate() {
                            let value = tensor_core::fragment(rows, place, *transposed);
                            self.set(*register, *lane, value);
                        }
                    }
                    Ok(())
                }),
            Operation::Multiply { factors, d, a, b, c } => {
                tensor_core::warps(lanes)?.try_for_each(|warp| {
                    let gather = |sources: &[Source]| -> Vec<[u64; WARP]> {
                        let of =
                            |own: &Source| std::array::from_fn(|place| self.get(*own, warp[place]));
                        sources.iter().map(of).collect()
                    };
                    let sums = tensor_core::multiply(*factors, &gather(a), &gather(b), &gather(c));
                    for (register, own) in d.iter().zip(&sums) {
                        for (place, lane) in warp.iter().enumerate() {
                            self.set(*register, *lane, own[place]);
                        }
                    }
                    Ok(())
                })
            }
            other => bail!("{other:?} is no instruction of this kind"),
        }
    }

    /// Lanes, of eight that access a chunk each, that wait for another one's banks.
    fn conflicts(&self, address: Address, lanes: &[usize]) -> u64 {
        let mut in_bank = [0u64; 8];
        for lane in lanes {
            in_bank[(self.address(address, *lane) / CHUNK as u64 % 8) as usize] += 1;
        }
        in_bank.iter().max().map_or(0, |most| most.saturating_sub(1))
    }

    fn address(&self, address: Address, lane: usize) -> u64 {
        self.get(address.base, lane).wrapping_add_signed(address.offset)
    }

    /// The kind of memory that an address is of, and the address in it.
    fn resolved(space: Space, address: u64) -> (Space, u64) {
        match (space, address) {
            (Space::Generic, LOCAL_WINDOW..SHARED_WINDOW) => (Space::Local, address - LOCAL_WINDOW),
            (Space::Generic, _) if address < 2 * SHARED_WINDOW && address >= SHARED_WINDOW => {
                (Space::Shared, address - SHARED_WINDOW)
            }
            (Space::Generic, _) => (Space::Global, address),
            _ => (space, address),
        }
    }

    fn read(&mut self, space: Space, address: u64, size: usize, lane: usize) -> Result<Vec<u8>> {
        let by = self.accessor(lane);
        Ok(match Self::resolved(space, address) {
            (Space::Global, address) => {
                let (buffer, offset) = self.global.at(address)?;
                buffer.read(offset, size, Some(by))?.to_vec()
            }
            (Space::Constant, address) => {
                let (buffer, offset) = self.global.at(address)?;
                buffer.read(offset, size, None)?.to_vec()
            }
            (Space::Shared, address) => self.shared.read(address, size, Some(by))?.to_vec(),
            (_, address) => self.local[self.local_range(address, size, lane)?].to_vec(),
        })
    }

    fn write(&mut self, space: Space, address: u64, bytes: &[u8], lane: usize) -> Result<()> {
        let by = self.accessor(lane);
        match Self::resolved(space, address) {
            (Space::Global, address) => {
                let (buffer, offset) = self.global.at(address)?;
                buffer.write(offset, bytes, by)
            }
            (Space::Shared, address) => self.shared.write(address, bytes, by),
            (Space::Local, address) => {
                let range = self.local_range(address, bytes.len(), lane)?;
                self.local[range].copy_from_slice(bytes);
                Ok(())
            }
            (space, _) => bail!("{space:?} memory is written"),
        }
    }

    fn local_range(
        &self,
        address: u64,
        size: usize,
        lane: usize,
    ) -> Result<std::ops::Range<usize>> {
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        let end = start.saturating_add(size);
        ensure!(end <= self.entry.local, "out of bounds: byte {end} of local memory");
        ensure!(address.is_multiple_of(size as u64), "misaligned: {size} bytes at {address:#x}");
        let own = lane * self.entry.local;
        Ok(own + start..own + end)
    }

    fn load(
        &mut self,
        lanes: &[usize],
        space: Space,
        ty: Type,
        to: &[Register],
        address: Address,
    ) -> Result<()> {
        let size = ty.bytes();
        for lane in lanes {
            let at = self.address(address, *lane);
            let bytes = self.read(space, at, size * to.len(), *lane);
            let bytes = bytes.with_context(|| format!("lane {lane}"))?;
            for (register, own) in to.iter().zip(bytes.chunks_exact(size)) {
                let mut raw = [0; 8];
                raw[..size].copy_from_slice(own);
                // A narrow element extends to the register by its sign where it has one.
                let raw = u64::from_le_bytes(raw);
                let value = match ty.kind {
                    crate::types::Kind::Signed => ty.signed(raw) as u64,
                    _ => raw,
                };
                self.set(*register, *lane, value);
            }
        }
        Ok(())
    }

    fn store(
        &mut self,
        lanes: &[usize],
        space: Space,
        ty: Type,
        from: &[Source],
        address: Address,
    ) -> Result<()> {
        let size = ty.bytes();
        let mut bytes = Vec::with_capacity(16);
        for lane in lanes {
            bytes.clear();
            for own in from {
                bytes.extend_from_slice(&self.get(*own, *lane).to_le_bytes()[..size]);
            }
            let at = self.address(address, *lane);
            let stored = self.write(space, at, &bytes, *lane);
            stored.with_context(|| format!("lane {lane}"))?;
        }
        Ok(())
    }
}

/// `length` bits of a value from bit `start` on; signed ones keep their sign.
fn field(ty: Type, value: u64, start: u32, length: u32) -> u64 {
    if length == 0 {
        return 0;
    }
    let length = length.min(64);
    let wide = ty.wide(value) >> start.min(127);
    let unused = 128 - length;
    match ty.kind {
        crate::types::Kind::Signed => ty.cut(((wide << unused) >> unused) as u64),
        _ => ty.cut(((wide as u128) << unused >> unused) as u64),
    }
}

/// The byte that a nibble chooses of eight: its upper bit asks for copies of the byte's sign.
fn permuted(both: u64, nibble: u64) -> u64 {
    let byte = both >> (8 * (nibble & 7)) & 0xff;
    match nibble & 8 {
        0 => byte,
        _ if byte & 0x80 != 0 => 0xff,
        _ => 0,
    }
}
