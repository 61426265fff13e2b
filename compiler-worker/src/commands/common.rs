//! What several subcommands share.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use hone_artifact::exit_code::Reason;
use hone_artifact::{MAGIC, Reader};
use hone_driver::DataType;
use serde::Serialize;

use crate::binding::Arrays;
use crate::cache::Cache;
use crate::compiler::{self, Model, Recipe};
use crate::failure::{Failure, Result};
use crate::show::Progress;
use crate::spec;
use crate::storage::{Access, Fetched, Guard, Places, local};
use crate::work::{WorkOptions, Worker, build, is_sound};

/// What may be fetched.
#[derive(Args, Clone, Debug)]
pub struct AccessArguments {
    /// Hosts, networks and buckets (`s3://name`) that may be fetched from although they are private.
    #[arg(long, env = "HONE_FETCH_ALLOW", value_delimiter = ',', value_name = "HOST")]
    pub fetch_allow: Vec<String>,
    /// Most bytes of one fetched file.
    #[arg(long, default_value_t = 8 << 30, value_name = "BYTES")]
    pub max_bytes: u64,
}

impl AccessArguments {
    /// Access for a person at this machine, with relative paths from `folder`.
    pub fn access(&self, folder: &Path) -> Access {
        Access {
            places: Places::at(folder),
            guard: Guard::new(&self.fetch_allow),
            limit: self.max_bytes,
        }
    }
}

/// What is kept between calls.
#[derive(Args, Clone, Debug)]
pub struct CacheArguments {
    /// Where earlier results are kept; by default $HONE_CACHE, or hone in the user's cache folder.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Most bytes of earlier results; what was used longest ago is removed first. 0 is no limit.
    #[arg(long, env = "HONE_CACHE_LIMIT", default_value_t = 20 << 30, value_name = "BYTES")]
    pub cache_limit: u64,
    /// Do the work even where its result is known.
    #[arg(long)]
    pub force: bool,
    /// Where tuning records lie; by default $HONE_RECORDS, or records in the cache's folder.
    #[arg(long, env = "HONE_RECORDS", value_name = "DIR")]
    pub records: Option<PathBuf>,
}

impl CacheArguments {
    /// Opens it.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn open(&self) -> Result<Cache> {
        let cache = Cache::open(self.cache.as_deref(), !self.force)?;
        Ok(cache.with_limit(self.cache_limit).with_records(self.records.as_deref()))
    }
}

/// A model or an artifact on this machine.
#[derive(Debug)]
pub struct Subject {
    /// The artifact: the file given, or what it was compiled to.
    pub path: PathBuf,
    /// Time that compiling took, or looking it up.
    pub compile: Duration,
}

/// Whether a file is an artifact, by its name or its first bytes; else it counts as a model.
///
/// # Errors
/// Where the file cannot be read.
pub fn is_artifact(path: &Path) -> Result<bool> {
    let mut head = [0; MAGIC.len()];
    let cannot = |error| Failure::io(format!("'{}' cannot be opened", path.display()), error);
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    if !metadata.is_file() {
        let message =
            format!("'{}' is not a regular file: name a model or an artifact", path.display());
        return Err(Failure::new(Reason::InvalidInput, message));
    }
    let mut file = File::open(path).map_err(cannot)?;
    let whole = file.read_exact(&mut head).is_ok();
    Ok(path.extension().is_some_and(|extension| extension == "hone") || (whole && head == MAGIC))
}

/// The arithmetic that a word of the command line names.
///
/// # Errors
/// In words, for one that code cannot be made for.
pub fn precision(text: &str) -> std::result::Result<DataType, String> {
    match text.parse() {
        Ok(known @ (DataType::F32 | DataType::BF16)) => Ok(known),
        _ => Err("use f32 or bf16".to_owned()),
    }
}

/// The artifact itself, or what a model compiles to for this machine; `arrays` bind its open dimensions.
///
/// # Errors
/// As for compiling.
pub fn subject(
    path: &Path,
    shapes: &[String],
    arrays: Option<&Arrays>,
    precision: DataType,
    cache: &CacheArguments,
) -> Result<Subject> {
    if is_artifact(path)? {
        return Ok(Subject { path: path.to_path_buf(), compile: Duration::ZERO });
    }
    let begin = Instant::now();
    let request = spec::target_from_text("host")?;
    let target = compiler::target(&request)?;
    let (cache, progress) = (cache.open()?, Progress::silent());
    let access = Access { places: Places::at("."), guard: Guard::default(), limit: u64::MAX };
    let options = WorkOptions::default();
    let worker = Worker { access: &access, cache: &cache, progress: &progress, options };
    let recipe = Recipe::analytic(precision);
    let (model, inputs) = model(path, shapes, arrays, cache.folder())?;
    let kept = worker.known(&model, &inputs, &target, &recipe);
    if let Some(path) = kept.filter(|path| is_sound(path)) {
        return Ok(Subject { path, compile: begin.elapsed() });
    }
    let built = build(&worker, &model, &inputs, &target, &recipe)?;
    Ok(Subject { path: built.path, compile: begin.elapsed() })
}

/// A model's file, which is copied into one without a name in `folder` where it is large, and the shapes that bind its
/// inputs: those of `shapes`, and of `arrays` for others.
///
/// # Errors
/// Where it cannot be read, a shape is not understood, or the arrays do not fit.
pub fn model(
    path: &Path,
    shapes: &[String],
    arrays: Option<&Arrays>,
    folder: &Path,
) -> Result<(Model, Vec<hone_artifact::request::Input>)> {
    let Fetched { bytes, files, digest } = local::fetch(path, folder)?;
    let spec = spec::from_model(path, "host", shapes, Path::new("."))?;
    let inputs = spec.requests.into_iter().flat_map(|request| request.inputs).collect();
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let name =
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let model = Model { name, bytes, files, digest, folder: Some(folder) };
    let inputs = match arrays {
        Some(arrays) => arrays.bind(&compiler::signature(&model)?, inputs)?,
        None => inputs,
    };
    Ok((model, inputs))
}

/// Opens and checks an artifact's bytes.
///
/// # Errors
/// `InvalidArtifact`, naming the file.
pub fn reader<'a>(path: &Path, bytes: &'a [u8]) -> Result<Reader<'a>> {
    let damaged = |error| {
        let message = format!("artifact '{}' cannot be used", path.display());
        Failure::because(Reason::InvalidArtifact, message, error)
    };
    let reader = Reader::new(bytes).map_err(damaged)?;
    reader.verify().map_err(damaged)?;
    Ok(reader)
}

/// Writes to standard output. Who closes it early has seen enough.
///
/// # Errors
/// A full disk behind it, and the like.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        out.write_all(end.as_bytes()).and_then(|()| out.flush())
    });
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output cannot be written", error))
        }
        _ => Ok(()),
    }
}

/// Writes a value as JSON to standard output.
///
/// # Errors
/// As for [`print`].
pub fn print_json(value: &impl Serialize) -> Result<()> {
    // Plain data always has a JSON form.
    print(&serde_json::to_string_pretty(value).unwrap_or_default())
}
