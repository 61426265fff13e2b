//! How many positions an axis has, as a function of the dimension's size.

/// `multiplier · floor((size + shift) / divisor) + extra` positions, of sizes that are multiples of a number.
///
/// Windows that move on by several positions divide, what samples a signal up multiplies. The form is closed under both
/// as far as one of two factors divides the other, and each function has one form: the shift is below the divisor, and what
/// is the same at all multiples is written with the least divisor. So lengths are equal where their fields are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Length {
    /// Positions for each step; at least 1.
    pub multiplier: i64,
    /// Added to the size before it is divided; at least 0 and less than the divisor.
    pub shift: i64,
    /// What the size is divided by; at least 1.
    pub divisor: i64,
    /// Positions more, or less.
    pub extra: i64,
    /// Sizes are multiples of it.
    multiple: i64,
}

impl Length {
    /// The size itself, of sizes that are multiples of a number.
    pub(super) fn size(multiple: usize) -> Self {
        let multiple = i64::try_from(multiple).unwrap_or(1).max(1);
        Self { multiplier: 1, shift: 0, divisor: 1, extra: 0, multiple }
    }

    /// The one form of a function; `None` where a number does not fit.
    fn normal(self) -> Option<Self> {
        let Self { mut multiplier, mut shift, mut divisor, mut extra, multiple } = self;
        if multiplier < 1 || divisor < 1 {
            return None;
        }
        extra = extra.checked_add(multiplier.checked_mul(shift.div_euclid(divisor))?)?;
        shift = shift.rem_euclid(divisor);
        // Multiples are not told apart by what is less than their common divisor with the divisor.
        let common = greatest_common_divisor(multiple, divisor);
        shift -= shift % common;
        if common == divisor {
            let shared = greatest_common_divisor(multiplier, divisor);
            (multiplier, divisor) = (multiplier / shared, divisor / shared);
        }
        Some(Self { multiplier, shift, divisor, extra, multiple })
    }

    /// The number of positions at a size.
    pub fn at(self, size: usize) -> i64 {
        let size = i64::try_from(size).unwrap_or(i64::MAX - self.shift);
        let steps = size.saturating_add(self.shift).div_euclid(self.divisor);
        steps.saturating_mul(self.multiplier).saturating_add(self.extra)
    }

    /// So many positions more, or less.
    pub(super) fn plus(self, more: i64) -> Option<Self> {
        Some(Self { extra: self.extra.checked_add(more)?, ..self })
    }

    /// So many times the positions.
    pub(super) fn times(self, factor: i64) -> Option<Self> {
        let multiplier = self.multiplier.checked_mul(factor)?;
        Self { multiplier, extra: self.extra.checked_mul(factor)?, ..self }.normal()
    }

    /// The positions divided by a number and rounded down; `None` where this has no such form.
    pub(super) fn over(self, divisor: i64) -> Option<Self> {
        if divisor < 1 {
            return None;
        }
        let common = greatest_common_divisor(self.multiplier, divisor);
        let (multiplier, rest) = (self.multiplier / common, divisor / common);
        let extra = self.extra.div_euclid(common);
        match (multiplier, rest) {
            (_, 1) => Self { multiplier, extra, ..self }.normal(),
            (1, _) => {
                let shift = self.divisor.checked_mul(extra)?.checked_add(self.shift)?;
                let divisor = self.divisor.checked_mul(rest)?;
                Self { multiplier, shift, divisor, extra: 0, ..self }.normal()
            }
            _ => None,
        }
    }

    /// How many windows of `span` positions there are, each `stride` positions after the one before.
    pub(super) fn windows(self, span: i64, stride: i64) -> Option<Self> {
        self.plus(span.checked_neg()?)?.over(stride)?.plus(1)
    }

    /// The steps that are counted, without factor and summand.
    pub(super) fn steps(self) -> Self {
        Self { multiplier: 1, extra: 0, ..self }
    }

    /// The size and the shift, which are divided.
    pub(super) fn before_division(self) -> Self {
        Self { multiplier: 1, divisor: 1, shift: 0, extra: self.shift, ..self }
    }

    /// What is multiplied, without the summand.
    pub(super) fn without_extra(self) -> Self {
        Self { extra: 0, ..self }
    }

    /// The positions in blocks of as many as they are a multiple of, and the positions of a block.
    pub(super) fn in_blocks(self) -> (Self, i64) {
        match self.extra % self.multiplier {
            0 => {
                let extra = self.extra / self.multiplier;
                (Self { multiplier: 1, extra, ..self }, self.multiplier)
            }
            _ => (self, 1),
        }
    }

    /// The factor that this has more than another length at every size.
    pub(super) fn factor_of(self, other: Self) -> Option<i64> {
        let factor = self.multiplier.checked_mul(other.divisor)?;
        let of = other.multiplier.checked_mul(self.divisor)?;
        let factor = factor.checked_div(of).filter(|factor| *factor > 0)?;
        (other.times(factor) == Some(self)).then_some(factor)
    }

    /// Whether it is the size, or so many more or less.
    pub(super) fn is_size_and(self) -> Option<i64> {
        (self.multiplier == 1 && self.divisor == 1).then_some(self.extra)
    }

