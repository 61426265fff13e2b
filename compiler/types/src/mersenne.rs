//! Random numbers that equal seeds give in ONNX's reference implementation, too.

/// The Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), seeded and read as `numpy.random.RandomState` does.
/// Not for secrets.
#[derive(Clone, Debug)]
pub struct MersenneTwister {
    state: Vec<u32>,
    next: usize,
    spare: Option<f64>,
}

const LENGTH: usize = 624;
const SHIFT: usize = 397;

impl MersenneTwister {
    /// A generator whose numbers follow from `seed` alone.
    pub fn new(seed: u32) -> Self {
        let mut state = Vec::with_capacity(LENGTH);
        let mut word = seed;
        for index in 1..=LENGTH as u32 {
            state.push(word);
            word = (word ^ (word >> 30)).wrapping_mul(1_812_433_253).wrapping_add(index);
        }
        Self { state, next: LENGTH, spare: None }
    }

    fn refill(&mut self) {
        for index in 0..LENGTH {
            let high = self.state[index] & 0x8000_0000;
            let low = self.state[(index + 1) % LENGTH] & 0x7fff_ffff;
            let mixed = high | low;
            let twist = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[index] = self.state[(index + SHIFT) % LENGTH] ^ (mixed >> 1) ^ twist;
        }
        self.next = 0;
    }

    /// The next 32 bits.
    pub fn bits(&mut self) -> u32 {
        if self.next >= LENGTH {
            self.refill();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A number from 0 to below 1, of 53 bits.
    pub fn unit(&mut self) -> f64 {
        let (high, low) = (self.bits() >> 5, self.bits() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// A number of the normal distribution of mean 0 and deviation 1, by Marsaglia's polar method (1964).
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square != 0.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(factor * x);
                return factor * y;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // The first and the ten thousandth output for seed 5489, as the authors and C++'s mt19937 give them.
        let mut random = MersenneTwister::new(5489);
        assert_eq!(random.bits(), 3_499_211_612);
        let last = (1..10_000).map(|_| random.bits()).last();
        assert_eq!(last, Some(4_123_659_995));
        // numpy.random.RandomState(0).rand(2) and .randn(3).
        let mut random = MersenneTwister::new(0);
        assert_eq!(
            [random.unit(), random.unit()],
            [0.548_813_503_927_324_8, 0.715_189_366_372_419_5]
        );
        let mut random = MersenneTwister::new(0);
        let three = [random.normal(), random.normal(), random.normal()];
        let expected = [1.764_052_345_967_664, 0.400_157_208_367_223_3, 0.978_737_984_105_739_2];
        assert!(three.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-14), "{three:?}");
    }
}
