//! What the runtime computes itself: functions whose results have a size that depends on data or whose work does, and
//! what a run is held to.
//!
//! Results whose size depends on data lie in buffers for the most that there may be: the first elements are those of the
//! actual shape, row major, and all behind them are zero. The last result is how many there are, a scalar of `i64`.

use serde::{Deserialize, Serialize};

use crate::host_image::{ImageDecoder, ImageFunction};
use crate::host_map::MapFunction;
use crate::host_ngrams::NGrams;
use crate::host_non_zero;
use crate::host_scatter::{self, ScatterPlaces, ScatterReduction};
use crate::host_suppression::{Limits, suppress};
use crate::host_text::TextFunction;
use crate::host_top_k::{self, KeyLoops, Wanted};
use crate::text::Texts;
use crate::{DataType, Slot};

/// A function of the runtime, applied to tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Name of the graph node.
    pub node: String,
    /// What is computed.
    pub function: HostFunction,
    /// Its operands in order; `None` is an optional one left out.
    pub inputs: Vec<Option<HostTensor>>,
    /// Its results in order.
    pub outputs: Vec<HostTensor>,
}

/// A tensor that the runtime reads or writes itself, dense and row major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostTensor {
    /// Where it lies.
    pub slot: Slot,
    /// Its type: of a result, with the most that its axes may be.
    #[serde(flatten)]
    pub of: HostType,
}

/// Element type and shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostType {
    /// Element type.
    pub dtype: DataType,
    /// Extent of each axis.
    pub shape: Vec<u64>,
}

/// The functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostFunction {
    /// Places of elements that are not zero. One operand; results: `[rank, count]` of `i64`, and the count.
    NonZero,
    /// Slices along an axis (of all elements, without one) for which a list says so. Operands: the tensor, and a list
    /// of `bool`; results: the slices, and how many.
    Compress {
        /// The axis.
        axis: Option<u32>,
    },
    /// Slices along an axis (elements, without one) that differ, each once. Results: the slices, the place where each
    /// is first, which of them is at each place, how often each is there, and how many there are.
    Unique {
        /// The axis.
        axis: Option<u32>,
        /// Whether they are sorted; else they are in the order in which they are first.
        sorted: bool,
    },
    /// Boxes of high score that overlap no chosen box of a higher one by more than a threshold. Operands: boxes
    /// `[batch, boxes, 4]` and scores `[batch, classes, boxes]` of `f32`, and optionally the most boxes of a class
    /// (`i64`, 0 without it), the threshold on intersection over union (0) and that on scores (none), of one element
    /// each. Results: `[batch * classes * most, 3]` of `i64` (batch, class, box), and how many.
    NonMaxSuppression {
        /// Whether a box is its centre and size, x before y; else two corners, y before x.
        centers: bool,
        /// Most boxes of a class for which there is room.
        most: u64,
    },
    /// The first elements along an axis in order, and their indices (`i64`); of equal ones that of the lower index comes
    /// first, and what is no number counts as larger than every number. There is no count.
    TopK {
        /// How many.
        k: u64,
        /// The axis.
        axis: u32,
        /// Whether the largest come first, else the smallest.
        largest: bool,
    },
    /// A copy of a tensor with updates at places that indices say. Operands: the tensor, indices of `i32` or `i64`
    /// (negative ones count from the end) and updates; there is no count. Other reductions than replacing are of
    /// `f32`, `f64`, `i32` and `i64`. An index outside its axis ends the run.
    Scatter {
        /// Where updates go.
        places: ScatterPlaces,
        /// How they meet what is there.
        reduction: ScatterReduction,
    },
    /// A function of strings.
    Text(TextFunction),
    /// How often known sequences of words are in rows.
    NGrams(NGrams),
    /// A function of a map.
    Map(MapFunction),
    /// Decodes an image.
    Image(ImageFunction),
    /// Ends the run where an element of its operand, of `bool`, is false. No results.
    Require {
        /// What is said then.
        message: String,
    },
}

/// A tensor as a function reads it.
#[derive(Clone, Debug)]
pub struct HostValue<'a> {
    /// Element type and shape.
    pub of: &'a HostType,
    /// The elements, as many as the type says, in this machine's byte order.
    pub bytes: &'a [u8],
}

/// What whoever runs an artifact brings for its functions.
#[derive(Clone, Copy)]
pub struct HostTools<'a> {
    /// Loops over keys.
    pub loops: &'a KeyLoops,
    /// What decodes images, where something does.
    pub images: Option<&'a ImageDecoder>,
}

impl HostTools<'_> {
    /// What this library has itself: no decoder of images.
    pub const PLAIN: HostTools<'static> = HostTools { loops: &KeyLoops::PLAIN, images: None };
}

