//! Every strategy on the space of a real program: a product of matrices.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;

use common::product;
use hone_machine::Machine;
use hone_search::{
    COST_MODELS, FEATURES, Random, STRATEGIES, Sample, Space, Task, Trial, cost_model, features,
    strategy,
};
use hone_tune::Choice;
use hone_types::{DataType, TensorType};

fn machine() -> Machine {
    Machine::with_vectors(64, 32)
}

/// A time that depends on the decisions: tiles of six rows and two vectors are best.
fn time(choices: &[Choice]) -> f64 {
    let value =
        |name: &str| choices.iter().find(|choice| choice.0 == name).map_or(0, |choice| choice.1);
    let off = (value("rows") - 6).abs() + 3 * (value("vectors") - 2).abs();
    1.0 + off as f64 / 10.0
}

/// The best time after some rounds of a strategy, and the identities of what it proposed, in order.
fn search(name: &str, model: &str, seed: u64) -> (f64, Vec<[u8; 32]>) {
    let space = Space::new(product(96, 256, 64), machine()).unwrap();
    let mut strategy = strategy(name).unwrap();
    let mut random = Random::new(seed);
    let mut model = cost_model(model).unwrap();
    let untuned = space.untuned().unwrap();
    let base = time(&untuned.choices());
    let mut known = HashSet::from([untuned.identity]);
    let mut proposed = Vec::new();
    let mut trials = vec![Trial { candidate: untuned, ratio: 1.0 }];
    for _ in 0..5 {
        let task = Task { space: &space, trials: &trials, known: &known, model: &*model };
        let candidates = strategy.propose(&task, 12, &mut random);
        assert!(!candidates.is_empty() && candidates.len() <= 12, "{name}");
        for candidate in candidates {
            assert!(known.insert(candidate.identity), "{name} proposed one twice");
            proposed.push(candidate.identity);
            let ratio = time(&candidate.choices()) / base;
            trials.push(Trial { candidate, ratio });
        }
        let samples: Vec<Sample> = trials
            .iter()
            .map(|trial| Sample {
                features: trial.candidate.features.clone(),
                ratio: trial.ratio,
                task: "product".to_owned(),
            })
            .collect();
        model.learn(&samples);
    }
    let best = trials.iter().map(|trial| trial.ratio * base).fold(f64::INFINITY, f64::min);
    (best, proposed)
}

#[test]
fn proposals_are_new_and_equal_for_equal_seeds() {
    for (name, _) in STRATEGIES {
        assert_eq!(search(name, "trees", 7).1, search(name, "trees", 7).1, "{name}");
    }
    assert_eq!(search("learned", "neural", 7).1, search("learned", "neural", 7).1);
    assert_ne!(search("learned", "neural", 7).1, search("learned", "trees", 7).1);
}

#[test]
fn what_is_learned_helps() {
    let mean = |name, model| (1..=2).map(|seed| search(name, model, seed).0).sum::<f64>() / 2.0;
    let random = mean("random", "trees");
    for (model, _) in COST_MODELS {
        let learned = mean("learned", model);
        assert!(learned <= random, "learned by {model} {learned}, random {random}");
        assert!(learned < 1.15, "{model}: {learned}");
    }
}

/// Every candidate that can be drawn is a program that computes the same: the verifier and the interpreter
/// of loop programs say so.
#[test]
fn random_candidates_compute_the_product() {
    let program = product(13, 33, 10);
    let space = Space::new(program.clone(), machine()).unwrap();
    let mut random = Random::new(3);
    let data =
        |length: usize| -> Vec<f32> { (0..length).map(|i| (i * 7 % 23) as f32 - 11.0).collect() };
    let (a, b) = (data(13 * 10), data(10 * 33));
    let expected: Vec<f32> = (0..13 * 33)
        .map(|at| (0..10).map(|k| a[at / 33 * 10 + k] * b[k * 33 + at % 33]).sum())
        .collect();
    let mut drawn = 0;
    for _ in 0..40 {
        let Some(candidate) = space.random(&mut random) else { continue };
        let mut replay = hone_tune::Replay::new(&candidate.choices());
        let scheduled =
            hone_tune::schedule_as(program.clone(), &machine(), &candidate.template, &mut replay);
        let scheduled = scheduled.unwrap();
        assert_eq!(replay.misfit(), None);
        scheduled.schedule.verify().unwrap();
        assert_eq!(features(scheduled.schedule.program(), &machine()), candidate.features);
        assert_eq!(candidate.features.counts.len(), FEATURES.len());
        let tensor = |shape: &[usize], values: &[f32]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            hone_types::Tensor::from_bytes(TensorType::new(DataType::F32, shape), bytes).unwrap()
        };
        let inputs = [tensor(&[13, 10], &a), tensor(&[10, 33], &b)];
        let outputs = hone_tensor::interpret(scheduled.schedule.program(), &inputs).unwrap();
        let found: Vec<f32> = outputs[0]
            .bytes()
            .chunks_exact(4)
            .map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap()))
            .collect();
        assert_eq!(found, expected, "{} {:?}", candidate.template, candidate.choices());
        drawn += 1;
    }
    assert!(drawn > 20, "{drawn}");
}
