//! Memory of a device: buffers with bounds, shared memory, and who accessed what since lanes last waited.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;

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
    /// How often the lane has made what it wrote visible to asynchronous reads.
    pub fences: u32,
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
    /// Whether it was read as memory that nobody writes.
    constant: bool,
    /// Fences of the writer from which on asynchronous reads see what it wrote.
    visible_from: u32,
    /// Asynchronous reads that are under way.
    reads: u16,
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
        ensure!(!self.constant, "it is written, and read as a constant");
        let access = [by.block + 1, by.lane + 1, by.epoch + 1];
        if self.awaited || meets(self.writer, access) {
            bail!("race: lane {} writes what {} writes", by.lane, described(self.writer));
        }
        if self.several_blocks || meets(self.reader, access) {
            bail!("race: lane {} writes what {} reads", by.lane, described(self.reader));
        }
        ensure!(self.reads == 0, "race: lane {} writes what is read asynchronously", by.lane);
        self.writer = access;
        self.visible_from = by.fences + 1;
        Ok(())
    }

    /// An asynchronous read of several lanes begins, where `fences` of every lane are those that a barrier came after.
    fn begin_read(&mut self, [block, epoch]: [u32; 2], fences: &[u32]) -> Result<()> {
        if self.awaited || meets(self.writer, [block + 1, SEVERAL_LANES, epoch + 1]) {
            bail!("race: an asynchronous read of what {} writes", described(self.writer));
        }
        let lane = self.writer[1].wrapping_sub(1) as usize;
        let known = fences.get(lane).copied().unwrap_or(u32::MAX);
        ensure!(
            known >= self.visible_from,
            "no fence: what {} wrote is read asynchronously",
            described(self.writer)
        );
        self.reads += 1;
        Ok(())
    }

    fn end_read(&mut self, [block, epoch]: [u32; 2]) {
        self.reads -= 1;
        self.reader = [block + 1, SEVERAL_LANES, epoch + 1];
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

/// Bytes whose traces lie together: most of a large buffer is not accessed by a launch.
const PAGE: usize = 1 << 12;

/// Bytes with a trace of each.
pub struct Traced {
    bytes: Vec<u8>,
    /// By the number of the page.
    traces: BTreeMap<usize, Vec<Trace>>,
    name: String,
}

impl Traced {
    /// Memory that holds `bytes`.
    pub fn new(name: String, bytes: Vec<u8>) -> Self {
        Self { bytes, traces: BTreeMap::new(), name }
    }

    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets who accessed it.
    pub fn forget(&mut self) {
        self.traces.clear();
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

    /// Does something with the trace of each byte of a range.
    fn trace(
        &mut self,
        range: std::ops::Range<usize>,
        mut each: impl FnMut(&mut Trace) -> Result<()>,
    ) -> Result<()> {
        let mut start = range.start;
        while start < range.end {
            let (page, end) = (start / PAGE, range.end.min((start / PAGE + 1) * PAGE));
            let length = PAGE.min(self.bytes.len() - page * PAGE);
            let new = || vec![Trace::default(); length];
            let traces = self.traces.entry(page).or_insert_with(new);
            let traces = &mut traces[start - page * PAGE..end - page * PAGE];
            traces.iter_mut().try_for_each(&mut each).with_context(|| self.name.clone())?;
            start = end;
        }
        Ok(())
    }

    /// Reads bytes; with nobody named, without a trace, as memory that nobody writes.
    pub fn read(&mut self, offset: u64, size: usize, by: Option<Accessor>) -> Result<&[u8]> {
        let range = self.range(offset, size)?;
        self.trace(range.clone(), |trace| match by {
            Some(by) => trace.read(by),
            None => {
                ensure!(trace.writer[0] == 0, "it is written, and read as a constant");
                trace.constant = true;
                Ok(())
            }
        })?;
        Ok(&self.bytes[range])
    }

    /// Begins a read of these bytes, by several lanes of a block in an epoch, that may happen at any time until it ends: until
    /// then nobody may write them. What was written has to be visible by `fences` of its writer.
    pub fn begin_read(
        &mut self,
        offset: u64,
        size: usize,
        by: [u32; 2],
        fences: &[u32],
    ) -> Result<()> {
        let range = self.range(offset, size)?;
        self.trace(range, |trace| trace.begin_read(by, fences))
    }

    /// Ends it, and gives the bytes.
    pub fn end_read(&mut self, offset: u64, size: usize, by: [u32; 2]) -> Result<&[u8]> {
        let range = self.range(offset, size)?;
        self.trace(range.clone(), |trace| {
            trace.end_read(by);
            Ok(())
        })?;
        Ok(&self.bytes[range])
    }

    /// Notes that a copy to these bytes is under way: until it lands nobody may access them.
    pub fn await_copy(&mut self, offset: u64, size: usize, by: Accessor) -> Result<()> {
        let range = self.range(offset, size)?;
        self.trace(range, |trace| {
            trace.write(by)?;
            trace.awaited = true;
            Ok(())
        })
    }

    /// Writes the bytes of a copy that was under way.
    pub fn land(&mut self, offset: u64, bytes: &[u8], by: Accessor) -> Result<()> {
        let range = self.range(offset, bytes.len())?;
        self.trace(range, |trace| {
            trace.awaited = false;
            Ok(())
        })?;
        self.write(offset, bytes, by)
    }

    /// Writes bytes.
    pub fn write(&mut self, offset: u64, bytes: &[u8], by: Accessor) -> Result<()> {
        let range = self.range(offset, bytes.len())?;
        self.trace(range.clone(), |trace| trace.write(by))?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }
}

/// The buffers of a device.
#[derive(Default)]
pub struct Global {
    /// In the order of their addresses; none where one was freed.
    buffers: Vec<Option<Traced>>,
}

impl Global {
    /// Adds a buffer, and gives its address.
    pub fn add(&mut self, name: String, bytes: Vec<u8>) -> u64 {
        self.buffers.push(Some(Traced::new(name, bytes)));
        self.buffers.len() as u64 * DISTANCE + ALIGNMENT
    }

    /// Takes the buffer that begins at an address away; how many bytes it had, where there is one.
    pub fn free(&mut self, address: u64) -> Option<usize> {
        let (index, 0) = place(address) else { return None };
        self.buffers.get_mut(index)?.take().map(|buffer| buffer.bytes.len())
    }

    /// What the buffer at an address holds.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        self.buffers.get(place(address).0)?.as_ref().map(Traced::bytes)
    }

    /// Bytes from an address on, for the host, which accesses them while nothing runs.
    ///
    /// # Errors
    /// Bytes that no buffer has.
    pub fn host(&mut self, address: u64, size: usize) -> Result<&mut [u8]> {
        let (buffer, offset) = self.at(address)?;
        let range = usize::try_from(offset).ok().and_then(|start| {
            let end = start.checked_add(size)?;
            (end <= buffer.bytes.len()).then_some(start..end)
        });
        let range = range.with_context(|| format!("{size} bytes at {address:#x}"))?;
        Ok(&mut buffer.bytes[range])
    }

    /// Forgets who accessed what: a launch is complete.
    pub fn forget(&mut self) {
        self.buffers.iter_mut().flatten().for_each(Traced::forget);
    }

    /// The buffer of an address, and the offset in it. What lies in front of a buffer belongs to it.
    pub fn at(&mut self, address: u64) -> Result<(&mut Traced, u64)> {
        let (index, offset) = place(address);
        match self.buffers.get_mut(index) {
            Some(Some(buffer)) => Ok((buffer, offset)),
            _ => bail!("out of bounds: address {address:#x} belongs to no buffer"),
        }
    }
}

/// The number of the buffer of an address, and the offset in it.
fn place(address: u64) -> (usize, u64) {
    let index = (address.wrapping_add(DISTANCE / 2) / DISTANCE).wrapping_sub(1) as usize;
    let start = (index as u64).wrapping_add(1).wrapping_mul(DISTANCE).wrapping_add(ALIGNMENT);
    (index, address.wrapping_sub(start))
}