/// An axis as bounds: elements before, along and after it.
pub(crate) type Around = (u64, u64, u64);

impl HostType {
    pub(crate) fn new(dtype: DataType, shape: impl Into<Vec<u64>>) -> Self {
        Self { dtype, shape: shape.into() }
    }

    /// Size in bytes, where it fits 63 bits.
    pub fn bytes(&self) -> Option<u64> {
        self.dtype.bytes_of(&self.shape)
    }

    fn elements(&self) -> Option<u64> {
        DataType::Bool.bytes_of(&self.shape)
    }

    /// Around an axis; without one, around all elements as one axis.
    fn around(&self, axis: Option<u32>) -> Result<Around, String> {
        let large = || "an operand is too large".to_owned();
        let all = self.elements().ok_or_else(large)?;
        let Some(axis) = axis.map(|axis| axis as usize) else { return Ok((1, all, 1)) };
        let extent = *self.shape.get(axis).ok_or("there is no such axis")?;
        let product = |shape: &[u64]| DataType::Bool.bytes_of(shape).ok_or_else(large);
        Ok((product(&self.shape[..axis])?, extent, product(&self.shape[axis + 1..])?))
    }

    /// The same with another extent of an axis; without one, a list.
    fn along(&self, axis: Option<u32>, extent: u64) -> Self {
        let mut other = self.clone();
        match axis.and_then(|axis| other.shape.get_mut(axis as usize)) {
            Some(own) => *own = extent,
            None => other.shape = vec![extent],
        }
        other
    }
}

impl HostFunction {
    /// Types of the results, with the most that their axes may be.
    ///
    /// # Errors
    /// Operands that the function does not take.
    pub fn outputs(&self, inputs: &[Option<&HostType>]) -> Result<Vec<HostType>, String> {
        let list = |extent: u64| HostType::new(DataType::I64, [extent]);
        let count = HostType::new(DataType::I64, []);
        let operand = |place: usize| {
            let found = inputs.get(place).copied().flatten();
            found.ok_or_else(|| format!("operand {place} is missing"))
        };
        let data = operand(0)?;
        let large = || "an operand is too large".to_owned();
        let all = data.elements().ok_or_else(large)?;
        let wrong = || "an operand has another type than the function takes".to_owned();
        let results = match self {
            Self::Text(own) => own.outputs(inputs)?,
            Self::NGrams(own) => own.outputs(inputs)?,
            Self::Map(own) => own.outputs(inputs)?,
            Self::Image(own) => own.outputs(inputs)?,
            Self::Require { .. } => match data.dtype == DataType::Bool && inputs.len() == 1 {
                true => Vec::new(),
                false => return Err(wrong()),
            },
            Self::TopK { k, axis, .. } => {
                let (_, extent, _) = data.around(Some(*axis))?;
                if *k > extent || extent > host_top_k::LONGEST {
                    return Err(format!("it takes {k} elements of lines of {extent}"));
                }
                let found = data.along(Some(*axis), *k);
                let indices = HostType { dtype: DataType::I64, ..found.clone() };
                vec![found, indices]
            }
            Self::Scatter { places, reduction } => {
                let operands = [data, operand(1)?, operand(2)?];
                vec![host_scatter::output(*places, *reduction, operands)?]
            }
            Self::NonZero => {
                vec![HostType::new(DataType::I64, [data.shape.len() as u64, all]), count]
            }
            Self::Compress { axis } => {
                let (_, extent, _) = data.around(*axis)?;
                let chosen = operand(1)?;
                let [listed] = chosen.shape[..] else { return Err(wrong()) };
                if chosen.dtype != DataType::Bool {
                    return Err(wrong());
                }
                vec![data.along(*axis, extent.min(listed)), count]
            }
            Self::Unique { axis, .. } => {
                let (_, extent, _) = data.around(*axis)?;
                vec![data.along(*axis, extent), list(extent), list(extent), list(extent), count]
            }
            Self::NonMaxSuppression { most, .. } => {
                let scores = operand(1)?;
                let ([batch, boxes, 4], [same, classes, scored]) =
                    (&data.shape[..], &scores.shape[..])
                else {
                    return Err(wrong());
                };
                let scalars = [DataType::I64, DataType::F32, DataType::F32];
                let fits = inputs.iter().skip(2).zip(scalars).all(|(input, dtype)| {
                    input.is_none_or(|own| own.dtype == dtype && own.elements() == Some(1))
                });
                let floats = data.dtype == DataType::F32 && scores.dtype == DataType::F32;
                if !floats || !fits || batch != same || boxes != scored || inputs.len() > 5 {
                    return Err(wrong());
                }
                let room = batch
                    .checked_mul(*classes)
                    .and_then(|own| own.checked_mul((*most).min(*boxes)));
                vec![HostType::new(DataType::I64, [room.ok_or_else(large)?, 3]), count]
            }
        };
        match results.iter().all(|own| own.bytes().is_some()) {
            true => Ok(results),
            false => Err(large()),
        }
    }

