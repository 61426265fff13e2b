//! Memory of a device: buffers with bounds, shared memory, and who accessed what since lanes last waited.

use anyhow::{Result, bail, ensure};

/// Where generic addresses of local memory begin.
pub const LOCAL_WINDOW: u64 = 1 << 32;
/// Where generic addresses of shared memory begin.
pub const SHARED_WINDOW: u64 = 2 << 32;
/// Distance of the addresses of buffers: an index that leaves one never comes to the next.
const DISTANCE: u64 = 1 << 36;
/// Buffers begin at a multiple of this, and at none of twice it.
const ALIGNMENT: u64 = 64;

/// What memory holds that nobody has written: no number, and an integer that is easy to see.
pub const UNWRITTEN: u8 = 0xff;

/// A lane among all of a launch, and how often the lanes of its block have waited for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The number of the block.
    pub block: u32,
    /// The number of the lane in it.
    pub lane: u32,
    /// How often its block has waited.
    pub epoch: u32,
}

/// More than one lane of one block, between two times that they wait.
const SEVERAL_LANES: u32 = u32::MAX;

/// Who accessed a byte last.
#[derive(Clone, Copy, Default)]
struct Trace {
    /// Block, lane and epoch of the last writer, each plus one; 0 is nobody.
    writer: [u32; 3],
    /// Of the last reader; the lane may be [`SEVERAL_LANES`].
    reader: [u32; 3],
    /// Whether lanes of several blocks have read it.
    several_blocks: bool,
    /// Whether a copy to it is under way, which may land at any time.
    awaited: bool,
}

impl Trace {
    fn read(&mut self, by: Accessor) -> Result<()> {
        let access = [by.block + 1, by.lane + 1, by.epoch + 1];
        if self.awaited || meets(self.writer, access) {
            bail!("race: lane {} reads what {} writes", by.lane, described(self.writer));
        }
        self.several_blocks |= self.reader[0] != 0 && self.reader[0] != access[0];
        let same_epoch = self.reader[0] == access[0] && self.reader[2] == access[2];
        let several = same_epoch && self.reader[1] != access[1];
        self.reader = [access[0], if several { SEVERAL_LANES } else { access[1] }, access[2]];
        Ok(())
    }

    fn write(&mut self, by: Accessor) -> Result<()> {
        let access = [by.block + 1, by.lane + 1, by.epoch + 1];
        if self.awaited || meets(self.writer, access) {
            bail!("race: lane {} writes what {} writes", by.lane, described(self.writer));
        }
        if self.several_blocks || meets(self.reader, access) {
            bail!("race: lane {} writes what {} reads", by.lane, described(self.reader));
        }
        self.writer = access;
        Ok(())
    }
}

/// Whether two accesses may happen in any order: in two blocks, or in one with nothing waited for between.
fn meets(other: [u32; 3], access: [u32; 3]) -> bool {
    other[0] != 0 && (other[0] != access[0] || (other[2] == access[2] && other[1] != access[1]))
}

fn described(by: [u32; 3]) -> String {
    match by[1] {
        SEVERAL_LANES => format!("several lanes of block {}", by[0] - 1),
        lane => format!("lane {} of block {}", lane - 1, by[0] - 1),
    }
}

/// Bytes with a trace of each.
pub struct Traced {
    bytes: Vec<u8>,
    traces: Vec<Trace>,
    /// Whether something read it as memory that nobody writes.
    constant: bool,
    name: String,
}

impl Traced {
    /// Memory that holds `bytes`.
    pub fn new(name: String, bytes: Vec<u8>) -> Self {
        Self { bytes, traces: Vec::new(), constant: false, name }
    }

    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets who accessed it.
    pub fn forget(&mut self) {
        self.traces.clear();
        self.constant = false;
    }

    fn range(&self, offset: u64, size: usize) -> Result<std::ops::Range<usize>> {
        let inside = usize::try_from(offset)
            .ok()
            .filter(|start| start.checked_add(size).is_some_and(|end| end <= self.bytes.len()));
        let Some(start) = inside else {
            let (name, length) = (&self.name, self.bytes.len());
            bail!("out of bounds: bytes {offset:#x} to +{size} of {name}, which has {length}");
        };
        ensure!(
            offset.is_multiple_of(size as u64),
            "misaligned: {size} bytes at {offset:#x} of {}",
            self.name
        );
        Ok(start..start + size)
    }

    fn traces(&mut self) -> &mut [Trace] {
        if self.traces.is_empty() {
            self.traces = vec![Trace::default(); self.bytes.len()];
        }
        &mut self.traces
    }

    /// Reads bytes; with nobody named, without a trace, as memory that nobody writes.
    pub fn read(&mut self, offset: u64, size: usize, by: Option<Accessor>) -> Result<&[u8]> {
        let range = self.range(offset, size)?;
        match by {
            Some(by) => {
                self.traces()[range.clone()].iter_mut().try_for_each(|trace| trace.read(by))?;
            }
            None => {
                let written = self.traces.iter().any(|trace| trace.writer[0] != 0);
                ensure!(
                    self.constant || !written,
                    "{} is written, and read as a constant",
                    self.name
                );
                self.constant = true;
            }
        }
        Ok(&self.bytes[range])
    }

    /// Notes that a copy to these bytes is under way: until it lands nobody may access them.
    pub fn await_copy(&mut self, offset: u64, size: usize, by: Accessor) -> Result<()> {
        let range = self.range(offset, size)?;
        self.traces()[range].iter_mut().try_for_each(|trace| {
            trace.write(by)?;
            trace.awaited = true;
            Ok(())
        })
    }

    /// Writes the bytes of a copy that was under way.
    pub fn land(&mut self, offset: u64, bytes: &[u8], by: Accessor) -> Result<()> {
        let range = self.range(offset, bytes.len())?;
        self.traces()[range].iter_mut().for_each(|trace| trace.awaited = false);
        self.write(offset, bytes, by)
    }

    /// Writes bytes.
    pub fn write(&mut self, offset: u64, bytes: &[u8], by: Accessor) -> Result<()> {
        let range = self.range(offset, bytes.len())?;
        ensure!(!self.constant, "{} is written, and read as a constant", self.name);
        self.traces()[range.clone()].iter_mut().try_for_each(|trace| trace.write(by))?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }
}

/// The buffers of a device.
#[derive(Default)]
pub struct Global {
    buffers: Vec<Traced>,
}

impl Global {
    /// Adds a buffer, and gives its address.
    pub fn add(&mut self, name: String, bytes: Vec<u8>) -> u64 {
        self.buffers.push(Traced::new(name, bytes));
        self.buffers.len() as u64 * DISTANCE + ALIGNMENT
    }

    /// What the buffer at an address holds.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        let index = (address / DISTANCE).checked_sub(1)?;
        self.buffers.get(usize::try_from(index).ok()?).map(Traced::bytes)
    }

    /// Forgets who accessed what: a launch is complete.
    pub fn forget(&mut self) {
        self.buffers.iter_mut().for_each(Traced::forget);
    }

    /// The buffer of an address, and the offset in it. What lies in front of a buffer belongs to it.
    pub fn at(&mut self, address: u64) -> Result<(&mut Traced, u64)> {
        let index = ((address + DISTANCE / 2) / DISTANCE).wrapping_sub(1) as usize;
        let start = (index as u64 + 1).wrapping_mul(DISTANCE).wrapping_add(ALIGNMENT);
        match self.buffers.get_mut(index) {
            Some(buffer) => Ok((buffer, address.wrapping_sub(start))),
            None => bail!("out of bounds: address {address:#x} belongs to no buffer"),
        }
    }
}
