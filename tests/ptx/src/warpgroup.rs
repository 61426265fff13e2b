//! Products of warpgroups, by the manual of PTX ("Asynchronous Warpgroup Level Matrix Instructions"): operands are read out of
//! shared memory by descriptors, and results are there when they are waited for.
//!
//! Until then shared memory that is read may not be written, and registers of sums not be touched. Reads and results land at
//! the wait that says so, and not before.

use crate::machine::{Block, WARP};
use crate::program::{Register, Source};
use crate::tensor_core::Factors;
use anyhow::{Context, Result, bail, ensure};
use std::collections::VecDeque;

/// Lanes of a warpgroup.
pub(crate) const WARPGROUP: usize = 128;
/// Rows of a product.
const ROWS: usize = 64;

/// One instruction that multiplies.
#[derive(Clone, Debug)]
pub struct Product {
    /// What is multiplied.
    factors: Factors,
    columns: usize,
    /// Registers of the sums.
    pub(crate) sums: Vec<Register>,
    descriptors: [Source; 2],
    /// Whether sums are added to, else they begin with the products.
    added: Register,
    /// Whether neighbours of an operand are those of rows or columns, and not of the depth.
    transposed: [bool; 2],
}

impl Product {
    /// A product of factors and columns, with sums, descriptors and the predicate, and the constants behind them: signs of
    /// both operands, then, of 16 bits, whether they are transposed.
    pub(crate) fn new(
        (factors, columns): (Factors, usize),
        (sums, descriptors, added): (Vec<Register>, [Source; 2], Register),
        rest: &[i32],
    ) -> Result<Self> {
        ensure!(sums.len() == columns / 2, "{} registers for {columns} columns", sums.len());
        let transposed = match (factors, rest) {
            (Factors::Floats(_), [1, 1, a @ (0 | 1), b @ (0 | 1)]) => [*a == 1, *b == 1],
            (Factors::TensorFloats, [1, 1]) | (Factors::Bytes(_), []) => [false; 2],
            _ => bail!("constants {rest:?} are not known"),
        };
        Ok(Self { factors, columns, sums, descriptors, added, transposed })
    }
}

/// What a warpgroup has under way.
#[derive(Clone, Default)]
pub(crate) struct Warpgroup {
    /// Not yet in a group.
    open: Vec<Started>,
    /// In groups, oldest first.
    groups: VecDeque<Vec<Started>>,
    /// Whether registers of sums are ordered before the products that follow.
    fenced: bool,
}

impl Warpgroup {
    /// Whether products are under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.started().next().is_some()
    }

    fn started(&self) -> impl Iterator<Item = &Started> {
        self.groups.iter().flatten().chain(&self.open)
    }
}

/// A product that is under way.
#[derive(Clone)]
struct Started {
    product: Product,
    operands: [Operand; 2],
    added: bool,
}

/// An operand in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operand {
    start: u64,
    /// Bytes between parts of a line's length of rows or columns.
    leading: u64,
    /// Bytes between eight lines.
    stride: u64,
    /// Bytes of a line.
    line: u64,
    transposed: bool,
    bytes: u64,
}

impl Operand {
    /// The operand of a descriptor, of elements of so many bytes.
    fn of(descriptor: u64, transposed: bool, bytes: u64) -> Result<Self> {
        let field = |bit: u32| (descriptor >> bit & 0x3fff) << 4;
        let known = 0x3fff | 0x3fff << 16 | 0x3fff << 32 | 3 << 62;
        ensure!(descriptor & !known == 0, "descriptor {descriptor:#x} has other bits");
        let line = match descriptor >> 62 {
            1 => 128,
            2 => 64,
            order => bail!("order {order} of descriptor {descriptor:#x} is not known"),
        };
        let start = field(0);
        // The order of chunks follows from the address: with no offset given, it begins with the first of eight lines.
        ensure!(start % (8 * line) < line, "descriptor {descriptor:#x} begins within eight lines");
        Ok(Self { start, leading: field(16), stride: field(32), line, transposed, bytes })
    }

    /// The address of an element.
    fn address(&self, across: u64, depth: u64) -> u64 {
        let at = match self.transposed {
            false => across / 8 * self.stride + across % 8 * self.line + depth * self.bytes,
            true => {
                let in_line = self.line / self.bytes;
                across / in_line * self.leading
                    + depth / 8 * self.stride
                    + depth % 8 * self.line
                    + across % in_line * self.bytes
            }
        };
        let at = self.start + at;
        // Chunks of 16 bytes change their order from line to line.
        at ^ (at >> 3 & (self.line - 16))
    }

