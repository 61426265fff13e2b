//! Runs the cases under `tests/passes`: a graph, the name of a pass, and the graph that it leaves. See the README
//! there.

#![allow(clippy::unwrap_used)]

use hone_graph::{Constants, parse};
use hone_machine::Rates;
use hone_ops::{Graph, Op, evaluate};
use hone_passes::{LayoutOptions, NarrowWeightOptions, PassError, SubBuffers};
use hone_types::{DataType, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

type Pass = fn(&Graph) -> Result<Graph, PassError>;

/// Every pass that rewrites graphs, as it is run for a machine of 256-bit vectors that multiplies bytes.
const PASSES: &[(&str, Pass)] = &[
    ("extend_precision", hone_passes::extend_precision),
    ("eliminate_common_subexpressions", hone_passes::eliminate_common_subexpressions),
    ("delay_broadcasts", hone_passes::delay_broadcasts),
    ("assign_to_runtime", hone_passes::assign_to_runtime),
    ("decompose", hone_passes::decompose),
    ("sum_in_rows", hone_passes::sum_in_rows),
    ("move_quantized", hone_passes::move_quantized),
    ("multiply_blocks", |graph| hone_passes::multiply_blocks(graph, LANES, DataType::F32)),
    ("shift_signed_bytes", hone_passes::shift_signed_bytes),
    ("multiply_quantized", |graph| {
        hone_passes::multiply_quantized(graph, DataType::I8, Some(&RATES), DataType::F32)
    }),
    ("multiply_device_quantized", |graph| {
        hone_passes::multiply_device_quantized(graph, DataType::F32)
    }),
    ("narrow_integers", hone_passes::narrow_integers),
    ("fold_constants", hone_passes::fold_constants),
    ("multiply_multiples", hone_passes::multiply_multiples),
    ("multiply_recurrent_multiples", |graph| {
        hone_passes::multiply_recurrent_multiples(graph, LANES)
    }),
    ("narrow_recurrent_weights", |graph| hone_passes::narrow_recurrent_weights(graph, CACHE)),
    ("fold_batch_norm", hone_passes::fold_batch_norm),
    ("simplify", hone_passes::simplify),
    ("recognize_group_normalization", hone_passes::recognize_group_normalization),
    ("separate_taps", hone_passes::separate_taps),
    ("separate_groups", hone_passes::separate_groups),
    ("separate_pools", hone_passes::separate_pools),
    ("divide_by_multiplying", hone_passes::divide_by_multiplying),
    ("scale_filters", hone_passes::scale_filters),
    ("merge_scales", hone_passes::merge_scales),
    ("fuse_attention", |graph| hone_passes::fuse_attention(graph, LANES, DataType::F32)),
    ("fuse_device_attention", |graph| {
        hone_passes::fuse_device_attention(graph, &[8], DataType::F32, &|_| true)
    }),
    ("choose_layouts", |graph| hone_passes::choose_layouts(graph, LAYOUT)),
    ("choose_layouts_for_tiles", |graph| {
        hone_passes::choose_layouts(graph, LayoutOptions { tile_row: Some(16), ..LAYOUT })
    }),
    ("choose_device_layouts", |graph| {
        hone_passes::choose_device_layouts(graph, [LANES, 4], DataType::F32)
    }),
    ("choose_device_integer_layouts", |graph| {
        hone_passes::choose_device_integer_layouts(graph, [LANES, 4], DataType::F32)
    }),
    ("multiply_device_integers", |graph| hone_passes::multiply_device_integers(graph, 4)),
    ("multiply_integers", |graph| hone_passes::multiply_integers(graph, 2 * LANES)),
    ("pack_matmul_operands", |graph| {
        hone_passes::pack_matmul_operands(graph, LANES, DataType::F32)
    }),
    ("interleave_gates", |graph| hone_passes::interleave_gates(graph, 2 * LANES)),
    ("pack_recurrent_weights", |graph| {
        hone_passes::pack_recurrent_weights(graph, LANES, DataType::F32)
    }),
    ("pad_integers", hone_passes::pad_integers),
    ("pad_pools", hone_passes::pad_pools),
    ("split_reductions", hone_passes::split_reductions),
    ("separate_outputs", hone_passes::separate_outputs),
    ("nest_concatenations", |graph| hone_passes::nest_concatenations(graph, SUB_BUFFERS)),
    ("alias_concatenations", |graph| hone_passes::alias_concatenations(graph, SUB_BUFFERS)),
    ("narrow", |graph| hone_passes::narrow(graph, DataType::BF16, &|_| false)),
    ("narrow_weights", |graph| hone_passes::narrow_weights(graph, WEIGHTS)),
    ("narrow_plain", |graph| hone_passes::narrow_plain(graph, DataType::BF16, &|_| false)),
];

/// Lanes of a vector of f32.
const LANES: usize = 8;

/// Bytes beyond which the weights of a recurrence are stored as integers.
const CACHE: usize = 32;

const WEIGHTS: NarrowWeightOptions<'static> =
    NarrowWeightOptions { types: &[DataType::BF16, DataType::F16], rates: RATES, cache: CACHE };

/// Rates by which Winograd's filtering is chosen over products of bytes.
const RATES: Rates =
    Rates { flops_per_ns: 112.0, memory_bytes_per_ns: 10.0, cache_bytes_per_ns: 80.0 };

const LAYOUT: LayoutOptions<'static> = LayoutOptions {
    block: LANES,
    products: 1,
    integers: true,
    tile_row: None,
    rates: None,
    working: DataType::F32,
    decisions: None,
};