    /// The smallest size, at least `least`, from which on there is a position; sizes that are multiples count.
    pub(super) fn first_with(self, position: i64, least: usize) -> Option<usize> {
        let steps = position.checked_sub(self.extra)?.div_euclid(self.multiplier).checked_add(1)?;
        let size = self.divisor.checked_mul(steps)?.checked_sub(self.shift)?;
        let size = usize::try_from(size.max(0)).ok()?.max(least);
        size.checked_next_multiple_of(usize::try_from(self.multiple).ok()?)
    }

    /// The length with these extents at sizes which counts the steps of another one; `None` where none has.
    pub(super) fn fitting(steps: Self, extents: &[usize], sizes: &[usize]) -> Option<Self> {
        let steps = steps.steps();
        let extent = |index: usize| i64::try_from(extents[index]).ok();
        let other = (1..sizes.len()).find(|index| steps.at(sizes[*index]) != steps.at(sizes[0]))?;
        let more = steps.at(sizes[0]) - steps.at(sizes[other]);
        let rise = extent(0)?.checked_sub(extent(other)?)?;
        if rise % more != 0 || rise / more < 1 {
            return None;
        }
        let multiplier = rise / more;
        let extra = extent(0)?.checked_sub(multiplier.checked_mul(steps.at(sizes[0]))?)?;
        let found = Self { multiplier, extra, ..steps }.normal()?;
        let mut indices = 0..sizes.len();
        indices.all(|index| Some(found.at(sizes[index])) == extent(index)).then_some(found)
    }

    /// Whether two lengths are equal at all sizes up to a bound.
    pub(super) fn agrees(self, other: Self, sizes: (usize, usize)) -> bool {
        let step = usize::try_from(self.multiple).unwrap_or(1).max(1);
        let first = sizes.0.next_multiple_of(step);
        self == other || (first..=sizes.1).step_by(step).all(|size| self.at(size) == other.at(size))
    }
}

fn greatest_common_divisor(mut one: i64, mut other: i64) -> i64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn form(length: Length) -> [i64; 4] {
        [length.multiplier, length.shift, length.divisor, length.extra]
    }

    #[test]
    fn chains_of_windows_are_one_division() {
        // The convolutions of wav2vec 2.0.
        let windows = [(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)];
        let mut length = Length::size(1);
        let mut counts: Vec<i64> = (400..900).collect();
        for (span, stride) in windows {
            length = length.windows(span, stride).unwrap();
            counts.iter_mut().for_each(|count| *count = (*count - span).div_euclid(stride) + 1);
        }
        assert_eq!((length.multiplier, length.divisor), (1, 320));
        let found: Vec<i64> = (400..900).map(|size| length.at(size)).collect();
        assert_eq!(found, counts);
        assert_eq!(length.first_with(0, 1), Some(400));
        assert_eq!((length.at(399), length.at(400)), (0, 1));
    }

    #[test]
    fn each_function_has_one_form() {
        let size = Length::size(1);
        let half = size.over(2).unwrap();
        assert_eq!(form(half.times(2).unwrap()), [2, 0, 2, 0]);
        assert_ne!(half.times(2), Some(size));
        assert_eq!(form(size.plus(5).unwrap().over(2).unwrap()), [1, 1, 2, 2]);
        assert_eq!(size.times(6).unwrap().plus(3).unwrap().over(3), size.times(2).unwrap().plus(1));
        assert_eq!(size.times(2).unwrap().over(3), None);
        assert_eq!(size.times(2).unwrap().over(6), size.over(3));
        assert_eq!(half.times(2).unwrap().factor_of(half), Some(2));
        assert_eq!(size.factor_of(half), None);
        // Of multiples of four.
        let size = Length::size(4);
        let (half, quarter) = (size.over(2).unwrap(), size.plus(3).unwrap().over(4).unwrap());
        assert_eq!(half.times(2), Some(size));
        assert_eq!(quarter.times(4), Some(size));
        assert_eq!(size.factor_of(quarter), Some(4));
        assert_eq!(half.factor_of(quarter), Some(2));
        assert_eq!(quarter.first_with(2, 1), Some(12));
    }

    #[test]
    fn lengths_are_found_from_extents() {
        let sizes: [usize; 4] = [12, 7, 5, 3];
        let half = Length::size(1).plus(1).unwrap().over(2).unwrap();
        let extents: Vec<usize> = sizes.iter().map(|size| 3 * size.div_ceil(2) - 1).collect();
        let found = Length::fitting(half, &extents, &sizes).unwrap();
        assert_eq!(form(found), [3, 1, 2, -1]);
        assert_eq!(Length::fitting(Length::size(1), &extents, &sizes), None);
        assert!(half.agrees(half, (1, 9)));
        assert!(!half.agrees(Length::size(1).over(2).unwrap(), (1, 9)));
        assert_eq!(half.in_blocks(), (half, 1));
        let blocks = half.plus(1).unwrap().times(2).unwrap();
        assert_eq!(blocks.in_blocks(), (half.plus(1).unwrap(), 2));
    }
}