    /// Addresses of the chunks of rows or columns by the depth.
    fn chunks(&self, across: u64, depth: u64) -> impl Iterator<Item = u64> {
        let all = (0..across).flat_map(move |across| (0..depth).map(move |depth| (across, depth)));
        let operand = *self;
        all.map(move |(across, depth)| operand.address(across, depth))
            .filter(|address| address.is_multiple_of(16))
    }
}

/// The whole warpgroups that lanes are.
fn warpgroups(lanes: &[usize]) -> Result<Vec<usize>> {
    let each = lanes.chunks(WARPGROUP).map(|lanes| {
        let whole = lanes.len() == WARPGROUP
            && lanes[0].is_multiple_of(WARPGROUP)
            && lanes[WARPGROUP - 1] == lanes[0] + WARPGROUP - 1;
        ensure!(whole, "divergent warpgroup: some lanes are missing");
        Ok(lanes[0] / WARPGROUP)
    });
    each.collect()
}

impl Block<'_> {
    /// Orders all registers before the products that follow.
    pub(crate) fn fence_warpgroups(&mut self, lanes: &[usize]) -> Result<()> {
        for number in warpgroups(lanes)? {
            self.warpgroups[number].fenced = true;
        }
        Ok(())
    }

    /// Notes that lanes read or write registers of sums by other instructions.
    pub(crate) fn touch_sums(&mut self, sums: &[Register], lanes: &[usize]) -> Result<()> {
        for lane in lanes {
            let warpgroup = &mut self.warpgroups[lane / WARPGROUP];
            let pending = |started: &Started| {
                sums.iter().any(|register| started.product.sums.contains(register))
            };
            ensure!(!warpgroup.started().any(pending), "lane {lane}: a sum is not waited for");
            warpgroup.fenced = false;
        }
        Ok(())
    }

    /// Starts a product of each warpgroup.
    pub(crate) fn start_product(&mut self, product: &Product, lanes: &[usize]) -> Result<()> {
        let by = [self.number, self.epoch];
        for number in warpgroups(lanes)? {
            let lanes = number * WARPGROUP..(number + 1) * WARPGROUP;
            let warpgroup = &self.warpgroups[number];
            ensure!(warpgroup.fenced, "no fence: sums are not ordered before the product");
            let overlaps = |started: &Started| {
                let other = &started.product.sums;
                *other != product.sums && other.iter().any(|sum| product.sums.contains(sum))
            };
            ensure!(!warpgroup.started().any(overlaps), "sums of another product under way");
            let same = |source: Source| {
                let value = self.get(source, lanes.start);
                let all = lanes.clone().all(|lane| self.get(source, lane) == value);
                all.then_some(value).context("lanes of a warpgroup have different operands")
            };
            let bytes = product.factors.bytes() as u64;
            let mut operands = Vec::with_capacity(2);
            for (source, transposed) in product.descriptors.iter().zip(product.transposed) {
                operands.push(Operand::of(same(*source)?, transposed, bytes)?);
            }
            let operands = [operands[0], operands[1]];
            let added = same(Source::Register(product.added))? != 0;
            for (operand, across) in operands.iter().zip([ROWS, product.columns]) {
                for chunk in operand.chunks(across as u64, product.factors.depth() as u64) {
                    self.shared.begin_read(chunk, 16, by, &self.visible_fences)?;
                }
            }
            let started = Started { product: product.clone(), operands, added };
            self.warpgroups[number].open.push(started);
        }
        Ok(())
    }

    /// Makes a group of what each warpgroup has started.
    pub(crate) fn commit_products(&mut self, lanes: &[usize]) -> Result<()> {
        for number in warpgroups(lanes)? {
            let warpgroup = &mut self.warpgroups[number];
            let group = std::mem::take(&mut warpgroup.open);
            warpgroup.groups.push_back(group);
        }
        Ok(())
    }

    /// Ends all but the last groups.
    pub(crate) fn wait_products(&mut self, groups: usize, lanes: &[usize]) -> Result<()> {
        for number in warpgroups(lanes)? {
            let landing = self.warpgroups[number].groups.len().saturating_sub(groups);
            let landed: Vec<Started> =
                self.warpgroups[number].groups.drain(..landing).flatten().collect();
            landed.iter().try_for_each(|started| self.end_product(started, number))?;
        }
        Ok(())
    }

    fn end_product(&mut self, started: &Started, number: usize) -> Result<()> {
        let Started { product, operands, added } = started;
        let (factors, by) = (product.factors, [self.number, self.epoch]);
        let (depth, bytes) = (factors.depth(), factors.bytes());
        let mut matrices = [Vec::new(), Vec::new()];
        for (side, across) in [ROWS, product.columns].into_iter().enumerate() {
            for index in 0..across * depth {
                let (line, at) = ((index / depth) as u64, (index % depth) as u64);
                let address = operands[side].address(line, at) as usize;
                let mut word = [0; 8];
                word[..bytes].copy_from_slice(&self.shared.bytes()[address..address + bytes]);
                matrices[side].push(factors.element(side, u64::from_le_bytes(word), 0));
            }
            for chunk in operands[side].chunks(across as u64, depth as u64) {
                self.shared.end_read(chunk, 16, by)?;
            }
        }
        let [left, right] = matrices;
        for (index, register) in product.sums.iter().enumerate() {
            for in_group in 0..WARPGROUP {
                let (row, column) = element_of(in_group, index);
                let lines = left[row * depth..][..depth].iter().zip(&right[column * depth..]);
                let products = lines.map(|(a, b)| a * b).sum();
                let lane = number * WARPGROUP + in_group;
                let start = match added {
                    true => self.get(Source::Register(*register), lane),
                    false => 0,
                };
                self.set(*register, lane, factors.sum(start, products));
            }
        }
        Ok(())
    }
}

