//! Loops of [`hone_artifact::KeyLoops`] in vectors: this library is compiled for its size, without the compiler's own.

use hone_artifact::KeyLoops;

/// Those of this processor. Vectors of 16 bytes, which every `x86_64` has, do: what follows takes longer.
pub(crate) const KEY_LOOPS: KeyLoops = {
    #[cfg(target_arch = "x86_64")]
    {
        KeyLoops { of_floats: x86_64::of_floats, below: x86_64::below }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        KeyLoops::PLAIN
    }
};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::KeyLoops;
    use std::arch::x86_64::*;

    /// Keys of one vector.
    const LANES: usize = 4;

    pub(super) fn of_floats(elements: &[[u8; 4]], flipped: bool, keys: &mut [i32]) {
        let count = elements.len().min(keys.len());
        let whole = count - count % LANES;
        // SAFETY: SSE2 is part of the architecture.
        let constant = |value: i32| unsafe { _mm_set1_epi32(value) };
        let (magnitudes, infinity) = (constant(i32::MAX), constant(0x7f80_0000));
        let flip = constant(-i32::from(flipped));
        for first in (0..whole).step_by(LANES) {
            // SAFETY: four elements of four bytes lie from `first` on in both; no alignment is asked for. SSE2 as above.
            unsafe {
                let bits = _mm_loadu_si128(elements.as_ptr().add(first).cast());
                let (magnitude, sign) = (_mm_and_si128(bits, magnitudes), _mm_srai_epi32(bits, 31));
                let key = _mm_sub_epi32(_mm_xor_si128(magnitude, sign), sign);
                let nan = _mm_cmpgt_epi32(magnitude, infinity);
                let largest = _mm_and_si128(nan, magnitudes);
                let key = _mm_or_si128(_mm_andnot_si128(nan, key), largest);
                let key = _mm_xor_si128(key, flip);
                _mm_storeu_si128(keys.as_mut_ptr().add(first).cast(), key);
            }
        }
        (KeyLoops::PLAIN.of_floats)(&elements[whole..count], flipped, &mut keys[whole..count]);
    }

    pub(super) fn below(keys: &[i32], bound: i32) -> u64 {
        let count = keys.len().min(64);
        let whole = count - count % LANES;
        let mut all = 0;
        for first in (0..whole).step_by(LANES) {
            // SAFETY: four keys lie from `first` on; no alignment is asked for. SSE2 is part of the architecture.
            let bits = unsafe {
                let keys = _mm_loadu_si128(keys.as_ptr().add(first).cast());
                let is_below = _mm_cmplt_epi32(keys, _mm_set1_epi32(bound));
                _mm_movemask_ps(_mm_castsi128_ps(is_below))
            };
            all |= (bits as u64) << first;
        }
        match whole == count {
            true => all,
            false => all | (KeyLoops::PLAIN.below)(&keys[whole..count], bound) << whole,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const SPECIAL: [u32; 12] = [
            0,
            0x8000_0000,
            1,
            0x8000_0001,
            0x7f80_0000,
            0xff80_0000,
            0x7f80_0001,
            0xffc0_0000,
            0x3f80_0000,
            0xbf80_0000,
            0x7f7f_ffff,
            0xff7f_ffff,
        ];

        #[test]
        fn vectors_give_what_plain_loops_give() {
            for count in [0, 1, 4, 7, 12, 63, 64] {
                let element = |index: usize| SPECIAL[index % 12].wrapping_add(index as u32 / 12);
                let elements: Vec<[u8; 4]> =
                    (0..count).map(|index| element(index).to_ne_bytes()).collect();
                for flipped in [false, true] {
                    let (mut keys, mut plain) = (vec![7; count], vec![7; count]);
                    of_floats(&elements, flipped, &mut keys);
                    (KeyLoops::PLAIN.of_floats)(&elements, flipped, &mut plain);
                    assert_eq!(keys, plain);
                    for bound in [i32::MIN, -1, 0, 1, i32::MAX, 0x3f80_0000] {
                        assert_eq!(below(&keys, bound), (KeyLoops::PLAIN.below)(&keys, bound));
                    }
                }
            }
        }
    }
}
