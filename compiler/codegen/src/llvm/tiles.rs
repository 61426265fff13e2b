//! Products of tiles, in the registers of a matrix unit (AMX).
//!
//! A *region* is the largest nest of loops that does nothing but products of tiles and does not move any of their sums.
//! The sums are in registers all through it: they are read, or begin as zeros, in front of it, and are written behind it.
//! The other registers hold operands; which ones is decided when code is made, since what is unrolled is known then.
//! Where a nest is no region, because it has more sums than registers or the sizes of its tiles change, the instruction
//! for lanes computes it, or the software model.

use super::emitter::Emitter;
use super::environment::Binding;
use super::ir::V;
use super::tensorize::WORD_BYTES;
use crate::error::Result;
use crate::intrinsics::{Emit, instruction};
use crate::linear::flatten;
use hone_tensor::{BlockBody, BufferId, Expr, Intrinsic, Loop, LoopKind, Match, Statement, VarId};
use inkwell::module::Linkage;
use inkwell::values::{InstructionValue, PointerValue};

/// Tile registers.
const REGISTERS: u8 = 8;
/// Registers that sums may take: one is left for rows, and one for columns.
const MAX_SUMS: usize = 6;

/// Where a tile's first element is: one expression over what is not constant here.
type Origin = (BufferId, Expr);

/// Rows, and bytes of each.
type Shape = (u8, u16);

/// A tile in memory, and how it is in a register.
#[derive(Clone, Debug, PartialEq)]
struct Tile {
    origin: Origin,
    shape: Shape,
    /// Bytes from a row to the next one.
    stride: i64,
}

/// A product of tiles: the tile of sums, then those of rows and of columns.
struct Product {
    tiles: [Tile; 3],
    /// LLVM's intrinsic.
    name: &'static str,
    /// Where each tile is indexed.
    indices: [(BufferId, Vec<Expr>); 3],
}

/// Registers for tiles of one operand and shape, taken in turn.
#[derive(Debug)]
struct Pool {
    is_rows: bool,
    shape: Shape,
    registers: Vec<u8>,
    next: usize,
}

/// What a region has in tile registers.
#[derive(Debug)]
pub(crate) struct Region {
    sums: Vec<Tile>,
    /// Where each tile of sums is indexed.
    indices: Vec<(BufferId, Vec<Expr>)>,
    pools: Vec<Pool>,
    /// What the registers of operands hold here.
    loaded: [Option<Origin>; REGISTERS as usize],
}

/// A configuration of the tile registers, and where it is loaded.
pub(crate) struct Configured<'c> {
    bytes: [u8; 64],
    call: InstructionValue<'c>,
}

impl Region {
    /// Shapes of all registers as the processor reads them (Intel's manual, `LDTILECFG`, palette 1).
    fn configuration(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let sums = self.sums.iter().enumerate().map(|(number, sum)| (number, sum.shape));
        let pooled = |pool: &Pool| {
            let shape = pool.shape;
            pool.registers.clone().into_iter().map(move |register| (usize::from(register), shape))
        };
        for (register, (rows, columns)) in sums.chain(self.pools.iter().flat_map(pooled)) {
            bytes[16 + 2 * register..18 + 2 * register].copy_from_slice(&columns.to_le_bytes());
            bytes[48 + register] = rows;
        }
        bytes
    }

    /// The register that holds an operand's tile, and whether it has to be loaded first.
    fn register_of(&mut self, tile: &Tile, is_rows: bool) -> Option<(u8, bool)> {
        let held =
            |register: &u8| self.loaded[usize::from(*register)].as_ref() == Some(&tile.origin);
        let pool = self
            .pools
            .iter_mut()
            .find(|pool| (pool.is_rows, pool.shape) == (is_rows, tile.shape))?;
        if let Some(register) = pool.registers.iter().copied().find(held) {
            return Some((register, false));
        }
        let register = *pool.registers.get(pool.next)?;
        pool.next = (pool.next + 1) % pool.registers.len();
        self.loaded[usize::from(register)] = Some(tile.origin.clone());
        Some((register, true))
    }

