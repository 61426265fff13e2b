//! The interpreter runs the launches of the verifier's cases: what is accepted computes what it should,
//! what is refused as a race, a divergent `sync` or a read of poisoned memory is reported by it too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_tensor::{Program, Role, Statement, interpret, parse};
use hone_types::Tensor;
use std::path::Path;

fn case(name: &str) -> Program {
    let path = format!("../../tests/programs/{name}.txt");
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    parse(text.split_once("--- ").unwrap().0).unwrap()
}

/// Inputs of whole numbers.
fn inputs(program: &Program) -> Vec<Tensor> {
    let buffers = program.parameters().into_iter().map(|own| &program.buffers[own]);
    let given = buffers.filter(|own| matches!(own.role, Role::Input(_)));
    given
        .map(|own| {
            let values: Vec<f64> = (0..own.elements()).map(|place| place as f64).collect();
            Tensor::from_f64(own.dtype, own.shape.clone(), &values).unwrap()
        })
        .collect()
}

fn results(program: &Program) -> Vec<f64> {
    interpret(program, &inputs(program)).unwrap()[0].to_f64()
}

fn error(program: &Program) -> String {
    interpret(program, &inputs(program)).unwrap_err().to_string()
}

#[test]
fn blocks_and_lanes_compute_their_parts() {
    let twice: Vec<f64> = (0..64).map(|place| f64::from(2 * place)).collect();
    for name in ["bound", "bound_axes_of_two_dimensions", "bound_grid_around_blocks"] {
        assert_eq!(results(&case(name)), twice, "{name}");
    }
    let ones = results(&case("bound_grid_that_reads_of_an_earlier_launch"));
    assert_eq!(ones, [1.0; 8], "launches run in order");
}

#[test]
fn lanes_see_what_others_stored_before_a_sync() {
    let reversed: Vec<f64> =
        (0..2).flat_map(|row| (0..64).map(move |place| f64::from(64 * row + 63 - place))).collect();
    assert_eq!(results(&case("shared_with_a_sync")), reversed);
    let rounds = results(&case("sync_around_a_loop"));
    let expected = (0..64).map(|place| f64::from(place % 4 * 16 + 15 - place / 4));
    assert_eq!(rounds, expected.collect::<Vec<_>>());
    let halves = results(&case("sync_between_loops_over_lanes"));
    let expected = (0..16).map(|place| f64::from(place / 8 * 16 + 8 + place % 8));
    assert_eq!(halves, expected.collect::<Vec<_>>());
    let squares = |row: i32| (16 * row..16 * row + 16).map(|own| f64::from(own * own)).sum::<f64>();
    assert_eq!(results(&case("first_lane_alone")), [squares(0), squares(1)]);
}

#[test]
fn races_are_reported_with_the_statements_and_both_lanes() {
    let program = case("sync_missing_around_a_loop");
    assert_eq!(
        error(&program),
        "race: element 0 of 'tile' is read by block 'y' on lane [15, 0, 0] of work-group 0, and \
         written by block 'tile' on lane [0, 0, 0] of work-group 0",
    );
    let copies = error(&case("lanes_that_copy_the_same"));
    assert!(copies.starts_with("race: element 0 of 'tile' is written by block 'tile'"), "{copies}");
    let blocks = error(&case("bound_blocks_that_read_of_another"));
    assert!(blocks.starts_with("race: "), "{blocks}");
    let sum = error(&case("bound_lanes_that_write_one_element"));
    assert!(sum.starts_with("race: "), "{sum}");
}

#[test]
fn without_a_sync_lanes_race_or_read_what_is_not_there() {
    // The lane that reads first finds nothing.
    let error = error(&case("shared_without_a_sync"));
    assert!(error.contains("poisoned") || error.starts_with("race: "), "{error}");
}

#[test]
fn a_sync_that_some_lanes_do_not_reach_is_divergent() {
    assert_eq!(
        error(&case("sync_under_an_extent_of_lanes")),
        "divergent sync: loop 'some' around it runs differently on lanes [0, 0, 0] and [1, 0, 0]"
    );
    assert_eq!(
        error(&case("sync_under_a_condition_of_lanes")),
        "divergent sync: loop 'some' around it runs differently on lanes [0, 0, 0] and [8, 0, 0]"
    );
    assert_eq!(
        error(&case("sync_on_some_of_the_lanes")),
        "divergent sync: loop 'half' around it runs differently on lanes [0, 0, 0] and [8, 0, 0]"
    );
}

#[test]
fn shared_memory_is_poisoned_for_each_block() {
    let mut program = case("shared_with_a_sync");
    // Only the first block writes its tile.
    let Statement::Loop(groups) = &mut program.body[0] else { panic!("a loop over blocks") };
    let var = groups.var;
    let Statement::Loop(items) = &mut groups.body[0] else { panic!("a loop over lanes") };
    let Statement::Realize(tile) = &mut items.body[0] else { panic!("the tile's block") };
    tile.predicate = Some(hone_tensor::Expr::Var(var).less(1.into()));
    let error = error(&program);
    assert!(error.starts_with("block 'y' reads element "), "{error}");
    assert!(error.ends_with("which is poisoned: no lane has written it"), "{error}");
}
