//! Loads and runs artifacts through the Rust interface.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::*;
use hone_artifact::{Access, DataType, Slot, Step, TensorInfo, Waves};
use hone_runtime::{Affinity, HugePages, Model, Options, Profile, RunError};

fn threads(threads: usize) -> Options {
    Options { threads, ..Options::default() }
}

fn run(model: &mut Model, x: &[f32]) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len()];
    model.run(&[as_bytes(x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    y
}

#[test]
fn results_are_right_on_any_number_of_threads() {
    for rows in [1, 2, 3, 97] {
        let (_folder, path) = file(&affine(rows));
        let x = ramp(rows);
        for count in [0, 1, 2, 3, 64] {
            let mut model = Model::load(&path, &threads(count)).unwrap();
            for _ in 0..50 {
                assert_eq!(run(&mut model, &x), expected(&x), "{rows} rows, {count} threads");
            }
        }
    }
}

#[test]
fn every_option_gives_the_same_result() {
    let (_folder, path) = file(&affine(33));
    let x = ramp(33);
    for huge_pages in [HugePages::None, HugePages::Arena, HugePages::ArenaAndWeights] {
        for affinity in [Affinity::None, Affinity::Pinned] {
            for verify in [true, false] {
                let options =
                    Options { threads: 0, affinity, huge_pages, verify, ..Options::default() };
                let mut model = Model::load(&path, &options).unwrap();
                assert_eq!(run(&mut model, &x), expected(&x), "{options:?}");
            }
        }
    }
}

#[test]
fn an_artifact_in_memory_runs_wherever_it_lies() {
    let bytes = pack(&affine(5));
    let x = ramp(5);
    for shift in [0, 1, 8, 63] {
        let mut shifted = vec![0; shift];
        shifted.extend_from_slice(&bytes);
        let bytes: &'static [u8] = &shifted.leak()[shift..];
        let mut model = Model::load_memory(bytes, &Options::default()).unwrap();
        assert_eq!(run(&mut model, &x), expected(&x));
    }
    let mut model = Model::load_memory(bytes, &Options::default()).unwrap();
    assert_eq!(run(&mut model, &x), expected(&x));
}

#[test]
fn models_that_share_run_side_by_side() {
    let (_folder, path) = file(&affine(64));
    let first = Model::load(&path, &Options::default()).unwrap();
    let models: Vec<Model> = (0..4).map(|_| first.share().unwrap()).collect();
    drop(first);
    std::thread::scope(|scope| {
        for (number, mut model) in models.into_iter().enumerate() {
            scope.spawn(move || {
                let x: Vec<f32> = ramp(64).iter().map(|v| v + number as f32).collect();
                for _ in 0..500 {
                    assert_eq!(run(&mut model, &x), expected(&x));
                }
            });
        }
    });
}

#[test]
fn the_profile_has_a_time_for_each_step() {
    let (_folder, path) = file(&affine(4096));
    let mut model = Model::load(&path, &threads(2)).unwrap();
    let (x, mut y) = (ramp(4096), ramp(4096));
    let mut profile = Profile::new(&model);
    model.run_profiled(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)], &mut profile).unwrap();
    assert_eq!(y, expected(&x));
    assert_eq!(profile.steps.len(), 2);
    assert!(profile.steps.iter().all(|s| s.time > Duration::ZERO && s.threads <= model.threads()));
    assert_eq!(profile.steps.iter().map(|s| s.time).sum::<Duration>(), profile.total);
}

#[test]
fn a_profile_in_parts_runs_every_task_and_times_each_part() {
    for rows in [3, 4096] {
        let (_folder, path) = file(&affine(rows));
        let mut model = Model::load(&path, &threads(2)).unwrap();
        let (x, mut y) = (ramp(rows), ramp(rows));
        let mut profile = Profile::in_parts(&model, 10);
        model.run_profiled(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)], &mut profile).unwrap();
        assert_eq!(y, expected(&x));
        for (index, step) in profile.steps.iter().enumerate() {
            let parts = profile.parts(index);
            assert_eq!((parts.len(), step.threads), (10, 1));
            assert!(parts.iter().sum::<Duration>() <= step.time);
            assert!(rows < 10 || parts.iter().all(|time| *time > Duration::ZERO));
        }
        assert!(profile.parts(2).is_empty());
    }
}

