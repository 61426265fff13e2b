//! The places of the elements of a tensor that are not zero.
//!
//! They are counted first, so that coordinates are written where they belong, and nothing is allocated beside the result.
//! Both passes are without a branch an element, since which of them are zero cannot be foreseen. Of a line, along the last
//! axis, all other coordinates are the same, and the next line's follow by counting, without a division.

use crate::DataType;
use crate::host::HostValue;

/// A coordinate as bytes of `i64`.
type Coordinate = [u8; 8];

/// The coordinates `i64[rank, count]`, row-major, and their count. Both zeros of floats are zero.
pub(crate) fn non_zero(data: &HostValue<'_>) -> (Vec<Vec<u8>>, usize) {
    use DataType as D;
    let is_float = matches!(data.of.dtype, D::F32 | D::F16 | D::Bf16 | D::F64);
    // The sign of a float does not decide.
    let shift = u32::from(is_float);
    let (bytes, shape) = (data.bytes, &*data.of.shape);
    let (coordinates, count) = match data.of.dtype.bytes_of(&[]).unwrap_or(1) {
        2 => coordinates(bytes, shape, |bytes| u16::from_ne_bytes(bytes) << shift != 0),
        4 => coordinates(bytes, shape, |bytes| u32::from_ne_bytes(bytes) << shift != 0),
        8 => coordinates(bytes, shape, |bytes| u64::from_ne_bytes(bytes) << shift != 0),
        _ => coordinates(bytes, shape, |[byte]| byte != 0),
    };
    (vec![coordinates.into_flattened()], count)
}

/// The coordinates of the elements of `N` bytes that `is_found`, one axis after the other, and how many there are.
fn coordinates<const N: usize>(
    bytes: &[u8],
    shape: &[u64],
    is_found: impl Fn([u8; N]) -> bool,
) -> (Vec<Coordinate>, usize) {
    let (elements, _) = bytes.as_chunks::<N>();
    let count: usize = elements.iter().map(|element| usize::from(is_found(*element))).sum();
    let Some((line, outer)) = shape.split_last() else { return (Vec::new(), count) };
    // Room for all that there could be: the caller fills the rest with zeros.
    let mut result = Vec::with_capacity(shape.len() * elements.len() + 1);
    let end = shape.len() * count;
    // The last of a line may be written although it was not found: one behind the end.
    result.resize(end + 1, Coordinate::default());
    let (outer_rows, last) = result.split_at_mut(outer.len() * count);
    let mut current = vec![0_u64; outer.len()];
    let mut found = 0;
    for elements in elements.chunks((*line as usize).max(1)) {
        let first = found;
        for (place, element) in elements.iter().enumerate() {
            last[found] = (place as u64).to_ne_bytes();
            found += usize::from(is_found(*element));
        }
        for (axis, coordinate) in current.iter().enumerate() {
            outer_rows[axis * count + first..axis * count + found].fill(coordinate.to_ne_bytes());
        }
        advance(&mut current, outer);
    }
    result.truncate(end);
    (result, count)
}

/// The next coordinates in row-major order.
fn advance(current: &mut [u64], extents: &[u64]) {
    for (coordinate, extent) in current.iter_mut().zip(extents).rev() {
        *coordinate += 1;
        if *coordinate < *extent {
            return;
        }
        *coordinate = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostType;

    fn found(dtype: DataType, shape: &[u64], bytes: &[u8]) -> (Vec<i64>, usize) {
        let of = HostType { dtype, shape: shape.to_vec() };
        let (results, count) = non_zero(&HostValue { of: &of, bytes });
        let (coordinates, _) = results[0].as_chunks::<8>();
        (coordinates.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect(), count)
    }

    #[test]
    fn places_of_every_width_have_their_coordinates() {
        let floats: Vec<u8> = [0.0_f32, -0.0, 1.0, f32::NAN, -2.0, 0.0]
            .iter()
            .flat_map(|x| x.to_ne_bytes())
            .collect();
        assert_eq!(found(DataType::F32, &[2, 3], &floats), (vec![0, 1, 1, 2, 0, 1], 3));
        assert_eq!(found(DataType::F32, &[6, 1], &floats), (vec![2, 3, 4, 0, 0, 0], 3));
        let wide: Vec<u8> = [0_i64, i64::MIN, 0, 7].iter().flat_map(|x| x.to_ne_bytes()).collect();
        assert_eq!(found(DataType::I64, &[2, 1, 2], &wide), (vec![0, 1, 0, 0, 1, 1], 2));
        let halves: Vec<u8> = [0x8000_u16, 1, 0].iter().flat_map(|x| x.to_ne_bytes()).collect();
        assert_eq!(found(DataType::F16, &[3], &halves), (vec![1], 1));
        assert_eq!(found(DataType::U16, &[3], &halves), (vec![0, 1], 2));
        assert_eq!(found(DataType::Bool, &[4], &[0, 1, 0, 1]), (vec![1, 3], 2));
    }

    #[test]
    fn scalars_and_nothing_have_no_coordinates() {
        assert_eq!(found(DataType::Bool, &[], &[1]), (vec![], 1));
        assert_eq!(found(DataType::Bool, &[], &[0]), (vec![], 0));
        assert_eq!(found(DataType::F32, &[0, 3], &[]), (vec![], 0));
        assert_eq!(found(DataType::Bool, &[2, 2], &[0; 4]), (vec![], 0));
    }
}
