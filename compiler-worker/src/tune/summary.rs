//! What is kept of a search beside its records: enough to show its curve in the report of a compilation.

use std::path::{Path, PathBuf};

use hone_artifact::request::Input;
use hone_artifact::write_atomically;
use hone_driver::Target;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::outcome::Outcome;
use super::store::target_key;
use crate::compiler::Model;
use crate::failure::Result;

/// The last search for a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Candidates measured.
    pub trials: usize,
    /// Seconds of searching.
    pub seconds: f64,
    /// After so many trials, the nanoseconds that a run was expected to take.
    pub curve: Vec<(usize, f64)>,
    /// Median nanoseconds of the network before and after, where something was tried in it.
    pub measured: Option<(u64, u64)>,
    /// New schedules and decisions about the graph that were kept.
    pub winners: usize,
    /// Why the search ended.
    pub ended: String,
}

impl Summary {
    /// Of an outcome.
    pub fn of(outcome: &Outcome) -> Self {
        Self {
            trials: outcome.trials,
            seconds: outcome.seconds,
            curve: outcome.curve.clone(),
            measured: outcome.before_after(),
            winners: outcome.winners + outcome.decided(),
            ended: outcome.ended.to_owned(),
        }
    }

    /// Keeps it in a folder of records.
    ///
    /// # Errors
    /// A full disk, and what else the file system refuses.
    pub fn keep(
        &self,
        folder: &Path,
        model: &Model,
        inputs: &[Input],
        target: &Target,
    ) -> Result<()> {
        // Plain data always has a JSON form.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        write_atomically(&path(folder, model, inputs, target), std::iter::once(bytes.as_slice()))?;
        Ok(())
    }

    /// The one that is kept, if it can be read.
    pub fn read(folder: &Path, model: &Model, inputs: &[Input], target: &Target) -> Option<Self> {
        let bytes = std::fs::read(path(folder, model, inputs, target)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

fn path(folder: &Path, model: &Model, inputs: &[Input], target: &Target) -> PathBuf {
    let key = json!([model.digest, inputs, target_key(target)]).to_string();
    let key = blake3::hash(key.as_bytes()).to_hex();
    folder.join(format!("search-{}.json", &key[..16]))
}