    /// The results for operands that [`HostFunction::outputs`] takes, each as many bytes as its type has. `texts` has
    /// the strings of operands that hold some, and gets those of results.
    ///
    /// # Errors
    /// As for [`HostFunction::outputs`].
    pub fn compute(
        &self,
        inputs: &[Option<HostValue<'_>>],
        texts: &mut Texts,
    ) -> Result<Vec<Vec<u8>>, String> {
        self.compute_with(inputs, texts, &HostTools::PLAIN)
    }

    /// As [`HostFunction::compute`], with other tools.
    ///
    /// # Errors
    /// As for [`HostFunction::outputs`].
    pub fn compute_with(
        &self,
        inputs: &[Option<HostValue<'_>>],
        texts: &mut Texts,
        tools: &HostTools<'_>,
    ) -> Result<Vec<Vec<u8>>, String> {
        let room = self.outputs(&types(inputs))?;
        let operand = |place: usize| inputs.get(place).and_then(Option::as_ref);
        let data = operand(0).ok_or("operand 0 is missing")?;
        let (mut results, count) = match self {
            Self::Require { message } => {
                let holds = data.bytes.iter().all(|byte| *byte != 0);
                return if holds { Ok(Vec::new()) } else { Err(message.clone()) };
            }
            Self::Text(own) => {
                let operands: Vec<&HostValue<'_>> = inputs.iter().flatten().collect();
                let mut results = own.compute(&operands, texts)?;
                fill(&mut results, &room);
                return Ok(results);
            }
            Self::NGrams(own) => return own.compute(inputs, texts),
            Self::Map(own) => {
                let mut results = own.compute(inputs)?;
                fill(&mut results, &room);
                return Ok(results);
            }
            Self::Image(own) => {
                // `outputs` has checked that the size fits.
                let mut pixels = vec![0; room[0].bytes().unwrap_or(0) as usize];
                own.compute(inputs, tools.images, &mut pixels)?;
                return Ok(vec![pixels]);
            }
            Self::TopK { k, axis, largest } => {
                let around = data.of.around(Some(*axis))?;
                let wanted = Wanted { around, count: *k as usize, largest: *largest };
                return Ok(host_top_k::top_k(data, &wanted, tools.loops));
            }
            Self::Scatter { places, reduction } => {
                let mut result = vec![0; data.bytes.len()];
                let operands = scattered(inputs)?;
                host_scatter::scatter(*places, *reduction, operands, &mut result)?;
                return Ok(vec![result]);
            }
            Self::NonZero => host_non_zero::non_zero(data),
            Self::Compress { axis } => {
                let chosen = operand(1).ok_or("operand 1 is missing")?;
                let (_, extent, _) = data.of.around(*axis)?;
                let listed = chosen.bytes.iter().take(extent as usize).enumerate();
                let places: Vec<usize> =
                    listed.filter(|own| *own.1 != 0).map(|own| own.0).collect();
                (vec![slices(data, data.of.around(*axis)?, &places)], places.len())
            }
            Self::Unique { axis, sorted } => unique(data, data.of.around(*axis)?, *sorted),
            Self::NonMaxSuppression { centers, .. } => {
                let scores = operand(1).ok_or("operand 1 is missing")?;
                let number = operand(2).map_or(0, |own| i64::from_ne_bytes(head(own.bytes)));
                let limit =
                    |place: usize| operand(place).map(|own| f32::from_ne_bytes(head(own.bytes)));
                let most = usize::try_from(number).unwrap_or(0);
                let limits = Limits { most, overlap: limit(3).unwrap_or(0.0), score: limit(4) };
                suppress(data, scores, *centers, &limits)
            }
        };
        results.push((count as i64).to_ne_bytes().to_vec());
        fill(&mut results, &room);
        Ok(results)
    }
}

impl HostFunction {
    /// As [`HostFunction::compute_with`], with the results stored where `results` says, which have as many bytes as their
    /// types. What is as large as its operands is computed there at once.
    ///
    /// # Errors
    /// As for [`HostFunction::outputs`]; results hold anything then.
    pub fn compute_into(
        &self,
        inputs: &[Option<HostValue<'_>>],
        results: &mut [&mut [u8]],
        texts: &mut Texts,
        tools: &HostTools<'_>,
    ) -> Result<(), String> {
        if let (Self::Scatter { places, reduction }, [result]) = (self, &mut *results) {
            self.outputs(&types(inputs))?;
            return host_scatter::scatter(*places, *reduction, scattered(inputs)?, result);
        }
        if let (Self::Image(own), [result]) = (self, &mut *results) {
            self.outputs(&types(inputs))?;
            return own.compute(inputs, tools.images, result);
        }
        let computed = self.compute_with(inputs, texts, tools)?;
        for (result, computed) in results.iter_mut().zip(&computed) {
            let stored = result.len().min(computed.len());
            result[..stored].copy_from_slice(&computed[..stored]);
        }
        Ok(())
    }
}

/// The types of operands.
fn types<'a>(inputs: &[Option<HostValue<'a>>]) -> Vec<Option<&'a HostType>> {
    inputs.iter().map(|input| input.as_ref().map(|own| own.of)).collect()
}

