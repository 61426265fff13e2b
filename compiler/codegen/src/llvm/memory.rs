//! Addresses, loads and stores.
//!
//! An address is a sum of terms. Terms are added to the buffer's start outermost variable
//! first, so that what a loop does not change can be computed before it, and the constant last, so
//! that it ends in the instruction's displacement.

use super::emitter::Emitter;
use super::environment::Lanes;
use super::ir::{V, lanes};
use crate::error::{CodegenError, Result};
use crate::linear::{Linear, flatten};
use hone_tensor::{BufferId, Expr, Range, Role, Scope};
use hone_types::DataType;
use inkwell::values::{PointerValue, VectorValue};

/// Base addresses of buffers are multiples of this many bytes.
pub(crate) const BUFFER_ALIGNMENT: u64 = 64;

/// Where the elements of an access's lanes are in memory, from lane 0's on.
#[derive(Clone, Debug)]
enum LaneLayout<'c> {
    /// All lanes at the same element, or no lanes.
    Uniform,
    /// One after the other.
    Contiguous,
    /// At these element offsets.
    Offsets(Vec<i64>),
    /// At these elements, from the buffer's start.
    Elements(VectorValue<'c>),
}

/// One element, or one per lane.
#[derive(Clone, Debug)]
pub(crate) struct Access<'c> {
    dtype: DataType,
    address: PointerValue<'c>,
    align: u32,
    layout: LaneLayout<'c>,
    register: bool,
    /// Of a register buffer: lane 0's element, the number of elements, and of those along the innermost axis that has several.
    element: (i64, i64, i64),
    /// Whether every lane, active or not, is inside the buffer.
    safe: bool,
    lanes: Option<Lanes>,
}

impl<'c> Access<'c> {
    /// The address of lane 0's element, and its alignment in bytes.
    pub(crate) fn start(&self) -> (PointerValue<'c>, u32) {
        (self.address, self.align)
    }

    /// Whether all lanes are at one element.
    pub(crate) fn is_uniform(&self) -> bool {
        matches!(self.layout, LaneLayout::Uniform)
    }
}

