//! Which convolutions are computed by Winograd's algorithm, and with which tile: where the
//! time predicted from the target's figures is clearly less than that of the direct way.

use crate::graph_decisions::{CONVOLUTION_ALGORITHM, GraphDecisions};
use crate::narrow::MAX_REDUCED_TILE;
use hone_machine::Rates;
use hone_ops::{Convolution, WINOGRAD_TILES, Window};

/// Fraction of the direct way's time that tiles of two results a side must save: prediction is no finer. They round
/// no more than the direct way (two convolutions of 32 channels err by 1.2e-6 with them, by 2.1e-6 without, and by 1.2e-5
/// with tiles of four).
const MIN_GAIN_OF_SMALL_TILES: f64 = 0.05;

/// The same of larger tiles, whose rounding errors must be worth it.
const MIN_GAIN: f64 = 0.15;

/// Fraction of the peak that products of tiles reach.
const EFFICIENCY: f64 = 0.9;

/// Fraction of the shorter of computing and loading weights that the longer does not hide.
const EXPOSED: f64 = 0.3;

/// Results and depth of a convolution. Positions along the spatial axes before the last two count as images, and the
/// window's elements along them as further channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    /// Images of the result.
    pub(crate) batch: usize,
    /// Images that are read for them.
    pub(crate) read: usize,
    /// Channels of the input.
    pub(crate) channels: usize,
    /// Elements of the window along the axes before the last two.
    pub(crate) taps: usize,
    /// Channels of the result.
    pub(crate) outputs: usize,
    /// Rows and columns of the result.
    pub(crate) spatial: [usize; 2],
    /// Products that one instruction sums in each lane where they are of reduced precision.
    pub(crate) products: usize,
}

impl Extents {
    /// Those of a convolution with weights `[O, C, Z.., 3, 3]` and results `[N, O, Z.., Y, X]`, one that is dilated over
    /// two axes as of a plain one of more images; `None` where it has one spatial axis.
    pub(crate) fn of(
        convolution: &Convolution,
        weights: &[usize],
        results: &[usize],
        products: usize,
    ) -> Option<Self> {
        let ([batch, _, outer @ .., rows, columns], [outputs, channels, taps @ .., _, _]) =
            (results, weights)
        else {
            return None;
        };
        let [down, across] = dilations(convolution)?;
        let Window { strides, dilations, .. } = &convolution.window;
        let read = outer.iter().zip(taps).zip(strides.iter().zip(dilations));
        let read = read.map(|((results, taps), (stride, dilation))| {
            (results.saturating_sub(1) * stride) + (taps.saturating_sub(1) * dilation) + 1
        });
        let images = batch * down * across;
        Some(Self {
            batch: images * outer.iter().product::<usize>(),
            read: images * read.product::<usize>(),
            channels: *channels,
            taps: taps.iter().product(),
            outputs: *outputs,
            spatial: [rows.div_ceil(down), columns.div_ceil(across)],
            products,
        })
    }
}

/// Distances between the elements of a window over the last two axes; `None` where there is one axis, and where there are
/// more than two of which one of the last is dilated.
pub(crate) fn dilations(convolution: &Convolution) -> Option<[usize; 2]> {
    match convolution.window.dilations[..] {
        [down, across] => Some([down, across]),
        [.., 1, 1] => Some([1, 1]),
        _ => None,
    }
}

/// A convolution whose algorithm is decided.
pub(crate) struct Subject<'a> {
    pub(crate) convolution: &'a Convolution,
    /// Extents of its weights.
    pub(crate) weights: &'a [usize],
    /// Extents of its result.
    pub(crate) result: &'a [usize],
    /// Channels in a block.
    pub(crate) block: usize,
}

impl Subject<'_> {
    /// What measurements are kept under: all that the time of each algorithm depends on.
    fn structure(&self, products: usize) -> String {
        let Window { strides, dilations, .. } = &self.convolution.window;
        format!(
            "convolution {} of {} weights, strides {}, dilations {}, {products} products, blocks of {}",
            by(self.result),
            by(self.weights),
            by(strides),
            by(dilations),
            self.block,
        )
    }
}

/// Extents as one reads them: `512 × 7 × 7`.
fn by(extents: &[usize]) -> String {
    let extents: Vec<String> = extents.iter().map(usize::to_string).collect();
    extents.join(" × ")
}

/// As [`choose_tile`], unless something else was measured; the decision is noted for the node of the given name.
pub(crate) fn decide_tile(
    subject: &Subject<'_>,
    extents: Extents,
    rates: &Rates,
    decisions: Option<(&GraphDecisions, &str)>,
) -> Option<usize> {
    let window = &subject.weights[2..];
    let analytic = choose_tile(subject.convolution, window, extents, rates);
    let decisions = decisions.filter(|_| may_be_filtered(subject.convolution, window));
    let Some((decisions, node)) = decisions else { return analytic };
    let alternatives = [0].into_iter().chain(WINOGRAD_TILES).map(|side| side as i64);
    let alternatives: Vec<i64> = alternatives.collect();
    let about = (subject.structure(extents.products), node);
    let analytic = analytic.unwrap_or(0) as i64;
    let taken = decisions.decide(CONVOLUTION_ALGORITHM, about, &alternatives, analytic);
    usize::try_from(taken).ok().filter(|side| *side > 0)
}

