//! What the machine code of a register-tiled product looks like.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(target_arch = "x86_64")]

mod support {
    pub mod gemm;
}
use hone_codegen::{Target, assembly};
use hone_schedule::Schedule;
use hone_tensor::{Builder, Combiner, Expr, Program, Scope};
use hone_types::{DataType, TensorType};
use support::gemm::{Sizes, scheduled};

/// The instructions of the innermost loop with the most multiply-adds.
fn inner_loop(text: &str) -> Vec<String> {
    inner_loops(text).into_iter().max_by_key(|body| multiply_adds(body)).unwrap_or_default()
}

fn multiply_adds(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.starts_with("vfmadd")).count()
}

/// The instructions of each loop without a jump inside: between a label and the jump back to it.
fn inner_loops(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with(".L")) else {
            continue;
        };
        let rest = &lines[index + 1..];
        let Some(end) = rest.iter().position(|line| {
            line.starts_with('j') && line.split_whitespace().nth(1) == Some(label)
        }) else {
            continue;
        };
        let body = &rest[..=end];
        if body.iter().any(|line| line.ends_with(':')) {
            continue;
        }
        found.push(body.iter().map(|line| line.to_string()).collect());
    }
    found
}

#[test]
fn the_inner_loop_is_ideal() {
    let target = Target::new("x86_64-unknown-linux-gnu", "skylake-avx512", vec![]).unwrap();
    // Unrolled further, LLVM moves loads of the next step up and spills one or two of the largest
    // tiles' accumulators.
    for (rows, vectors, unroll) in
        [(14, 2, 1), (14, 2, 4), (12, 2, 4), (9, 3, 1), (8, 3, 2), (6, 4, 4), (5, 5, 1), (28, 1, 1)]
    {
        let sizes =
            Sizes { m: rows * 5, n: 16 * vectors * 3, k: 256, rows, lanes: 16, vectors, unroll };
        let text = assembly(&scheduled(sizes), &target).unwrap();
        let body = inner_loop(&text);
        let count = |start: &str| body.iter().filter(|line| line.starts_with(start)).count();
        let stack =
            body.iter().filter(|line| line.contains("(%rsp") || line.contains("(%rbp")).count();
        let listing = body.join("\n");
        assert_eq!(count("vfmadd"), rows * vectors * unroll, "{listing}");
        assert_eq!(stack, 0, "spills in the loop:\n{listing}");
        assert!(
            body.len() <= (rows * vectors + rows + vectors) * unroll + 6,
            "{}\n{listing}",
            body.len()
        );
    }
}

/// Rows of a product in tiles of 6, two tiles to each task; the last tile of the last task is shorter where the rows do not
/// fill it.
fn rows_in_tasks(rows: usize, columns: usize) -> Program {
    let float = |shape: &[usize]| TensorType::new(DataType::F32, shape);
    let mut builder = Builder::new();
    let a = builder.input("a", &float(&[rows, 64]));
    let b = builder.input("b", &float(&[64, columns]));
    let out = float(&[rows, columns]);
    let sum = builder.reduce("sum", &out, &[64], Combiner::Sum, |i, r| {
        Expr::Load(a, vec![i[0].clone(), r[0].clone()])
            * Expr::Load(b, vec![r[0].clone(), i[1].clone()])
    });
    let twice =
        builder.map("twice", &out, |i| Expr::Load(sum, i.to_vec()) + Expr::Load(sum, i.to_vec()));
    builder.output(twice);
    let mut schedule = Schedule::new(builder.finish());
    let (sum, twice) = (schedule.block("sum").unwrap(), schedule.block("twice").unwrap());
    let [row, lane] = schedule.loops(twice)[..] else { panic!("two loops") };
    let (tiles, within) = schedule.split(row, 6).unwrap();
    schedule.compute_at(sum, tiles).unwrap();
    schedule.set_scope(sum, Scope::Register).unwrap();
    let [_, sum_row, sum_lane, depth] = schedule.loops(sum)[..] else { panic!("four loops") };
    schedule.reorder(&[depth, sum_row, sum_lane]).unwrap();
    let initial = schedule.decompose_reduction(sum, depth).unwrap();
    let [.., initial_row, initial_lane] = schedule.loops(initial)[..] else { panic!("loops") };
    for unrolled in [within, sum_row, initial_row] {
        schedule.unroll(unrolled).unwrap();
    }
    for vector in [lane, sum_lane, initial_lane] {
        schedule.vectorize(vector).unwrap();
    }
    let (tasks, _) = schedule.split(tiles, 2).unwrap();
    schedule.parallel(tasks).unwrap();
    schedule.into_program()
}

#[test]
fn a_shorter_last_tile_tests_nothing_in_the_inner_loop() {
    let target = Target::new("x86_64-unknown-linux-gnu", "haswell", vec![]).unwrap();
    for rows in [128, 45] {
        let text = assembly(&rows_in_tasks(rows, 8), &target).unwrap();
        let all: Vec<String> = text.lines().map(|line| line.trim().to_string()).collect();
        let straight: usize = inner_loops(&text).iter().map(|body| multiply_adds(body)).sum();
        assert!(straight > 0 && straight == multiply_adds(&all), "{rows} rows:\n{text}");
    }
}

/// A row of 24 ends within a register of 16, and the rows of a tile fill whole registers all the same.
#[test]
fn rows_that_end_within_a_register_do_not_go_through_memory() {
    for (cpu, columns) in [("sapphirerapids", 24), ("haswell", 12)] {
        let target = Target::new("x86_64-unknown-linux-gnu", cpu, vec![]).unwrap();
        let text = assembly(&rows_in_tasks(12, columns), &target).unwrap();
        let loops = inner_loops(&text);
        let products =
            loops.iter().find(|body| multiply_adds(body) > 0).expect("a loop of products");
        let listing = products.join("\n");
        assert_eq!(multiply_adds(products) % 12, 0, "{cpu}:\n{listing}");
        assert!(!listing.contains("(%rsp"), "{cpu}:\n{listing}");
    }
}
