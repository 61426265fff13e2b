//! How well a judge puts candidates in order, measured on trials that it did not learn from.
//!
//! The figures are those of the literature on learned cost models (L. Zheng and others, "TenSet: A Large-scale Program
//! Performance Dataset for Learned Tensor Compilers", 2021): the share of pairs in the right order, and how near the
//! best of the first `k` candidates is to the best of all. Only trials of one task compare.

use crate::model::{COST_MODELS, CostModel, Learned, Make, Sample};
use std::collections::{BTreeMap, HashSet};

/// Two trials of a task are a pair where their times differ by more than this part: less is noise.
const MARGIN: f64 = 0.02;
/// Tasks of fewer trials are left out: the best of a few is the best of all by chance.
pub const MIN_TRIALS: usize = 16;
/// The `k` of [`Accuracy::peak`].
pub const FIRST: [usize; 3] = [1, 5, 10];
/// Parts that tasks are divided into: each is judged by a model of the others.
const FOLDS: usize = 5;

/// What a judge did on the trials of some tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// Tasks that were judged.
    pub tasks: usize,
    /// Their trials.
    pub trials: usize,
    /// Share of the pairs of a task that are in the right order, a mean over tasks; one half by chance.
    pub pairwise: f64,
    /// For each `k` of [`FIRST`]: the time of a task's fastest trial over that of the fastest among the first `k` in
    /// the judge's order, a geometric mean over tasks; 1 where the fastest is among them.
    pub peak: [f64; FIRST.len()],
}

/// Who judged, and what it had learned from.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// In words.
    pub judge: String,
    /// How it did.
    pub accuracy: Accuracy,
}

/// Judges all tasks in some groups of trials, each of which has something in common, such as a network: by chance, by the
/// analytic prediction, and for each of [`COST_MODELS`] that all trials are fit for by one that has learned from other tasks,
/// one of other groups, and one that has seen the first half of the task's own trials. A task that is in two groups is two
/// where groups are judged. Nothing where no task has [`MIN_TRIALS`] trials.
pub fn judgements(groups: &[Vec<Sample>]) -> Vec<Judgement> {
    let all: Vec<&Sample> = groups.iter().flatten().collect();
    let (seen, later) = halves(&all);
    let models: Vec<(&str, Make)> = COST_MODELS
        .into_iter()
        .filter(|(_, make)| all.iter().all(|one| make().is_fit(one)))
        .collect();
    let of_models = |from: &str, judge: &dyn Fn(Make) -> Option<Accuracy>| {
        let each = models.iter().map(|(name, make)| (format!("{name}, {from}"), judge(*make)));
        each.collect::<Vec<_>>()
    };
    let mut found = vec![
        ("chance".to_owned(), mean(tasks(&all).values().filter_map(|task| chance(task)))),
        ("analytic prediction".to_owned(), judged(untaught, &[], &all)),
    ];
    found.extend(of_models("from other tasks", &|make| by_fold(make, &all)));
    found.extend(of_models("from other files", &|make| by_group(make, groups)));
    let halves = judged(untaught, &[], &later);
    found.push(("analytic prediction, second halves".to_owned(), halves));
    found.extend(of_models("from the first halves", &|make| judged(make, &seen, &later)));
    let present =
        |(judge, accuracy): (_, Option<_>)| Some(Judgement { judge, accuracy: accuracy? });
    found.into_iter().filter_map(present).collect()
}

/// A model that has learned nothing is the analytic prediction.
fn untaught() -> Box<dyn CostModel> {
    Box::new(Learned::default())
}

/// Every group judged by a model of the others, without what they know of its own tasks: that is no transfer. `None` where
/// there is one group.
fn by_group(make: Make, groups: &[Vec<Sample>]) -> Option<Accuracy> {
    let each = groups.iter().filter(|_| groups.len() > 1).flat_map(|group| {
        let inside: HashSet<&str> = group.iter().map(|sample| sample.task.as_str()).collect();
        let others =
            groups.iter().flatten().filter(|sample| !inside.contains(sample.task.as_str()));
        per_task(make, &others.collect::<Vec<_>>(), &group.iter().collect::<Vec<_>>())
    });
    mean(each)
}

