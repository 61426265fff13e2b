//! The text form of steps and traces.

use super::twice_by_rows;
use crate::{AxisPart, Entry, Layout, Schedule, ScheduleError, Step, Trace};
use hone_tensor::Builder;
use std::error::Error;

/// A line of each primitive, with what it makes.
const LINES: &[&str] = &[
    "v12, v13 = split(v5, factor=14)",
    "v14 = fuse(v12, v13)",
    "reorder([v3, v14])",
    "reorder([])",
    "unroll(v3)",
    "vectorize(v3)",
    "tensorize(v3, intrinsic=dot_u8_i8)",
    "parallel(v3)",
    "bind(v3, block.x)",
    "bind(v3, lane.z)",
    "v9, v10 = virtual_thread(v3)",
    "virtual_thread(v3)",
    "insert_syncs()",
    "prefetch(block1, b2, v3)",
    "serial(v3)",
    "compute_inline(block0)",
    "compute_at(block0, v3)",
    "reverse_compute_at(block0, v3)",
    "set_scope(block0, scope=register)",
    "set_scope(block0, scope=scratch)",
    "set_scope(block0, scope=shared)",
    "set_scope(block0, scope=global)",
    "reverse_compute_inline(block0)",
    "block3 = cache_read(block0, b1, scope=shared)",
    "block3 = reindex(block0, b1, scope=scratch)",
    "block3 = cache_write(block0, scope=scratch)",
    "block3 = decompose_reduction(block0, v3)",
    "block3 = rfactor(block0, v3)",
    "block3 = decompose_padding(block0, v3)",
    "v9 = partition(v3)",
    "transform_layout(b1, layout=[0, 1/16, 1/4%4, 1%4])",
    "transform_layout(b1, layout=[])",
];

#[test]
fn lines_are_read_and_written() {
    for line in LINES {
        let entry: Entry = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(entry.to_string(), *line);
        let name = entry.step.primitive();
        assert!(line.contains(&format!("{name}(")), "{line}: {name}");
    }
    let trace: Trace = LINES.join("\n").parse().unwrap();
    assert_eq!(trace.entries.len(), LINES.len());
    assert_eq!(trace.to_string(), LINES.join("\n") + "\n");
}

#[test]
fn spaces_comments_and_names_of_arguments_are_free() {
    let plain: Step = "split(v5, factor=14)".parse().unwrap();
    for text in [
        " split( v5 ,factor = 14 ) ",
        "split(target=v5, factor=14)",
        "split(v5, 14)",
        "split (v5, factor=14)",
    ] {
        assert_eq!(text.parse::<Step>().unwrap(), plain, "{text}");
    }
    let text = "\n# tiles\n  unroll(v1)\n\n\tv12 , v13 = split(v5, factor=14)\n#unroll(v2)\n";
    let trace: Trace = text.parse().unwrap();
    assert_eq!(trace.to_string(), "unroll(v1)\nv12, v13 = split(v5, factor=14)\n");
}

#[test]
fn what_is_no_step_is_told() {
    for (text, reason) in [
        ("split(v5, factor=14", "it has no '(...)' at its end"),
        ("split", "it has no '(...)' at its end"),
        ("divide(v5)", "there is no primitive 'divide'"),
        ("split(v5)", "the argument 'factor' is missing"),
        ("split()", "the argument 'target' is missing"),
        ("split(v5, factor=14, v6)", "'v6' is an argument too many"),
        ("insert_syncs(v5)", "'v5' is an argument too many"),
        ("split(v5, factor=x)", "'x' does not fit the argument 'factor'"),
        ("split(v5, factor=-1)", "'-1' does not fit the argument 'factor'"),
        ("split(block5, factor=2)", "'block5' does not fit the argument 'target'"),
        ("split(v, factor=2)", "'v' does not fit the argument 'target'"),
        ("split(v+5, factor=2)", "'v+5' does not fit the argument 'target'"),
        ("split(v99999999999, factor=2)", "'v99999999999' does not fit the argument 'target'"),
        ("compute_inline(b0)", "'b0' does not fit the argument 'block'"),
        ("prefetch(block1, block2, v3)", "'block2' does not fit the argument 'buffer'"),
        ("set_scope(block0, scope=stack)", "'stack' does not fit the argument 'scope'"),
        ("bind(v3, block.w)", "'block.w' does not fit the argument 'axis'"),
        ("tensorize(v3, intrinsic=amx)", "'amx' does not fit the argument 'intrinsic'"),
        ("reorder([v3, v14)", "'[v3, v14' does not fit the argument 'loops'"),
        ("reorder(v3)", "'v3' does not fit the argument 'loops'"),
        ("reorder([v3, b4])", "'[v3, b4]' does not fit the argument 'loops'"),
        ("transform_layout(b1, layout=0)", "'0' does not fit the argument 'layout'"),
    ] {
        let expected = format!("'{text}' is not a step: {reason}");
        assert_eq!(text.parse::<Step>().unwrap_err().to_string(), expected);
    }
    for (line, name) in [("5 = fuse(v1, v2)", "5"), ("v1, b2 = split(v5, factor=2)", "b2")] {
        let expected = format!("'{line}' is not a step: '{name}' names no loop or block");
        assert_eq!(line.parse::<Entry>().unwrap_err().to_string(), expected);
    }
    assert!("unroll(v1)\nunroll(1)".parse::<Trace>().is_err());
}