const SUB_BUFFERS: SubBuffers = SubBuffers { alignment: 64, working: DataType::F32 };

/// What the results of a pass may differ by, as a fraction of the maximum of the results: `narrow` and `narrow_plain` round
/// operands to eight bits.
fn tolerance(pass: &str) -> f64 {
    if ["narrow", "narrow_plain"].contains(&pass) { 1e-2 } else { 1e-5 }
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/passes");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).collect();
    files.sort();
    files
}

/// Inputs of small whole numbers, another order for each.
fn inputs(graph: &Graph) -> Vec<Tensor> {
    let tensors = graph.inputs().iter().enumerate().map(|(input, port)| {
        let tensor_type = graph.tensor_type(port.value);
        let minimum = if tensor_type.dtype.is_signed_integer() { -3.0 } else { 0.0 };
        let minimum = if tensor_type.dtype.is_float() { -3.0 } else { minimum };
        let values = (0..tensor_type.elements())
            .map(|index| ((index * 31 + index / 5 + 3 * input) % 7) as f64 + minimum);
        let values: Vec<f64> = values.collect();
        Tensor::from_f64(tensor_type.dtype, tensor_type.shape.clone(), &values).unwrap()
    });
    tensors.collect()
}

/// Fails where the two graphs give different answers.
fn compare(pass: &str, before: &Graph, after: &Graph) -> Result<(), String> {
    let given = inputs(before);
    let evaluated = |graph| evaluate(graph, &given).map_err(|error| format!("{error:?}"));
    let (expected, actual) = (evaluated(before)?, evaluated(after)?);
    for (expected, actual) in expected.iter().zip(&actual) {
        if expected.tensor_type() != actual.tensor_type() {
            let (old, new) = (expected.tensor_type(), actual.tensor_type());
            return Err(format!("an output was {old} and is {new}"));
        }
        let (expected, actual) = (expected.to_f64(), actual.to_f64());
        if expected.iter().any(|value| !value.is_finite()) {
            return Err("the case computes numbers that are not finite".to_owned());
        }
        let maximum = expected.iter().fold(0.0, |maximum: f64, value| maximum.max(value.abs()));
        let mut pairs = expected.iter().zip(&actual);
        let allowed = tolerance(pass) * maximum;
        let is_far = |old: f64, new: f64| new.is_nan() || (old - new).abs() > allowed;
        if let Some((old, new)) = pairs.find(|(old, new)| is_far(**old, **new)) {
            return Err(format!("an element was {old} and is {new}"));
        }
    }
    Ok(())
}

/// The pass's name and whether it changed the graph.
fn run(path: &Path) -> Result<(&'static str, bool), String> {
    let text = std::fs::read_to_string(path).unwrap();
    let (first, rest) = text.split_once("--- ").ok_or("it names no pass behind '--- '")?;
    let (name, expected) = rest.split_once('\n').ok_or("the line of the pass does not end")?;
    let known = PASSES.iter().find(|(pass, _)| name == *pass);
    let (pass, apply) = known.ok_or_else(|| format!("there is no pass '{name}'"))?;
    let before = parse::<Op>(first).map_err(|error| error.to_string())?;
    before.verify().map_err(|error| format!("before: {error:?}"))?;
    let after = apply(&before).map_err(|error| format!("{error:?}"))?;
    after.verify().map_err(|error| format!("after: {error:?}"))?;
    compare(pass, &before, &after)?;
    let [old, new] = [&before, &after].map(|graph| graph.to_text(Constants::Digest));
    let actual = if old == new { "unchanged\n".to_owned() } else { new };
    if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
        std::fs::write(path, format!("{first}--- {name}\n{actual}")).unwrap();
    } else if actual != expected {
        return Err(format!("expected:\n{expected}\ngot:\n{actual}"));
    }
    Ok((*pass, actual != "unchanged\n"))
}

#[test]
fn every_case_comes_out_as_written() {
    let mut failures = String::new();
    let mut seen: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for path in cases() {
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        match run(&path) {
            Ok((pass, changes)) => {
                if !file.starts_with(pass) {
                    writeln!(failures, "{file}: the name does not begin with {pass}").unwrap();
                }
                seen.entry(pass).or_default().insert(changes);
            }
            Err(reason) => writeln!(failures, "{file}: {reason}").unwrap(),
        }
    }
    for (pass, _) in PASSES {
        for (changes, what) in [(true, "it changes"), (false, "it leaves as it is")] {
            if !seen.get(pass).is_some_and(|kinds| kinds.contains(&changes)) {
                writeln!(failures, "{pass}: no case of a graph that {what}").unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}
