//! What must be true once nothing is killed any more: every compilation has ended right, and the store contains what
//! somebody owns and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use hone_cluster_tests::{Cluster, eventually, product};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::SETTLE;
use super::compilations::{Compilation, Kind};
use super::store::Folder;
use super::work::Work;
use crate::repository;

/// Judges the compilations that were not deleted, then deletes them in two parts, and judges the store after each.
///
/// # Errors
/// Everything that is wrong, by name.
pub fn judge(cluster: &Cluster, work: &mut Work, start: Instant) -> Result<()> {
    let say = |what: String| println!("{:6.1} s  {what}", start.elapsed().as_secs_f64());
    rest(work)?;
    say("all are finished".to_owned());
    let hits = ends(cluster, work)?;
    store(work)?;
    let left = work.compilations.iter().filter(|one| !one.deleted).count();
    say(format!(
        "{left} compilations ended right, {hits} of them by the cache; the store is right"
    ));
    for part in [0, 1] {
        for index in 0..work.compilations.len() {
            if !work.compilations[index].deleted && (index % 2 == 0 || part == 1) {
                // What is finished gets its finalizer, however late the policy was changed.
                eventually("a deletion", SETTLE, || Ok(work.delete(index)?.then_some(())))?;
            }
        }
        gone(work)?;
        current(cluster, work)?;
        store(work)?;
        say(format!("part {part} of the others is deleted; the store is right"));
    }
    children_gone(cluster)?;
    say("no finalizer is stuck, no Job and no pod is left".to_owned());
    Ok(())
}

/// Resumes what is suspended, once it is at rest, and waits until everything is finished and what was deleted is gone.
fn rest(work: &mut Work) -> Result<()> {
    eventually("what is suspended to stop", SETTLE, || {
        let seen = work.look()?;
        for one in work.compilations.iter().filter(|one| one.suspended && !one.deleted) {
            let seen = seen.get(&one.name).cloned().unwrap_or_default();
            ensure!(seen.finished || seen.phase == "Suspended", "{} is {}", one.name, seen.phase);
        }
        Ok(Some(()))
    })?;
    for index in 0..work.compilations.len() {
        if work.compilations[index].suspended && !work.compilations[index].deleted {
            work.suspend(index, false)?;
        }
    }
    eventually("all compilations to finish", SETTLE, || {
        let seen = work.look()?;
        let unfinished = work
            .compilations
            .iter()
            .filter(|one| !one.deleted)
            .filter(|one| !seen.get(&one.name).is_some_and(|seen| seen.finished));
        let names: Vec<&str> = unfinished.map(|one| one.name.as_str()).collect();
        ensure!(names.is_empty(), "not finished: {}", names.join(" "));
        Ok(Some(()))
    })?;
    gone(work)
}

/// Waits until every compilation that was deleted is gone, finalizer and all.
fn gone(work: &mut Work) -> Result<()> {
    eventually("what was deleted to go", SETTLE, || {
        let seen = work.look()?;
        let left =
            work.compilations.iter().filter(|one| one.deleted && seen.contains_key(&one.name));
        let left: Vec<&str> = left.map(|one| one.name.as_str()).collect();
        ensure!(left.is_empty(), "left: {}", left.join(" "));
        Ok(Some(()))
    })
}

/// Every compilation has succeeded with an artifact that is the one its spec asks for; returns the cache hits.
fn ends(cluster: &Cluster, work: &Work) -> Result<usize> {
    let mut wrong = Vec::new();
    let mut hits = 0;
    // Compiling is deterministic, so equal work has equal bytes.
    let mut digests: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for one in work.compilations.iter().filter(|one| !one.deleted) {
        let status = status(work, one)?;
        match end(cluster, work, one, &status) {
            Ok(digest) if one.kind != Kind::Tuned => {
                digests.entry(one.processor().unwrap_or("host")).or_default().insert(digest);
            }
            Ok(_) => {}
            Err(error) => wrong.push(format!("{}: {error:#}", one.name)),
        }
        hits += usize::from(status["targets"][0]["cache"] == "Hit");
    }
    let differing = digests.iter().filter(|(_, digests)| digests.len() > 1);
    wrong.extend(differing.map(|(cpu, digests)| format!("{cpu} has artifacts {digests:?}")));
    let all: BTreeSet<&String> = digests.values().flatten().collect();
    let count: usize = digests.values().map(BTreeSet::len).sum();
    if all.len() != count {
        wrong.push(format!("two processors have one artifact: {digests:?}"));
    }
    ensure!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(hits)
}