#[test]
fn layouts_are_read_and_written() {
    for text in ["[0, 1/16, 1%16]", "[1/16%4, 0]", "[]", "[2]"] {
        assert_eq!(text.parse::<Layout>().unwrap().to_string(), text);
    }
    assert_eq!("[ 1 / 16 , 1 % 16 ]".parse::<Layout>().unwrap().to_string(), "[1/16, 1%16]");
    assert_eq!("[0/1]".parse::<Layout>().unwrap().to_string(), "[0]");
    assert_eq!(Layout::permutation(&[2, 0, 1]).to_string(), "[2, 0, 1]");
    let part = AxisPart { axis: 1, divisor: 16, modulus: Some(4) };
    assert_eq!("1/16%4".parse::<AxisPart>().unwrap(), part);
    for (text, reason) in [
        ("0", "'0' is not in brackets"),
        ("[0", "'[0' is not in brackets"),
        ("[x]", "'x' in 'x' is no number"),
        ("[1/x]", "'x' in '1/x' is no number"),
        ("[1%x]", "'x' in '1%x' is no number"),
        ("[1/0]", "'1/0' divides by zero"),
    ] {
        assert_eq!(text.parse::<Layout>().unwrap_err(), reason, "{text}");
    }
}

/// `twice = x + x`, `sum = sum of twice by rows`.
fn schedule() -> Schedule {
    let mut builder = Builder::new();
    let sum = twice_by_rows(&mut builder);
    builder.output(sum);
    Schedule::new(builder.finish())
}

#[test]
fn a_schedule_answers_about_its_program() {
    let mut schedule = schedule();
    let (twice, sum) = (schedule.block("twice").unwrap(), schedule.block("sum").unwrap());
    let unknown = schedule.block("other").unwrap_err();
    assert_eq!(unknown.to_string(), "the program has no block named 'other': it has twice, sum");
    assert_eq!((schedule.producers(sum), schedule.producers(twice)), (vec![twice], vec![]));
    assert_eq!((schedule.consumers(twice), schedule.consumers(sum)), (vec![sum], vec![]));
    let [row, column] = schedule.loops(twice)[..] else { panic!("two loops are around it") };
    assert_eq!((schedule.extent(row), schedule.extent(column)), (Some(4), Some(6)));
    let (outer, inner) = schedule.tile(&[row, column], &[2, 4]).unwrap();
    assert_eq!(schedule.loops(twice), [outer[0], outer[1], inner[0], inner[1]]);
    assert_eq!((schedule.extent(outer[1]), schedule.extent(inner[1])), (Some(2), None));
    assert_eq!(schedule.extent(row), None);
    schedule.verify().unwrap();
    schedule.compute_inline(twice).unwrap();
    assert_eq!(schedule.loops(twice), []);
    assert_eq!(schedule.clone().into_program(), *schedule.program());
}

#[test]
fn a_trace_of_another_program_is_told() {
    let trace: Trace = "v9, v8 = split(v2, factor=2)".parse().unwrap();
    let error = Schedule::replay(schedule().into_program(), &trace).unwrap_err();
    assert!(matches!(error, ScheduleError::Diverged { place: 0, .. }), "{error}");
    let made = "step 0 of the trace gave v8, v9, the trace has nothing: it is of another program";
    let trace: Trace = "split(v2, factor=2)".parse().unwrap();
    let error = Schedule::replay(schedule().into_program(), &trace).unwrap_err();
    assert_eq!(error.to_string(), made);
}

#[test]
fn a_register_that_a_loop_indexes_is_told_before_code_is_made() {
    let mut schedule = schedule();
    let (twice, sum) = (schedule.block("twice").unwrap(), schedule.block("sum").unwrap());
    let row = schedule.loops(sum)[0];
    schedule.compute_at(twice, row).unwrap();
    schedule.set_scope(twice, hone_tensor::Scope::Register).unwrap();
    let error = schedule.verify().unwrap_err();
    assert_eq!(error.to_string(), "the scheduled program is not well formed");
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    assert!(source.contains("indexes the register buffer 'twice'"), "{source}");
    assert!(schedule.verify_for(&hone_tensor::Limits::PORTABLE).is_err());
}
