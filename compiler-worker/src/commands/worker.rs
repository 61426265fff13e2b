//! `hone worker`: one request in, one artifact or a longer log and one report out. What a pod runs.
//!
//! No retries and no policy: the exit code says what kind of end it was, the termination message
//! what came out, and the operator decides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clap::Args;
use hone_artifact::exit_code::Reason;
use hone_artifact::report::{self, Report};
use hone_artifact::request::{Adopt, Delete, REQUEST_VARIABLE, Request, Work};
use hone_artifact::termination::{DEFAULT_PATH, PATH_VARIABLE, Termination};

use super::common::AccessArguments;
use crate::cache::Cache;
use crate::failure::{Failure, Result};
use crate::show::Progress;
use crate::storage::shared::{self, GivenUp};
use crate::storage::{Access, Destination, Guard, Places, local};
use crate::traces::Stages;
use crate::work::{OpenLog, Outcome, WorkOptions, Worker, serve};

/// What `hone worker` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The request as a file of JSON; without it, the environment variable HONE_REQUEST.
    #[arg(long, value_name = "FILE")]
    pub request: Option<PathBuf>,
    /// Where to leave the termination message.
    #[arg(long, env = PATH_VARIABLE, default_value = DEFAULT_PATH, value_name = "FILE")]
    pub termination: PathBuf,
    /// A writable folder for what lies between.
    #[arg(long, env = "HONE_SCRATCH", value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Where file:// may lead: the mounted volume.
    #[arg(long, env = "HONE_FILE_ROOT", default_value = "/models", value_name = "DIR")]
    pub file_root: PathBuf,
    /// Threads to measure on; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// Let object stores without a Secret ask the platform for the pod's own identity.
    #[arg(long, env = "HONE_WORKLOAD_IDENTITY")]
    pub workload_identity: bool,
    /// What may be fetched.
    #[command(flatten)]
    pub access: AccessArguments,
}

/// Largest request that is read.
const LARGEST_REQUEST: u64 = 1 << 20;

/// Does the work and leaves the termination message, however it ends.
///
/// # Errors
/// The work's.
pub fn run(arguments: &Arguments) -> Result<()> {
    let report =
        Arc::new(Mutex::new(Report::new(Default::default(), "", env!("CARGO_PKG_VERSION"))));
    let log = Arc::new(OpenLog::default());
    let spans = Stages::from_environment().map(Arc::new);
    let done = request(arguments).and_then(|request| {
        // A session ends by itself when its round is answered.
        if !matches!(request.work, Work::Session(_)) {
            let told = (arguments.termination.clone(), report.clone(), log.clone());
            end_when_told(told.0, told.1, told.2, spans.clone());
        }
        work(arguments, &request, &report, &log, spans.clone())
    });
    let report = match report.lock() {
        Ok(report) => report.clone(),
        Err(poisoned) => poisoned.into_inner().clone(),
    };
    let report = match &done {
        Ok(()) => report,
        Err(failure) => report.fail(failure.reason, failure.chain()),
    };
    leave(&arguments.termination, &report);
    if let Some(spans) = spans {
        spans.finish(done.as_ref().err().map(|failure| failure.reason));
    }
    done
}

