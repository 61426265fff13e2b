//! What becomes of the part of an operand that a run decides the size of, by the operator that reads it.

use super::builder::{Builder, Operand};
use super::node::Node;
use super::operators::counted::{shape_of_input, target};
use super::parts::{EACH, EACH_SAMPLE};
use super::rearranged::bounds;
use super::shorthands::{axes, axis, axis as axis_of};
use super::sized::Part;
use super::windowed::windowed;
use crate::NodeError;
use hone_ops::BinaryFunction as B;

/// What becomes of an operand's part.
pub(super) enum Fate {
    /// It is that of all outputs, along this axis.
    Kept(usize),
    /// The same, so many times as much.
    Scaled(usize, usize),
    /// So many, along this axis.
    Counted(usize, Operand),
    /// A range of it (the first, and one past the last) along this axis.
    Cut(usize, i64, i64),
    /// Nothing is left of the axis.
    Gone,
    /// The same, and what was computed is the mean over all the room.
    Averaged,
}
/// How one operator is asked: its node, the operand's place and shape, and the axis of its part with how many are there.
pub(super) struct Question<'a> {
    pub node: &'a mut Node,
    pub place: usize,
    pub axis: usize,
    pub count: Operand,
    pub shape: &'a [usize],
}
impl Fate {
    /// The part of the outputs, where one is left, of an operand of which `count` are there.
    pub fn part(self, b: &mut Builder, count: Operand) -> Result<Option<Part>, NodeError> {
        Ok(match self {
            Self::Gone | Self::Averaged => None,
            Self::Kept(axis) | Self::Scaled(axis, 1) => Some(Part { axis, count }),
            Self::Counted(axis, count) => Some(Part { axis, count }),
            Self::Scaled(axis, times) => Some(Part { axis, count: b.times(count, times)? }),
            Self::Cut(axis, start, end) => {
                let end = b.with_scalar(B::Minimum, count, end as f64)?;
                let left = b.with_scalar(B::Subtract, end, start as f64)?;
                Some(Part { axis, count: b.with_scalar(B::Maximum, left, 0.0)? })
            }
        })
    }
}
impl Question<'_> {
    /// What becomes of the part; `None` where this setting of the operator is not for one.
    pub fn answer(
        mut self,
        b: &mut Builder,
        outputs: &[Operand],
    ) -> Result<Option<Fate>, NodeError> {
        let operator = self.node.operator.clone();
        let to: Vec<usize> = outputs.first().map(|own| b.shape(*own)).unwrap_or_default();
        let (axis, rank) = (self.axis, self.shape.len());
        Ok(match operator.as_str() {
            // Their other operands are laid along an axis that they name.
            "BatchNormalization" | "DequantizeLinear" | "QuantizeLinear" if self.place > 0 => None,
            name if EACH.contains(&name) => (axis + to.len()).checked_sub(rank).map(Fate::Kept),
            name if EACH_SAMPLE.contains(&name) && axis == 0 => {
                (self.place == 0).then_some(Fate::Kept(0))
            }
            name if EACH_SAMPLE.contains(&name) => windowed(&mut self, b, outputs, &to)?,
            "CumSum" => (self.place == 0).then_some(Fate::Kept(axis)),
            "Concat" | "Split" => (self.along(-1, rank)? != axis).then_some(Fate::Kept(axis)),
            "Softmax" | "LogSoftmax" => {
                let along = self.along(if self.node.opset < 13 { 1 } else { -1 }, rank)?;
                (self.node.opset >= 13 || axis < along).then_some(Fate::Kept(axis))
            }
            "LayerNormalization" => {
                (self.place == 0 && axis < self.along(-1, rank)?).then_some(Fate::Kept(axis))
            }
            "Transpose" => {
                let reversed = || (0..rank as i64).rev().collect();
                let order = self.node.ints("perm")?.unwrap_or_else(reversed);
                order.iter().position(|own| *own == axis as i64).map(Fate::Kept)
            }
            "Squeeze" if to.len() < rank && self.is_squeezed(b)? => {
                self.exactly_one(b)?;
                Some(Fate::Gone)
            }
            "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" => self.reshaped(b, &to)?,
            "Slice" => self.sliced(b)?,
            "Pad" | "Resize" | "Tile" | "Upsample" => {
                (self.place == 0 && self.leaves_axis(b)?).then_some(Fate::Kept(axis))
            }
            "Trilu" => (self.place == 0 && axis + 2 < rank).then_some(Fate::Kept(axis)),
            "OneHot" => {
                let along = self.along(-1, rank + 1)?;
                (self.place == 0).then_some(Fate::Kept(axis + usize::from(along <= axis)))
            }
            "Gather" => self.gathered(b)?,
            "GatherND" => self.gathered_by_rows(b)?,
            _ => self.looked_along(b, outputs, &to)?,
        })
    }

    /// What becomes of the part where an operator looks along axes: sums, products and searches.
    fn looked_along(
        mut self,
        b: &mut Builder,
        outputs: &[Operand],
        to: &[usize],
    ) -> Result<Option<Fate>, NodeError> {
        let operator = self.node.operator.clone();
        let (axis, rank) = (self.axis, self.shape.len());
        Ok(match operator.as_str() {
            "MatMul" => match (self.place, rank - axis) {
                (0, 1) | (1, 2) => Some(Fate::Gone),
                (1, 1) if rank == 1 => Some(Fate::Gone),
                (_, behind) => to.len().checked_sub(behind).map(Fate::Kept),
            },
            "FusedGemm" | "Gemm" => self.of_gemm()?,
            "Compress" => self.compressed(outputs)?,
            "NonZero" | "NonMaxSuppression" => Some(Fate::Gone),
            "Expand" => self.expanded(b, to)?,
            "GatherElements" => {
                let along = self.along(0, rank)?;
                Some(if self.place == 0 && along == axis { Fate::Gone } else { Fate::Kept(axis) })
            }
            // Where the places are not all there, `scattered` has been asked before.
            "ScatterElements" | "ScatterND" => (self.place == 0).then_some(Fate::Kept(axis)),
            // Of the grid; behind its first axis the result has that of the channels.
            "GridSample" => (self.place == 1 && axis > 0).then_some(Fate::Kept(axis + 1)),
            "RoiAlign" => (self.place > 0 && axis == 0).then_some(Fate::Kept(0)),
            // Of equal ones the last could lie behind the part.
            "ArgMax" | "ArgMin" if self.node.flag("select_last_index", false)? => None,
            "ArgMax" | "ArgMin" => {
                let along = self.along(0, rank)?;
                let keeps = self.node.flag("keepdims", true)?;
                Some(self.reduced(&[along], keeps))
            }
            "TopK" => {
                let along = self.along(-1, rank)?;
                if along == axis {
                    let chosen =
                        outputs.first().and_then(|own| b.part(*own)).map(|part| part.count);
                    self.all_there(b, to[axis], chosen)?;
                }
                Some(if along == axis { Fate::Gone } else { Fate::Kept(axis) })
            }
            _ => self.reduction(b)?,
        })
    }

    /// Whether what enlarges or cuts axes leaves the part's axis as it is.
    fn leaves_axis(&mut self, b: &Builder) -> Result<bool, NodeError> {
        let (axis, rank) = (self.axis, self.shape.len());
        let (operator, opset) = (self.node.operator.clone(), self.node.opset);
        let named = match operator.as_str() {
            "Pad" if opset >= 11 => b.optional_integers(self.node, 3)?,
            "Resize" => self.node.ints("axes")?,
            _ => None,
        };
        let count = named.as_ref().map_or(rank, Vec::len);
        let at = match named {
            None => Some(axis),
            Some(named) => {
                let named = named.iter().map(|own| axis_of(*own, rank));
                named.collect::<Result<Vec<_>, _>>()?.iter().position(|own| *own == axis)
            }
        };
        let Some(at) = at else { return Ok(true) };
        let pads = if opset < 2 { "paddings" } else { "pads" };
        Ok(match operator.as_str() {
            "Pad" => {
                let amounts = match opset {
                    ..11 => self.node.ints(pads)?.unwrap_or_default(),
                    _ => b.integers_of(self.node, 1)?,
                };
                [at, at + count].iter().all(|own| amounts.get(*own) == Some(&0))
            }
            "Tile" => b.integers_of(self.node, 1)?.get(at) == Some(&1),
            _ => {
                let scales = match (operator.as_str(), opset) {
                    ("Upsample", ..9) => {
                        let scales = self.node.floats("scales")?.unwrap_or_default();
                        scales.into_iter().map(f64::from).collect()
                    }
                    ("Upsample", _) | (_, ..11) => b.floats_of(self.node, 1)?,
                    _ if self.node.optional(2).is_none() => Vec::new(),
                    _ => b.floats_of(self.node, 2)?,
                };
                let region = self.node.string_or("coordinate_transformation_mode", "half_pixel")?;
                region != "tf_crop_and_resize" && scales.get(at) == Some(&1.0)
            }
        })
    }

    fn along(&mut self, default: i64, rank: usize) -> Result<usize, NodeError> {
        axis(self.node.int_or("axis", default)?, rank)
    }

    /// Ends a run in which fewer are there than `chosen`, or else than `least`.
    fn all_there(
        &self,
        b: &mut Builder,
        least: usize,
        chosen: Option<Operand>,
    ) -> Result<(), NodeError> {
        let count = self.count;
        let least = match chosen {
            Some(chosen) => chosen,
            None => b.scalar(b.dtype(count), least as f64)?,
        };
        let count = b.cast(count, b.dtype(least))?;
        let enough = b.binary(B::GreaterEqual, count, least)?;
        b.require(enough, "there are fewer elements than are to be chosen")
    }

    fn reduced(&self, axes: &[usize], keeps: bool) -> Fate {
        let before = axes.iter().filter(|own| **own < self.axis).count();
        match axes.contains(&self.axis) {
            true => Fate::Gone,
            false => Fate::Kept(self.axis - if keeps { 0 } else { before }),
        }
    }

    fn reduction(self, b: &mut Builder) -> Result<Option<Fate>, NodeError> {
        let rank = self.shape.len();
        let keeps = self.node.flag("keepdims", true)?;
        let given = match self.node.optional(1) {
            Some(_) => Some(b.integers_of(self.node, 1)?),
            None => self.node.ints("axes")?,
        };
        let idle = self.node.flag("noop_with_empty_axes", false)?;
        let named = given.unwrap_or_default();
        let axes: Vec<usize> = match named.is_empty() {
            true if idle => return Ok(Some(Fate::Kept(self.axis))),
            true => (0..rank).collect(),
            false => named.iter().map(|own| axis(*own, rank)).collect::<Result<_, _>>()?,
        };
        Ok(Some(match self.reduced(&axes, keeps) {
            Fate::Gone if self.node.operator == "ReduceMean" => Fate::Averaged,
            fate => fate,
        }))
    }

    /// `Compress` along an axis, or of all elements.
    fn compressed(&mut self, outputs: &[Operand]) -> Result<Option<Fate>, NodeError> {
        if self.place == 1 || outputs.is_empty() {
            return Ok(Some(Fate::Gone));
        }
        Ok(match self.node.int("axis")? {
            Some(along) => {
                let along = axis(along, self.shape.len())?;
                Some(if along == self.axis { Fate::Gone } else { Fate::Kept(self.axis) })
            }
            // Elements behind a gap would have another number.
            None => {
                let outer: usize = self.shape[..self.axis].iter().product();
                (outer == 1).then_some(Fate::Gone)
            }
        })
    }

    /// `Expand`: along the part's axis to the size of the part, or over axes around it.
    fn expanded(&self, b: &mut Builder, to: &[usize]) -> Result<Option<Fate>, NodeError> {
        let Some(axis) = (self.axis + to.len()).checked_sub(self.shape.len()) else {
            return Ok(None);
        };
        let Some(list) = self.node.optional(1).filter(|_| self.place == 0) else { return Ok(None) };
        let asked = shape_of_input(b, self.node, 1)?;
        let ahead = to.len().saturating_sub(b.tensor_type(list).elements());
        let asked = asked.iter().flat_map(|own| &own.parts).find(|own| own.axis + ahead == axis);
        if let Some(asked) = asked {
            let count = b.single(self.count)?;
            let same = b.binary(B::Equal, asked.count, count)?;
            b.require(same, "a shape to expand to does not fit the operand")?;
            return Ok(Some(Fate::Kept(axis)));
        }
        // A known extent other than one would be that of all the room, or of one element that is repeated.
        let known = b.ranges(list).and_then(|own| axis.checked_sub(ahead).map(|at| own[at].only()));
        Ok(match known {
            None if axis < ahead => Some(Fate::Kept(axis)),
            Some(Some(1)) => Some(Fate::Kept(axis)),
            _ => None,
        })
    }

    /// Whether `Squeeze` takes the axis away.
    fn is_squeezed(&mut self, b: &Builder) -> Result<bool, NodeError> {
        let rank = self.shape.len();
        let given = match self.node.optional(1) {
            Some(_) => Some(b.integers_of(self.node, 1)?),
            None => self.node.attributes.get("axes").map(|own| own.ints.clone()),
        };
        let Some(given) = given else { return Ok(self.shape[self.axis] == 1) };
        let axes = given.iter().map(|own| axis(*own, rank)).collect::<Result<Vec<_>, _>>()?;
        Ok(axes.contains(&self.axis))
    }

    /// Ends a run in which not exactly one is there.
    fn exactly_one(&self, b: &mut Builder) -> Result<(), NodeError> {
        let one = b.with_scalar(B::Equal, self.count, 1.0)?;
        b.require(one, "an axis is taken away along which there is not one element")
    }

    /// The axis of a result with the same elements in the same order.
    fn reshaped(&mut self, b: &mut Builder, to: &[usize]) -> Result<Option<Fate>, NodeError> {
        let product = |own: &[usize]| own.iter().product::<usize>();
        let (outer, inner) =
            (product(&self.shape[..self.axis]), product(&self.shape[self.axis + 1..]));
        let room = self.shape[self.axis];
        let mut wanted = None;
        let place = match self.node.operator.as_str() {
            // Only an extent that is kept, follows from the others or is the run's own may be another one in a run.
            "Reshape" if self.node.opset >= 5 => {
                let (list, open) = match target(b, self.node)? {
                    Some(target) => {
                        wanted = Some(target.wanted);
                        (target.list, Some(target.place))
                    }
                    None => (b.integers_of(self.node, 1)?, None),
                };
                let open = open.or_else(|| list.iter().position(|own| *own == -1));
                let keeps = !self.node.flag("allowzero", false)? && list.get(self.axis) == Some(&0);
                let is_kept = keeps && to.get(..self.axis).map(product) == Some(outer);
                is_kept.then_some(self.axis).or(open)
            }
            "Reshape" => None,
            "Flatten" => {
                let rank = self.shape.len() as i64;
                let along = self.node.int_or("axis", 1)?;
                let along = if along < 0 { along + rank } else { along };
                Some(usize::from(along <= self.axis as i64))
            }
            _ => self.beside_ones(b)?,
        };
        let Some(place) =
            place.filter(|place| *place < to.len() && product(&to[..*place]) == outer)
        else {
            return Ok(None);
        };
        let behind = product(&to[place + 1..]);
        let times = inner
            .checked_div(behind)
            .filter(|times| inner.is_multiple_of(behind) && to[place] == room * times);
        if let (Some(wanted), Some(times)) = (wanted, times) {
            self.sized_as_wanted(b, wanted, times)?;
        }
        Ok(times.map(|times| Fate::Scaled(place, times)))
    }

    /// Ends a run in which a shape says another extent than as many times what is there.
    fn sized_as_wanted(
        &self,
        b: &mut Builder,
        wanted: Operand,
        times: usize,
    ) -> Result<(), NodeError> {
        let count = b.single(self.count)?;
        let count = b.with_scalar(B::Multiply, count, times as f64)?;
        let same = b.binary(B::Equal, count, wanted)?;
        b.require(same, "a shape does not fit the elements that are there")
    }

    /// Where `Squeeze` and `Unsqueeze` leave the axis.
    fn beside_ones(&mut self, b: &Builder) -> Result<Option<usize>, NodeError> {
        let rank = self.shape.len();
        let given = match self.node.optional(1) {
            Some(_) => Some(b.integers_of(self.node, 1)?),
            None => self.node.ints("axes")?,
        };
        if self.node.operator == "Unsqueeze" {
            let given = given.unwrap_or_default();
            let added = axes(&given, rank + given.len())?;
            let kept = (0..rank + given.len()).filter(|place| !added.contains(place));
            return Ok(kept.into_iter().nth(self.axis));
        }
        let gone = match given {
            Some(given) => axes(&given, rank)?,
            None => (0..rank).filter(|place| self.shape[*place] == 1).collect(),
        };
        let before = gone.iter().filter(|place| **place < self.axis).count();
        Ok((!gone.contains(&self.axis)).then(|| self.axis - before))
    }

    fn sliced(&mut self, b: &Builder) -> Result<Option<Fate>, NodeError> {
        let Some((start, end, step)) = bounds(b, self.node, self.axis, self.shape.len())? else {
            return Ok(Some(Fate::Kept(self.axis)));
        };
        let most = self.shape[self.axis] as i64;
        Ok((step == 1 && start >= 0 && end >= 0)
            .then(|| Fate::Cut(self.axis, start, end.min(most))))
    }

    fn gathered(&mut self, b: &mut Builder) -> Result<Option<Fate>, NodeError> {
        let (data, indices) = (self.node.input(0)?, self.node.input(1)?);
        let along = self.along(0, b.rank(data))?;
        if self.place == 1 {
            return Ok(Some(Fate::Kept(along + self.axis)));
        }
        if along == self.axis {
            return from_front(b, indices);
        }
        let behind = if self.axis > along { self.axis - 1 + b.rank(indices) } else { self.axis };
        Ok(Some(Fate::Kept(behind)))
    }

    /// `GatherND` without samples: of rows of indices that are there in part, or of what they choose from.
    fn gathered_by_rows(&mut self, b: &mut Builder) -> Result<Option<Fate>, NodeError> {
        let indices = self.node.input(1)?;
        if self.node.int_or("batch_dims", 0)? != 0 {
            return Ok(None);
        }
        if self.place == 1 {
            return Ok((self.axis + 1 < self.shape.len()).then_some(Fate::Kept(self.axis)));
        }
        let shape = b.shape(indices);
        let Some((chosen, rows)) = shape.split_last() else { return Ok(None) };
        if self.axis >= *chosen {
            return Ok(Some(Fate::Kept(self.axis - chosen + rows.len())));
        }
        let own = b.narrow(indices, rows.len(), self.axis, 1)?;
        from_front(b, own)
    }

    fn of_gemm(&mut self) -> Result<Option<Fate>, NodeError> {
        let turned = [self.node.flag("transA", false)?, self.node.flag("transB", false)?];
        Ok(match self.place {
            0 => Some(if (self.axis == 1) == turned[0] { Fate::Kept(0) } else { Fate::Gone }),
            1 => Some(if (self.axis == 0) == turned[1] { Fate::Kept(1) } else { Fate::Gone }),
            _ => None,
        })
    }
}

/// Where indices choose along the part's axis, nothing is left of it; a run is held to indices that count from its front,
/// since those from the end would be from that of the room.
fn from_front(b: &mut Builder, indices: Operand) -> Result<Option<Fate>, NodeError> {
    let least = b.scalar(b.dtype(indices), 0.0)?;
    let from_front = b.binary(B::GreaterEqual, indices, least)?;
    if b.tensor(from_front).is_some_and(|own| own.bytes().contains(&0)) {
        return Ok(None);
    }
    b.require(from_front, "an index from the end of what a run decides the size of")?;
    Ok(Some(Fate::Gone))
}
