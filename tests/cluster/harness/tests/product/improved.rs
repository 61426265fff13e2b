//! Tuning that a compilation asks for: published at once, searched by a run of its own, compiled again with what won.

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::{Context, eventually, product};
use serde_json::{Value, json};

use crate::tuning::shared_pool;
use crate::{LONG, SOON, example, prepare, succeeded};

/// `examples/kubernetes/digits.yaml`, measured in `pool` and tuned as `tuning` says.
fn tuned_example(context: &Context<'_>, name: &str, pool: &str, tuning: &str) -> Result<String> {
    let yaml = example(context, name)?;
    let target = "  - name: main\n";
    ensure!(yaml.contains(target), "another target");
    let yaml = yaml.replace(target, &format!("{target}    pool: {pool}\n"));
    let worker = "  worker: {resources: {requests: {cpu: 250m}}}";
    Ok(format!("{}\n  tuning: {tuning}\n{worker}\n", yaml.trim_end()))
}

pub fn condition(object: &Value, kind: &str) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|own| own["type"] == kind);
    let word =
        |field: &str| found.and_then(|own| own[field].as_str()).unwrap_or_default().to_owned();
    (word("status"), word("reason"))
}

pub fn trials(context: &Context<'_>, run: &str) -> Result<u64> {
    let run = context.kubectl.json(&format!("tuningrun/{run}"))?;
    let count = |field: &str| run["status"]["trials"][field].as_u64().unwrap_or_default();
    Ok(count("measured") + count("failed"))
}

/// From the file to the artifact with tuned schedules, an edit that goes on, an equal compilation, and deletion.
pub fn a_compilation_is_tuned(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let pool = shared_pool(context)?;
    let yaml = tuned_example(context, "digits", &pool, "{maxTrials: 150}")?;
    context.kubectl.apply(&yaml)?;
    let first = published(context)?;
    let status = succeeded(context, "digits")?;
    let target = &status["targets"][0];
    let run = target["tuningRunRef"]["name"].as_str().context("no run")?.to_owned();
    ensure!(target["tuning"]["phase"] == "Succeeded", "{target}");
    ensure!(trials(context, &run)? == 150, "{} trials", trials(context, &run)?);
    let object = context.kubectl.json("modelcompilation/digits")?;
    let is_tuned = ("True".to_owned(), "Tuned".to_owned());
    ensure!(condition(&object, "Tuned") == is_tuned, "{}", object["status"]);
    let best = context.kubectl.json(&format!("tuningrun/{run}"))?["status"]["best"].clone();
    println!("tuned {}: {best}", target["tuned"]);
    ensure!(target["tuned"] == (best["programs"] != 0), "{target}, {best}");
    ensure!(product::stored(context.cluster, &first)?, "what was published first is gone");
    if target["tuned"] == true {
        let uri = target["artifact"]["uri"].as_str().context("no uri")?;
        ensure!(uri != first && product::stored(context.cluster, uri)?, "{uri}, {first} before");
    }

    // More trials go on from the log, and what is published stays in use.
    let more = json!({"spec": {"tuning": {"maxTrials": 170}}}).to_string();
    let patch = ["patch", "modelcompilation", "digits", "--type=merge", "-p", &more];
    context.kubectl.run(&patch)?;
    eventually("20 more trials", LONG, || Ok((trials(context, &run)? == 170).then_some(())))?;
    let status = succeeded(context, "digits")?;
    ensure!(status["targets"][0]["tuningRunRef"]["name"] == run.as_str(), "{status}");

    // Equal work is taken as it is.
    let equal = tuned_example(context, "equal", &pool, "{maxTrials: 170}")?;
    context.kubectl.apply(&equal)?;
    let again = succeeded(context, "equal")?;
    ensure!(again["targets"][0]["cache"] == "Hit", "{again}");
    ensure!(again["targets"][0]["artifact"]["uri"] == status["targets"][0]["artifact"]["uri"]);
    let runs = context.kubectl.text("tuningruns", "{.items[*].metadata.name}")?;
    ensure!(runs == run, "runs: {runs}");

    context.kubectl.run(&["delete", "modelcompilation", "digits", "equal"])?;
    eventually("the run to go with its compilation", SOON, || {
        let runs = context.kubectl.text("tuningruns", "{.items[*].metadata.name}")?;
        Ok(runs.is_empty().then_some(()))
    })?;
    context.kubectl.run(&["delete", "devicepool", &pool]).map(drop)
}

/// Waits until the compilation is ready before its tuning has ended: where its artifact is then.
fn published(context: &Context<'_>) -> Result<String> {
    eventually("an artifact before tuning has ended", LONG, || {
        let object = context.kubectl.json("modelcompilation/digits")?;
        let (ready, reason) = condition(&object, "Ready");
        ensure!(object["status"]["phase"] != "Failed", "{}", object["status"]);
        ensure!(
            condition(&object, "Finished").0 != "True",
            "it ended unseen: {}",
            object["status"]
        );
        let uri = object["status"]["targets"][0]["artifact"]["uri"].as_str().map(str::to_owned);
        let found = (ready == "True" && reason == "Tuning").then_some(uri).flatten();
        Ok(found)
    })
}
