//! The compilations that are under way, and what users do with them meanwhile: new ones, edits, suspensions, deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use hone_cluster_tests::{Cluster, Kubectl, eventually};
use hone_types::Random;

use super::PATIENCE;
use super::compilations::{Compilation, Kind, NAMESPACES};
use super::store::Folder;

/// Compilations that are under way at once.
const UNDER_WAY: usize = 5;

/// Where a compilation stands, as its status says.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Whether the status speaks of the newest generation and nothing more will be done for it.
    pub finished: bool,
    /// Its phase.
    pub phase: String,
}

/// All compilations, and how often users did what.
pub struct Work {
    kubectl: Kubectl,
    root: PathBuf,
    seed: u64,
    digest: String,
    /// Everything that was asked for, in order.
    pub compilations: Vec<Compilation>,
    /// Artifacts that a compilation with `Retain` had stored when it was deleted, with its uid and its folder.
    pub retained: Vec<(String, String, String)>,
    /// Those of which a result came from the cache at any time.
    hits: BTreeSet<String>,
    done: BTreeMap<&'static str, usize>,
}

impl Work {
    /// None yet. `digest` is that of the model.
    pub fn new(cluster: &Cluster, seed: u64, digest: String) -> Self {
        Self {
            kubectl: cluster.kubectl().clone(),
            root: cluster.directory().join("s3/artifacts/chaos"),
            seed,
            digest,
            compilations: Vec::new(),
            retained: Vec::new(),
            hits: BTreeSet::new(),
            done: BTreeMap::new(),
        }
    }

    /// `kubectl` in a compilation's namespace.
    pub fn kubectl(&self, compilation: &Compilation) -> Kubectl {
        self.kubectl.in_namespace(NAMESPACES[compilation.namespace])
    }

    /// How often users did what, in words.
    pub fn summary(&self) -> String {
        let done = self.done.iter().map(|(what, count)| format!("{what} {count}"));
        let done = done.chain([format!("cache hit {}", self.hits.len())]);
        done.collect::<Vec<_>>().join(", ")
    }

    /// What is stored in a folder.
    pub fn folder(&self, name: &str) -> Result<Folder> {
        Folder::read(&self.root.join(name))
    }

    /// What is stored in every folder, in words.
    pub fn stored(&self) -> Result<String> {
        let names: BTreeSet<&str> =
            self.compilations.iter().map(|one| one.folder.as_str()).collect();
        let folders =
            names.into_iter().map(|name| Ok(format!("{name}: {:#?}\n", self.folder(name)?)));
        folders.collect()
    }