/// The trials of each task, those that ran.
fn tasks<'a>(samples: &[&'a Sample]) -> BTreeMap<&'a str, Vec<&'a Sample>> {
    let mut tasks: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.ratio.is_finite() && sample.ratio > 0.0) {
        tasks.entry(&sample.task).or_default().push(sample);
    }
    tasks.retain(|_, trials| trials.len() >= MIN_TRIALS);
    tasks
}

/// A model of `known` judges each task of `held_out`.
fn per_task(make: Make, known: &[&Sample], held_out: &[&Sample]) -> Vec<Accuracy> {
    let mut model = make();
    let known: Vec<Sample> = known.iter().map(|sample| (*sample).clone()).collect();
    model.learn(&known);
    tasks(held_out).values().filter_map(|trials| of_task(&*model, trials)).collect()
}

fn judged(make: Make, known: &[&Sample], held_out: &[&Sample]) -> Option<Accuracy> {
    mean(per_task(make, known, held_out).into_iter())
}

/// Every task judged by a model of the tasks in the other folds.
fn by_fold(make: Make, all: &[&Sample]) -> Option<Accuracy> {
    let tasks = tasks(all);
    let each = (0..FOLDS).flat_map(|held_out| {
        let (mut judged, mut known) = (Vec::new(), Vec::new());
        for (index, trials) in tasks.values().enumerate() {
            let side = if index % FOLDS == held_out { &mut judged } else { &mut known };
            side.extend_from_slice(trials);
        }
        per_task(make, &known, &judged)
    });
    mean(each)
}

/// The first and the second half of each task's trials, in the order in which they were measured.
fn halves<'a>(all: &[&'a Sample]) -> (Vec<&'a Sample>, Vec<&'a Sample>) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for trials in tasks(all).values() {
        let (before, after) = trials.split_at(trials.len() / 2);
        first.extend_from_slice(before);
        second.extend_from_slice(after);
    }
    (first, second)
}

/// How a model does on the trials of one task; `None` where no two differ.
fn of_task(model: &dyn CostModel, trials: &[&Sample]) -> Option<Accuracy> {
    let mut scored: Vec<(f64, f64)> =
        trials.iter().map(|sample| (model.score(&sample.features), sample.ratio)).collect();
    let mut right = 0.0;
    let mut pairs = 0.0;
    for (index, (score, ratio)) in scored.iter().enumerate() {
        for (other_score, other_ratio) in &scored[..index] {
            let (fast, slow) = (ratio.min(*other_ratio), ratio.max(*other_ratio));
            if slow <= fast * (1.0 + MARGIN) {
                continue;
            }
            pairs += 1.0;
            let agree = (score - other_score) * (other_ratio - ratio);
            right += if agree > 0.0 {
                1.0
            } else if agree == 0.0 {
                0.5
            } else {
                0.0
            };
        }
    }
    // Where scores are equal the slower one comes first: a judge gains nothing by not deciding.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let best = scored.iter().map(|(_, ratio)| *ratio).fold(f64::INFINITY, f64::min);
    let peak = FIRST.map(|count| {
        let first = scored.iter().take(count).map(|(_, ratio)| *ratio);
        best / first.fold(f64::INFINITY, f64::min)
    });
    (pairs > 0.0).then(|| Accuracy {
        tasks: 1,
        trials: trials.len(),
        pairwise: right / pairs,
        peak,
    })
}

/// What a random order is expected to do on the trials of one task.
fn chance(trials: &[&Sample]) -> Option<Accuracy> {
    let mut times: Vec<f64> = trials.iter().map(|sample| sample.ratio).collect();
    times.sort_by(f64::total_cmp);
    let differ = times.last()? > &(times.first()? * (1.0 + MARGIN));
    let peak = FIRST.map(|count| {
        // The fastest of `count` drawn ones is the one at `index` with this probability.
        let mut log = 0.0;
        let mut none_before = 1.0;
        for (index, time) in times.iter().enumerate() {
            let left = (times.len() - index) as f64;
            let drawn = (count as f64 / left).min(1.0);
            log += none_before * drawn * (times[0] / time).ln();
            none_before *= 1.0 - drawn;
        }
        log.exp()
    });
    differ.then_some(Accuracy { tasks: 1, trials: trials.len(), pairwise: 0.5, peak })
}

