//! From a model to an artifact on this machine, by compiling or from the cache.

use std::path::PathBuf;

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Input;
use hone_artifact::{Manifest, Reader, RecordedDecision};
use hone_driver::{DataType, Graph, SchedulePolicy, Statistics, Target};
use hone_runtime::MappedFile;

use super::{Worker, artifact_key};
use crate::cache::Key;
use crate::compiler::{self, Model, Recipe};
use crate::failure::{Failure, Result};
use crate::storage::sha256;
use crate::tune::store::Recorded;

/// An artifact on this machine.
#[derive(Debug)]
pub struct Build {
    /// Where it lies.
    pub path: PathBuf,
    /// What it was found under, or would be.
    pub key: Key,
    /// Whether it was there already.
    pub hit: bool,
    /// The artifact's digest, where it was written now.
    digest: Option<String>,
    /// The model as imported, for each combination of sizes, where it was.
    pub references: Option<Vec<Graph>>,
    /// What the compiler did, where it did.
    pub statistics: Option<Statistics>,
}

impl Build {
    /// The sizes of each variant in words, such as `batch=4`, the largest first; an empty text where there is one.
    ///
    /// # Errors
    /// An artifact that cannot be read.
    pub fn sizes(&self) -> Result<Vec<String>> {
        let manifest = self.manifest()?;
        let label = |place: usize| {
            manifest.variants[place].shapes.as_ref().map(ToString::to_string).unwrap_or_default()
        };
        Ok(manifest.siblings(0).into_iter().map(label).collect())
    }

    /// The decisions about the graph that it was compiled with beside those of the analytic model.
    ///
    /// # Errors
    /// As for [`Build::manifest`].
    pub fn decisions(&self) -> Result<Vec<RecordedDecision>> {
        let variant = self.manifest()?.variants.into_iter().next();
        Ok(variant.and_then(|own| own.recipe).map(|own| own.decisions).unwrap_or_default())
    }

    /// What the artifact says of itself.
    ///
    /// # Errors
    /// An artifact that cannot be read.
    pub fn manifest(&self) -> Result<Manifest> {
        let bytes = self.bytes()?;
        let reader = Reader::new(&bytes).map_err(|error| {
            Failure::because(Reason::InvalidArtifact, "the artifact cannot be read", error)
        })?;
        Ok(reader.manifest().clone())
    }

    /// `sha256:…` of the artifact's `bytes`: reads all of them where it was not written just now.
    pub fn digest_of(&self, bytes: &[u8]) -> String {
        self.digest.clone().unwrap_or_else(|| sha256(bytes))
    }

    /// The artifact, mapped.
    ///
    /// # Errors
    /// What the file system refuses.
    pub fn bytes(&self) -> Result<MappedFile> {
        MappedFile::open(&self.path).map_err(|error| {
            Failure::io(format!("artifact '{}' cannot be read", self.path.display()), error)
        })
    }
}

/// Takes the artifact from the cache or compiles it into it.
///
/// # Errors
/// As for [`compiler::compile`]; a full disk.
pub fn build(
    worker: &Worker<'_>,
    model: &Model,
    inputs: &[Input],
    target: &Target,
    recipe: &Recipe,
) -> Result<Build> {
    let records = worker.records(target, recipe)?;
    let key = artifact_key(model, inputs, target, recipe, &records);
    if let Some(path) = known(worker, model, &key).filter(|path| is_sound(path)) {
        return Ok(Build {
            path,
            key,
            hit: true,
            digest: None,
            references: None,
            statistics: None,
        });
    }
    worker.progress.stage("parse");
    let parsed = compiler::parse(model, inputs)?;
    worker.progress.stage(match (recipe.schedules, recipe.precision) {
        (SchedulePolicy::Naive, _) => "compile naively",
        (SchedulePolicy::Analytic, DataType::F32) => "compile",
        (SchedulePolicy::Analytic, _) => "compile with narrow numbers",
    });
    let how = (target, recipe, &records);
    let compiled = compiler::compile_parsed(parsed, model, how, |writer, manifest| {
        worker.cache.keep_artifact(&key, |path| writer.write_file(manifest, path))
    })?;
    let (path, written) = compiled.artifact;
    Ok(Build {
        path,
        key,
        hit: false,
        digest: Some(written.digest),
        references: Some(compiled.references),
        statistics: Some(compiled.statistics),
    })
}

impl Worker<'_> {
    /// Where the artifact is kept, if it may be taken.
    pub fn known(
        &self,
        model: &Model,
        inputs: &[Input],
        target: &Target,
        recipe: &Recipe,
    ) -> Option<PathBuf> {
        // Records that cannot be read are a matter of building.
        let records = self.records(target, recipe).ok()?;
        known(self, model, &artifact_key(model, inputs, target, recipe, &records))
    }

    /// The schedules from tuning records that a recipe uses.
    fn records(&self, target: &Target, recipe: &Recipe) -> Result<Recorded> {
        match recipe.schedules {
            SchedulePolicy::Naive => Ok(Recorded::default()),
            // Records are of schedules for processors.
            SchedulePolicy::Analytic if target.accelerator.is_some() => Ok(Recorded::default()),
            SchedulePolicy::Analytic => self.cache.recorded(target),
        }
    }
}

/// Its digest says nothing of what a model keeps elsewhere, so that is never taken from the cache.
fn known(worker: &Worker<'_>, model: &Model, key: &Key) -> Option<PathBuf> {
    worker.cache.artifact(key).filter(|_| !model.has_external_data())
}

/// Whether a kept artifact is whole; one that is not is made again.
pub fn is_sound(path: &std::path::Path) -> bool {
    let Ok(bytes) = MappedFile::open(path) else { return false };
    Reader::new(&bytes).is_ok_and(|reader| reader.verify().is_ok())
}
