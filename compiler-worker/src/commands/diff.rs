//! `hone diff`: what differs between two artifacts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use hone_artifact::report::Report;
use hone_artifact::{KernelText, Manifest, Reader, Variant};

use super::common::{print, reader};
use crate::failure::Result;
use crate::npz;
use crate::show::{table, units};
use crate::storage::local;

/// What `hone diff` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// One artifact.
    pub a: PathBuf,
    /// The other.
    pub b: PathBuf,
}

/// Shows facts side by side, then steps whose kernels differ. Latency and accuracy are those of the
/// reports beside the artifacts, where there are any.
///
/// # Errors
/// An artifact that is damaged.
pub fn run(arguments: &Arguments) -> Result<()> {
    let bytes = [local::map(&arguments.a)?, local::map(&arguments.b)?];
    let a = reader(&arguments.a, &bytes[0])?;
    let b = reader(&arguments.b, &bytes[1])?;
    if *bytes[0] == *bytes[1] {
        return print(&format!("equal: {}", a.digest()));
    }
    let facts = [facts(&arguments.a, &a), facts(&arguments.b, &b)];
    let mut table = table::table(&["", "a", "b"]);
    let mut same = 0;
    for ((name, a), (_, b)) in facts[0].iter().zip(&facts[1]) {
        if a == b {
            same += 1;
        } else {
            table.add_row(vec![name.to_string(), a.clone(), b.clone()]);
        }
    }
    let mut text = format!("{table}\n{same} facts are equal\n");
    text.push_str(&kernels(&a, &b));
    print(&text)
}

type Facts = Vec<(&'static str, String)>;

fn facts(path: &Path, reader: &Reader<'_>) -> Facts {
    let Manifest { model_digest, compiler_version, inputs, outputs, variants, .. } =
        reader.manifest();
    let ports = |tensors: &[hone_artifact::TensorInfo]| {
        let all =
            tensors.iter().map(|t| format!("{} {}", t.name, npz::describe(t.dtype, &t.shape)));
        all.collect::<Vec<_>>().join(", ")
    };
    let mut facts: Facts = vec![
        ("digest", reader.digest()),
        ("model", model_digest.clone()),
        ("compiler", compiler_version.clone()),
        ("inputs", ports(inputs)),
        ("outputs", ports(outputs)),
        ("variants", variants.len().to_string()),
    ];
    if let Some(variant) = variants.first() {
        let Variant { target, steps, weights_bytes, arena_bytes, code, .. } = variant;
        let code = reader.code(*code).map_or(0, |code| code.len() as u64);
        let kernels: BTreeSet<&str> = steps.iter().map(|step| step.kernel.as_str()).collect();
        facts.extend([
            ("target", format!("{} {}", target.triple, target.cpu)),
            ("features", target.features.join(" ")),
            ("steps", steps.len().to_string()),
            ("kernels", kernels.len().to_string()),
            ("work", format!("{} operations", steps.iter().map(|step| step.flops).sum::<u64>())),
            ("code", units::bytes(code)),
            ("weights", units::bytes(*weights_bytes)),
            ("arena", units::bytes(*arena_bytes)),
        ]);
    }
    facts.extend(measured(path));
    facts
}

/// Latency and accuracy from the report beside an artifact.
fn measured(path: &Path) -> Facts {
    let report = std::fs::read(path.with_extension("json")).ok();
    let report = report.and_then(|bytes| serde_json::from_slice::<Report>(&bytes).ok());
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let latency = report.as_ref().and_then(|report| report.latency.as_ref());
    let correctness = report.as_ref().and_then(|report| report.correctness.as_ref());
    vec![
        ("latency", or_unknown(latency.map(|latency| units::time(latency.p50)))),
        ("max abs error", or_unknown(correctness.map(|c| units::error(c.max_abs)))),
        ("max rel error", or_unknown(correctness.map(|c| units::error(c.max_rel)))),
    ]
}

/// Steps that both have but compute by another program or schedule, by their nodes.
fn kernels(a: &Reader<'_>, b: &Reader<'_>) -> String {
    let (a, b) = (by_nodes(a), by_nodes(b));
    let mut text = String::new();
    let list = |title: &str, names: Vec<&String>| match names.is_empty() {
        true => String::new(),
        false => {
            let names: String = names.iter().map(|name| format!("  {name}\n")).collect();
            format!("{title}:\n{names}")
        }
    };
    let only = |own: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        own.keys().filter(|name| !other.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    let changed = a.iter().filter(|(name, program)| b.get(*name).is_some_and(|p| p != *program));
    text.push_str(&list("computed otherwise", changed.map(|(name, _)| name).collect()));
    text.push_str(&list("only in a", only(&a, &b).iter().collect()));
    text.push_str(&list("only in b", only(&b, &a).iter().collect()));
    text
}

/// Program and schedule of each step, by its nodes' names.
fn by_nodes(reader: &Reader<'_>) -> BTreeMap<String, String> {
    let kernels = reader.inspect().ok().flatten().unwrap_or_default().kernels;
    let text = |name: &str| {
        let own = |kernel: &&KernelText| {
            kernel.kernel == name
                || name.rsplit_once('_').is_some_and(|(stem, _)| stem == kernel.kernel)
        };
        kernels
            .iter()
            .find(own)
            .map_or_else(|| name.to_owned(), |k| format!("{}{}", k.trace, k.program))
    };
    let steps = reader.manifest().variants.first().map(|variant| variant.steps.as_slice());
    let steps = steps.unwrap_or_default().iter();
    steps.map(|step| (step.nodes.join(", "), text(&step.kernel))).collect()
}
