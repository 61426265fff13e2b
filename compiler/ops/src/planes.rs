//! The reference convolution: the input is laid out so that, for each element of the window, the values that
//! all positions of an output plane read lie in one run.

use crate::convolution::{Convolution, Window};
use crate::sums::{COLUMNS, Products, for_each_chunk};
use hone_types::{Tensor, TensorType};

/// Output channels that are computed together.
const CHANNELS: usize = 8;

/// `x` convolved with `w`, each output plane starting from its `bias`; all in `f64`. Every sum takes its
/// terms in the order of input channels and window elements.
pub(crate) fn convolve(
    operator: &Convolution,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&[f64]>,
    output: &TensorType,
) -> Vec<f64> {
    let layout = PhaseLayout::new(&operator.window, &x.shape()[2..], &w.shape()[2..], output);
    let plane: usize = output.shape[2..].iter().product();
    let (outputs, group_channels) = (output.shape[1], w.shape()[1]);
    let mut values = vec![0.0; output.elements()];
    if values.is_empty() {
        return values;
    }
    let (terms, factors) = (layout.spread(x), w.to_f64());
    let group_outputs = outputs / operator.groups.max(1);
    let depth = group_channels * layout.window.len();
    // Chunks may not span groups, whose inputs differ.
    let channels =
        (1..=CHANNELS.min(group_outputs)).rev().find(|n| group_outputs.is_multiple_of(*n));
    let channels = channels.unwrap_or(1);
    for_each_chunk(&mut values, channels * plane, |index, chunk| {
        let first = index * channels;
        let (image, channel) = (first / outputs, first % outputs);
        let group = channel / group_outputs;
        let source = (image * x.shape()[1] + group * group_channels) * layout.channel;
        let mut sums = vec![0.0; channels * layout.positions];
        for (row, sums) in sums.chunks_exact_mut(layout.positions).enumerate() {
            sums.fill(bias.map_or(0.0, |bias| bias[channel + row]));
        }
        let products = Products {
            factors: &factors[channel * depth..][..channels * depth],
            terms: &terms[source..],
            offsets: &layout.offsets(group_channels),
        };
        products.add_to(&mut sums, layout.positions);
        let planes = sums.chunks_exact(layout.positions);
        for (sums, plane) in planes.zip(chunk.chunks_exact_mut(plane)) {
            layout.gather(sums, plane);
        }
    });
    values
}

/// Where a padded input plane lies: every axis is split into as many *phases* as its stride, so that
/// neighbouring windows read neighbouring values; `[phases of each axis.., positions of each axis..]`.
/// An output plane is computed over all positions, and those past its end are left out.
struct PhaseLayout {
    strides: Vec<usize>,
    pads: Vec<usize>,
    input: Vec<usize>,
    output: Vec<usize>,
    /// Positions of each axis within a phase.
    extents: Vec<usize>,
    /// Elements of a phase.
    phase: usize,
    /// Elements of a channel, the slack at the end included.
    channel: usize,
    /// Positions from the first output to the last.
    positions: usize,
    /// Where the elements of the window are read, relative to a position.
    window: Vec<usize>,
}

impl PhaseLayout {
    fn new(window: &Window, input: &[usize], kernel: &[usize], output: &TensorType) -> Self {
        let output = output.shape[2..].to_vec();
        let axes = output.len();
        let extents: Vec<usize> = (0..axes)
            .map(|axis| {
                let reach = kernel[axis].saturating_sub(1) * window.dilations[axis];
                output[axis] + reach / window.strides[axis]
            })
            .collect();
        let phase: usize = extents.iter().product();
        let phases: usize = window.strides.iter().product();
        let last: usize = flat(output.iter().map(|extent| extent.saturating_sub(1)), &extents);
        let mut layout = Self {
            strides: window.strides.clone(),
            pads: window.pads_begin.clone(),
            input: input.to_vec(),
            output,
            extents,
            phase,
            channel: phase * phases + COLUMNS,
            positions: last + 1,
            window: Vec::new(),
        };
        let elements: usize = kernel.iter().product();
        layout.window = (0..elements)
            .map(|element| {
                let place = unravel(element, kernel);
                let padded = place.iter().zip(&window.dilations).map(|(k, dilation)| k * dilation);
                layout.offset(&padded.collect::<Vec<_>>())
            })
            .collect();
        layout
    }

    /// Where a coordinate of the padded plane lies.
    fn offset(&self, padded: &[usize]) -> usize {
        let pairs = || padded.iter().zip(&self.strides);
        let phase = flat(pairs().map(|(place, stride)| place % stride), &self.strides);
        phase * self.phase + flat(pairs().map(|(place, stride)| place / stride), &self.extents)
    }

