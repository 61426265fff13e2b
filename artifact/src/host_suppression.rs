//! Boxes of high score that overlap no chosen box of a higher one: non-maximum suppression.
//!
//! Few of the boxes are chosen, so they are not sorted: the next best one is taken from a heap until a class has as many as
//! it may have.

use std::collections::BinaryHeap;

use crate::host::{HostValue, integers};

/// Bounds of a suppression.
pub(crate) struct Limits {
    /// Most boxes of a class.
    pub(crate) most: usize,
    /// The largest intersection over union with a chosen box.
    pub(crate) overlap: f32,
    /// What a score has to be above.
    pub(crate) score: Option<f32>,
}

/// The chosen boxes as `i64[count, 3]` (batch, class, box), by class and falling score, of equal ones that of the lower
/// index first, and their count. Operands are those of `HostFunction::NonMaxSuppression`.
pub(crate) fn suppress(
    boxes: &HostValue<'_>,
    scores: &HostValue<'_>,
    centers: bool,
    limits: &Limits,
) -> (Vec<Vec<u8>>, usize) {
    let (classes, count) = (scores.of.shape[1] as usize, scores.of.shape[2] as usize);
    let corners: Vec<[f32; 4]> = boxes.bytes.as_chunks().0.iter().copied().map(corners).collect();
    let scores: Vec<f32> =
        scores.bytes.as_chunks().0.iter().copied().map(f32::from_ne_bytes).collect();
    let mut chosen: Vec<usize> = Vec::new();
    let mut kept: Vec<Rectangle> = Vec::new();
    let mut candidates: Vec<u64> = Vec::new();
    for (row, scores) in scores.chunks_exact(count.max(1)).enumerate() {
        let (batch, class) = (row / classes.max(1), row % classes.max(1));
        let all = scores.iter().enumerate();
        let passing = all.filter(|(_, score)| limits.score.is_none_or(|least| **score > least));
        candidates.clear();
        candidates.extend(passing.map(|(place, score)| candidate(*score, place)));
        let mut heap = BinaryHeap::from(std::mem::take(&mut candidates));
        kept.clear();
        while kept.len() < limits.most
            && let Some(next) = heap.pop()
        {
            let place = place_of(next);
            let rectangle = Rectangle::new(corners[batch * count + place], centers);
            if kept.iter().all(|other| rectangle.overlap(other) <= limits.overlap) {
                kept.push(rectangle);
                chosen.extend([batch, class, place]);
            }
        }
        candidates = heap.into_vec();
    }
    let count = chosen.len() / 3;
    (vec![integers(chosen.into_iter())], count)
}

/// A number that is larger for a larger score (in the order of `f32::total_cmp`), and of equal ones for a lower place,
/// which fits 32 bits: a buffer has 16 GiB at most.
fn candidate(score: f32, place: usize) -> u64 {
    let bits = score.to_bits();
    let ordered = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    u64::from(ordered) << 32 | u64::from(!(place as u32))
}

fn place_of(candidate: u64) -> usize {
    !(candidate as u32) as usize
}

/// Four numbers in this machine's byte order.
fn corners(bytes: [u8; 16]) -> [f32; 4] {
    let mut corners = [0.0; 4];
    let numbers = bytes.as_chunks().0.iter();
    corners.iter_mut().zip(numbers).for_each(|(own, bytes)| *own = f32::from_ne_bytes(*bytes));
    corners
}

/// Least and largest of both axes, and the area.
struct Rectangle {
    corners: [f32; 4],
    area: f32,
}

impl Rectangle {
    fn new([a, b, c, d]: [f32; 4], centers: bool) -> Self {
        let corners = match centers {
            true => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
            false => [a.min(c), b.min(d), a.max(c), b.max(d)],
        };
        Self { corners, area: area(corners) }
    }

    /// Intersection over union; 0 where the union is empty.
    fn overlap(&self, other: &Self) -> f32 {
        let ([a, b, c, d], [e, f, g, h]) = (self.corners, other.corners);
        let both = area([a.max(e), b.max(f), c.min(g), d.min(h)]);
        let union = self.area + other.area - both;
        if union > 0.0 { both / union } else { 0.0 }
    }
}

fn area([a, b, c, d]: [f32; 4]) -> f32 {
    (c - a).max(0.0) * (d - b).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, HostType};

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    /// Boxes of one class that are chosen, from squares of side 2 with these lower corners.
    fn chosen(lower: &[f32], scores: &[f32], limits: &Limits) -> Vec<i64> {
        let count = lower.len();
        let squares: Vec<f32> = lower.iter().flat_map(|at| [*at, 0.0, at + 2.0, 2.0]).collect();
        let (boxes, values) = (bytes(&squares), bytes(scores));
        let types = [[1, count as u64, 4], [1, 1, count as u64]];
        let types = types.map(|shape| HostType::new(DataType::F32, shape));
        let boxes = HostValue { of: &types[0], bytes: &boxes };
        let scores = HostValue { of: &types[1], bytes: &values };
        let (found, count) = suppress(&boxes, &scores, false, limits);
        let found: Vec<i64> =
            found[0].as_chunks().0.iter().map(|own| i64::from_ne_bytes(*own)).collect();
        assert_eq!(found.len(), 3 * count);
        found.chunks(3).map(|own| own[2]).collect()
    }

    #[test]
    fn the_best_come_first_and_of_equal_ones_the_first() {
        let lower = [0.0, 10.0, 20.0, 30.0, 40.0];
        let scores = [-1.0, 0.5, -0.0, 0.5, 0.0];
        let limits = Limits { most: 9, overlap: 0.5, score: None };
        assert_eq!(chosen(&lower, &scores, &limits), [1, 3, 4, 2, 0]);
        assert_eq!(chosen(&lower, &scores, &Limits { most: 2, ..limits }), [1, 3]);
        let above = Limits { most: 9, overlap: 0.5, score: Some(0.0) };
        assert_eq!(chosen(&lower, &scores, &above), [1, 3]);
    }

    #[test]
    fn what_overlaps_a_chosen_one_is_left_out() {
        // The second overlaps the first by 1.5 of 2.5, the third by 1 of 3; it overlaps the second, which is not chosen.
        let (lower, scores) = ([0.0, 0.5, 1.0, f32::NAN], [0.9, 0.8, 0.7, 0.6]);
        let limits = |overlap| Limits { most: 9, overlap, score: None };
        assert_eq!(chosen(&lower[..3], &scores[..3], &limits(0.5)), [0, 2]);
        assert_eq!(chosen(&lower[..3], &scores[..3], &limits(0.3)), [0]);
        assert_eq!(chosen(&lower[..3], &scores[..3], &limits(0.6)), [0, 1, 2]);
        // What is no number is nowhere.
        assert_eq!(chosen(&lower, &scores, &limits(0.5)), [0, 2, 3]);
    }
}