#[test]
fn a_step_too_small_stays_on_the_callers_thread() {
    let mut manifest = affine(6);
    manifest.variants[0].steps[0].min_tasks_per_thread = 4;
    let (_folder, path) = file(&manifest);
    let mut model = Model::load(&path, &threads(2)).unwrap();
    let (x, mut y) = (ramp(6), ramp(6));
    let mut profile = Profile::new(&model);
    model.run_profiled(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)], &mut profile).unwrap();
    assert_eq!(y, expected(&x));
    assert_eq!(profile.steps[0].threads, 1);
}

/// Two halves of the rows, each as a chain of both steps that the other one does not touch.
#[test]
fn chains_of_steps_run_beside_each_other() {
    const ROWS: usize = 64;
    let mut manifest = affine(ROWS);
    let half = (ROWS / 2 * ROW * 4) as u64;
    let part = |step: &Step, number: u64| {
        let mut step = step.clone();
        step.tasks /= 2;
        for argument in &mut step.arguments {
            match &mut argument.slot {
                Slot::Weight { .. } => continue,
                Slot::Input { offset, .. }
                | Slot::Output { offset, .. }
                | Slot::Arena { offset } => {
                    *offset += number * half;
                }
            }
            argument.bytes = half;
        }
        step
    };
    let steps = &mut manifest.variants[0].steps;
    *steps = [0, 1].iter().flat_map(|at| steps.iter().map(|step| part(step, *at))).collect();
    steps[0].beside = Some([2, 2]);
    let (_folder, path) = file(&manifest);
    let x = ramp(ROWS);
    for count in [1, 2, 3] {
        let mut model = Model::load(&path, &threads(count)).unwrap();
        for _ in 0..200 {
            assert_eq!(run(&mut model, &x), expected(&x), "{count} threads");
        }
    }
}

/// Every part of a wave reads what all parts of the one before have written.
#[test]
fn a_step_in_waves_gives_the_same_on_every_number_of_threads() {
    const WAVES: usize = 50;
    const PARTS: usize = 8;
    let mut manifest = affine(1);
    let tensor = |name, shape| TensorInfo::new(name, DataType::F32, shape).unwrap();
    manifest.inputs = vec![tensor("x", vec![PARTS as u64])];
    manifest.outputs = vec![tensor("y", vec![(WAVES * PARTS) as u64])];
    let slots = [Slot::Input { index: 0, offset: 0 }, Slot::Output { index: 0, offset: 0 }];
    let arguments = vec![
        argument(slots[0], PARTS * 4, Access::Read),
        argument(slots[1], WAVES * PARTS * 4, Access::Write),
    ];
    let x: Vec<f32> = ramp(1)[..PARTS].to_vec();
    let mut expected: Vec<f32> = Vec::new();
    let mut before = x.clone();
    for _ in 0..WAVES {
        let next = |part| before.iter().fold(part as f32, |sum, own| sum * 0.5 + own);
        before = (0..PARTS).map(next).collect();
        expected.extend(&before);
    }
    for (parts_per_thread, most) in [(1, 8), (3, 2), (5, 1)] {
        let mut step = step("in_waves", 1, arguments.clone());
        let (waves, parts) = (WAVES as u64, PARTS as u64);
        step.waves = Some(Waves { waves, parts, min_parts_per_thread: parts_per_thread });
        manifest.variants[0].steps = vec![step];
        for count in [1, 2, 3, 8] {
            let mut model = Model::load_memory(pack(&manifest), &threads(count)).unwrap();
            let mut profile = Profile::new(&model);
            for _ in 0..50 {
                let mut y = vec![f32::NAN; WAVES * PARTS];
                let outputs = &mut [as_bytes_mut(&mut y)];
                model.run_profiled(&[as_bytes(&x)], outputs, &mut profile).unwrap();
                assert_eq!(y, expected, "{count} threads");
                assert!(profile.steps[0].threads <= most.min(model.threads()));
            }
        }
    }
}

