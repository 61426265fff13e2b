//! A search of one program begins with what records of others say.

#![allow(clippy::unwrap_used)]

mod common;

use common::product;
use hone_machine::Machine;
use hone_search::{Class, Kind, Nest, Record, SCHEMA, Space, Transfer};
use hone_tune::Choice;

fn record(program: &str, machine: &str, decisions: &[(&str, i64)], ratio: f64) -> Record {
    Record {
        schema: SCHEMA,
        kind: Kind::Trial,
        time: 1,
        program: program.to_owned(),
        target: "another target".to_owned(),
        machine: machine.to_owned(),
        threads: 1,
        template: "contraction".to_owned(),
        decisions: decisions
            .iter()
            .map(|(name, value)| Choice((*name).to_owned(), *value))
            .collect(),
        class: Class::Ok,
        nanoseconds: Some(1000.0),
        ratio: Some(ratio),
        interval: None,
        features: Vec::new(),
        nest: Nest::default(),
        nodes: String::new(),
        cause: None,
    }
}

fn rows_and_vectors(transfer: &Transfer<'_>, space: &Space, count: usize) -> Vec<(i64, i64)> {
    let found = transfer.candidates(space, "this", count);
    let value = |choices: &[Choice], name: &str| {
        choices.iter().find(|choice| choice.0 == name).map_or(0, |choice| choice.1)
    };
    let each = found.iter().map(|candidate| candidate.choices());
    each.map(|choices| (value(&choices, "rows"), value(&choices, "vectors"))).collect()
}

#[test]
fn the_program_on_other_machines_comes_before_other_programs() {
    let space = Space::new(product(96, 256, 64), Machine::with_vectors(64, 32)).unwrap();
    let records = [
        record("other", "m1", &[("rows", 3), ("vectors", 1)], 0.5),
        record("other", "m1", &[("rows", 1), ("vectors", 1)], 0.6),
        record("this", "m2", &[("rows", 4), ("vectors", 2)], 0.9),
        record("this", "m2", &[("rows", 2), ("vectors", 2)], 0.8),
        record("third", "m1", &[("rows", 5), ("vectors", 2)], 0.7),
        record("slow", "m1", &[("rows", 1), ("vectors", 2)], 1.0),
    ];
    let transfer = Transfer::new(&records);
    let all = [(2, 2), (4, 2), (3, 1), (5, 2)];
    assert_eq!(rows_and_vectors(&transfer, &space, 9), all, "and the best of each other program");
    assert_eq!(rows_and_vectors(&transfer, &space, 3), all[..3]);
}

#[test]
fn what_cannot_be_decided_here_becomes_the_nearest_or_is_left_out() {
    let space = Space::new(product(96, 256, 64), Machine::with_vectors(64, 32)).unwrap();
    let far = record("other", "m", &[("rows", i64::MAX), ("vectors", i64::MIN)], 0.5);
    let failed = Record { class: Class::WrongResult, ..record("a", "m", &[("rows", 1)], 0.1) };
    let unknown = Record { template: "luck".to_owned(), ..record("b", "m", &[("rows", 1)], 0.1) };
    let decision = Record { kind: Kind::Decision, ..record("c", "m", &[("rows", 1)], 0.1) };
    let records = [far, failed, unknown, decision];
    let transfer = Transfer::new(&records);
    let found = rows_and_vectors(&transfer, &space, 9);
    assert!(found.len() == 1 && found[0].0 > 1 && found[0].1 == 1, "{found:?}");
}
