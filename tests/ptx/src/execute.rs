//! What single instructions do.

use crate::machine::{Block, CHUNK, WARP};
use crate::memory::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::program::{Address, Instruction, Operation, Source, Space};
use crate::tensor_core;
use crate::types::{Kind, Rounding, Type, binary, compare, convert, fused, unary};
use anyhow::{Context, Result, bail, ensure};

impl Block<'_> {
    pub(crate) fn execute(&mut self, instruction: &Instruction, lanes: &[usize]) -> Result<()> {
        match &instruction.operation {
            Operation::Move { to, from } => {
                self.each(lanes, *to, |block, lane| Ok(block.get(*from, lane)))
            }
            Operation::Parameter { to, number } => {
                let value = self.arguments[*number];
                self.each(lanes, *to, |_, _| Ok(value))
            }
            Operation::Unary { op, ty, to, a } => {
                self.each(lanes, *to, |block, lane| unary(*op, *ty, block.get(*a, lane)))
            }
            Operation::Binary { op, ty, to, a, b } => self.each(lanes, *to, |block, lane| {
                binary(*op, *ty, block.get(*a, lane), block.get(*b, lane))
            }),
            Operation::Fused { ty, to, a, b, c } => self.each(lanes, *to, |block, lane| {
                Ok(fused(*ty, block.get(*a, lane), block.get(*b, lane), block.get(*c, lane)))
            }),
            Operation::Compare { op, unordered, ty, to, a, b } => {
                self.each(lanes, *to, |block, lane| {
                    let (a, b) = (block.get(*a, lane), block.get(*b, lane));
                    Ok(u64::from(compare(*op, *unordered, *ty, a, b)))
                })
            }
            Operation::Select { to, then, otherwise, by } => {
                self.each(lanes, *to, |block, lane| {
                    Ok(block.get(if block.get(*by, lane) != 0 { *then } else { *otherwise }, lane))
                })
            }
            Operation::Convert { to_type, from_type, rounding, saturate, to, a } => {
                self.each(lanes, *to, |block, lane| {
                    convert(*to_type, *from_type, *rounding, *saturate, block.get(*a, lane))
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
                self.each(lanes, *to, |block, lane| {
                    let product =
                        ty.wide(block.get(*a, lane)).wrapping_mul(ty.wide(block.get(*b, lane)));
                    let sum = product.wrapping_add(result.wide(block.get(*c, lane)));
                    Ok(result.cut(sum as u64))
                })
            }
            Operation::Pack { to, parts, bits } => self.each(lanes, *to, |block, lane| {
                let mask = (1u64 << bits) - 1;
                let part = |(index, part): (usize, &Source)| {
                    (block.get(*part, lane) & mask) << (index as u32 * bits)
                };
                Ok(parts.iter().enumerate().map(part).fold(0, |a, b| a | b))
            }),
            Operation::Unpack { to, from, bits } => {
                let mask = (1u64 << bits) - 1;
                for lane in lanes {
                    let value = self.get(*from, *lane);
                    for (index, to) in to.iter().enumerate() {
                        if let Some(to) = to {
                            self.set(*to, *lane, value >> (index as u32 * bits) & mask);
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
                self.each(lanes, *to, |block, lane| Ok(block.get(*from, lane).wrapping_add(window)))
            }
            Operation::Field { ty, to, a, b, c } => self.each(lanes, *to, |block, lane| {
                let (start, length) = (block.get(*b, lane) & 0xff, block.get(*c, lane) & 0xff);
                Ok(field(*ty, block.get(*a, lane), start as u32, length as u32))
            }),
            Operation::Funnel { left, wrap, to, low, high, by } => {
                self.each(lanes, *to, |block, lane| {
                    let both = block.get(*high, lane) << 32 | block.get(*low, lane) & 0xffff_ffff;
                    let by = block.get(*by, lane) as u32;
                    let by = if *wrap { by & 31 } else { by.min(32) };
                    Ok(if *left { (both << by) >> 32 } else { (both >> by) & 0xffff_ffff })
                })
            }
            Operation::ConvertPair { to_type, to, upper, lower } => {
                let from = Type::named("f32").context("f32")?;
                let half = |raw: u64| convert(*to_type, from, Rounding::Nearest, false, raw);
                self.each(lanes, *to, |block, lane| {
                    let (upper, lower) = (block.get(*upper, lane), block.get(*lower, lane));
                    Ok(half(upper)? << 16 | half(lower)?)
                })
            }
            Operation::Exchange { to, a, bits } => {
                tensor_core::warps(lanes)?.try_for_each(|warp| {
                    let values: Vec<u64> = warp.iter().map(|lane| self.get(*a, *lane)).collect();
                    for (index, lane) in warp.iter().enumerate() {
                        self.set(*to, *lane, values[index ^ bits]);
                    }
                    Ok(())
                })
            }
            Operation::Permute { to, a, b, c } => self.each(lanes, *to, |block, lane| {
                let both = block.get(*b, lane) << 32 | block.get(*a, lane) & 0xffff_ffff;
                let choice = block.get(*c, lane);
                Ok((0..4).fold(0, |value, index| {
                    value | permuted(both, choice >> (4 * index)) << (8 * index)
                }))
            }),
            other => self.execute_copies(other, lanes),
        }
    }

    fn execute_copies(&mut self, operation: &Operation, lanes: &[usize]) -> Result<()> {
        match operation {
            Operation::CopyAsync { to, from, bytes, read } => {
                for lanes in lanes.chunks(8).filter(|_| *bytes == CHUNK) {
                    self.statistics.conflicts += self.conflicts(*to, lanes);
                }
                for lane in lanes {
                    let (to, from) = (self.address(*to, *lane), self.address(*from, *lane));
                    let read = read.map_or(*bytes as u64, |read| self.get(read, *lane));
                    let data = self.copied(from, *bytes, read, *lane)?;
                    let by = self.accessor(*lane);
                    self.shared.await_copy(to, *bytes, by)?;
                    self.copies[*lane].open.push((to, data));
                }
                Ok(())
            }
            Operation::CommitCopies => {
                for lane in lanes {
                    let copies = &mut self.copies[*lane];
                    let group = std::mem::take(&mut copies.open);
                    copies.groups.push(group);
                }
                Ok(())
            }
            Operation::WaitCopies { groups } => {
                for lane in lanes {
                    let by = self.accessor(*lane);
                    let copies = &mut self.copies[*lane];
                    let landing = copies.groups.len().saturating_sub(*groups);
                    let landed: Vec<_> = copies.groups.drain(..landing).flatten().collect();
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
                        for (index, lane) in warp.iter().enumerate() {
                            let value = tensor_core::fragment(rows, index, *transposed);
                            self.set(*register, *lane, value);
                        }
                    }
                    Ok(())
                }),
            Operation::Multiply { factors, d, a, b, c } => {
                tensor_core::warps(lanes)?.try_for_each(|warp| {
                    let gather = |sources: &[Source]| -> Vec<[u64; WARP]> {
                        let of = |source: &Source| {
                            std::array::from_fn(|index| self.get(*source, warp[index]))
                        };
                        sources.iter().map(of).collect()
                    };
                    let sums = tensor_core::multiply(*factors, &gather(a), &gather(b), &gather(c));
                    for (register, values) in d.iter().zip(&sums) {
                        for (index, lane) in warp.iter().enumerate() {
                            self.set(*register, *lane, values[index]);
                        }
                    }
                    Ok(())
                })
            }
            other => self.execute_warpgroups(other, lanes),
        }
    }

    fn execute_warpgroups(&mut self, operation: &Operation, lanes: &[usize]) -> Result<()> {
        match operation {
            Operation::FenceWrites => {
                lanes.iter().for_each(|lane| self.fences[*lane] += 1);
                Ok(())
            }
            Operation::FenceWarpgroup => self.fence_warpgroups(lanes),
            Operation::MultiplyWarpgroup(product) => self.start_product(product, lanes),
            Operation::CommitProducts => self.commit_products(lanes),
            Operation::WaitProducts { groups } => self.wait_products(*groups, lanes),
            other => bail!("{other:?} is no instruction of this kind"),
        }
    }

    /// What a copy of so many bytes brings that reads the first ones: the others are zeros, and where it reads none the
    /// address is not looked at.
    fn copied(&mut self, from: u64, bytes: usize, read: u64, lane: usize) -> Result<Vec<u8>> {
        ensure!(read <= bytes as u64, "a copy of {bytes} bytes reads {read}");
        let mut data = vec![0; bytes];
        if read == bytes as u64 {
            return self.read(Space::Global, from, bytes, lane);
        }
        ensure!(
            read == 0 || from.is_multiple_of(bytes as u64),
            "misaligned: a copy of {bytes} bytes from {from:#x}"
        );
        for (number, byte) in data.iter_mut().enumerate().take(read as usize) {
            *byte = self.read(Space::Global, from + number as u64, 1, lane)?[0];
        }
        Ok(data)
    }

    /// Lanes, of eight that access a chunk each, that wait for another one's banks.
    fn conflicts(&self, address: Address, lanes: &[usize]) -> u64 {
        let mut in_bank = [0u64; 8];
        for lane in lanes {
            in_bank[(self.address(address, *lane) / CHUNK as u64 % 8) as usize] += 1;
        }
        in_bank.iter().max().map_or(0, |most| most.saturating_sub(1))
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
        Kind::Signed => ty.cut(((wide << unused) >> unused) as u64),
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
