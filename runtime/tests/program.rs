//! Programs: loops and choices over the test kernels, and what is refused of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::ffi::c_void;

use common::*;
use hone_artifact::{
    Access, Carried, Collected, DataType, If, Loop, Manifest, OutputExtent, Part, Slot, TensorInfo,
};
use hone_runtime::{Model, Options, Profile, RunError};

const ROWS: usize = 5;
const ALL: usize = ROWS * ROW * 4;
const CAPACITY: u64 = 4;

fn arena(offset: usize) -> Slot {
    Slot::Arena { offset: offset as u64 }
}

const NUMBER: usize = 0;
const COUNT: usize = 64;
const CURRENT: usize = 128;
const NEXT: usize = CURRENT + ALL;
const RESULT: usize = NEXT + ALL;

/// `x` is halved `trips` times, all halves are collected; then `b` is added or the last is halved once more.
fn program() -> Manifest {
    let mut manifest = affine(ROWS);
    let input = |index| Slot::Input { index, offset: 0 };
    let output = |index| Slot::Output { index, offset: 0 };
    manifest.inputs.push(TensorInfo::new("trips", DataType::I64, vec![]).unwrap());
    manifest.inputs.push(TensorInfo::new("adds", DataType::Bool, vec![]).unwrap());
    let shape = vec![CAPACITY, ROWS as u64, ROW as u64];
    manifest.outputs.push(TensorInfo::new("halves", DataType::F32, shape).unwrap());
    let halve = |from, to| {
        let arguments = vec![argument(from, ALL, Access::Read), argument(to, ALL, Access::Write)];
        step("halve", ROWS, arguments)
    };
    let bias = Slot::Weight { offset: ROW as u64 * 4 };
    let add = vec![
        argument(arena(RESULT), ALL, Access::Read),
        argument(bias, ROW * 4, Access::Read),
        argument(output(0), ALL, Access::Write),
    ];
    let variant = &mut manifest.variants[0];
    variant.arena_bytes = (RESULT + ALL) as u64;
    variant.steps = vec![
        halve(arena(CURRENT), arena(NEXT)),
        step("add_bias", ROWS, add),
        halve(arena(RESULT), output(0)),
    ];
    let carried = Carried {
        initial: input(0),
        current: arena(CURRENT),
        next: arena(NEXT),
        result: arena(RESULT),
        bytes: ALL as u64,
    };
    let from = arena(NEXT);
    let collected = Collected { from, all: output(1), bytes: ALL as u64, reversed: false };
    let own = Loop {
        node: "halving".into(),
        most: None,
        trips: Some(input(1)),
        condition: None,
        goes_on: None,
        capacity: Some(CAPACITY),
        number: arena(NUMBER),
        count: arena(COUNT),
        carried: vec![carried],
        collected: vec![collected],
        body: vec![Part::Steps { first: 0, count: 1 }],
    };
    let choice = If {
        node: "choice".into(),
        condition: input(2),
        then: vec![Part::Steps { first: 1, count: 1 }],
        otherwise: vec![Part::Steps { first: 2, count: 1 }],
    };
    variant.program = vec![Part::Loop(Box::new(own)), Part::If(choice)];
    variant.extents = vec![OutputExtent { output: 1, axis: 0, slot: arena(COUNT) }];
    manifest
}

fn run(model: &mut Model, trips: i64, adds: bool) -> Result<(Vec<f32>, Vec<f32>), RunError> {
    let x = ramp(ROWS);
    let mut y = vec![f32::NAN; x.len()];
    let mut halves = vec![f32::NAN; x.len() * CAPACITY as usize];
    let (trips, adds) = (trips.to_ne_bytes(), [u8::from(adds)]);
    let mut outputs = [as_bytes_mut(&mut y), as_bytes_mut(&mut halves)];
    model.run(&[as_bytes(&x), &trips, &adds], &mut outputs)?;
    Ok((y, halves))
}

#[test]
fn a_loop_runs_as_often_as_an_input_says_and_a_choice_follows() {
    let mut model = Model::load_memory(pack(&program()), &Options::default()).unwrap();
    assert_eq!(model.output_shapes()[1], [CAPACITY, ROWS as u64, ROW as u64]);
    for (trips, adds) in [(3, true), (4, false), (0, true), (1, false), (-7, false), (2, true)] {
        let (y, halves) = run(&mut model, trips, adds).unwrap();
        let count = trips.max(0) as i32;
        for (place, x) in ramp(ROWS).into_iter().enumerate() {
            let last = x * 0.5f32.powi(count);
            let want = if adds { last + 100.0 + (place % ROW) as f32 } else { last * 0.5 };
            assert_eq!(y[place], want, "{trips} {place}");
            for iteration in 0..CAPACITY as i32 {
                let want = if iteration < count { x * 0.5f32.powi(iteration + 1) } else { 0.0 };
                assert_eq!(
                    halves[iteration as usize * ROWS * ROW + place],
                    want,
                    "{trips} {iteration}"
                );
            }
        }
        assert_eq!(model.output_shapes()[1], [count as u64, ROWS as u64, ROW as u64]);
    }
}

