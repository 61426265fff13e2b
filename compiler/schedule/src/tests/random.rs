//! Any sequence of accepted steps keeps the results.

use super::{assert_right, floats, load};
use crate::{AxisPart, Layout, Schedule, ScheduleError, Step};
use hone_tensor::{
    Axis, BlockId, BufferId, Builder, Combiner, Dimension, Expr, Level, Limits, Program, Scope,
    Statement, VarId,
};
use hone_types::DataType::F32;
use proptest::prelude::*;

/// A guarded convolution with an epilogue, a reshape and a reduction by rows.
fn program() -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[3, 10]));
    let kernel = builder.input("kernel", &floats(&[5, 3, 3]));
    let scaled = builder.map("scaled", &floats(&[3, 10]), |i| load(x, i) + load(x, i));
    let padded = builder.map("padded", &floats(&[3, 12]), |i| {
        let column = i[1].clone() - 1;
        let inside =
            Expr::Integer(0).less_equal(column.clone()).and(column.clone().less(Expr::Integer(10)));
        inside.select(load(scaled, &[i[0].clone(), column]), Expr::Constant(0.0, F32))
    });
    let conv = builder.reduce("conv", &floats(&[5, 10]), &[3, 3], Combiner::Sum, |i, r| {
        let column = i[1].clone() + r[1].clone();
        let own = load(padded, &[r[0].clone(), column]);
        own * load(kernel, &[i[0].clone(), r[0].clone(), r[1].clone()])
    });
    let relu =
        builder.map("relu", &floats(&[5, 10]), |i| load(conv, i).maximum(Expr::Constant(0.0, F32)));
    let flat = builder.map("flat", &floats(&[50]), |i| {
        let ten = || Expr::Integer(10);
        load(relu, &[i[0].clone().floor_divide(ten()), i[0].clone().modulo(ten())])
    });
    let most = builder.reduce("most", &floats(&[10]), &[5], Combiner::Maximum, |i, r| {
        load(flat, &[i[0].clone() * 5 + r[0].clone()])
    });
    let out = builder
        .map("out", &floats(&[10]), |i| load(most, i) - load(x, &[Expr::Integer(1), i[0].clone()]));
    builder.output(out);
    builder.output(flat);
    builder.finish()
}

fn loops(program: &Program) -> Vec<VarId> {
    let mut loops = Vec::new();
    for statement in &program.body {
        statement.visit(&mut |own| {
            if let Statement::Loop(own) = own {
                loops.push(own.var);
            }
        });
    }
    loops
}

/// A step made of numbers: which primitive, and which of the loops and blocks there are.
fn step(schedule: &Schedule, (kind, a, b, number): (u8, usize, usize, usize)) -> Option<Step> {
    let program = schedule.program();
    let (loops, blocks) = (loops(program), program.blocks_in_order());
    let target = *loops.get(a % loops.len().max(1))?;
    let block: BlockId = *blocks.get(b % blocks.len().max(1))?;
    let around = schedule.loops(block);
    let near = around.get(a % around.len().max(1)).copied().unwrap_or(target);
    let factor = number % 6 + 1;
    Some(match kind % 22 {
        0..=2 => Step::Split { target, factor },
        3 => {
            let inner = loops[(a + 1) % loops.len()];
            Step::Fuse { outer: target, inner }
        }
        4 | 5 => {
            let mut order = around.clone();
            if !order.is_empty() {
                let places = order.len();
                order.rotate_left(number % places);
                order.truncate(a % places + 1);
            }
            Step::Reorder { loops: order }
        }
        6 => Step::Unroll { target },
        7 => Step::Vectorize { target },
        8 => Step::Parallel { target },
        9 => Step::ComputeInline { block },
        10 | 11 => Step::ComputeAt { block, target },
        12 => Step::ReverseComputeAt { block, target },
        13 => Step::DecomposeReduction { block, target: near },
        14 => Step::Rfactor { block, target: near },
        15 => Step::ReverseComputeInline { block },
        16 => {
            let buffers: Vec<BufferId> = program.buffers.ids().collect();
            let reads = |buffer: &&BufferId| program.blocks[block].reads(**buffer);
            let buffer = *buffers.iter().find(reads)?;
            match number % 2 {
                0 => Step::CacheRead { block, buffer, scope: Scope::Scratch },
                _ => Step::Reindex { block, buffer, scope: Scope::Global },
            }
        }
        17 => Step::CacheWrite { block, scope: Scope::Global },
        18 if number % 2 == 0 => Step::DecomposePadding { block, target: near },
        18 => Step::Partition { target },
        19 => Step::VirtualThread { target },
        20 => Step::Merge { first: target, second: loops[(a + 1 + number % 4) % loops.len()] },
        _ => {
            let buffer = program.blocks[block].buffer;
            let part = |axis, divisor, modulus| AxisPart { axis, divisor, modulus };
            let mut parts: Vec<AxisPart> =
                (0..program.buffers[buffer].shape.len()).map(|axis| part(axis, 1, None)).collect();
            parts.reverse();
            let last = parts.pop()?;
            parts.insert(0, part(last.axis, factor, None));
            parts.push(part(last.axis, 1, Some(factor)));
            Step::TransformLayout { buffer, layout: Layout { parts } }
        }
    })
}