fn work(
    arguments: &Arguments,
    request: &Request,
    report: &Mutex<Report>,
    log: &OpenLog,
    spans: Option<Arc<Stages>>,
) -> Result<()> {
    if let Some(spans) = &spans {
        spans.describe(vec![
            ("k8s.namespace.name", request.subject.namespace.clone()),
            ("hone.compilation", request.subject.name.clone()),
        ]);
    }
    let access = Access {
        places: Places {
            folder: arguments.file_root.clone(),
            roots: Some(vec![arguments.file_root.clone()]),
        },
        guard: Guard::new(&arguments.access.fetch_allow).with_identity(arguments.workload_identity),
        limit: arguments.access.max_bytes,
    };
    let scratch = arguments.scratch.clone().unwrap_or_else(std::env::temp_dir);
    match &request.work {
        Work::Delete(delete) => {
            note(report, |report| report.subject = request.subject.clone());
            self::delete(delete, &request.subject.uid, &access)
        }
        Work::Tune(tune) => {
            note(report, |report| report.subject = request.subject.clone());
            let cannot = |error| Failure::io("a folder for records cannot be made", error);
            std::fs::create_dir_all(&scratch).map_err(cannot)?;
            // What the log holds is all that the search may know.
            let records = tempfile::tempdir_in(&scratch).map_err(cannot)?;
            let cache = Cache::open(Some(&scratch.join("hone-cache")), true)?;
            let cache = cache.with_records(Some(records.path()));
            let progress = Progress::new(&request.subject.name).with_spans(spans);
            let options = WorkOptions { threads: arguments.threads, ..WorkOptions::default() };
            let worker = Worker { access: &access, cache: &cache, progress: &progress, options };
            worker.search(tune, log, report)
        }
        Work::Session(session) => {
            note(report, |report| report.subject = request.subject.clone());
            serve(session, &access)
        }
        Work::Adopt(adopt) => {
            note(report, |report| report.subject = request.subject.clone());
            self::adopt(adopt, &request.subject.uid, &access)
        }
        Work::Compile(compile) => {
            let cache = Cache::open(Some(&scratch.join("hone-cache")), true)?;
            let progress = Progress::new(&compile.target.name).with_spans(spans);
            let options = WorkOptions {
                threads: arguments.threads,
                given_device: compile.target.pool.is_some(),
                ..WorkOptions::default()
            };
            let worker = Worker { access: &access, cache: &cache, progress: &progress, options };
            let mut outcome = Outcome::new(request.subject.clone(), &compile.target.name);
            note(report, |report| *report = outcome.report.clone());
            let done = worker.run(compile, &mut outcome);
            note(report, |report| *report = outcome.report.clone());
            done
        }
    }
}

fn note(report: &Mutex<Report>, change: impl FnOnce(&mut Report)) {
    if let Ok(mut report) = report.lock() {
        change(&mut report);
    }
}

fn request(arguments: &Arguments) -> Result<Request> {
    let text = match &arguments.request {
        Some(path) => {
            let bytes = local::read(path, LARGEST_REQUEST)?;
            String::from_utf8_lossy(&bytes).into_owned()
        }
        None => std::env::var(REQUEST_VARIABLE).map_err(|_| {
            let message = format!("there is no request: set {REQUEST_VARIABLE} or give --request");
            Failure::new(Reason::InvalidSpec, message)
        })?,
    };
    Request::from_json(&text)
        .map_err(|error| Failure::because(Reason::InvalidSpec, "the work cannot be begun", error))
}

/// Enters compilation `uid` as an owner of an artifact that is there; where it is not, nothing is changed.
fn adopt(adopt: &Adopt, uid: &str, access: &Access) -> Result<()> {
    let Adopt { uri, size_bytes, credentials } = adopt;
    let (folder, name) = split(uri)?;
    let place = Destination::open(folder, credentials.as_deref(), access)?;
    shared::adopt(&place, name, *size_bytes, uid)?;
    eprintln!("found {uri}");
    Ok(())
}

/// Folder and name of an object.
fn split(uri: &str) -> Result<(&str, &str)> {
    let message = || Failure::new(Reason::InvalidSpec, format!("'{uri}' names no object"));
    uri.rsplit_once('/').ok_or_else(message)
}