#[test]
fn a_loop_beyond_its_room_is_an_error_and_the_next_run_is_right() {
    let mut model = Model::load_memory(pack(&program()), &Options::default()).unwrap();
    let good = run(&mut model, 3, true).unwrap();
    let refused = run(&mut model, CAPACITY as i64 + 1, true).unwrap_err();
    assert_eq!(refused, RunError::Overrun { node: "halving".into(), capacity: CAPACITY });
    assert!(refused.to_string().contains("'halving' goes on after 4 iterations"), "{refused}");
    assert_eq!(run(&mut model, 3, true).unwrap(), good);
}

#[test]
fn a_profile_counts_how_often_steps_ran() {
    let mut model = Model::load_memory(pack(&program()), &Options::default()).unwrap();
    let mut profile = Profile::new(&model);
    let (x, trips, adds) = (ramp(ROWS), 3i64.to_ne_bytes(), [0]);
    let mut y = vec![0.0; x.len()];
    let mut halves = vec![0.0; x.len() * CAPACITY as usize];
    for _ in 0..2 {
        let mut outputs = [as_bytes_mut(&mut y), as_bytes_mut(&mut halves)];
        model.run_profiled(&[as_bytes(&x), &trips, &adds], &mut outputs, &mut profile).unwrap();
        let runs: Vec<u64> = profile.steps.iter().map(|step| step.runs).collect();
        assert_eq!(runs, [3, 0, 1]);
    }
}

#[test]
fn the_c_interface_tells_the_shape() {
    use hone_runtime::capi::*;
    let bytes = pack(&program());
    let (x, trips, adds) = (ramp(ROWS), 2i64, 1u8);
    let mut y = vec![0.0f32; x.len()];
    let mut halves = vec![0.0f32; x.len() * CAPACITY as usize];
    let inputs: [*const c_void; 3] =
        [x.as_ptr().cast(), (&raw const trips).cast(), (&raw const adds).cast()];
    let outputs: [*mut c_void; 2] = [y.as_mut_ptr().cast(), halves.as_mut_ptr().cast()];
    let mut shape = [0u64; 3];
    // SAFETY: the bytes outlive the model, and the buffers have their tensors' sizes.
    unsafe {
        let model = hone_load_memory(bytes.as_ptr().cast(), bytes.len(), std::ptr::null());
        assert!(!model.is_null());
        assert_eq!(hone_run(model, inputs.as_ptr(), outputs.as_ptr()), 0);
        assert_eq!(hone_output_shape(model, 1, shape.as_mut_ptr()), 0);
        assert_ne!(hone_output_shape(model, 2, shape.as_mut_ptr()), 0);
        hone_free(model);
    }
    assert_eq!(shape, [2, ROWS as u64, ROW as u64]);
}

fn own(manifest: &mut Manifest) -> &mut Loop {
    match &mut manifest.variants[0].program[0] {
        Part::Loop(own) => own,
        other => panic!("{other:?}"),
    }
}

#[test]
fn unsound_programs_are_refused() {
    type Change = fn(&mut Manifest);
    let cases: [(&str, Change); 12] = [
        ("schema version 1", |m| m.schema_version = 1),
        ("where step 0 is due", |m| own(m).body = vec![Part::Steps { first: 1, count: 1 }]),
        ("where step 1 is due", |m| {
            let choice = m.variants[0].program[1].clone();
            m.variants[0].program.push(choice.clone());
            m.variants[0].program[1] = Part::Steps { first: 0, count: 3 };
        }),
        ("its program ends before step 1", |m| drop(m.variants[0].program.pop())),
        ("nothing says how much room", |m| own(m).capacity = None),
        ("reach outside of the output", |m| own(m).capacity = Some(5)),
        ("how much room", |m| own(m).capacity = Some(u64::MAX)),
        ("would write the input", |m| own(m).count = Slot::Input { index: 0, offset: 0 }),
        ("does not lie in the arena", |m| {
            own(m).carried[0].current = Slot::Output { index: 0, offset: 0 };
        }),
        ("of a carried value of 64 bytes", |m| own(m).carried[0].bytes = 64),
        ("two carried values lie in one place", |m| {
            let again = own(m).carried[0].clone();
            own(m).carried.push(again);
        }),
        ("collects backwards", |m| own(m).collected[0].reversed = true),
    ];
    for (expected, change) in cases {
        let mut bad = program();
        change(&mut bad);
        let error = bad.validate().unwrap_err().to_string();
        assert!(error.contains(expected), "'{expected}' is not in '{error}'");
    }
    let mut deep = program();
    let mut program = std::mem::take(&mut deep.variants[0].program);
    for _ in 0..100 {
        let condition = Slot::Input { index: 2, offset: 0 };
        program =
            vec![Part::If(If { node: String::new(), condition, then: program, otherwise: vec![] })];
    }
    deep.variants[0].program = program;
    assert!(deep.validate().unwrap_err().to_string().contains("nested deeper"));
    let mut other = self::program();
    other.variants[0].extents[0].axis = 3;
    assert!(other.validate().unwrap_err().to_string().contains("no axis 3 of an output 1"));
}
