//! Rules of the repository that the compiler does not check. Each rule gives a list of complaints.

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each of our crates may use of ours; anything absent is forbidden. Test tools may use all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("hone-types", &[]),
    ("hone-machine", &[]),
    ("hone-graph", &["types"]),
    ("hone-tensor", &["types"]),
    ("hone-images", &[]),
    ("hone-ops", &["types", "graph", "tensor", "images"]),
    ("hone-gradient", &["types", "graph", "ops"]),
    ("hone-import", &["types", "graph", "ops", "gradient"]),
    ("hone-passes", &["types", "graph", "ops", "machine"]),
    ("hone-lower", &["types", "graph", "ops", "tensor"]),
    ("hone-schedule", &["types", "tensor"]),
    ("hone-tune", &["types", "tensor", "schedule", "machine"]),
    ("hone-search", &["types", "tensor", "schedule", "tune", "machine"]),
    ("hone-codegen", &["types", "tensor", "artifact", "machine"]),
    ("hone-codegen-text", &["types", "tensor"]),
    (
        "hone-driver",
        &[
            "types",
            "graph",
            "ops",
            "import",
            "passes",
            "tensor",
            "lower",
            "schedule",
            "tune",
            "codegen",
            "codegen-text",
            "machine",
            "artifact",
        ],
    ),
    ("hone-dimensions", &["driver", "artifact"]),
    ("hone-artifact", &[]),
    ("hone-crds", &[]),
    ("hone-telemetry", &[]),
    ("hone-runtime", &["artifact", "images"]),
    ("hone-emulator", &["artifact", "codegen", "images"]),
    (
        "hone-worker",
        &[
            "driver",
            "dimensions",
            "search",
            "machine",
            "artifact",
            "runtime",
            "emulator",
            "crds",
            "telemetry",
        ],
    ),
    ("hone-operator", &["crds", "artifact", "telemetry"]),
    ("hone-runtime-python", &["runtime"]),
    ("hone-python", &["driver", "dimensions", "artifact", "images"]),
    ("hone-console", &["crds", "artifact", "operator"]),
];

/// Rooms where `unsafe` is part of the work.
const UNSAFE_ROOMS: &[&str] = &["compiler/codegen/", "runtime/", "python/runtime/"];

/// The operator's kinds, a folder each. A kind never imports another; what they share is in the folders below, which
/// import no kind.
const KINDS: &[&str] = &["model_compilation", "device_pool", "tuning_run", "custom_run"];
/// What kinds share.
const SHARED_BY_KINDS: &[&str] = &["broker", "children", "runtime"];

/// Past this many lines a file must be looked at for a second concept.
const LONGEST_FILE: usize = 600;

/// Macros of code that is not done.
const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "dbg!("];

/// Words that only a machine of somebody's would need.
const FORBIDDEN: &[&str] = &["/root/", "/home/"];

/// Checks every rule and prints all complaints.
pub fn run() -> Result<()> {
    let root = crate::repository::root();
    let files = tracked(&root)?;
    let mut complaints = dependencies(&root)?;
    for file in &files {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        complaints.extend(check_file(file, &text));
    }
    complaints.extend(dead_links(&root, &files)?);
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    if complaints.is_empty() {
        println!("tidy: {} files hold to the rules", files.len());
        return Ok(());
    }
    bail!("{} complaints", complaints.len())
}

fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = std::process::Command::new("git")
        .args(["ls-files"])
        .current_dir(root)
        .output()
        .context("git could not be started")?;
    Ok(String::from_utf8(output.stdout)?.lines().map(String::from).collect())
}

/// Edges between our crates that the table does not allow. Dev-dependencies are free.
fn dependencies(root: &Path) -> Result<Vec<String>> {
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata could not be started")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&metadata.stdout).context("cargo metadata gave no JSON")?;
    let rules: BTreeMap<&str, BTreeSet<String>> = MAY_USE
        .iter()
        .map(|(name, uses)| (*name, uses.iter().map(|own| format!("hone-{own}")).collect()))
        .collect();
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(allowed) = rules.get(name) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let normal = dependency["kind"].is_null();
            if normal && used.starts_with("hone-") && !allowed.contains(used) {
                complaints.push(format!("{name} must not depend on {used} (see ARCHITECTURE.md)"));
            }
        }
    }
    Ok(complaints)
}