fn status(work: &Work, one: &Compilation) -> Result<Value> {
    let object = format!("modelcompilation/{}", one.name);
    Ok(work.kubectl(one).json(&object)?["status"].clone())
}

/// Judges one compilation that is finished; returns the digest of its artifact.
fn end(cluster: &Cluster, work: &Work, one: &Compilation, status: &Value) -> Result<String> {
    if status["phase"] != "Succeeded" {
        bail!("{} ({})", status["phase"], status["failure"]);
    }
    let target = &status["targets"][0];
    let digest = downloaded(cluster, target)?;
    ensure!(target["artifact"]["digest"] == digest, "digest {digest}, status {target}");
    if one.kind == Kind::Tuned {
        ensure!(target["tuning"]["phase"] == "Succeeded", "its tuning: {}", target["tuning"]);
    }
    if one.kind != Kind::Shared && one.edits == 0 {
        let artifacts = work.folder(&one.folder)?.artifacts;
        // What was published before tuning stays beside what won.
        let most = if one.kind == Kind::Tuned { 2 } else { 1 };
        ensure!((1..=most).contains(&artifacts.len()), "artifacts {artifacts:?}");
    }
    Ok(digest)
}

/// The digest of the artifact that a target names, from the store's bytes.
fn downloaded(cluster: &Cluster, target: &Value) -> Result<String> {
    let uri = target["artifact"]["uri"].as_str().context("it has no artifact")?;
    let folder = repository::scratch().join("chaos");
    fs::create_dir_all(&folder)?;
    let file = folder.join("artifact.hone");
    product::download(cluster, uri, &file)?;
    let hash = Sha256::digest(fs::read(&file)?);
    let digest: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{digest}"))
}

/// The artifacts of all that are left are still there, whatever others have given up.
fn current(cluster: &Cluster, work: &Work) -> Result<()> {
    let mut wrong = Vec::new();
    for one in work.compilations.iter().filter(|one| !one.deleted) {
        let target = status(work, one)?["targets"][0].clone();
        let uri = target["artifact"]["uri"].as_str().unwrap_or_default();
        if !product::stored(cluster, uri)? {
            wrong.push(format!("{} has lost {uri}", one.name));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// No artifact is lost that somebody owns, and none is left that nobody owns.
fn store(work: &Work) -> Result<()> {
    let names: BTreeSet<&str> = work.compilations.iter().map(|one| one.folder.as_str()).collect();
    let mut wrong = Vec::new();
    for name in names {
        let folder = work.folder(name)?;
        let complaints = complaints(work, name, &folder);
        wrong.extend(complaints.into_iter().map(|what| format!("{name}: {what}")));
    }
    ensure!(wrong.is_empty(), "the store has {} faults:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

fn complaints(work: &Work, name: &str, folder: &Folder) -> Vec<String> {
    let mut wrong = Vec::new();
    for artifact in &folder.artifacts {
        if folder.owners.get(artifact).is_none_or(BTreeSet::is_empty) {
            wrong.push(format!("nobody owns {artifact}"));
        }
    }
    for (artifact, owners) in &folder.owners {
        if owners.is_empty() {
            wrong.push(format!("{artifact} is marked as being deleted"));
        }
        let known = |uid: &&String| work.compilations.iter().all(|one| one.uid != **uid);
        wrong
            .extend(owners.iter().find(known).map(|uid| format!("stranger {uid} owns {artifact}")));
    }
    for one in work.compilations.iter().filter(|one| one.folder == name) {
        if one.deleted && one.deletes {
            let traces = folder.traces_of(&one.uid);
            if !traces.is_empty() {
                wrong.push(format!("{} is deleted and leaves {traces:?}", one.name));
            }
        }
    }
    for (uid, _, artifact) in work.retained.iter().filter(|(_, of, _)| of == name) {
        if !folder.stored_by(uid).contains(artifact) {
            wrong.push(format!("{artifact} is lost, which {uid} retains"));
        }
    }
    wrong
}

/// Waits until no Job and no pod of a compilation or a tuning run is left.
fn children_gone(cluster: &Cluster) -> Result<()> {
    eventually("the Jobs and pods to go", SETTLE, || {
        let words = "jobs,pods --all-namespaces -l app.kubernetes.io/managed-by=hone-operator";
        let left = cluster.kubectl().text(words, "{.items[*].metadata.name}")?;
        ensure!(left.is_empty(), "left: {left}");
        Ok(Some(()))
    })
}
