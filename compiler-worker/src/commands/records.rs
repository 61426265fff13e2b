//! `hone records`: what tuning found, as files.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use hone_artifact::exit_code::Reason;
use hone_search::{Kind, Log, Migrated, Record, SCHEMA, autotvm, read_file};

use super::accuracy;
use super::common::{CacheArguments, print, print_json};
use crate::compiler;
use crate::failure::{Failure, Result};
use crate::show::{table, units};
use crate::spec;
use crate::tune::store;

/// What `hone records` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to do with records.
    #[command(subcommand)]
    pub action: Action,
    /// Where tuning records lie; by default $HONE_RECORDS, or records in the cache's folder.
    #[arg(long, env = "HONE_RECORDS", value_name = "DIR", global = true)]
    pub records: Option<PathBuf>,
    /// Where earlier results are kept; by default $HONE_CACHE, or hone in the user's cache folder.
    #[arg(long, value_name = "DIR", global = true)]
    pub cache: Option<PathBuf>,
}

/// What can be done with records.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Count the trials and winners of each program.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the schedules that compilations for a target use.
    Best {
        /// host, or os/arch with an optional :cpu.
        #[arg(long, default_value = "host")]
        target: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the lines of several files into a new one, each once.
    Merge {
        /// The file to write.
        out: PathBuf,
        /// The files to read.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Write the winners of all programs into a new file, to be given to others.
    Export {
        /// The file to write.
        out: PathBuf,
        /// Write trials, too, from which others' cost models learn.
        #[arg(long)]
        trials: bool,
    },
    /// Take the records of a file into the folder, those that are not there yet; of a log of AutoTVM (version 0.2) what a
    /// search can begin with.
    Import {
        /// The file to read.
        file: PathBuf,
    },
    /// Write the folder's records of earlier versions again as this version writes them.
    Migrate,
    /// Measure how well the cost model puts candidates in order that it did not learn from.
    Accuracy {
        /// Files of records, one of each network; by default the folder's.
        files: Vec<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Does it.
///
/// # Errors
/// Files that cannot be read or written, or that hold no record.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { records, cache, .. } = arguments;
    let kept = CacheArguments {
        cache: cache.clone(),
        cache_limit: 0,
        force: false,
        records: records.clone(),
    };
    let folder = kept.open()?.records_folder();
    match &arguments.action {
        Action::List { json } => list(&store::read(&folder)?, *json),
        Action::Best { target, json } => {
            let target = compiler::target(&spec::target_from_text(target)?)?;
            let winners = store::winners(&store::read(&folder)?, &target).by_program;
            if *json {
                return print_json(&winners);
            }
            let mut table = table::table(&["program", "template", "decisions"]);
            for (program, own) in winners {
                let choices = own.choices.iter().map(|own| format!("{} {}", own.0, own.1));
                let choices: Vec<String> = choices.collect();
                table.add_row(vec![program, own.template, choices.join(", ")]);
            }
            print(&table.to_string())
        }
        Action::Merge { out, files } => {
            let mut all = Vec::new();
            for file in files {
                all.extend(records_of(file)?);
            }
            let written = write_new(out, all)?;
            print(&format!("{written} records in {}", out.display()))
        }
        Action::Export { out, trials } => {
            let mut records = store::read(&folder)?;
            records.retain(|own| *trials || own.kind == Kind::Winner);
            if records.is_empty() {
                let message =
                    format!("there is nothing to export in '{}': tune first", folder.display());
                return Err(Failure::new(Reason::NotFound, message));
            }
            let written = write_new(out, records)?;
            print(&format!("{written} records in {}", out.display()))
        }
        Action::Import { file } => import(&folder, file),
        Action::Migrate => migrate(&folder),
        Action::Accuracy { files, json } => {
            let files = match files.is_empty() {
                true => files_of(&folder)?,
                false => files.clone(),
            };
            accuracy::run(&files, *json)
        }
    }
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let names = hone_search::file_names(folder).map_err(store::failed)?;
    Ok(names.iter().map(|name| folder.join(name)).collect())
}

/// Every file of the folder by itself: one that another run writes stays as it is, and ends the command.
fn migrate(folder: &Path) -> Result<()> {
    let mut total = Migrated { changed: 0, records: 0 };
    for name in hone_search::file_names(folder).map_err(store::failed)? {
        let Migrated { changed, records } =
            hone_search::migrate(folder, &name).map_err(store::failed)?;
        total.changed += changed;
        total.records += records;
    }
    print(&format!(
        "{} of {} records in {} were of an earlier schema and are of schema {SCHEMA} now",
        total.changed,
        total.records,
        folder.display()
    ))
}

/// The records of a file; one that has none is refused.
pub(super) fn records_of(file: &Path) -> Result<Vec<Record>> {
    let (records, skipped) = read_file(file).map_err(store::failed)?;
    store::tell_skipped(&skipped);
    match (records.is_empty(), skipped.first()) {
        (true, first) => {
            let why =
                first.map_or(String::new(), |own| format!(": line {}: {}", own.line, own.reason));
            let message = format!("'{}' holds no tuning record{why}", file.display());
            Err(Failure::new(Reason::InvalidInput, message))
        }
        (false, _) => Ok(records),
    }
}

fn line(record: &Record) -> String {
    // Plain data always has a JSON form.
    serde_json::to_string(record).unwrap_or_default()
}

/// Writes a file that must not be there yet; how many records it has.
fn write_new(out: &Path, records: Vec<Record>) -> Result<usize> {
    let cannot = |error| Failure::io(format!("'{}' cannot be written", out.display()), error);
    let mut known = HashSet::new();
    let lines: Vec<String> =
        records.iter().map(line).filter(|line| known.insert(line.clone())).collect();
    let mut file = OpenOptions::new().write(true).create_new(true).open(out).map_err(|error| {
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => Failure::new(
                Reason::InvalidInput,
                format!("'{}' is there already: choose another name", out.display()),
            ),
            _ => cannot(error),
        }
    })?;
    file.write_all(format!("{}\n", lines.join("\n")).as_bytes()).map_err(cannot)?;
    Ok(lines.len())
}

fn import(folder: &Path, file: &Path) -> Result<()> {
    if autotvm::is_log(file).map_err(store::failed)? {
        return import_log(folder, file);
    }
    let new = records_of(file)?;
    let count = append_new(folder, &new, &line)?;
    print(&format!("{count} new records of {} in {}", new.len(), folder.display()))
}

/// Appends the records whose `key` no record of the folder has; how many these are.
fn append_new(folder: &Path, new: &[Record], key: &dyn Fn(&Record) -> String) -> Result<usize> {
    let known: HashSet<String> = store::read(folder)?.iter().map(key).collect();
    let mut log = Log::open(folder, "imported.jsonl").map_err(store::failed)?;
    let mut count = 0;
    for record in new.iter().filter(|own| !known.contains(&key(own))) {
        log.append(record).map_err(store::failed)?;
        count += 1;
    }
    log.sync().map_err(store::failed)?;
    Ok(count)
}

/// Takes what a search can begin with from a log of AutoTVM, and says what became of the other lines.
fn import_log(folder: &Path, file: &Path) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |own| own.as_secs());
    let found = autotvm::read_log(file, now).map_err(store::failed)?;
    // The time of the import makes no other record of a line.
    let key = |record: &Record| line(&Record { time: 0, ..record.clone() });
    let count = match found.records.is_empty() {
        true => 0,
        false => append_new(folder, &found.records, &key)?,
    };
    let mut text = format!(
        "{count} new records of {} lines of AutoTVM in {}: searches begin with them",
        found.lines,
        folder.display()
    );
    for (why, lines) in &found.left_out {
        text.push_str(&format!("\n{lines} lines are left out: {why}"));
    }
    print(&text)
}

