//! The places of the elements of a tensor that are not zero.
//!
//! Every element is looked at once, without a branch, since which of them are zero cannot be foreseen. The places that
//! are found ascend, so that their coordinates are those of the place before for as long as both lie in one line, and
//! only the first of a line costs divisions.

use crate::DataType;
use crate::host::HostValue;

/// The coordinates `i64[rank, count]`, row-major, and their count. Both zeros of floats are zero.
pub(crate) fn non_zero(data: &HostValue<'_>) -> (Vec<Vec<u8>>, usize) {
    use DataType as D;
    let is_float = matches!(data.of.dtype, D::F32 | D::F16 | D::Bf16 | D::F64);
    // The sign of a float does not decide.
    let shift = u32::from(is_float);
    let places = match data.of.dtype.bytes_of(&[]).unwrap_or(1) {
        2 => places(data.bytes, |bytes| u16::from_ne_bytes(bytes) << shift != 0),
        4 => places(data.bytes, |bytes| u32::from_ne_bytes(bytes) << shift != 0),
        8 => places(data.bytes, |bytes| u64::from_ne_bytes(bytes) << shift != 0),
        _ => places(data.bytes, |[byte]| byte != 0),
    };
    (vec![coordinates(&places, &data.of.shape)], places.len())
}

/// The places of the elements of `N` bytes that `is_found`.
fn places<const N: usize>(bytes: &[u8], is_found: impl Fn([u8; N]) -> bool) -> Vec<usize> {
    let (elements, _) = bytes.as_chunks::<N>();
    let mut places = vec![0; elements.len()];
    let mut count = 0;
    for (place, element) in elements.iter().enumerate() {
        // Written in any case, and written over where it was not found. There is room: at most one a step.
        places[count] = place;
        count += usize::from(is_found(*element));
    }
    places.truncate(count);
    places
}

/// The coordinates of ascending places in a row-major tensor, one axis after the other, as bytes of `i64`.
fn coordinates(places: &[usize], shape: &[u64]) -> Vec<u8> {
    let extents: Vec<usize> = shape.iter().map(|extent| (*extent as usize).max(1)).collect();
    let Some((line, outer)) = extents.split_last() else { return Vec::new() };
    let count = places.len();
    let mut result = vec![0_i64; extents.len() * count];
    let mut current = vec![0_i64; outer.len()];
    // The first place of the line that `current` is of; no line yet.
    let mut begin = usize::MAX;
    for (index, place) in places.iter().enumerate() {
        if begin == usize::MAX || place - begin >= *line {
            let mut rest = place / line;
            begin = rest * line;
            for (coordinate, extent) in current.iter_mut().zip(outer).rev() {
                *coordinate = (rest % extent) as i64;
                rest /= extent;
            }
        }
        let mut at = index;
        for coordinate in &current {
            result[at] = *coordinate;
            at += count;
        }
        result[at] = (place - begin) as i64;
    }
    let bytes: Vec<[u8; 8]> = result.iter().map(|coordinate| coordinate.to_ne_bytes()).collect();
    bytes.into_flattened()
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