impl<'c> Emitter<'c, '_> {
    /// The access to `buffer[indices]`; the indices are simplified.
    pub(crate) fn access(&mut self, buffer: BufferId, indices: &[Expr]) -> Result<Access<'c>> {
        let declaration = &self.program.buffers[buffer];
        let (dtype, bytes) = (declaration.dtype, declaration.dtype.bytes() as i64);
        let register = declaration.scope == Scope::Register;
        let flat = flatten(indices, &declaration.shape).ok_or_else(|| {
            self.unsupported(format!("buffer '{}' is too large", declaration.name))
        })?;
        let flat = self.environment.simplify(&flat);
        let linear = Linear::of(&flat);
        let lanes = self.environment.lanes();
        let (varying, uniform): (Vec<_>, Vec<_>) = linear
            .terms
            .into_iter()
            .partition(|(term, _)| lanes.is_some_and(|lanes| self.varies(term, lanes)));
        if register && !uniform.is_empty() {
            return Err(self.not_constant(buffer, &flat));
        }
        let safe = self
            .environment
            .bounds(&flat)
            .is_some_and(|range| range.min >= 0 && range.max < declaration.elements() as i64);
        let start = self.start_of(buffer)?;
        let (layout, first) = match lanes {
            Some(lanes) if !varying.is_empty() => self.layout(&varying, lanes)?,
            _ => (Some(LaneLayout::Uniform), 0),
        };
        let Some(layout) = layout else {
            if register {
                return Err(self.not_constant(buffer, &flat));
            }
            let elements = self.value(&flat)?;
            let V::VectorValue(elements) = elements else {
                return Err(self.unsupported("an index varies by lane but has one value"));
            };
            let layout = LaneLayout::Elements(elements);
            let align = bytes as u32;
            let element = (0, 0, 1);
            let address = start;
            return Ok(Access { dtype, address, align, layout, register, element, safe, lanes });
        };
        let constant = linear.constant + first;
        let row = declaration.shape.iter().rev().find(|extent| **extent > 1).copied();
        let element = (constant, declaration.elements() as i64, row.unwrap_or(1) as i64);
        // Inputs and outputs may be the caller's, who aligns them to their elements and no more.
        let align = match declaration.role {
            Role::Temporary => alignment(&uniform, constant, bytes),
            Role::Input(_) | Role::Output(_) => bytes as u32,
        };
        let address = self.address((buffer, start), uniform, constant, bytes)?;
        Ok(Access { dtype, address, align, layout, register, element, safe, lanes })
    }

    fn not_constant(&self, buffer: BufferId, flat: &Expr) -> CodegenError {
        CodegenError::RegisterIndex {
            buffer: self.program.buffers[buffer].name.clone(),
            index: crate::text::index(self.program, flat),
        }
    }

    fn start_of(&self, buffer: BufferId) -> Result<PointerValue<'c>> {
        self.buffers.get(&buffer).copied().ok_or_else(|| {
            let name = &self.program.buffers[buffer].name;
            self.unsupported(format!("buffer '{name}' has no memory in this kernel"))
        })
    }

    /// Whether a term's value depends on the lane: by the variable itself, or by a loaded index.
    fn varies(&self, term: &Expr, lanes: Lanes) -> bool {
        term.mentions(lanes.var)
    }

    /// The layout of the lanes, and lane 0's element offset; no layout where it is known only at run time.
    fn layout(
        &self,
        varying: &[(Expr, i64)],
        lanes: Lanes,
    ) -> Result<(Option<LaneLayout<'c>>, i64)> {
        let offset = |lane: u32| -> Option<i64> {
            let value = lanes.first + i64::from(lane);
            let known = |var| (var == lanes.var).then_some(Range::point(value));
            varying.iter().try_fold(0i64, |sum, (term, factor)| {
                let term = self.environment.simplify_under(term, &known).as_integer()?;
                Some(sum + term * factor)
            })
        };
        let Some(offsets) = (0..lanes.count).map(offset).collect::<Option<Vec<i64>>>() else {
            return Ok((None, 0));
        };
        let first = offsets.first().copied().unwrap_or(0);
        let stepped = |step: i64| {
            offsets.iter().enumerate().all(|(lane, offset)| offset - first == step * lane as i64)
        };
        let layout = if stepped(0) {
            LaneLayout::Uniform
        } else if stepped(1) {
            LaneLayout::Contiguous
        } else {
            let last = offsets.last().copied().unwrap_or(0);
            let padded =
                (0..lanes.width as usize).map(|lane| offsets.get(lane).unwrap_or(&last) - first);
            LaneLayout::Offsets(padded.collect())
        };
        Ok((Some(layout), first))
    }

    /// The address of `constant` elements, and of terms times elements, behind the start of a buffer.
    fn address(
        &mut self,
        buffer: (BufferId, PointerValue<'c>),
        mut terms: Vec<(Expr, i64)>,
        constant: i64,
        bytes: i64,
    ) -> Result<PointerValue<'c>> {
        terms.sort_by_key(|(term, _)| self.environment.depth(term));
        terms.iter_mut().for_each(|(_, factor)| *factor *= bytes);
        let address = self.moved(buffer, &terms, self.loops.len())?;
        match constant * bytes {
            0 => Ok(address),
            bytes => self.ir.offset(address, self.ir.i64(bytes)),
        }
    }

    /// Reads an access, in the type that its elements are computed in.
    pub(crate) fn load_access(&mut self, access: &Access<'c>) -> Result<V<'c>> {
        let scalar = self.ir.memory_type(access.dtype);
        let raw = match (&access.layout, access.lanes) {
            (LaneLayout::Uniform, _) if self.uniform_is_safe(access) => {
                self.ir.load(scalar, access.address, access.align)?
            }
            (LaneLayout::Contiguous, Some(lanes)) if access.register => {
                self.load_register(access, lanes)?
            }
            (LaneLayout::Contiguous, Some(lanes)) => {
                let ty = self.ir.with_lanes(scalar, Some(lanes.width));
                match self.mask.filter(|_| !self.reads_all(access, lanes)) {
                    None => self.ir.load(ty, access.address, access.align)?,
                    Some(mask) => self.masked_load(ty, access, mask)?,
                }
            }
            (LaneLayout::Offsets(offsets), Some(lanes)) if access.register => {
                self.load_each(access, offsets, lanes)?
            }
            (_, Some(lanes)) => self.gather(access, lanes)?,
            (_, None) => self.ir.load(scalar, access.address, access.align)?,
        };
        self.computed(access.dtype, raw)
    }

    /// Neighbouring elements, where one condition for all lanes holds; else any numbers, read without
    /// a branch. `None` where the elements are not neighbours, or not all of them are read.
    pub(crate) fn load_where(
        &mut self,
        condition: V<'c>,
        buffer: BufferId,
        indices: &[Expr],
    ) -> Result<Option<V<'c>>> {
        let Some(lanes) = self.environment.lanes() else { return Ok(None) };
        let elements = self.program.buffers[buffer].elements();
        let fits =
            self.mask.is_none() && lanes.count == lanes.width && elements >= lanes.width as usize;
        if !fits || self.group {
            return Ok(None);
        }
        let mut access = self.access(buffer, indices)?;
        if access.register || !matches!(access.layout, LaneLayout::Contiguous) {
            return Ok(None);
        }
        let scalar = self.ir.memory_type(access.dtype);
        let raw = if self.target.masks {
            let mask = self.ir.splat(condition, lanes.width)?.into_vector_value();
            let ty = self.ir.with_lanes(scalar, Some(lanes.width));
            self.masked_load(ty, &access, mask)?
        } else {
            // The start of the buffer can be read in any case.
            let start = self.start_of(buffer)?;
            let address = self.ir.select(condition, access.address.into(), start.into())?;
            access.address = address.into_pointer_value();
            access.align = access.dtype.bytes() as u32;
            self.ir.load(
                self.ir.with_lanes(scalar, Some(lanes.width)),
                access.address,
                access.align,
            )?
        };
        self.computed(access.dtype, raw).map(Some)
    }

    /// Whether reading every lane is inside the buffer, so that no mask is needed.
    fn reads_all(&self, access: &Access<'c>, lanes: Lanes) -> bool {
        access.safe && lanes.count == lanes.width
    }

    /// Whether an access at one element may be read although a mask is on.
    fn uniform_is_safe(&self, access: &Access<'c>) -> bool {
        !self.conditional || access.safe || access.register
    }

    fn masked_load(
        &self,
        ty: super::ir::T<'c>,
        access: &Access<'c>,
        mask: VectorValue<'c>,
    ) -> Result<V<'c>> {
        let align: V<'c> = self.ir.i32(access.align as i32).into();
        let types = [ty, access.address.get_type().into()];
        let passthrough = self.zero(ty);
        let args = [access.address.into(), align, mask.into(), passthrough];
        self.ir.intrinsic("llvm.masked.load", &types, &args)
    }

    /// Part of a vector in registers: exactly its lanes, so that the buffer can be taken apart.
    fn load_register(&self, access: &Access<'c>, lanes: Lanes) -> Result<V<'c>> {
        if let Some(shifted) = self.load_shifted(access, lanes)? {
            return Ok(shifted);
        }
        let scalar = self.ir.memory_type(access.dtype);
        let value = self.ir.load(
            self.ir.with_lanes(scalar, Some(lanes.count)),
            access.address,
            access.align,
        )?;
        match value {
            V::VectorValue(vector) if lanes.count < lanes.width => {
                let picks: Vec<u32> = (0..lanes.width).collect();
                Ok(self.ir.shuffle(vector, &picks)?.into())
            }
            value => Ok(value),
        }
    }

    /// Lanes of two neighbouring registers, so that registers stay whole; those beyond the buffer's ends are zero. `None`
    /// where the lanes are one register, or registers do not fill the rows: each row begins with a register then.
    fn load_shifted(&self, access: &Access<'c>, lanes: Lanes) -> Result<Option<V<'c>>> {
        let (width, (first, elements, row)) = (i64::from(lanes.width), access.element);
        let shift = first.rem_euclid(width);
        if shift == 0 || lanes.count != lanes.width || row % width != 0 {
            return Ok(None);
        }
        let ty = self.ir.with_lanes(self.ir.memory_type(access.dtype), Some(lanes.width));
        let bytes = access.dtype.bytes() as i64;
        let register = |start: i64| -> Result<VectorValue<'c>> {
            if !(0..elements).contains(&start) {
                return Ok(self.zero(ty).into_vector_value());
            }
            let address = self.ir.offset(access.address, self.ir.i64((start - first) * bytes))?;
            Ok(self.ir.load(ty, address, bytes as u32)?.into_vector_value())
        };
        let (low, high) = (register(first - shift)?, register(first - shift + width)?);
        let picks = (0..lanes.width).map(|lane| Some(lane + shift as u32));
        let joined = self.ir.choose_lanes(low, high, &picks.collect::<Vec<_>>())?;
        Ok(Some(joined.into()))
    }

    fn load_each(&self, access: &Access<'c>, offsets: &[i64], lanes: Lanes) -> Result<V<'c>> {
        let scalar = self.ir.memory_type(access.dtype);
        let ty = self.ir.with_lanes(scalar, Some(lanes.width));
        let mut vector = self.zero(ty).into_vector_value();
        let bytes = access.dtype.bytes() as i64;
        for (lane, offset) in offsets.iter().enumerate().take(lanes.count as usize) {
            let address = self.ir.offset(access.address, self.ir.i64(offset * bytes))?;
            let value = self.ir.load(scalar, address, bytes as u32)?;
            vector = self.ir.insert(vector, value, lane as u32)?;
        }
        Ok(vector.into())
    }

    fn gather(&self, access: &Access<'c>, lanes: Lanes) -> Result<V<'c>> {
        if let LaneLayout::Offsets(offsets) = &access.layout
            && let Some(value) = self.gather_by_windows(access, &self.needed(offsets), lanes)?
        {
            return Ok(value);
        }
        let addresses = self.addresses(access, lanes)?;
        let scalar = self.ir.memory_type(access.dtype);
        let ty = self.ir.with_lanes(scalar, Some(lanes.width));
        let mask = self.mask_or_all(lanes);
        let align: V<'c> = self.ir.i32(access.dtype.bytes() as i32).into();
        let types = [ty, addresses.get_type()];
        let args = [addresses, align, mask.into(), self.zero(ty)];
        self.ir.intrinsic("llvm.masked.gather", &types, &args)
    }

    /// Offsets of lanes; those that are off read where one that is on does.
    fn needed(&self, offsets: &[i64]) -> Vec<i64> {
        let Some(active) = &self.active else { return offsets.to_vec() };
        let on = |lane: usize| active.get(lane).copied().unwrap_or(false);
        let first = (0..offsets.len()).find(|lane| on(*lane)).map_or(0, |lane| offsets[lane]);
        let numbered = offsets.iter().enumerate();
        numbered.map(|(lane, offset)| if on(lane) { *offset } else { first }).collect()
    }

    /// Lanes at known offsets that fit a few windows of a vector each: plain loads of those, and shuffles.
    fn gather_by_windows(
        &self,
        access: &Access<'c>,
        offsets: &[i64],
        lanes: Lanes,
    ) -> Result<Option<V<'c>>> {
        let (bytes, width) = (access.dtype.bytes(), lanes.width as usize);
        let fits = width > 2 && width * bytes <= self.target.vector_bytes;
        let partly = self.mask.is_some() && self.conditional && self.active.is_none();
        if !fits || partly && !access.safe {
            return Ok(None);
        }
        let Some(windows) = windows(offsets, lanes.width) else { return Ok(None) };
        if !self.target.masks && windows.iter().any(|window| window.count != lanes.width) {
            return Ok(None);
        }
        let scalar = self.ir.memory_type(access.dtype);
        let ty = self.ir.with_lanes(scalar, Some(lanes.width));
        let mut parts: Vec<(VectorValue<'c>, Vec<Option<u32>>)> = Vec::new();
        for (index, window) in windows.iter().enumerate() {
            let start = self.ir.i64(window.start * bytes as i64);
            let mut part = access.clone();
            (part.address, part.align) = (self.ir.offset(access.address, start)?, bytes as u32);
            let value = if window.count == lanes.width {
                self.ir.load(ty, part.address, part.align)?
            } else {
                self.masked_load(ty, &part, self.ir.prefix_mask(window.count, lanes.width))?
            };
            let lane = |offset: &i64| {
                let inside = window_of(&windows, *offset) == Some(index);
                inside.then(|| (offset - window.start) as u32)
            };
            parts.push((value.into_vector_value(), offsets.iter().map(lane).collect()));
        }
        while parts.len() > 1 {
            let (high, high_lanes) = parts.remove(1);
            let (low, low_lanes) = parts.remove(0);
            let pairs = low_lanes.iter().zip(&high_lanes);
            let picks = pairs.map(|(low, high)| low.or(high.map(|lane| lane + lanes.width)));
            let joined = self.ir.choose_lanes(low, high, &picks.collect::<Vec<_>>())?;
            let numbered = low_lanes.iter().zip(&high_lanes).zip(0..);
            let lanes = numbered.map(|((low, high), lane)| low.or(*high).map(|_| lane)).collect();
            parts.push((joined, lanes));
        }
        let (value, picked) = parts.remove(0);
        let picks: Vec<u32> = picked.iter().map(|lane| lane.unwrap_or(lanes.width)).collect();
        Ok(Some(self.ir.shuffle(value, &picks)?.into()))
    }

    fn mask_or_all(&self, lanes: Lanes) -> VectorValue<'c> {
        self.mask.unwrap_or_else(|| self.ir.prefix_mask(lanes.width, lanes.width))
    }

    /// The address of every lane's element.
    fn addresses(&self, access: &Access<'c>, lanes: Lanes) -> Result<V<'c>> {
        let elements: V<'c> = match &access.layout {
            LaneLayout::Elements(elements) => (*elements).into(),
            LaneLayout::Offsets(offsets) => {
                let offsets: Vec<V<'c>> =
                    offsets.iter().map(|offset| self.ir.i64(*offset).into()).collect();
                self.ir.constant_vector(&offsets)
            }
            LaneLayout::Contiguous => self.ir.iota(0, lanes.width),
            LaneLayout::Uniform => self.ir.int(self.ir.iota(0, lanes.width).get_type(), 0),
        };
        self.ir.offsets(
            self.ir.memory_type(access.dtype),
            access.address,
            elements.into_vector_value(),
        )
    }

    /// `buffer[indices] = value`
    pub(crate) fn store_element(
        &mut self,
        buffer: BufferId,
        indices: &[Expr],
        value: V<'c>,
    ) -> Result<()> {
        if let (Some(lanes), V::VectorValue(vector)) = (self.grouped(), value) {
            let native = vector.get_type().get_size() / (lanes.width / self.register_lanes());
            let store = |emitter: &mut Self, register: u32| {
                let picks: Vec<u32> = (register * native..(register + 1) * native).collect();
                let part = emitter.ir.shuffle(vector, &picks)?;
                let indices: Vec<Expr> =
                    indices.iter().map(|index| emitter.environment.simplify(index)).collect();
                emitter.store_element(buffer, &indices, part.into())
            };
            return self.by_register(lanes, store).map(drop);
        }
        let access = self.access(buffer, indices)?;
        if access.is_uniform() {
            let value = match (value, access.lanes) {
                (V::VectorValue(vector), Some(lanes)) => {
                    self.ir.extract(vector, lanes.count - 1)?
                }
                (value, _) => value,
            };
            return self.store_uniform(&access, value);
        }
        self.store_access(&access, value)
    }

    /// Writes one element; under a condition that differs by lane, where any lane satisfies it.
    pub(crate) fn store_uniform(&mut self, access: &Access<'c>, value: V<'c>) -> Result<()> {
        let raw = self.stored(access.dtype, value)?;
        let (address, align) = (access.address, access.align);
        match self.mask.filter(|_| self.conditional) {
            None => self.ir.store(address, raw, align),
            Some(mask) => {
                let any = self.ir.unary_intrinsic("llvm.vector.reduce.or", mask.into())?;
                self.guarded(any, |emitter| emitter.ir.store(address, raw, align))
            }
        }
    }

    /// Writes an access.
    pub(crate) fn store_access(&mut self, access: &Access<'c>, value: V<'c>) -> Result<()> {
        let Some(lanes) = access.lanes.filter(|_| !access.is_uniform()) else {
            if lanes(value).is_some() {
                return Err(self.unsupported("a vector is stored to one element"));
            }
            return self.store_uniform(access, value);
        };
        let raw = self.stored(access.dtype, value)?;
        let raw = self.ir.to_lanes(raw, Some(lanes.width))?;
        match (&access.layout, self.mask) {
            (LaneLayout::Contiguous, None) => self.ir.store(access.address, raw, access.align),
            (LaneLayout::Contiguous, Some(_)) if access.register => {
                self.store_register(access, lanes, raw)
            }
            (LaneLayout::Contiguous, Some(mask)) => {
                let align: V<'c> = self.ir.i32(access.align as i32).into();
                let types = [raw.get_type(), access.address.get_type().into()];
                let args = [raw, access.address.into(), align, mask.into()];
                self.ir.intrinsic_call("llvm.masked.store", &types, &args).map(drop)
            }
            (LaneLayout::Offsets(offsets), _) if access.register => {
                self.store_each(access, offsets, lanes, raw)
            }
            _ => {
                let addresses = self.addresses(access, lanes)?;
                let align: V<'c> = self.ir.i32(access.dtype.bytes() as i32).into();
                let types = [raw.get_type(), addresses.get_type()];
                let args = [raw, addresses, align, self.mask_or_all(lanes).into()];
                self.ir.intrinsic_call("llvm.masked.scatter", &types, &args).map(drop)
            }
        }
    }

    fn store_register(&self, access: &Access<'c>, lanes: Lanes, raw: V<'c>) -> Result<()> {
        let V::VectorValue(vector) = raw else { return Ok(()) };
        let picks: Vec<u32> = (0..lanes.count).collect();
        let mut part = self.ir.shuffle(vector, &picks)?;
        if let Some(mask) = self.mask.filter(|_| self.conditional) {
            let before = self.ir.load(part.get_type().into(), access.address, access.align)?;
            let mask = self.ir.shuffle(mask, &picks)?;
            part = self.ir.select(mask.into(), part.into(), before)?.into_vector_value();
        }
        self.ir.store(access.address, part.into(), access.align)
    }

    fn store_each(
        &mut self,
        access: &Access<'c>,
        offsets: &[i64],
        lanes: Lanes,
        raw: V<'c>,
    ) -> Result<()> {
        let V::VectorValue(vector) = raw else { return Ok(()) };
        let bytes = access.dtype.bytes() as i64;
        for (lane, offset) in offsets.iter().enumerate().take(lanes.count as usize) {
            let address = self.ir.offset(access.address, self.ir.i64(offset * bytes))?;
            let mut value = self.ir.extract(vector, lane as u32)?;
            if let Some(mask) = self.mask.filter(|_| self.conditional) {
                let before = self.ir.load(value.get_type(), address, bytes as u32)?;
                let active = self.ir.extract(mask, lane as u32)?;
                value = self.ir.select(active, value, before)?;
            }
            self.ir.store(address, value, bytes as u32)?;
        }
        Ok(())
    }

    pub(crate) fn zero(&self, ty: super::ir::T<'c>) -> V<'c> {
        match super::ir::scalar_of(ty) {
            super::ir::T::FloatType(_) => self.ir.float(ty, 0.0),
            _ => self.ir.int(ty, 0),
        }
    }
}

/// Neighbouring elements that hold some of the lanes.
struct Window {
    start: i64,
    count: u32,
}

/// Most windows that beat reading each lane by itself.
const WINDOWS: usize = 4;

/// The fewest windows of up to `width` elements that hold all offsets, where they are few.
fn windows(offsets: &[i64], width: u32) -> Option<Vec<Window>> {
    let mut sorted = offsets.to_vec();
    sorted.sort_unstable();
    let mut windows: Vec<Window> = Vec::new();
    for offset in sorted {
        match windows.last_mut() {
            Some(last) if offset < last.start + i64::from(width) => {
                last.count = (offset - last.start) as u32 + 1;
            }
            _ => windows.push(Window { start: offset, count: 1 }),
        }
        if windows.len() > WINDOWS {
            return None;
        }
    }
    Some(windows)
}

/// The window that contains an offset.
fn window_of(windows: &[Window], offset: i64) -> Option<usize> {
    windows
        .iter()
        .position(|window| (window.start..window.start + i64::from(window.count)).contains(&offset))
}

/// The largest power of two, up to that of buffers, that divides every address in bytes.
fn alignment(terms: &[(Expr, i64)], constant: i64, bytes: i64) -> u32 {
    let factors = terms.iter().map(|(_, factor)| factor * bytes).chain([constant * bytes]);
    factors.fold(BUFFER_ALIGNMENT, |align, factor| match factor {
        0 => align,
        factor => align.min(1 << factor.trailing_zeros().min(6)),
    }) as u32
}