/// Both ends of a range of tasks lie in one word: more than fit there are one thread's.
#[test]
fn a_step_of_more_tasks_than_can_be_divided_stays_on_the_callers_thread() {
    let mut manifest = affine(6);
    let mut huge = step("nothing", 1 << 32, vec![]);
    let mut large = step("nothing", u32::MAX as usize, vec![]);
    for step in [&mut huge, &mut large] {
        step.arguments = manifest.variants[0].steps[0].arguments.clone();
    }
    manifest.variants[0].steps.extend([huge, large]);
    let mut model = Model::load_memory(pack(&manifest), &threads(2)).unwrap();
    let (x, mut y) = (ramp(6), ramp(6));
    let mut profile = Profile::new(&model);
    let threads = model.threads();
    // On a busy machine the other thread may come too late for a step, but not for all.
    let is_divided = (0..1000).any(|_| {
        model.run_profiled(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)], &mut profile).unwrap();
        assert_eq!(profile.steps[2].threads, 1);
        assert_eq!(y, expected(&x));
        profile.steps[3].threads == threads
    });
    assert!(is_divided, "a step of {} tasks was never divided", u32::MAX);
}

#[test]
fn weights_are_used_where_the_file_is_mapped() {
    let mut manifest = affine(1);
    manifest.outputs = vec![TensorInfo::new("at", DataType::U64, vec![]).unwrap()];
    manifest.variants[0].steps = vec![step(
        "where_weights",
        1,
        vec![
            argument(Slot::Weight { offset: 64 }, 64, Access::Read),
            argument(Slot::Output { index: 0, offset: 0 }, 8, Access::Write),
        ],
    )];
    let (_folder, path) = file(&manifest);
    let name = path.to_str().unwrap();
    for (huge_pages, mapped) in [(HugePages::Arena, true), (HugePages::ArenaAndWeights, false)] {
        let options = Options { huge_pages, ..Options::default() };
        let mut model = Model::load(&path, &options).unwrap();
        let mut place = [0f32; 4];
        let aligned = eight_aligned_bytes(&mut place);
        model.run(&[as_bytes(&ramp(1))], &mut [aligned]).unwrap();
        let address = u64::from_ne_bytes(aligned.try_into().unwrap());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let end = |text| u64::from_str_radix(text, 16).unwrap();
            (end(from)..end(to)).contains(&address)
        });
        assert_eq!(line.unwrap().ends_with(name), mapped, "{line:?}");
    }
}

fn eight_aligned_bytes(place: &mut [f32; 4]) -> &mut [u8] {
    let bytes = as_bytes_mut(place);
    let skip = bytes.as_ptr().align_offset(8);
    &mut bytes[skip..skip + 8]
}

#[test]
fn buffers_that_do_not_fit_are_refused_by_name() {
    let (_folder, path) = file(&affine(2));
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let (x, mut y) = (ramp(3), ramp(2));
    let x = as_bytes(&x);
    let error = model.run(&[], &mut [as_bytes_mut(&mut y)]).unwrap_err();
    assert_eq!(error, RunError::Count { role: "input", expected: 1, found: 0 });
    let error = model.run(&[x], &mut [as_bytes_mut(&mut y)]).unwrap_err();
    assert_eq!(error.to_string(), "input 'x' is 128 bytes, the buffer given has 192");
    let error = model.run(&[&x[..128]], &mut [&mut as_bytes_mut(&mut y)[..64]]).unwrap_err();
    assert!(error.to_string().starts_with("output 'y' is 128 bytes"), "{error}");
    let error = model.run(&[&x[1..129]], &mut [as_bytes_mut(&mut y)]).unwrap_err();
    assert!(matches!(error, RunError::Address { role: "input", alignment: 4, .. }), "{error}");
}
