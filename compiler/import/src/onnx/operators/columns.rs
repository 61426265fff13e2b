//! `Col2Im`.

use super::decided::is_open;
use super::window::window;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, extents};
use hone_ops::{BinaryFunction as B, ConvolutionTranspose, ReduceFunction, Window};
use hone_types::{DataType, Tensor};

/// `Col2Im`: columns of windows added up to an image. Of a block that a run names, each is compiled that makes the
/// declared image of as many columns.
pub(super) fn columns_to_image(b: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let implied = node.implied(0).and_then(|shape| Some(shape.get(2..)?.to_vec()));
    let image = extents(&b.integers_held(node, 1, implied)?, "image_shape")?;
    if !is_open(b, node, 2) {
        let block = extents(&b.integers_of(node, 2)?, "block_shape")?;
        let blocks = Blocks::new(node, b.shape(x), image, block)?;
        return Ok(vec![blocks.added(b, x)?]);
    }
    let (shape, attributes) = (b.shape(x), node.attributes.clone());
    let channels = node.declared_extent(0, 1).filter(|channels| *channels > 0);
    let taps = channels.zip(shape.get(1)).filter(|(channels, wide)| wide.is_multiple_of(*channels));
    let taps = taps.map(|(channels, wide)| wide / channels);
    let taps = taps.filter(|own| *own <= MOST_TAPS).ok_or_else(|| b.not_constant(node, 2))?;
    let mut fitting = Vec::new();
    for block in factors(taps, image.len()) {
        node.attributes = attributes.clone();
        fitting.extend(Blocks::new(node, shape.clone(), image.clone(), block).ok());
    }
    let named = b.cast(node.input(2)?, DataType::I64)?;
    let named = b.reshape(named, vec![image.len()])?;
    let least = b.with_scalar(B::Greater, named, 0.0)?;
    b.require(least, "a block is empty")?;
    let most = b.with_scalar(B::LessEqual, named, taps as f64)?;
    b.require(most, "a block does not fit")?;
    // The extents as the digits of one number.
    let digit = taps as i64 + 1;
    let powers: Option<Vec<i64>> =
        (0..image.len() as u32).map(|place| digit.checked_pow(place)).collect();
    let powers = powers.ok_or_else(|| b.not_constant(node, 2))?;
    let key = |blocks: &Blocks| -> i64 {
        blocks.block.iter().zip(&powers).map(|(extent, power)| *extent as i64 * power).sum()
    };
    let keys: Vec<i64> = fitting.iter().map(key).collect();
    let digits = b.integers(&powers)?;
    let digits = b.multiply(named, digits)?;
    let number = b.reduce(ReduceFunction::Sum, digits, vec![0], false)?;
    let message = format!("the block does not make the declared image {image:?}");
    let result = b.choose(number, &keys, &message, &mut |b, chosen| {
        let blocks = fitting.iter().find(|own| key(own) == chosen);
        blocks.map_or_else(|| Err(NodeError::invalid("no block")), |own| own.added(b, x))
    })?;
    Ok(vec![result])
}

/// Most elements of a block.
const MOST_TAPS: usize = 1 << 10;

/// Lists of `count` numbers whose product is `product`.
fn factors(product: usize, count: usize) -> Vec<Vec<usize>> {
    match count {
        0 => Vec::new(),
        1 => vec![vec![product]],
        _ => {
            let divisors = (1..=product).filter(|own| product.is_multiple_of(*own));
            let lists = divisors.flat_map(|own| {
                let rest = factors(product / own, count - 1).into_iter();
                rest.map(move |rest| [vec![own], rest].concat())
            });
            lists.take(1 << 10).collect()
        }
    }
}

/// Columns of windows that are added up: a transposed convolution whose weights put each element of a column at its
/// place.
struct Blocks {
    batch: usize,
    channels: usize,
    taps: usize,
    image: Vec<usize>,
    block: Vec<usize>,
    /// How many windows there are along each axis.
    places: Vec<usize>,
    output_padding: Vec<usize>,
    window: Window,
}

impl Blocks {
    fn new(
        node: &mut Node,
        shape: Vec<usize>,
        image: Vec<usize>,
        block: Vec<usize>,
    ) -> Result<Self, NodeError> {
        let axes = image.len();
        let [batch, wide, columns] = <[usize; 3]>::try_from(shape)
            .map_err(|shape| NodeError::invalid(format!("shape {shape:?} has not three axes")))?;
        let taps =
            block.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent)).unwrap_or(0);
        let fits = axes > 0 && block.len() == axes && (1..=MOST_TAPS).contains(&taps);
        if !fits || !wide.is_multiple_of(taps) {
            return Err(NodeError::invalid(format!(
                "blocks {block:?} do not fit image {image:?} of {wide}"
            )));
        }
        let window = window(node, &image, &block)?;
        let mut places = Vec::with_capacity(axes);
        let mut output_padding = Vec::with_capacity(axes);
        for axis in 0..axes {
            let span = (block[axis] - 1).saturating_mul(window.dilations[axis]).saturating_add(1);
            let padded =
                image[axis].saturating_add(window.pads_begin[axis] + window.pads_end[axis]);
            let room = padded
                .checked_sub(span)
                .ok_or_else(|| NodeError::invalid("a block does not fit"))?;
            places.push(room / window.strides[axis] + 1);
            output_padding.push(room % window.strides[axis]);
        }
        let windows = places.iter().try_fold(1usize, |all, own| all.checked_mul(*own));
        if windows != Some(columns) {
            return Err(NodeError::invalid(format!(
                "{columns} columns do not make windows {places:?}"
            )));
        }
        let channels = wide / taps;
        Ok(Self { batch, channels, taps, image, block, places, output_padding, window })
    }

    fn added(&self, builder: &mut Builder, x: Operand) -> Step {
        let (taps, columns) = (self.taps, self.batch * self.channels);
        let seen = builder.reshape(x, [&[columns, taps], &self.places[..]].concat())?;
        let mut weights = vec![0.0; taps * taps];
        (0..taps).for_each(|tap| weights[tap * taps + tap] = 1.0);
        let shape = [&[taps, 1], &self.block[..]].concat();
        let weights = builder.constant(Tensor::from_f64(builder.dtype(x), shape, &weights)?);
        let operator = ConvolutionTranspose {
            window: self.window.clone(),
            groups: 1,
            output_padding: self.output_padding.clone(),
        };
        let added = builder.apply(operator, &[seen, weights])?;
        builder.reshape(added, [&[self.batch, self.channels], &self.image[..]].concat())
    }
}