/// The three operands of a scatter.
fn scattered<'a, 'b>(
    inputs: &'b [Option<HostValue<'a>>],
) -> Result<[&'b HostValue<'a>; 3], String> {
    let operands: Vec<&HostValue<'a>> = inputs.iter().take(3).flatten().collect();
    operands.try_into().map_err(|_| "an operand is missing".to_owned())
}

/// Zeros behind results, as many bytes as their types have.
fn fill(results: &mut [Vec<u8>], room: &[HostType]) {
    for (result, room) in results.iter_mut().zip(room) {
        // `outputs` has checked that the size fits.
        result.resize(room.bytes().unwrap_or(0) as usize, 0);
    }
}

/// The first bytes; zeros where there are fewer.
pub(crate) fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut own = [0; N];
    own.iter_mut().zip(bytes).for_each(|(own, byte)| *own = *byte);
    own
}

/// Numbers that are ordered as the elements are, and equal where those are; both zeros of floats are 0.
fn keys(value: &HostValue<'_>) -> Vec<i128> {
    use DataType as D;
    let size = value.of.dtype.bytes_of(&[]).unwrap_or(1).max(1) as usize;
    let bits = 8 * size as u32;
    let key = |bytes: &[u8]| {
        let raw = i128::from(u64::from_ne_bytes(if cfg!(target_endian = "little") {
            head(bytes)
        } else {
            let mut own = [0; 8];
            own[8 - size..].copy_from_slice(bytes);
            own
        }));
        let negative = (raw >> (bits - 1)) & 1 == 1;
        match value.of.dtype {
            D::F32 | D::F16 | D::Bf16 | D::F64 if negative => -(raw - (1 << (bits - 1))),
            D::I8 | D::I16 | D::I32 | D::I64 if negative => raw - (1 << bits),
            _ => raw,
        }
    };
    value.bytes.chunks_exact(size).map(key).collect()
}

pub(crate) fn integers(values: impl Iterator<Item = usize>) -> Vec<u8> {
    values.flat_map(|value| (value as i64).to_ne_bytes()).collect()
}

/// The slices at some places along an axis.
fn slices(data: &HostValue<'_>, (outer, extent, inner): Around, places: &[usize]) -> Vec<u8> {
    let length = inner.saturating_mul(data.of.dtype.bytes_of(&[]).unwrap_or(1)) as usize;
    let mut bytes = Vec::new();
    for slice in 0..outer as usize {
        for place in places {
            let start = (slice * extent as usize + place) * length;
            bytes.extend_from_slice(&data.bytes[start..start + length]);
        }
    }
    bytes
}

fn unique(data: &HostValue<'_>, around: Around, sorted: bool) -> (Vec<Vec<u8>>, usize) {
    let (outer, extent, inner) = (around.0 as usize, around.1 as usize, around.2 as usize);
    let keys = keys(data);
    let keys = keys.as_slice();
    let slice = |place: usize| {
        (0..outer).flat_map(move |row| keys[(row * extent + place) * inner..][..inner].iter())
    };
    let mut order: Vec<usize> = (0..extent).collect();
    order.sort_by(|a, b| slice(*a).cmp(slice(*b)).then(a.cmp(b)));
    // Each run of equal slices begins with the first of them.
    let mut first: Vec<usize> = Vec::new();
    let mut of = vec![0; extent];
    for (index, place) in order.iter().enumerate() {
        if index == 0 || slice(order[index - 1]).ne(slice(*place)) {
            first.push(*place);
        }
        of[*place] = first.len() - 1;
    }
    if !sorted {
        let mut order: Vec<usize> = (0..first.len()).collect();
        order.sort_by_key(|own| first[*own]);
        let mut rank = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, own)| rank[*own] = place);
        of.iter_mut().for_each(|own| *own = rank[*own]);
        first.sort_unstable();
    }
    let mut counts = vec![0; first.len()];
    of.iter().for_each(|own| counts[*own] += 1);
    let count = first.len();
    let slices = slices(data, around, &first);
    let lists = [first.into_iter(), of.into_iter(), counts.into_iter()].map(integers);
    ([slices].into_iter().chain(lists).collect(), count)
}