/// Row and column of a sum: a warp has 16 rows, and its registers are those of `mma.sync` for every 8 columns.
fn element_of(lane: usize, register: usize) -> (usize, usize) {
    let (warp, in_warp) = (lane / WARP, lane % WARP);
    let row = 16 * warp + in_warp / 4 + 8 * (register / 2 % 2);
    (row, 8 * (register / 4) + 2 * (in_warp % 4) + register % 2)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    fn descriptor(order: u64, stride: u64, leading: u64, start: u64) -> u64 {
        order << 62 | (stride >> 4) << 32 | (leading >> 4) << 16 | start >> 4
    }

    /// The third line's first chunk of 16 bytes is where its third one would be without an order.
    #[test]
    fn chunks_change_their_order_from_line_to_line() {
        let operand = Operand::of(descriptor(1, 1024, 16, 2048), false, 2).unwrap();
        assert_eq!(operand.address(0, 0), 2048);
        assert_eq!(operand.address(2, 0), 2048 + 2 * 128 + 2 * 16);
        assert_eq!(operand.address(9, 8), 2048 + 1024 + 128);
        let operand = Operand::of(descriptor(2, 512, 16, 512), false, 2).unwrap();
        // Two lines of 64 bytes are in the same order.
        assert_eq!(operand.address(1, 0), 512 + 64);
        assert_eq!(operand.address(2, 0), 512 + 128 + 16);
    }

    /// Where neighbours are columns, parts of a line's length lie `leading` bytes apart, and eight of the depth `stride`.
    #[test]
    fn transposed_operands_lie_in_parts() {
        let operand = Operand::of(descriptor(1, 1024, 8192, 0), true, 2).unwrap();
        assert_eq!(operand.address(63, 0), 126);
        assert_eq!(operand.address(64, 0), 8192);
        assert_eq!(operand.address(0, 1), 128 + 16);
        assert_eq!(operand.address(0, 8), 1024);
    }

    #[test]
    fn no_two_elements_have_one_address() {
        for (order, line) in [(1, 128), (2, 64)] {
            for transposed in [false, true] {
                let (stride, leading) = (8 * line, 16 * line);
                let operand = Operand::of(descriptor(order, stride, leading, 0), transposed, 2);
                let operand = operand.unwrap();
                let all: BTreeSet<u64> =
                    (0..128 * 16).map(|index| operand.address(index / 16, index % 16)).collect();
                assert_eq!(all.len(), 128 * 16);
                assert_eq!(operand.chunks(128, 16).count(), 128 * 16 * 2 / 16);
            }
        }
    }

    #[test]
    fn descriptors_of_other_forms_are_refused() {
        assert!(Operand::of(descriptor(0, 1024, 16, 0), false, 2).is_err());
        assert!(Operand::of(descriptor(3, 256, 16, 0), false, 2).is_err());
        assert!(Operand::of(descriptor(1, 1024, 16, 128), false, 2).is_err());
        assert!(Operand::of(descriptor(1, 1024, 16, 0) | 1 << 49, false, 2).is_err());
    }

    #[test]
    fn every_element_of_the_results_is_in_one_register() {
        let all: BTreeSet<_> = (0..WARPGROUP * 32)
            .map(|index| element_of(index % WARPGROUP, index / WARPGROUP))
            .collect();
        assert_eq!(all.len(), 64 * 64);
        assert_eq!(element_of(37, 6), (16 + 1 + 8, 8 + 2));
    }
}
