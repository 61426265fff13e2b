//! Seeded numbers, the same on every machine.

/// A SplitMix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers follow from `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// About normal, mean 0 and variance 1, between -3.5 and 3.5.
    ///
    /// The sum of four uniform numbers: additions and one multiplication only, so that no machine's
    /// logarithm or cosine can round it differently.
    pub fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u64 = (0..4).map(|index| bits >> (16 * index) & 0xffff).sum();
        // Four uniform numbers of 16 bits: mean 131,070, variance 4 × 65,536² / 12.
        const DEVIATION: f32 = 37_837.23;
        (sum as f32 - 131_070.0) / DEVIATION
    }

    /// `count` numbers with mean `mean` and standard deviation `deviation`.
    pub fn normals(&mut self, count: usize, mean: f32, deviation: f32) -> Vec<f32> {
        (0..count).map(|_| mean + deviation * self.normal()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn normals_have_the_asked_mean_and_deviation() {
        let drawn = Random::new(7).normals(100_000, 2.0, 3.0);
        let mean = drawn.iter().sum::<f32>() / drawn.len() as f32;
        let variance =
            drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / drawn.len() as f32;
        assert!((mean - 2.0).abs() < 0.05, "mean {mean}");
        assert!((variance.sqrt() - 3.0).abs() < 0.05, "deviation {}", variance.sqrt());
    }
}