    /// Nothing is known of what operands' registers hold: where a loop begins, and where it ends.
    fn forget(&mut self) {
        self.loaded = Default::default();
    }
}

impl<'c> Emitter<'c, '_> {
    /// A loop that is a region, as one that takes its sums up; `None` where it is none.
    pub(crate) fn as_region(&mut self, inner: &Loop) -> Option<Result<()>> {
        let region = self.region(inner)?;
        Some(self.run_region(inner, region, false))
    }

    /// Statements that set the sums of a region to zero, and the region behind them, as the region alone; `None` where
    /// they are something else.
    pub(crate) fn as_region_from_zero(
        &mut self,
        first: &Statement,
        then: Option<&Statement>,
    ) -> Option<Result<()>> {
        let Some(Statement::Loop(inner)) = then else { return None };
        let (buffer, elements) = self.zeros(first)?;
        let region = self.region(inner)?;
        let summed = |sum: &Tile| {
            let (rows, bytes) = sum.shape;
            i64::from(rows) * i64::from(bytes) / WORD_BYTES
        };
        let same = region.sums.iter().all(|sum| sum.origin.0 == buffer);
        let all = region.sums.iter().map(summed).sum::<i64>() == elements;
        (same && all).then(|| self.run_region(inner, region, true))
    }

    /// The buffer of which a nest of constant extents sets elements to zero, and how many.
    fn zeros(&self, statement: &Statement) -> Option<(BufferId, i64)> {
        match statement {
            Statement::Loop(inner) => {
                let extent = self.environment.simplify(&inner.extent).as_integer()?;
                let [only] = &inner.body[..] else { return None };
                let (buffer, elements) = self.zeros(only)?;
                Some((buffer, extent * elements))
            }
            Statement::Realize(realize) if realize.predicate.is_none() => {
                let block = &self.program.blocks[realize.block];
                match &block.body {
                    BlockBody::Map(Expr::Constant(value, _)) if *value == 0.0 => {
                        Some((block.buffer, 1))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// One product of tiles, inside a region; elsewhere the nest that it stands for.
    pub(crate) fn tiled(&mut self, loop_: &Loop, intrinsic: Intrinsic) -> Result<()> {
        if self.tiles.is_none() {
            return self.nest_of_tiles(loop_, intrinsic);
        }
        let Some(product) = self.product(loop_, intrinsic) else {
            return Err(self.unsupported("a product of tiles in a region has no constant shape"));
        };
        let Some(region) = &mut self.tiles else { return Ok(()) };
        let [sum, rows, columns] = &product.tiles;
        let number = region.sums.iter().position(|known| known == sum);
        let found = (number, region.register_of(rows, true), region.register_of(columns, false));
        let (Some(number), Some(rows_in), Some(columns_in)) = found else {
            return Err(self.unsupported("a product of tiles has no register"));
        };
        for (operand, (register, is_new)) in [(1, rows_in), (2, columns_in)] {
            if is_new {
                let (buffer, indices) = &product.indices[operand];
                let address = self.access(*buffer, indices)?.start().0;
                let stride = product.tiles[operand].stride;
                self.move_tile("llvm.x86.tileloadd64", register, address, stride)?;
            }
        }
        let registers = [number as u8, rows_in.0, columns_in.0].map(|number| self.register(number));
        self.ir.intrinsic_call(product.name, &[], &registers)?;
        Ok(())
    }

    /// Nothing is known of what operands' registers hold.
    pub(crate) fn forget_tiles(&mut self) {
        if let Some(region) = &mut self.tiles {
            region.forget();
        }
    }

    /// Ends a kernel: the tile registers are configured where it begins if they always are in the same way, and are
    /// released, so that other code does not save them.
    pub(crate) fn end_tiles(&mut self) -> Result<()> {
        let Some(first) = self.configured.first() else { return Ok(()) };
        if self.configured.iter().all(|other| other.bytes == first.bytes) {
            let end = self.ir.here()?;
            let begin = self.function.get_first_basic_block();
            if let Some(start) = begin.and_then(|block| block.get_first_instruction()) {
                let bytes = first.bytes;
                self.ir.builder.position_before(&start);
                self.configure(bytes)?;
                self.ir.builder.position_at_end(end);
                for Configured { call, .. } in self.configured.drain(..) {
                    call.erase_from_basic_block();
                }
            }
        }
        self.ir.intrinsic_call("llvm.x86.tilerelease", &[], &[])?;
        Ok(())
    }

    fn run_region(&mut self, inner: &Loop, region: Region, from_zero: bool) -> Result<()> {
        let bytes = region.configuration();
        self.configure(bytes)?;
        let call = self.ir.here()?.get_last_instruction();
        self.configured.extend(call.map(|call| Configured { bytes, call }));
        for number in 0..region.sums.len() {
            if from_zero {
                self.ir.intrinsic_call("llvm.x86.tilezero", &[], &[self.register(number as u8)])?;
            } else {
                self.move_sums("llvm.x86.tileloadd64", &region, number)?;
            }
        }
        self.tiles = Some(region);
        let result = self.loop_statement(inner);
        let region = self.tiles.take();
        result?;
        let Some(region) = region else { return Ok(()) };
        for number in 0..region.sums.len() {
            self.move_sums("llvm.x86.tilestored64", &region, number)?;
        }
        Ok(())
    }

    fn configure(&mut self, bytes: [u8; 64]) -> Result<()> {
        let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("tiles.{name}");
        let global = self.ir.module.get_global(&name).unwrap_or_else(|| {
            let byte = self.ir.context.i8_type();
            let values = bytes.map(|value| byte.const_int(u64::from(value), false));
            let global = self.ir.module.add_global(byte.array_type(64), None, &name);
            global.set_initializer(&byte.const_array(&values));
            global.set_constant(true);
            global.set_linkage(Linkage::Private);
            global.set_alignment(64);
            global
        });
        let address = V::PointerValue(global.as_pointer_value());
        self.ir.intrinsic_call("llvm.x86.ldtilecfg", &[], &[address])?;
        Ok(())
    }

    fn register(&self, number: u8) -> V<'c> {
        self.ir.context.i8_type().const_int(u64::from(number), false).into()
    }

    fn move_sums(&mut self, name: &str, region: &Region, number: usize) -> Result<()> {
        let (buffer, indices) = &region.indices[number];
        let address = self.access(*buffer, indices)?.start().0;
        self.move_tile(name, number as u8, address, region.sums[number].stride)
    }

    fn move_tile(
        &self,
        name: &str,
        register: u8,
        address: PointerValue<'c>,
        stride: i64,
    ) -> Result<()> {
        let args = [self.register(register), address.into(), self.ir.i64(stride).into()];
        self.ir.intrinsic_call(name, &[], &args)?;
        Ok(())
    }

    /// The region that a loop is, where it is one and there is none around it.
    fn region(&mut self, inner: &Loop) -> Option<Region> {
        let free =
            self.tiles.is_none() && self.mask.is_none() && self.environment.lanes().is_none();
        if !free || !self.has_tiles(inner) {
            return None;
        }
        let (mut products, mut moving) = (Vec::new(), Vec::new());
        self.products(&Statement::Loop(Box::new(inner.clone())), &mut moving, &mut products)?;
        let mut region =
            Region { sums: vec![], indices: vec![], pools: vec![], loaded: Default::default() };
        let (mut rows, mut columns): (Vec<Tile>, Vec<Tile>) = (vec![], vec![]);
        for Product { tiles: [sum, of_rows, of_columns], indices, .. } in products {
            if moving.iter().any(|var| sum.origin.1.mentions(*var)) {
                return None;
            }
            if !region.sums.contains(&sum) {
                if region.sums.iter().any(|other| other.origin == sum.origin) {
                    return None;
                }
                region.sums.push(sum);
                region.indices.push(indices.into_iter().next()?);
            }
            for (tile, all) in [(of_rows, &mut rows), (of_columns, &mut columns)] {
                if !all.contains(&tile) {
                    all.push(tile);
                }
            }
        }
        if region.sums.is_empty() || region.sums.len() > MAX_SUMS {
            return None;
        }
        region.pools = pools(region.sums.len() as u8, &rows, &columns)?;
        Some(region)
    }

    /// Whether a nest has products of tiles that the target has an instruction for.
    fn has_tiles(&self, inner: &Loop) -> bool {
        match inner.kind {
            LoopKind::Tensorized(intrinsic) => {
                intrinsic.is_of_tiles() && instruction(self.target, intrinsic).is_some()
            }
            _ => inner.body.iter().any(|statement| match statement {
                Statement::Loop(inner) => self.has_tiles(inner),
                _ => false,
            }),
        }
    }

    /// The products of a nest that has nothing else, each once for all iterations of the loops that run, whose variables
    /// are put into `moving`.
    fn products(
        &mut self,
        statement: &Statement,
        moving: &mut Vec<VarId>,
        products: &mut Vec<Product>,
    ) -> Option<()> {
        let Statement::Loop(inner) = statement else { return None };
        let extent = self.environment.simplify(&inner.extent).as_integer();
        match (inner.kind, extent) {
            (LoopKind::Tensorized(intrinsic), _) if intrinsic.is_of_tiles() => {
                products.push(self.product(inner, intrinsic)?);
                Some(())
            }
            (LoopKind::Unrolled | LoopKind::Serial, Some(extent @ 1))
            | (LoopKind::Unrolled, Some(extent)) => {
                for value in 0..extent {
                    self.environment.bind(inner.var, Binding::Constant(value));
                    let found = inner
                        .body
                        .iter()
                        .try_for_each(|inside| self.products(inside, moving, products));
                    self.environment.unbind(inner.var);
                    found?;
                }
                Some(())
            }
            (LoopKind::Serial, Some(_)) => {
                moving.push(inner.var);
                inner.body.iter().try_for_each(|inside| self.products(inside, moving, products))
            }
            _ => None,
        }
    }

    /// The product that a tensorized nest is here; `None` where its shape is no constant.
    fn product(&mut self, loop_: &Loop, intrinsic: Intrinsic) -> Option<Product> {
        let program = self.program;
        let Emit::Tiles(names) = instruction(self.target, intrinsic)?.emit else { return None };
        // The program's nest is found by its variable; `loop_` may be a copy of it with variables replaced.
        let found = intrinsic.find(program, loop_).ok()?;
        let extent = |inner: &&Loop| self.environment.simplify(&inner.extent).as_integer();
        let extents: Vec<i64> = found.loops.iter().map(extent).collect::<Option<_>>()?;
        let [rows, columns, groups, _] = extents[..] else { return None };
        for inner in &found.loops {
            self.environment.bind(inner.var, Binding::Constant(0));
        }
        let product = self.product_at(&found, (rows, columns, groups), names);
        for inner in &found.loops {
            self.environment.unbind(inner.var);
        }
        product
    }

    fn product_at(
        &self,
        found: &Match<'_>,
        (rows, columns, groups): (i64, i64, i64),
        names: &[(hone_types::DataType, &'static str)],
    ) -> Option<Product> {
        let block = &self.program.blocks[found.realize.block];
        let sums = Expr::Load(block.buffer, block.indices.clone());
        let has_rows = found.steps.iter().position(|steps| steps[1] == 0)?;
        let (of_rows, of_columns) = (found.operands[has_rows], found.operands[1 - has_rows]);
        let dtype = of_rows.dtype(self.program);
        let name = names.iter().find(|(of, _)| *of == dtype)?.1;
        let shape = |rows: i64, words: i64| -> Option<Shape> {
            Some((u8::try_from(rows).ok()?, u16::try_from(words * WORD_BYTES).ok()?))
        };
        let steps = [found.sum_steps[0], found.steps[has_rows][0], found.steps[1 - has_rows][2]];
        let shapes = [shape(rows, columns)?, shape(rows, groups)?, shape(groups, columns)?];
        let mut parts = Vec::new();
        for ((load, step), shape) in [&sums, of_rows, of_columns].into_iter().zip(steps).zip(shapes)
        {
            let Expr::Load(buffer, indices) = load else { return None };
            let indices = self.placed(found.realize, indices);
            let declared = &self.program.buffers[*buffer];
            let flat = self.environment.simplify(&flatten(&indices, &declared.shape)?);
            let stride = step * declared.dtype.bytes() as i64;
            parts.push((Tile { origin: (*buffer, flat), shape, stride }, (*buffer, indices)));
        }
        let (tiles, indices): (Vec<Tile>, Vec<_>) = parts.into_iter().unzip();
        Some(Product { tiles: tiles.try_into().ok()?, name, indices: indices.try_into().ok()? })
    }

    /// The nest without tile registers: rows around groups of terms around the lanes of the instruction for such products,
    /// where the target has one, and around vectors elsewhere.
    fn nest_of_tiles(&mut self, rows: &Loop, intrinsic: Intrinsic) -> Result<()> {
        let of_lanes = Intrinsic::ALL.into_iter().find(|lanes| lanes.of_tiles() == Some(intrinsic));
        let of_lanes = of_lanes.filter(|lanes| instruction(self.target, *lanes).is_some());
        let mut nest = Loop { kind: LoopKind::Serial, ..rows.clone() };
        if let [Statement::Loop(columns)] = &mut nest.body[..] {
            columns.kind = match of_lanes {
                Some(intrinsic) => LoopKind::Tensorized(intrinsic),
                None => LoopKind::Vectorized,
            };
            if let [Statement::Loop(groups)] = &mut columns.body[..] {
                let terms = std::mem::take(&mut groups.body);
                let groups = Loop { body: vec![], ..(**groups).clone() };
                let columns = Loop { body: terms, ..(**columns).clone() };
                let body = vec![Statement::Loop(Box::new(columns))];
                nest.body = vec![Statement::Loop(Box::new(Loop { body, ..groups }))];
            }
        }
        self.loop_statement(&nest)
    }
}

/// Registers behind those of the sums for the tiles of both operands: each shape has some.
fn pools(sums: u8, rows: &[Tile], columns: &[Tile]) -> Option<Vec<Pool>> {
    let free = REGISTERS - sums;
    let (wanted_rows, wanted_columns) = (rows.len() as u8, columns.len() as u8);
    let half = (free / 2).max(1);
    let of_rows = match wanted_columns <= free - half {
        true => wanted_rows.min(free - wanted_columns),
        false => wanted_rows.min(half),
    };
    let of_columns = wanted_columns.min(free - of_rows);
    let mut pools = Vec::new();
    let mut register = sums;
    for (is_rows, tiles, count) in [(true, rows, of_rows), (false, columns, of_columns)] {
        let mut shapes: Vec<Shape> = tiles.iter().map(|tile| tile.shape).collect();
        shapes.dedup();
        shapes.sort_unstable();
        shapes.dedup();
        if shapes.len() > usize::from(count) {
            return None;
        }
        let first = pools.len();
        pools.extend(shapes.into_iter().map(|shape| Pool {
            is_rows,
            shape,
            registers: vec![],
            next: 0,
        }));
        let kinds = pools.len() - first;
        for number in 0..count {
            pools[first + usize::from(number) % kinds].registers.push(register);
            register += 1;
        }
    }
    Some(pools)
}
