//! The cases of `tests/specs` against a real API server with the committed CRDs: what the parser
//! accepts the server accepts, what it refuses the server refuses, so that a mistake is told by
//! `kubectl apply` and not by a failed Job.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite, eventually, repository};

const SOON: Duration = Duration::from_secs(60);
const MARK: &str = "# refused:\n";
const BECOMES: &str = "--- # becomes\n";

/// Refused for what makes a file wrong, not an object.
const ONLY_FILES: &[&str] = &["not-yaml", "other-kind", "two-objects", "empty"];

fn cases(folder: &str) -> Result<Vec<(String, String)>> {
    let folder = repository().join("tests/specs").join(folder);
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        Ok((name, fs::read_to_string(&path)?))
    };
    paths.into_iter().map(read).collect()
}

/// The CRDs as they are committed, once for all tests.
fn prepare(context: &Context<'_>) -> Result<()> {
    let folder = repository().join("crds");
    for crd in ["modelcompilations", "tuningruns", "devicepools"] {
        let file = folder.join(format!("hone.dev_{crd}.yaml"));
        let apply = ["apply", "--server-side", "-f", &file.to_string_lossy()];
        context.kubectl.run(&apply)?;
        context.kubectl.wait(&format!("crd/{crd}.hone.dev"), "Established", SOON)?;
    }
    eventually("the kinds to be served", SOON, || {
        context.kubectl.run(&["get", "modelcompilations,tuningruns,devicepools"]).map(Some)
    })
    .map(drop)
}

/// What the server says to a case: an update is one of an object that is really there.
fn ask(context: &Context<'_>, text: &str) -> Result<String> {
    let Some((old, new)) = text.split_once(BECOMES) else {
        return context.kubectl.run_with(&["create", "--dry-run=server", "-f", "-"], text);
    };
    context.kubectl.apply(old).context("the object before the update")?;
    let said = context.kubectl.run_with(&["apply", "--dry-run=server", "-f", "-"], new);
    context.kubectl.run_with(&["delete", "-f", "-"], old)?;
    said
}

fn server_accepts_what_is_right(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    for (name, text) in cases("accepted")? {
        ask(context, &text).with_context(|| format!("accepted/{name}.yaml"))?;
    }
    Ok(())
}

/// The server refuses each, and names a field that the parser names, too.
fn server_refuses_what_is_wrong(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let mut wrong = Vec::new();
    for (name, text) in cases("refused")? {
        if ONLY_FILES.contains(&name.as_str()) {
            continue;
        }
        let (object, refusal) =
            text.split_once(MARK).with_context(|| format!("{name}: no mark"))?;
        match ask(context, object) {
            Ok(_) => wrong.push(format!("{name} is accepted")),
            Err(error) => {
                let said = format!("{error:#}");
                if !fields(refusal).any(|field| said.contains(field)) {
                    wrong.push(format!("{name}: wants one of the fields of\n{refusal}in {said}"));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The fields that the parser names: the lines `#   PATH: why`.
fn fields(refusal: &str) -> impl Iterator<Item = &str> {
    let named = refusal.lines().filter_map(|line| line.strip_prefix("#   "));
    named.filter_map(|line| line.split_once(": ").map(|(field, _)| field))
}

fn main() {
    Suite::new("admission", ClusterOptions::default())
        .needs(&[Capability::Plane])
        .test("server_accepts_what_is_right", server_accepts_what_is_right)
        .test("server_refuses_what_is_wrong", server_refuses_what_is_wrong)
        .main();
}