    /// The planes of all images and channels, in this layout.
    fn spread(&self, x: &Tensor) -> Vec<f64> {
        let values = x.to_f64();
        let plane: usize = self.input.iter().product();
        let planes = x.shape()[0] * x.shape()[1];
        let mut spread = vec![0.0; planes * self.channel + COLUMNS];
        if plane == 0 {
            return spread;
        }
        // Where each value of a plane goes; none where no window reads it.
        let targets: Vec<Option<usize>> = (0..plane)
            .map(|place| {
                let place = unravel(place, &self.input);
                let padded: Vec<usize> =
                    place.iter().zip(&self.pads).map(|(p, pad)| p + pad).collect();
                let positions = padded.iter().zip(&self.strides).zip(&self.extents);
                let inside = positions.clone().all(|((p, stride), extent)| p / stride < *extent);
                inside.then(|| self.offset(&padded))
            })
            .collect();
        for (values, spread) in values.chunks_exact(plane).zip(spread.chunks_mut(self.channel)) {
            for (value, target) in values.iter().zip(&targets) {
                if let Some(target) = target {
                    spread[*target] = *value;
                }
            }
        }
        spread
    }

    /// Where the terms of a sum are read, for each channel of a group and each element of the window.
    fn offsets(&self, channels: usize) -> Vec<usize> {
        let window = |channel: usize| self.window.iter().map(move |at| channel * self.channel + at);
        (0..channels).flat_map(window).collect()
    }

    /// Takes an output plane out of the sums over all positions.
    fn gather(&self, sums: &[f64], plane: &mut [f64]) {
        let Some((width, outer)) = self.output.split_last() else { return };
        for (row, plane) in plane.chunks_exact_mut(*width).enumerate() {
            let mut place = unravel(row, outer);
            place.push(0);
            plane.copy_from_slice(&sums[flat(place.into_iter(), &self.extents)..][..*width]);
        }
    }
}

/// The row-major position of a coordinate.
fn flat(place: impl Iterator<Item = usize>, extents: &[usize]) -> usize {
    place.zip(extents).fold(0, |flat, (place, extent)| flat * extent + place)
}

/// The coordinate of a row-major position.
fn unravel(mut flat: usize, extents: &[usize]) -> Vec<usize> {
    let mut place = vec![0; extents.len()];
    for (place, extent) in place.iter_mut().zip(extents).rev() {
        *place = flat % extent.max(&1);
        flat /= extent.max(&1);
    }
    place
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Operator;

    /// The definition, element by element.
    fn plainly(operator: &Convolution, x: &Tensor, w: &Tensor, output: &TensorType) -> Vec<f64> {
        let (xs, ws) = (x.to_f64(), w.to_f64());
        let (input, kernel) = (&x.shape()[2..], &w.shape()[2..]);
        let window = &operator.window;
        let element = |at: usize| {
            let at = unravel(at, &output.shape);
            let group = at[1] * operator.groups / output.shape[1];
            let mut sum = 0.0;
            for channel in 0..w.shape()[1] {
                for tap in 0..kernel.iter().product() {
                    let tap_at = unravel(tap, kernel);
                    let read: Option<Vec<usize>> = (0..input.len())
                        .map(|axis| {
                            let from = at[axis + 2] * window.strides[axis]
                                + tap_at[axis] * window.dilations[axis];
                            let read = from.checked_sub(window.pads_begin[axis])?;
                            (read < input[axis]).then_some(read)
                        })
                        .collect();
                    let Some(read) = read else { continue };
                    let plane = at[0] * x.shape()[1] + group * w.shape()[1] + channel;
                    let value =
                        xs[plane * input.iter().product::<usize>() + flat(read.into_iter(), input)];
                    let taps: usize = kernel.iter().product();
                    sum += value * ws[(at[1] * w.shape()[1] + channel) * taps + tap];
                }
            }
            sum
        };
        (0..output.elements()).map(element).collect()
    }

    #[test]
    fn every_window_reads_what_the_definition_says() {
        let cases: &[(&[usize], &[usize], usize, Window)] = &[
            (&[2, 3, 7], &[4, 3, 3], 1, window(&[2], &[1], &[1], &[2])),
            (&[1, 4, 9, 8], &[6, 2, 3, 2], 2, window(&[1, 3], &[2, 1], &[2, 0], &[1, 1])),
            (&[2, 6, 5, 5], &[6, 1, 3, 3], 6, window(&[2, 2], &[1, 1], &[0, 1], &[0, 1])),
            (
                &[1, 2, 6, 4, 5],
                &[3, 2, 2, 3, 1],
                1,
                window(&[2, 1, 3], &[1, 1, 1], &[1; 3], &[0; 3]),
            ),
            (&[1, 1, 4, 4], &[1, 1, 1, 1], 1, window(&[3, 3], &[1, 1], &[3, 3], &[3, 3])),
        ];
        for (x, w, groups, window) in cases {
            let tensor = |shape: &[usize]| {
                let values =
                    (0..shape.iter().product::<usize>()).map(|n| (n * 7 % 11) as f32 - 5.0);
                Tensor::from_elements(shape, &values.collect::<Vec<_>>()).unwrap()
            };
            let (x, w) = (tensor(x), tensor(w));
            let operator = Convolution { window: window.clone(), groups: *groups };
            let types = [Some(x.tensor_type()), Some(w.tensor_type())];
            let output = operator.infer(&types).unwrap().remove(0);
            let wanted = plainly(&operator, &x, &w, &output);
            assert_eq!(convolve(&operator, &x, &w, None, &output), wanted, "{x:?}");
        }
    }

    fn window(strides: &[usize], dilations: &[usize], begin: &[usize], end: &[usize]) -> Window {
        Window {
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            pads_begin: begin.to_vec(),
            pads_end: end.to_vec(),
        }
    }
}