fn check_file(file: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if is_source(file) && !is_generated(text) && lines > LONGEST_FILE {
        complaints.push(format!("{file}: {lines} lines; look for the second concept"));
    }
    complaints.extend(crate::words::complaints(file, text));
    // This file names what it forbids.
    if file == "xtask/src/tidy.rs" {
        return complaints;
    }
    for (number, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", number + 1);
        if is_text(file) && FORBIDDEN.iter().any(|word| line.contains(word)) {
            complaints.push(format!("{place}: names a path of one machine"));
        }
        if file.ends_with(".rs") {
            let code = line.split("//").next().unwrap_or_default();
            complaints.extend(check_code(file, code).map(|what| format!("{place}: {what}")));
            complaints.extend(check_kinds(file, code).map(|what| format!("{place}: {what}")));
        }
    }
    complaints
}

fn check_code(file: &str, code: &str) -> Option<&'static str> {
    if UNFINISHED.iter().any(|word| code.contains(word)) {
        return Some("unfinished");
    }
    let is_unsafe = ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| code.contains(word));
    let is_test = ["tests/", "benches/"]
        .iter()
        .any(|folder| file.starts_with(folder) || file.contains(&format!("/{folder}")));
    let may = is_test || UNSAFE_ROOMS.iter().any(|room| file.starts_with(room));
    (is_unsafe && !may).then_some("unsafe outside codegen and runtime")
}

/// The complaint where a kind of the operator imports another, or where what they share imports one.
fn check_kinds(file: &str, code: &str) -> Option<String> {
    let room = file.strip_prefix("operator/src/")?.split('/').next()?;
    if !KINDS.contains(&room) && !SHARED_BY_KINDS.contains(&room) {
        return None;
    }
    let others = KINDS.iter().filter(|kind| **kind != room);
    let mut used = others.filter(|kind| {
        let by_path = code.contains(&format!("crate::{kind}"));
        by_path || code.trim_start().starts_with("use crate::{") && code.contains(*kind)
    });
    used.next().map(|kind| format!("'{room}' must not import kind '{kind}' (see ARCHITECTURE.md)"))
}

fn is_source(file: &str) -> bool {
    file.ends_with(".rs") || file.ends_with(".go")
}

fn is_generated(text: &str) -> bool {
    text.lines().take(3).any(|line| {
        let line = line.to_lowercase();
        line.contains("@generated") || line.contains("generated by")
    })
}

fn is_text(file: &str) -> bool {
    [".rs", ".md", ".go", ".yaml", ".toml", ".sh", ".py"].iter().any(|end| file.ends_with(end))
}

/// A line of a page without what stands between backticks, where patterns look like links.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Relative links in pages that lead nowhere.
fn dead_links(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".md")) {
        let text = fs::read_to_string(root.join(file))?;
        let folder = Path::new(file).parent().map(PathBuf::from).unwrap_or_default();
        let text: String = text.lines().map(|line| without_code(line) + "\n").collect();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let local = !target.is_empty() && !target.contains("://") && !target.contains(' ');
            if local && !root.join(&folder).join(target).exists() {
                complaints.push(format!("{file}: the link to {target} leads nowhere"));
            }
        }
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_do_not_import_kinds() {
        let import = "use crate::model_compilation::model::Purpose;";
        assert!(check_kinds("operator/src/device_pool/observe.rs", import).is_some());
        assert!(check_kinds("operator/src/children/jobs.rs", import).is_some());
        let list = "use crate::{device_pool, model_compilation};";
        assert!(check_kinds("operator/src/runtime/worker.rs", list).is_some());
        assert!(check_kinds("operator/src/model_compilation/plan.rs", import).is_none());
        // What joins the kinds may.
        assert!(check_kinds("operator/src/stores.rs", import).is_none());
        assert!(check_kinds("operator/src/controllers.rs", list).is_none());
    }
}
