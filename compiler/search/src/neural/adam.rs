//! Adam (D. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", 2015).

/// Decay of the mean of gradients.
const FIRST: f32 = 0.9;
/// Decay of the mean of their squares.
const SECOND: f32 = 0.99;
/// Keeps a step finite where no gradient was seen.
const EPSILON: f32 = 1e-8;
/// Share of a weight that a step takes away, times the learning rate: weights that nothing holds go to zero (decoupled, as in
/// I. Loshchilov and F. Hutter, "Decoupled Weight Decay Regularization", 2019).
const DECAY: f32 = 0.01;

/// Means of the gradients of some weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Adam {
    first: Vec<f32>,
    second: Vec<f32>,
    /// Powers of both decays after the steps so far: means that began at zero are that much too small.
    powers: (f32, f32),
}

impl Adam {
    pub(super) fn new(weights: usize) -> Self {
        Self { first: vec![0.0; weights], second: vec![0.0; weights], powers: (1.0, 1.0) }
    }

    /// One step against the gradient.
    pub(super) fn step(&mut self, weights: &mut [f32], gradient: &[f32], rate: f32) {
        self.powers = (self.powers.0 * FIRST, self.powers.1 * SECOND);
        let (first_scale, second_scale) = (1.0 - self.powers.0, 1.0 - self.powers.1);
        let means = self.first.iter_mut().zip(&mut self.second);
        for ((weight, slope), (first, second)) in weights.iter_mut().zip(gradient).zip(means) {
            *first = FIRST * *first + (1.0 - FIRST) * slope;
            *second = SECOND * *second + (1.0 - SECOND) * slope * slope;
            let size = (*second / second_scale).sqrt() + EPSILON;
            *weight -= rate * (*first / first_scale / size + DECAY * *weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lead_to_the_least_of_a_bowl() {
        // (a - 3)² + 100 (b + 1)²: both weights move at the same pace.
        let mut weights = [0.0f32, 0.0];
        let mut adam = Adam::new(2);
        for step in 0..2000 {
            let gradient = [2.0 * (weights[0] - 3.0), 200.0 * (weights[1] + 1.0)];
            adam.step(&mut weights, &gradient, 0.05 * (1.0 - step as f32 / 2000.0));
        }
        assert!((weights[0] - 3.0).abs() < 0.05 && (weights[1] + 1.0).abs() < 0.05, "{weights:?}");
    }
}