    /// Where each compilation stands that is there, by its name.
    pub fn look(&mut self) -> Result<BTreeMap<String, Seen>> {
        let template = r#"{range .items[*]}{.metadata.name} {.metadata.generation} {.status.observedGeneration} {.status.phase} {.status.summary.cache}{"\n"}{end}"#;
        let text = eventually("the compilations", PATIENCE, || {
            self.kubectl.text("modelcompilations --all-namespaces", template).map(Some)
        })?;
        let hits = &mut self.hits;
        let seen = text.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (name, phase) = (*fields.first()?, fields.get(3).copied().unwrap_or_default());
            let newest = fields.get(1).is_some() && fields.get(1) == fields.get(2);
            let finished = newest && matches!(phase, "Succeeded" | "Failed");
            if finished && fields.get(4) == Some(&"Hit") {
                hits.insert(name.to_owned());
            }
            Some((name.to_owned(), Seen { finished, phase: phase.to_owned() }))
        });
        Ok(seen.collect())
    }

    /// Makes new ones for those that are finished, suspended or deleted.
    pub fn top_up(&mut self, seen: &BTreeMap<String, Seen>) -> Result<()> {
        let busy = |one: &&Compilation| {
            let finished = seen.get(&one.name).is_some_and(|seen| seen.finished);
            !one.deleted && !one.suspended && !finished
        };
        let mut under_way = self.compilations.iter().filter(busy).count();
        while under_way < UNDER_WAY {
            let mut one = Compilation::new(self.compilations.len(), self.seed);
            let manifest = one.manifest(&self.digest);
            let words = ["apply", "-f", "-", "-o", "jsonpath={.metadata.uid}"];
            one.uid = eventually("a compilation", PATIENCE, || {
                self.kubectl.run_with(&words, &manifest).map(Some)
            })?;
            self.compilations.push(one);
            under_way += 1;
        }
        Ok(())
    }

    /// One thing that a user does. What it is follows from the seed; to which compilation, also from what there is.
    pub fn disturb(
        &mut self,
        seen: &BTreeMap<String, Seen>,
        random: &mut Random,
    ) -> Result<String> {
        let (act, choice) = (random.below(10), random.bits());
        let there = |busy: bool| {
            let fits = |(_, one): &(usize, &Compilation)| {
                let finished = seen.get(&one.name).is_some_and(|seen| seen.finished);
                !one.deleted && (!busy || !finished)
            };
            let indices = self.compilations.iter().enumerate().filter(fits);
            let indices: Vec<usize> = indices.map(|(index, _)| index).collect();
            let picked = choice.checked_rem(indices.len() as u64);
            picked.and_then(|index| indices.get(index as usize).copied())
        };
        let picked = match act {
            0 | 1 => there(true).map(|index| ("edit while at work", index)),
            2 => there(false).map(|index| ("edit", index)),
            3 => there(false).map(|index| ("edit of the policy", index)),
            4 => there(true).map(|index| ("suspension", index)),
            5 => self.suspended(choice).map(|index| ("resumption", index)),
            6 => there(true).map(|index| ("deletion while at work", index)),
            7 => there(false).map(|index| ("deletion", index)),
            _ => None,
        };
        let Some((what, index)) = picked else { return Ok("no change".to_owned()) };
        let name = self.compilations[index].name.clone();
        let done = match what {
            "edit while at work" | "edit" => self.edit(index),
            "edit of the policy" => self.edit_policy(index),
            "suspension" => self.suspend(index, true).map(|()| true),
            "resumption" => self.suspend(index, false).map(|()| true),
            _ => self.delete(index),
        };
        match done.with_context(|| format!("{what} of {name}"))? {
            true => *self.done.entry(what).or_default() += 1,
            false => return Ok("no change".to_owned()),
        }
        Ok(format!("{what} of {name}"))
    }

    fn suspended(&self, choice: u64) -> Option<usize> {
        let suspended = |(_, one): &(usize, &Compilation)| one.suspended && !one.deleted;
        let indices = self.compilations.iter().enumerate().filter(suspended);
        let indices: Vec<usize> = indices.map(|(index, _)| index).collect();
        let picked = choice.checked_rem(indices.len() as u64)?;
        indices.get(picked as usize).copied()
    }

    fn patch(&self, index: usize, patch: &str) -> Result<()> {
        let one = &self.compilations[index];
        let object = format!("modelcompilation/{}", one.name);
        let words = ["patch", &object, "--type=merge", "-p", patch];
        eventually("the patch", PATIENCE, || self.kubectl(one).run(&words).map(Some)).map(drop)
    }

    /// Asks for another processor, so that another artifact takes the turn of the one that may be there.
    fn edit(&mut self, index: usize) -> Result<bool> {
        // The turn of a search is the same whatever it is for: one edit for each shows what there is to see.
        if self.compilations[index].kind == Kind::Tuned && self.compilations[index].edits > 0 {
            return Ok(false);
        }
        self.compilations[index].edits += 1;
        let targets = self.compilations[index].targets();
        self.patch(index, &format!("{{\"spec\": {{\"targets\": {targets}}}}}")).map(|()| true)
    }

    fn edit_policy(&mut self, index: usize) -> Result<bool> {
        let one = &mut self.compilations[index];
        one.deletes = !one.deletes;
        one.late_finalizer = one.deletes;
        let patch =
            format!("{{\"spec\": {{\"output\": {{\"deletionPolicy\": \"{}\"}}}}}}", one.policy());
        self.patch(index, &patch).map(|()| true)
    }

    /// Sets or clears `spec.suspend`.
    pub fn suspend(&mut self, index: usize, suspended: bool) -> Result<()> {
        self.compilations[index].suspended = suspended;
        self.patch(index, &format!("{{\"spec\": {{\"suspend\": {suspended}}}}}"))
    }

    /// Deletes a compilation without waiting for it to go; whether it did. What it stored and leaves is remembered.
    pub fn delete(&mut self, index: usize) -> Result<bool> {
        let one = self.compilations[index].clone();
        let kubectl = self.kubectl(&one);
        let object = format!("modelcompilation/{}", one.name);
        if one.late_finalizer {
            let finalizers = eventually("the finalizers", PATIENCE, || {
                kubectl.text(&object, "{.metadata.finalizers}").map(Some)
            })?;
            // An object without a finalizer is gone at once, so that nothing can be done for the policy.
            if finalizers.is_empty() {
                return Ok(false);
            }
        }
        if !one.deletes {
            let stored = self.folder(&one.folder)?.stored_by(&one.uid);
            let stored = stored.into_iter().map(|file| (one.uid.clone(), one.folder.clone(), file));
            self.retained.extend(stored);
        }
        let words = ["delete", &object, "--wait=false", "--ignore-not-found"];
        eventually("the deletion", PATIENCE, || kubectl.run(&words).map(Some))?;
        self.compilations[index].deleted = true;
        Ok(true)
    }
}