/// Over all tasks.
fn mean(each: impl Iterator<Item = Accuracy>) -> Option<Accuracy> {
    let all: Vec<Accuracy> = each.collect();
    let tasks = all.len() as f64;
    (!all.is_empty()).then(|| Accuracy {
        tasks: all.len(),
        trials: all.iter().map(|one| one.trials).sum(),
        pairwise: all.iter().map(|one| one.pairwise).sum::<f64>() / tasks,
        peak: std::array::from_fn(|k| {
            (all.iter().map(|one| one.peak[k].ln()).sum::<f64>() / tasks).exp()
        }),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::nest::{BLOCK_VALUES, Node, sixteenths};
    use crate::{BLOCK, FEATURES, Features, Nest};

    /// A block that has so many vector loads.
    fn nest(loads: f64) -> Nest {
        let mut values = vec![0; BLOCK_VALUES.len()];
        values[3] = sixteenths(loads.exp2());
        Nest::of(vec![Node { depth: 0, kind: BLOCK, values }])
    }

    /// A task whose times follow a feature that the analytic prediction does not know.
    fn task(name: &str, seed: u64) -> Vec<Sample> {
        let mut random = crate::Random::new(seed);
        let sample = |_| {
            let hidden = random.below(1000) as f64 / 250.0;
            let predicted = random.below(1000) as f64 / 1000.0;
            let mut counts = vec![0.0; FEATURES.len()];
            counts[3] = hidden as f32;
            counts[19] = predicted as f32;
            let features = Features { counts, nest: nest(hidden) };
            Sample { features, ratio: (hidden * 0.5).exp(), task: name.to_owned() }
        };
        (0..64).map(sample).collect()
    }

    fn groups() -> Vec<Vec<Sample>> {
        let group = |from: u64| {
            (from..from + 6).flat_map(|seed| task(&format!("task {seed}"), seed)).collect()
        };
        vec![group(0), group(100)]
    }

    fn of<'a>(all: &'a [Judgement], judge: &str) -> &'a Accuracy {
        &all.iter().find(|one| one.judge == judge).expect("it judged").accuracy
    }

    #[test]
    fn a_model_that_learned_the_rule_is_right_where_chance_is_not() {
        let all = judgements(&groups());
        let (chance, prior) = (of(&all, "chance"), of(&all, "analytic prediction"));
        assert_eq!((chance.tasks, chance.trials), (12, 12 * 64));
        assert!((prior.pairwise - 0.5).abs() < 0.05, "{prior:?}");
        assert!(prior.peak[0] < 0.7 && chance.peak[0] < 0.7, "{prior:?} {chance:?}");
        assert!(chance.peak[0] < chance.peak[1] && chance.peak[1] < chance.peak[2]);
        for (model, _) in COST_MODELS {
            for from in ["other tasks", "other files"] {
                let learned = of(&all, &format!("{model}, from {from}"));
                let is_right = learned.pairwise > 0.9 && learned.peak[1] > 0.95;
                assert!(is_right, "{model}, {from}: {learned:?}");
            }
            assert_eq!(of(&all, &format!("{model}, from the first halves")).trials, 12 * 32);
        }
    }

    #[test]
    fn what_another_file_knows_of_the_same_task_is_not_learned_from() {
        // Each file has the same task: without it nothing is left to learn from, so only the prediction judges.
        let all = judgements(&[task("same", 7), task("same", 7)]);
        let (transfer, prior) =
            (of(&all, "trees, from other files"), of(&all, "analytic prediction"));
        assert!((transfer.pairwise - prior.pairwise).abs() < 0.02, "{transfer:?} {prior:?}");
    }

    #[test]
    fn the_neural_model_is_not_judged_where_nests_are_missing() {
        let mut groups = groups();
        groups[1][7].features.nest = Nest::default();
        let judges: Vec<String> = judgements(&groups).into_iter().map(|one| one.judge).collect();
        assert!(judges.iter().any(|judge| judge.starts_with("trees,")), "{judges:?}");
        assert!(!judges.iter().any(|judge| judge.starts_with("neural,")), "{judges:?}");
    }

    #[test]
    fn short_tasks_and_failed_trials_are_left_out() {
        let mut samples = task("long", 1);
        samples[0].ratio = f64::INFINITY;
        samples.extend(task("short", 2).into_iter().take(MIN_TRIALS - 1));
        let all = judgements(&[samples]);
        assert_eq!(of(&all, "chance").trials, 63);
        assert!(judgements(&[Vec::new()]).is_empty());
    }
}