/// What a step made; `None` where it was refused.
fn accepted<T>(result: Result<T, ScheduleError>) -> Option<T> {
    match result {
        Ok(made) => Some(made),
        Err(ScheduleError::Refused { .. }) => None,
        Err(error) => panic!("{error}: {error:?}"),
    }
}

/// Steps towards a program for a device, as far as they are accepted: blocks and lanes around a block, or shared
/// memory in front of it that lanes fill together.
fn towards_a_device(schedule: &mut Schedule, (kind, a, b, number): (u8, usize, usize, usize)) {
    let lane = Axis::new(Level::Lane, if number % 3 == 0 { Dimension::Y } else { Dimension::X });
    let blocks = schedule.program().blocks_in_order();
    let Some(block) = blocks.get(b % blocks.len().max(1)).copied() else { return };
    let around = schedule.loops(block);
    let (Some(first), Some(near)) = (around.first(), around.get(a % around.len().max(1))) else {
        return;
    };
    let producer = match kind % 4 {
        0 | 1 => {
            accepted(schedule.bind(*first, Axis::new(Level::Block, Dimension::X)));
            accepted(schedule.bind(*near, lane));
            return;
        }
        2 => {
            let mut buffers = schedule.program().buffers.ids();
            let buffer = buffers.find(|own| schedule.program().blocks[block].reads(*own));
            let Some(buffer) = buffer else { return };
            accepted(schedule.cache_read(block, buffer, Scope::Shared))
        }
        _ => schedule.producers(block).first().copied(),
    };
    let Some(producer) = producer else { return };
    if accepted(schedule.compute_at(producer, *near)).is_some() {
        accepted(schedule.set_scope(producer, Scope::Shared));
        let inside = schedule.loops(producer);
        if let Some(last) = inside.last() {
            accepted(schedule.bind(*last, lane));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("HONE_PROPTEST_CASES").ok().and_then(|own| own.parse().ok()).unwrap_or(60),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn accepted_steps_keep_the_results(
        choices in prop::collection::vec((any::<u8>(), 0..40usize, 0..40usize, 0..40usize), 1..24),
    ) {
        let plain = program();
        let mut schedule = Schedule::new(plain.clone());
        for choice in choices {
            if let Some(step) = step(&schedule, choice) {
                match schedule.apply(&step) {
                    Ok(_) | Err(crate::ScheduleError::Refused { .. }) => {}
                    Err(error) => panic!("{error}: {:?}\n{}", error, schedule.trace()),
                }
            }
        }
        assert_right(&plain, &schedule, 0.0);
    }
    /// What is verified for a device has no race, no `sync` that only some lanes reach, and the same results.
    #[test]
    fn what_is_verified_for_a_device_keeps_the_results(
        choices in prop::collection::vec((any::<u8>(), 0..40usize, 0..40usize, 0..40usize), 1..8),
        bindings in prop::collection::vec((any::<u8>(), 0..40usize, 0..40usize, 0..40usize), 1..8),
    ) {
        let plain = program();
        let mut schedule = Schedule::new(plain.clone());
        for choice in choices {
            if let Some(step) = step(&schedule, choice) {
                accepted(schedule.apply(&step));
            }
        }
        bindings.into_iter().for_each(|choice| towards_a_device(&mut schedule, choice));
        if accepted(schedule.insert_syncs()).is_some() && schedule.verify_for(&Limits::PORTABLE).is_ok() {
            assert_right(&plain, &schedule, 0.0);
        }
    }
}
