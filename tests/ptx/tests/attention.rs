//! Attention on tensor cores: against the interpreter of loop programs, by `ptxas`, with faults, and the mix of instructions of
//! its main loop.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Assembly, Change, all_architectures, changed, main_loop, moved, noticed};
use hone_codegen::nvptx::{Architecture, Module, attention, is_attention};
use hone_device_tests::count;
use hone_ops::{Attention, AttentionPart, EmptyRows, Operator, ScoreStep};
use hone_ptx_tests::{Ptxas, parse, run_counted};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockBody, BufferId, Builder, Expr, Program, Role, interpret};
use hone_types::{DataType, Random, Tensor, TensorType};

/// What is added to scores, or chooses among them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    None,
    /// A key is seen by its query and later ones.
    Causal,
    /// A number is added for each head and key.
    Added,
    /// Scores are bounded by `tanh`, then some are replaced: all of one query.
    Replaced,
}

/// An attention, and how its operands lie.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    dtype: DataType,
    batch: usize,
    /// Heads of queries, and of keys and values.
    heads: [usize; 2],
    queries: usize,
    keys: usize,
    /// Lengths of rows of queries and keys, and of values.
    lengths: [usize; 2],
    mask: Mask,
    empty_rows: EmptyRows,
    /// Whether operands lie by head, as `[batch, heads, rows, length]`; else `[batch, rows, heads, length]`.
    by_head: bool,
    part: Option<AttentionPart>,
}

const PLAIN: Sizes = Sizes {
    dtype: DataType::BF16,
    batch: 1,
    heads: [2, 2],
    queries: 64,
    keys: 128,
    lengths: [64, 64],
    mask: Mask::None,
    empty_rows: EmptyRows::NotNumbers,
    by_head: true,
    part: None,
};

fn operation(sizes: &Sizes) -> Attention {
    let places = if sizes.by_head { vec![0, 1, 2, 3] } else { vec![0, 2, 1, 3] };
    let least = f64::NEG_INFINITY;
    let steps = match sizes.mask {
        Mask::None => vec![],
        Mask::Causal => vec![ScoreStep::KeepWhere { otherwise: least }],
        Mask::Added => vec![ScoreStep::Add],
        Mask::Replaced => vec![
            ScoreStep::Multiply(0.5),
            ScoreStep::Tanh,
            ScoreStep::ReplaceWhere { instead: least },
        ],
    };
    Attention {
        query: places.clone(),
        key: places.clone(),
        value: places.clone(),
        output: places,
        scale: 1.0 / (sizes.lengths[0] as f64).sqrt(),
        steps,
        empty_rows: sizes.empty_rows,
        rounded: Some(sizes.dtype),
        part: sizes.part,
    }
}

/// The operands of 16 bits, and the mask.
fn operands(sizes: &Sizes) -> Vec<Tensor> {
    let mut random = Random::new(7);
    let Sizes { batch, heads, queries, keys, lengths, .. } = *sizes;
    let mut tensor = |heads: usize, rows: usize, length: usize| {
        let shape = match sizes.by_head {
            true => [batch, heads, rows, length],
            false => [batch, rows, heads, length],
        };
        let numbers = random.normals(shape.iter().product(), 0.0, 1.0);
        let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
        Tensor::from_f64(sizes.dtype, shape, &numbers).unwrap()
    };
    let mut all = vec![
        tensor(heads[0], queries, lengths[0]),
        tensor(heads[1], keys, lengths[0]),
        tensor(heads[1], keys, lengths[1]),
    ];
    let pairs = |value: &dyn Fn(usize, usize) -> bool| -> Vec<f64> {
        let each = (0..keys).flat_map(|key| (0..queries).map(move |query| (key, query)));
        each.map(|(key, query)| f64::from(u8::from(value(key, query)))).collect()
    };
    let shape = [1, 1, keys, queries];
    let bools = |values: &[f64]| Tensor::from_f64(DataType::Bool, shape, values).unwrap();
    match sizes.mask {
        Mask::None => {}
        Mask::Causal => all.push(bools(&pairs(&|key, query| key <= query))),
        Mask::Added => {
            let numbers = random.normals(heads[0] * keys, 0.0, 2.0);
            let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
            all.push(Tensor::from_f64(DataType::F32, [1, heads[0], keys, 1], &numbers).unwrap());
        }
        Mask::Replaced => {
            all.push(bools(&pairs(&|key, query| query == 3 || (key + query) % 7 == 0)));
        }
    }
    all
}