/// Gives up what compilation `uid` owns, as much as goes, and fails for the first that does not: the reports of its own
/// are deleted, and artifacts that nobody else owns.
fn delete(delete: &Delete, uid: &str, access: &Access) -> Result<()> {
    let mut folders: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for uri in &delete.uris {
        let (folder, name) = split(uri)?;
        folders.entry(folder).or_default().insert(name.to_owned());
    }
    if let Some(folder) = &delete.folder {
        folders.entry(folder.trim_end_matches('/')).or_default();
    }
    let mut failed = None;
    for (folder, named) in folders {
        if let Err(failure) = clean_up(folder, named, delete, uid, access) {
            eprintln!("error[{}]: {}", failure.reason, failure.chain());
            failed.get_or_insert(failure);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Gives up what `uid` owns in one folder, and what is `named` there.
fn clean_up(
    folder: &str,
    mut named: BTreeSet<String>,
    delete: &Delete,
    uid: &str,
    access: &Access,
) -> Result<()> {
    let place = Destination::open(folder, delete.credentials.as_deref(), access)?;
    match shared::depart(&place, uid) {
        Ok(names) => named.extend(names),
        // Who may not list still gives up what the operator knows of.
        Err(failure) if failure.reason == Reason::AccessDenied && !named.is_empty() => {
            eprintln!("warning: {}", failure.chain());
        }
        Err(failure) => return Err(failure),
    }
    let mut failed = None;
    for name in &named {
        // The operator names an artifact as its worker did.
        let uris = [format!("{folder}/{name}"), place.uri(name)];
        let heirs = uris.iter().find_map(|uri| delete.heirs.get(uri));
        let heirs = heirs.map_or(&[][..], Vec::as_slice);
        if let Err(failure) = give_up(&place, name, uid, heirs) {
            eprintln!("error[{}]: {}", failure.reason, failure.chain());
            failed.get_or_insert(failure);
        }
    }
    failed.map_or(Ok(()), Err)
}

fn give_up(place: &Destination, name: &str, uid: &str, heirs: &[String]) -> Result<()> {
    let stem = report::stem(name.strip_suffix(".hone").unwrap_or(name), uid);
    // The artifact last: while it is there, another try finds everything by it.
    for report in [format!("{stem}.json"), format!("{stem}.html")] {
        place.remove(&report)?;
        eprintln!("deleted {}", place.uri(&report));
    }
    match shared::give_up(place, name, uid, heirs)? {
        GivenUp::Deleted => eprintln!("deleted {}", place.uri(name)),
        GivenUp::Kept => eprintln!("left {}, which others own", place.uri(name)),
    }
    Ok(())
}

/// Writes the message. Kubernetes made the file and reads it in place, so it is not renamed over.
fn leave(path: &Path, report: &Report) {
    let message = Termination::from(report).to_message();
    if let Err(error) = std::fs::write(path, message) {
        // Without the message the operator still has the exit code and the log.
        eprintln!("termination message '{}' cannot be written: {error}", path.display());
    }
}

/// Ends in good order when the pod is told to: the first process of a container has no default for
/// signals, and would be killed after the grace period without a word.
///
/// A tuning run writes what was measured so far first.
fn end_when_told(
    termination: PathBuf,
    report: Arc<Mutex<Report>>,
    log: Arc<OpenLog>,
    spans: Option<Arc<Stages>>,
) {
    use tokio::signal::unix::{SignalKind, signal};
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        let reason = runtime.block_on(async {
            let (Ok(mut terminate), Ok(mut interrupt)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return None;
            };
            Some(tokio::select! {
                _ = terminate.recv() => Reason::Terminated,
                _ = interrupt.recv() => Reason::Interrupted,
            })
        });
        let Some(reason) = reason else { return };
        let log = log.lock().ok().and_then(|log| log.clone());
        if let Some(log) = log {
            if let Err(failure) = log.flush() {
                eprintln!("error[{}]: {}", failure.reason, failure.chain());
            }
            note(&report, |report| report.tuning = Some(log.report()));
        }
        let report = report.lock().map(|report| report.clone());
        if let Ok(report) = report {
            leave(
                &termination,
                &report.fail(reason, "the worker was told to end; it is tried again"),
            );
        }
        if let Some(spans) = spans {
            spans.finish(Some(reason));
        }
        std::process::exit(i32::from(reason.code()));
    });
}
