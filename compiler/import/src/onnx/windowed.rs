//! Convolutions and pools along an axis of which a run decides how much is there.
//!
//! What is read behind the part is what a window reads of padding, so results up to the last window of the part are
//! right, and those behind it are not there. How many windows there are is computed of the count.

use super::builder::{Builder, Operand};
use super::fates::{Fate, Question};
use super::operators::window::window;
use crate::NodeError;
use hone_ops::{BinaryFunction as B, Window};

/// What becomes of the part of the first operand, along an axis that windows move over, where the results are of shape
/// `to`; `None` where this setting is not for a part.
///
/// # Errors
/// Attributes that do not fit, and what an operator refuses.
pub(super) fn windowed(
    question: &mut Question<'_>,
    b: &mut Builder,
    outputs: &[Operand],
    to: &[usize],
) -> Result<Option<Fate>, NodeError> {
    let Question { axis, place, count, shape, .. } = *question;
    // The first results of a pool alone: places among all the room are not those among what is there.
    let (0, [_]) = (place, outputs) else { return Ok(None) };
    let Some(axis_of_window) = axis.checked_sub(2).filter(|_| to.len() == shape.len()) else {
        return Ok(None);
    };
    let operator = question.node.operator.clone();
    let kernel = match operator.as_str() {
        "GlobalAveragePool" => return Ok(Some(Fate::Averaged)),
        "GlobalLpPool" | "GlobalMaxPool" => return Ok(Some(Fate::Gone)),
        "Conv" | "ConvTranspose" | "FusedConv" => {
            b.shape(question.node.input(1)?).get(2..).map(<[_]>::to_vec)
        }
        "AveragePool" | "LpPool" | "MaxPool" => {
            let kernel = question.node.ints("kernel_shape")?.unwrap_or_default();
            kernel.iter().map(|extent| usize::try_from(*extent).ok()).collect()
        }
        _ => None,
    };
    let Some(kernel) = kernel else { return Ok(None) };
    if operator == "ConvTranspose" {
        return spread(question, b, count, to);
    }
    // Read from a copy, since an attribute that is read is gone.
    let mode = question.node.again().string_or("auto_pad", "NOTSET")?;
    let rounds_up = question.node.flag("ceil_mode", false)?;
    let window = window(question.node, &shape[2..], &kernel)?;
    let along = Along::new(&window, &kernel, axis_of_window);
    // Padding to the same extent would depend on the count where windows are apart.
    let is_fixed = along.stride == 1 || mode == "NOTSET" || mode == "VALID";
    let counts_padding = operator != "AveragePool"
        || along.pads == 0
        || question.node.flag("count_include_pad", false)?;
    if !is_fixed || rounds_up || !counts_padding {
        return Ok(None);
    }
    along.number(b, count, axis).map(Some)
}

/// A window along one axis.
struct Along {
    /// Elements from the first that it reads to the last.
    span: usize,
    stride: usize,
    /// Padding at both ends together.
    pads: usize,
}

impl Along {
    fn new(window: &Window, kernel: &[usize], axis: usize) -> Self {
        let span = kernel[axis].saturating_sub(1).saturating_mul(window.dilations[axis]);
        Self {
            span: span.saturating_add(1),
            stride: window.strides[axis],
            pads: window.pads_begin[axis].saturating_add(window.pads_end[axis]),
        }
    }

    /// Along `axis` as many as there are windows over `count` elements.
    fn number(&self, b: &mut Builder, count: Operand, axis: usize) -> Result<Fate, NodeError> {
        // One window more than strides fit behind the first.
        let more = self.pads as f64 + self.stride as f64 - self.span as f64;
        if self.stride == 1 && more == 0.0 {
            return Ok(Fate::Kept(axis));
        }
        let count = b.single(count)?;
        let ends = b.with_scalar(B::Add, count, more)?;
        let ends = b.with_scalar(B::Maximum, ends, 0.0)?;
        Ok(Fate::Counted(axis, b.with_scalar(B::Divide, ends, self.stride as f64)?))
    }
}

/// `ConvTranspose`: every element more spreads over a stride more.
fn spread(
    question: &mut Question<'_>,
    b: &mut Builder,
    count: Operand,
    to: &[usize],
) -> Result<Option<Fate>, NodeError> {
    let axis = question.axis;
    if question.node.ints("output_shape")?.is_some() {
        return Ok(None);
    }
    let strides = question.node.ints("strides")?;
    let stride = strides.and_then(|own| own.get(axis - 2).copied()).unwrap_or(1);
    let Ok(stride) = usize::try_from(stride) else { return Ok(None) };
    // What all the room's result has over as many strides.
    let more = to[axis] as f64 - question.shape[axis] as f64 * stride as f64;
    if more == 0.0 {
        return Ok(Some(Fate::Scaled(axis, stride)));
    }
    let count = b.single(count)?;
    let ends = b.with_scalar(B::Multiply, count, stride as f64)?;
    let ends = b.with_scalar(B::Add, ends, more)?;
    Ok(Some(Fate::Counted(axis, b.with_scalar(B::Maximum, ends, 0.0)?)))
}