/// The program of an attention whose operands are widened where they are read, and whose result is rounded, with every map
/// inlined.
fn program(sizes: &Sizes, operands: &[Tensor]) -> Program {
    let mut builder = Builder::new();
    let mut inputs = Vec::new();
    for (number, operand) in operands.iter().enumerate() {
        let own = operand.tensor_type();
        let input = builder.input(&format!("in{number}"), own);
        inputs.push(Some(match number < 3 {
            false => input,
            true => {
                let wide = TensorType::new(DataType::F32, own.shape.clone());
                builder.map(&format!("wide{number}"), &wide, |i| {
                    Expr::Load(input, i.to_vec()).cast(DataType::F32)
                })
            }
        }));
    }
    let results: Vec<BufferId> = operation(sizes).expression(&mut builder, &inputs).unwrap();
    let shape = builder.tensor_type(results[0]).shape.clone();
    let rounded = builder.map("rounded", &TensorType::new(sizes.dtype, shape), |i| {
        Expr::Load(results[0], i.to_vec()).cast(sizes.dtype)
    });
    builder.output(rounded);
    let mut schedule = Schedule::new(builder.finish());
    let blocks = schedule.program().blocks_in_order();
    for block in &blocks[..blocks.len() - 1] {
        let (own, program) = (&schedule.program().blocks[*block], schedule.program());
        let temporary = program.buffers[own.buffer].role == Role::Temporary;
        if temporary && matches!(own.body, BlockBody::Map(_)) {
            match schedule.compute_inline(*block) {
                Ok(()) | Err(ScheduleError::Refused { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    schedule.into_program()
}

fn module(program: &Program, architecture: Architecture) -> Module {
    let made = attention(program, architecture, "k").unwrap();
    made.unwrap_or_else(|| panic!("it is an attention: {program}"))
}

fn cases() -> Vec<Sizes> {
    use DataType::F16;
    let mut cases = vec![PLAIN, Sizes { dtype: F16, ..PLAIN }];
    for dtype in [DataType::BF16, F16] {
        let plain = Sizes { dtype, ..PLAIN };
        cases.extend([
            // Tails of queries, keys, and both; fewer than a tile.
            Sizes { queries: 50, keys: 64, lengths: [32, 32], ..plain },
            Sizes { keys: 100, lengths: [32, 32], by_head: false, ..plain },
            Sizes { queries: 70, keys: 33, lengths: [32, 64], heads: [1, 1], ..plain },
            Sizes { queries: 9, keys: 200, lengths: [32, 32], batch: 2, ..plain },
            // Heads that share keys, and one for all.
            Sizes { heads: [4, 2], queries: 16, keys: 70, lengths: [32, 32], ..plain },
            Sizes { heads: [3, 1], queries: 20, keys: 64, by_head: false, ..plain },
            Sizes { queries: 64, keys: 64, lengths: [128, 128], heads: [1, 1], ..plain },
            Sizes { queries: 33, keys: 65, lengths: [128, 32], heads: [1, 1], ..plain },
            // Masks.
            Sizes { queries: 100, keys: 100, lengths: [32, 32], mask: Mask::Causal, ..plain },
            Sizes { mask: Mask::Causal, batch: 2, heads: [1, 1], keys: 64, ..plain },
            Sizes { queries: 30, keys: 75, lengths: [32, 32], mask: Mask::Added, ..plain },
            Sizes { keys: 64, lengths: [64, 32], mask: Mask::Added, by_head: false, ..plain },
            Sizes {
                queries: 40,
                keys: 90,
                lengths: [32, 32],
                mask: Mask::Replaced,
                empty_rows: EmptyRows::Zero,
                ..plain
            },
            Sizes {
                queries: 16,
                keys: 64,
                lengths: [32, 32],
                mask: Mask::Replaced,
                empty_rows: EmptyRows::ZeroWhereNan,
                ..plain
            },
            Sizes { queries: 16, keys: 64, lengths: [32, 32], mask: Mask::Replaced, ..plain },
            Sizes {
                queries: 60,
                keys: 96,
                lengths: [32, 32],
                mask: Mask::Causal,
                part: Some(AttentionPart { query: 20, queries: 33, key: 0, keys: 53 }),
                ..plain
            },
        ]);
    }
    cases
}

/// How far results may be from those of the loop program, which rounds other powers of the same ratios: some units in the last
/// place of weights and of results.
fn bound(dtype: DataType) -> f64 {
    if dtype == DataType::F16 { 3e-3 } else { 2e-2 }
}

/// Why results are no answer, or nothing.
fn fault(sizes: &Sizes, got: &Tensor, want: &Tensor) -> Option<String> {
    let (got, want) = (got.to_f64(), want.to_f64());
    let largest =
        want.iter().map(|own| own.abs()).filter(|own| own.is_finite()).fold(0.0, f64::max);
    let far = |(got, want): &(&f64, &f64)| match want.is_nan() {
        true => !got.is_nan(),
        false => {
            let error = (*got - *want).abs();
            error.is_nan() || error > bound(sizes.dtype) * largest
        }
    };
    let found = got.iter().zip(&want).enumerate().find(|(_, pair)| far(pair));
    found.map(|(index, (got, want))| format!("element {index}: {got}, not {want}"))
}

#[test]
fn attentions_compute_the_same_on_tensor_cores() {
    let (mut right, mut assembly) = (0, Assembly::default());
    for sizes in cases() {
        let operands = operands(&sizes);
        let program = program(&sizes, &operands);
        let expected = interpret(&program, &operands).unwrap();
        for architecture in all_architectures() {
            if architecture == Architecture::Sm75 {
                assert!(!is_attention(&program, architecture));
                continue;
            }
            let module = module(&program, architecture);
            let text = parse(&module.text).unwrap();
            let (results, took) = run_counted(&text, &program, &module.steps, &operands)
                .unwrap_or_else(|error| panic!("{sizes:?}: {error:#}\n{}", module.text));
            assert_eq!(took.conflicts, 0, "{sizes:?}: banks of shared memory");
            if let Some(fault) = fault(&sizes, &results[0], &expected[0]) {
                panic!("{sizes:?}: {fault}\n{}", module.text);
            }
            right += 1;
            assembly.add(&[&module.text], architecture);
        }
    }
    println!("PTX of attentions: {assembly}");
    count(right, "attentions on tensor cores right");
    assembly.count();
    assert!(assembly.spills.is_empty(), "{:?}", assembly.spills);
}

#[test]
fn what_has_no_tiles_is_left_to_others() {
    let none = |sizes: Sizes| {
        let operands = operands(&sizes);
        !is_attention(&program(&sizes, &operands), Architecture::Sm80)
    };
    assert!(!none(PLAIN));
    // Rows of other lengths, and of numbers that tensor cores do not multiply.
    assert!(none(Sizes { lengths: [48, 64], ..PLAIN }));
    assert!(none(Sizes { lengths: [64, 80], ..PLAIN }));
    assert!(none(Sizes { dtype: DataType::F32, ..PLAIN }));
}

#[test]
fn main_loops_do_not_spill() {
    let Some(ptxas) = Ptxas::of_tests().unwrap() else { return };
    for length in [32, 64, 128] {
        for mask in [Mask::None, Mask::Causal] {
            let lengths = [length; 2];
            let sizes = Sizes { queries: 256, keys: 256, lengths, mask, ..PLAIN };
            let program = program(&sizes, &operands(&sizes));
            for architecture in
                Architecture::ALL.into_iter().filter(|other| *other != Architecture::Sm75)
            {
                let module = module(&program, architecture);
                let assembled = ptxas.assemble(&module.text, architecture.name()).unwrap();
                let resources = &assembled.resources[0];
                let spills = (resources.spill_stores, resources.spill_loads);
                assert_eq!(spills, (0, 0), "{architecture}, {length}, {mask:?}: {resources:?}");
                let Some(sass) = ptxas.disassemble(&assembled.cubin).unwrap() else { return };
                let (all, counts) = main_loop(&sass, &["HMMA", "LDSM", "LDGSTS", "MUFU"]);
                let ratio = (all - counts[0]) as f64 / counts[0] as f64;
                println!(
                    "{architecture}, rows of {length}, {mask:?}: {} registers; main loop of {all} instructions, of \
                     them {counts:?} HMMA, LDSM, LDGSTS, MUFU: {ratio:.2} others for each HMMA",
                    resources.registers
                );
                // Scores by 16 of the length and weighted values by 16 of the keys, of 64 x 64 for four warps.
                assert_eq!(counts[0], 2 * 8 * 4 * length / 64, "{sass}");
            }
        }
    }
}

#[test]
fn every_fault_in_copies_matrices_and_exchanges_is_noticed() {
    let mut faults = std::collections::BTreeMap::<&str, usize>::new();
    let sizes = Sizes { keys: 192, lengths: [32, 32], heads: [1, 1], ..PLAIN };
    let operands = operands(&sizes);
    let program = program(&sizes, &operands);
    let expected = interpret(&program, &operands).unwrap();
    let module = module(&program, Architecture::Sm80);
    let noticed = |text: &str| {
        let right = |results: &[Tensor]| fault(&sizes, &results[0], &expected[0]).is_none();
        noticed(text, (&program, &module.steps), &operands, right)
    };
    assert!(!noticed(&module.text));
    let late = |line: &str| {
        let (before, groups) = line.split_once("cp.async.wait_group")?;
        let groups: usize = groups.trim().trim_end_matches(';').parse().ok()?;
        Some(format!("{before}cp.async.wait_group {};", groups + 1))
    };
    let barrier = |line: &str| line.contains("bar.sync").then(String::new);
    let matrix = |line: &str| moved(line, &["ldmatrix"], 16);
    let copy = |line: &str| moved(line, &["cp.async.cg"], 16);
    let turned = |line: &str| line.contains(".trans").then(|| line.replace(".trans", ""));
    let exchanged = |line: &str| {
        let is_exchange = line.contains("shfl.sync");
        is_exchange.then(|| line.replace(", 1, 31", ", 4, 31").replace(", 2, 31", ", 8, 31"))
    };
    let kinds: [(&str, Change<'_>); 6] = [
        ("waits one group late", &late),
        ("barriers removed", &barrier),
        ("matrices read one chunk off", &matrix),
        ("copies one chunk off", &copy),
        ("matrices not transposed", &turned),
        ("exchanges with another row", &exchanged),
    ];
    for (kind, change) in kinds {
        for text in changed(&module.text, change) {
            assert!(noticed(&text), "{kind}: {text}");
            *faults.entry(kind).or_default() += 1;
        }
    }
    println!("PTX of an attention: {faults:?}");
    count(faults.values().sum(), "faults in PTX noticed");
    assert_eq!(faults.len(), 6, "{faults:?}");
}
