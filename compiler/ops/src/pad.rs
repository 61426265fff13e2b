//! Elements added around a tensor, or cut off.

use crate::express::{Guard, constant, input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::{bounded, check_same_type, output_type};
use crate::strided::row_major;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The input with `begin` elements before and `end` after, per axis; negative numbers cut off. A second input, one element
/// of the first one's type, is the value of [`PadMode::Constant`] in place of the attribute.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pad {
    /// Elements added before, per axis.
    pub begin: Vec<i64>,
    /// Elements added after, per axis.
    pub end: Vec<i64>,
    /// What is added.
    pub mode: PadMode,
    /// The value of [`PadMode::Constant`] where there is no second input.
    #[serde(with = "crate::serde_forms::any_number")]
    pub value: f64,
}

/// More than any tensor holds.
const LARGEST_PAD: u64 = 1 << 40;

/// What stands outside the padded tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PadMode {
    /// One value.
    Constant,
    /// The tensor mirrored at its first and last element, which are not repeated.
    Reflect,
    /// The nearest element.
    Edge,
    /// The tensor again.
    Wrap,
}

impl Pad {
    /// Name in text forms.
    pub const NAME: &'static str = "pad";

    /// For each output index along `axis`, the input index; `None` is outside.
    fn sources(&self, axis: usize, extent: usize) -> Vec<Option<usize>> {
        let (begin, extent) = (self.begin[axis], extent as i64);
        (-begin..extent + self.end[axis])
            .map(|index| match self.mode {
                PadMode::Constant => (0..extent).contains(&index).then_some(index as usize),
                PadMode::Edge => Some(index.clamp(0, extent - 1) as usize),
                PadMode::Wrap => Some(index.rem_euclid(extent) as usize),
                PadMode::Reflect => {
                    let last = extent - 1;
                    let turned = index.rem_euclid((2 * last).max(1));
                    Some(turned.min(2 * last - turned) as usize)
                }
            })
            .collect()
    }

    /// As [`Pad::sources`], of an index expression; what is outside is guarded.
    fn place(&self, axis: usize, index: &Expr, extent: usize, guard: &mut Guard) -> Expr {
        let (begin, end) = (self.begin[axis], self.end[axis]);
        let index = if begin == 0 { index.clone() } else { index.clone() - begin };
        if begin <= 0 && end <= 0 {
            return index;
        }
        let last = extent as i64 - 1;
        match self.mode {
            PadMode::Constant => {
                if begin > 0 {
                    guard.require(Expr::Integer(0).less_equal(index.clone()));
                }
                if end > 0 {
                    guard.require(index.clone().less(extent.into()));
                }
                index
            }
            PadMode::Edge => index.maximum(0.into()).minimum(last.into()),
            PadMode::Wrap => index.modulo(extent.into()),
            PadMode::Reflect => {
                let turned = index.modulo((2 * last).max(1).into());
                turned.clone().minimum(Expr::Integer(2 * last) - turned)
            }
        }
    }
}

impl Operator for Pad {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let rank = input.rank();
        if [self.begin.len(), self.end.len()] != [rank; 2] {
            return Err(InferError::new(format!("pads of {input} need {rank} entries")));
        }
        if let Some(value) = inputs.get(1).copied().flatten() {
            check_same_type(input, &[value])?;
            if value.elements() != 1 || self.mode != PadMode::Constant {
                return Err(InferError::new(format!("{input} is not padded with {value}")));
            }
        }
        let mut shape = Vec::with_capacity(rank);
        for axis in 0..rank {
            let (begin, end, own) = (self.begin[axis], self.end[axis], input.shape[axis]);
            let sane = |pad: i64| pad.unsigned_abs() <= LARGEST_PAD;
            let extent = i64::try_from(own)
                .ok()
                .filter(|_| sane(begin) && sane(end))
                .and_then(|own| own.checked_add(begin)?.checked_add(end))
                .and_then(|extent| usize::try_from(extent).ok())
                .filter(|extent| self.mode == PadMode::Constant || own > 0 || *extent == 0);
            shape.push(extent.ok_or_else(|| {
                InferError::new(format!("pads {begin} and {end} do not fit axis {axis} of {input}"))
            })?);
        }
        Ok(vec![bounded(input.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let fill = match inputs.get(1).copied().flatten() {
            Some(value) => value.clone(),
            None => Tensor::from_f64(output.dtype, [], &[self.value])?,
        };
        let sources: Vec<Vec<Option<usize>>> =
            (0..output.rank()).map(|axis| self.sources(axis, input.shape()[axis])).collect();
        let mut bytes = Vec::with_capacity(output.bytes());
        let strides = row_major(input.shape());
        append(&mut bytes, &sources, &strides, Some(0), input.bytes(), fill.bytes());
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        let own = builder.tensor_type(x);
        let value = match input(inputs, 1) {
            Some(value) => {
                let rank = builder.tensor_type(value).rank();
                Expr::Load(value, vec![Expr::Integer(0); rank])
            }
            None => constant(self.value, own.dtype),
        };
        if own.elements() == 0 {
            return Some(vec![builder.map("pad", &output, |_| value)]);
        }
        Some(vec![builder.map("pad", &output, |point| {
            let mut guard = Guard::default();
            let read = point.iter().enumerate();
            let read: Vec<Expr> = read
                .map(|(axis, index)| self.place(axis, index, own.shape[axis], &mut guard))
                .collect();
            guard.value(Expr::Load(x, read), value)
        })])
    }
}

/// Appends the elements of all axes from the first of `sources` on, at flat place `place` of the
/// input; `None` is outside.
fn append(
    bytes: &mut Vec<u8>,
    sources: &[Vec<Option<usize>>],
    strides: &[isize],
    place: Option<usize>,
    input: &[u8],
    fill: &[u8],
) {
    match sources.split_first() {
        None => bytes.extend_from_slice(match place {
            Some(place) => &input[place * fill.len()..][..fill.len()],
            None => fill,
        }),
        Some((own, rest)) => {
            for source in own {
                let place = place.zip(*source);
                let place = place.map(|(place, source)| place + source * strides[0] as usize);
                append(bytes, rest, &strides[1..], place, input, fill);
            }
        }
    }
}