fn list(records: &[Record], json: bool) -> Result<()> {
    let mut programs: Vec<(&str, Vec<&Record>)> = Vec::new();
    for record in records {
        match programs.iter_mut().find(|(program, _)| *program == record.program) {
            Some((_, known)) => known.push(record),
            None => programs.push((&record.program, vec![record])),
        }
    }
    let rows = programs.iter().map(|(program, records)| {
        let best = records.iter().filter_map(|own| own.ratio).fold(f64::INFINITY, f64::min);
        let winner = records.iter().rfind(|own| own.kind == Kind::Winner);
        let trials = records.iter().filter(|own| own.kind == Kind::Trial).count();
        (*program, records[0], trials, best, winner)
    });
    if json {
        let rows: Vec<_> = rows
            .map(|(program, first, trials, best, winner)| {
                serde_json::json!({
                    "program": program, "nodes": first.nodes, "target": first.target,
                    "trials": trials, "best": best.is_finite().then_some(best),
                    "winner": winner.map(|own| &own.template),
                })
            })
            .collect();
        return print_json(&rows);
    }
    let mut table = table::table(&["program", "nodes", "trials", "best alone", "winner"]);
    for (program, first, trials, best, winner) in rows {
        // Structures are words; of a digest its beginning tells it apart.
        let letters = if program.contains(' ') { 44 } else { 12 };
        table.add_row(vec![
            program.chars().take(letters).collect(),
            first.nodes.chars().take(40).collect(),
            trials.to_string(),
            if best.is_finite() { units::share(best) } else { "–".to_owned() },
            winner.map_or(String::new(), |own| own.template.clone()),
        ]);
    }
    print(&table.to_string())
}