/// Whether Winograd's filtering computes a convolution with such a window.
fn may_be_filtered(convolution: &Convolution, window: &[usize]) -> bool {
    let plain = convolution.window.strides.ends_with(&[1, 1]);
    window.ends_with(&[3, 3]) && convolution.groups == 1 && plain
}

/// The side of the tiles to use; `None` where the direct way is as good or the only one. Dilated windows
/// are taken as plain ones of more images.
pub(crate) fn choose_tile(
    convolution: &Convolution,
    window: &[usize],
    extents: Extents,
    rates: &Rates,
) -> Option<usize> {
    if !may_be_filtered(convolution, window) {
        return None;
    }
    let timed = WINOGRAD_TILES.iter().map(|tile| (*tile, predicted(*tile, extents, rates)));
    let (tile, time) = timed.min_by(|left, right| left.1.total_cmp(&right.1))?;
    let gain = if tile <= 2 { MIN_GAIN_OF_SMALL_TILES } else { MIN_GAIN };
    (time < direct(extents, rates) * (1.0 - gain)).then_some(tile)
}

/// The time by Winograd's filtering as a fraction of the direct way's, where that is how a convolution is computed.
pub(crate) fn filtered(
    convolution: &Convolution,
    window: &[usize],
    extents: Extents,
    rates: &Rates,
) -> Option<f64> {
    let tile = choose_tile(convolution, window, extents, rates)?;
    Some(predicted(tile, extents, rates) / direct(extents, rates))
}

/// Multiply-adds of the direct way, in operations.
fn flops(extents: Extents) -> f64 {
    let Extents { batch, channels, taps, outputs, spatial, .. } = extents;
    (2 * 9 * batch * channels * taps * outputs * spatial[0] * spatial[1]) as f64
}

/// Nanoseconds of the direct way.
fn direct(extents: Extents, rates: &Rates) -> f64 {
    let bytes = size_of::<f32>() / extents.products;
    let weights = (9 * extents.channels * extents.taps * extents.outputs * bytes) as f64;
    let computing = flops(extents) / (rates.flops_per_ns * extents.products as f64);
    overlapped(computing, weights / rates.memory_bytes_per_ns)
}

/// Nanoseconds with tiles of `tile` results a side.
fn predicted(tile: usize, extents: Extents, rates: &Rates) -> f64 {
    let Extents { batch, read, channels, taps, outputs, spatial, .. } = extents;
    let products = if tile <= MAX_REDUCED_TILE { extents.products } else { 1 };
    let bytes = size_of::<f32>() / products;
    let tile_elements = (tile + 2) * (tile + 2);
    let weights = (tile_elements * channels * taps * outputs * bytes) as f64;
    let tiles = tile_elements * spatial[0].div_ceil(tile) * spatial[1].div_ceil(tile);
    // Tiles and products are each written once and read once.
    let moved = (2 * tiles * (read * channels * bytes + batch * outputs * size_of::<f32>())) as f64;
    let speed = EFFICIENCY * rates.flops_per_ns * products as f64;
    let multiplied = (2 * tiles * batch * channels * taps * outputs) as f64 / speed;
    overlapped(multiplied, weights / rates.memory_bytes_per_ns) + moved / rates.cache_bytes_per_ns
}

fn overlapped(computing: f64, loading: f64) -> f64 {
    computing.max(loading) + EXPOSED * computing.min(loading)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates =
        Rates { flops_per_ns: 240.0, memory_bytes_per_ns: 10.0, cache_bytes_per_ns: 40.0 };

    fn chosen(channels: usize, side: usize, window: &[usize], stride: usize) -> Option<usize> {
        let axes = window.len();
        let mut window_steps = Window::plain(axes);
        window_steps.strides[axes - 2..].fill(stride);
        let convolution = Convolution { window: window_steps, groups: 1 };
        let weights = [&[channels, channels], window].concat();
        let results = [&[1, channels], &vec![16; axes - 2][..], &[side; 2]].concat();
        let extents = Extents::of(&convolution, &weights, &results, 1)?;
        choose_tile(&convolution, window, extents, &RATES)
    }

    #[test]
    fn windows_over_more_axes_are_filtered_over_the_last_two() {
        assert_eq!(chosen(64, 56, &[3, 3, 3], 1), Some(4));
        assert_eq!(chosen(64, 56, &[1, 3, 3], 1), Some(4));
        assert_eq!(chosen(64, 56, &[3, 1, 1], 1), None);
        assert_eq!(chosen(64, 56, &[3, 3, 3], 2), None);
    }

    #[test]
    fn large_images_take_large_tiles() {
        assert_eq!(chosen(64, 56, &[3, 3], 1), Some(4));
        assert_eq!(chosen(96, 35, &[3, 3], 1), Some(4));
    }

    #[test]
    fn strides_other_windows_and_few_tiles_stay_direct() {
        assert_eq!(chosen(512, 7, &[3, 3], 1), None);
        assert_eq!(chosen(64, 56, &[3, 3], 2), None);
        assert_eq!(chosen(64, 56, &[5, 5], 1), None);
    }

    #[test]
    fn few_channels_stay_direct() {
        assert_eq!(chosen(1, 56, &[3, 3], 1), None);
    }
}
