//! Loads, stores, and where addresses lead.

use crate::machine::Block;
use crate::memory::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::program::{Address, Register, Source, Space};
use crate::types::{Kind, Type};
use anyhow::{Context, Result, bail, ensure};

/// Where generic addresses of global memory begin.
const GLOBAL: u64 = 2 * SHARED_WINDOW;

impl Block<'_> {
    pub(crate) fn address(&self, address: Address, lane: usize) -> u64 {
        self.get(address.base, lane).wrapping_add_signed(address.offset)
    }

    /// The kind of memory that an address is of, and the address in it.
    fn resolved(space: Space, address: u64) -> (Space, u64) {
        match (space, address) {
            (Space::Generic, LOCAL_WINDOW..SHARED_WINDOW) => (Space::Local, address - LOCAL_WINDOW),
            (Space::Generic, SHARED_WINDOW..GLOBAL) => (Space::Shared, address - SHARED_WINDOW),
            (Space::Generic, _) => (Space::Global, address),
            _ => (space, address),
        }
    }

    pub(crate) fn read(
        &mut self,
        space: Space,
        address: u64,
        size: usize,
        lane: usize,
    ) -> Result<Vec<u8>> {
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
        let base = lane * self.entry.local;
        Ok(base + start..base + end)
    }

    pub(crate) fn load(
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
            for (register, element) in to.iter().zip(bytes.chunks_exact(size)) {
                let mut raw = [0; 8];
                raw[..size].copy_from_slice(element);
                // A narrow element extends to the register by its sign where it has one.
                let raw = u64::from_le_bytes(raw);
                let value = match ty.kind {
                    Kind::Signed => ty.signed(raw) as u64,
                    _ => raw,
                };
                self.set(*register, *lane, value);
            }
        }
        Ok(())
    }

    pub(crate) fn store(
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
            for source in from {
                bytes.extend_from_slice(&self.get(*source, *lane).to_le_bytes()[..size]);
            }
            let at = self.address(address, *lane);
            let stored = self.write(space, at, &bytes, *lane);
            stored.with_context(|| format!("lane {lane}"))?;
        }
        Ok(())
    }
}
