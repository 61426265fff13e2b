//! `hone tune`: a search for faster schedules.

use std::cell::Cell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use hone_artifact::exit_code::Reason;
use hone_artifact::request::LONGEST_SEARCH;
use hone_driver::Target;
use hone_search::{COST_MODELS, STRATEGIES};
use indicatif::{ProgressBar, ProgressStyle};

use super::common::{AccessArguments, CacheArguments, is_artifact, model, print, print_json};
use crate::compiler;
use crate::failure::{Failure, Result};
use crate::show::{table, units};
use crate::spec;
use crate::tune::fleet::{self, Fleet, Search};
use crate::tune::{Board, Interrupt, NOISE, Outcome, Session, Settings, Verdict, store};
use crate::work::Machine;

/// What `hone tune` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The model, an ONNX file.
    pub model: PathBuf,
    /// Most candidates to measure.
    #[arg(long, value_name = "N")]
    pub trials: Option<usize>,
    /// Longest time to search for, such as 10m, 90s or 1h; 10m where neither it nor --trials is given.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// End when a run is expected to take no longer than this, such as 2ms.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub goal: Option<Duration>,
    /// Threads to measure on; 0 for all.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
    /// Where random numbers start.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub seed: u64,
    /// Who proposes candidates: learned, genetic, annealing, random or grid.
    #[arg(long, default_value = "learned", value_name = "NAME", value_parser = strategy)]
    pub strategy: String,
    /// Who judges candidates for the learned and the annealing strategy: trees or neural.
    #[arg(long, default_value = COST_MODELS[0].0, value_name = "NAME", value_parser = cost_model)]
    pub cost_model: String,
    /// Seconds to measure each batch of candidates for.
    #[arg(long, default_value_t = 0.3, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: f64,
    /// Take nothing from records: neither trials of earlier runs nor what was learned of other models.
    #[arg(long)]
    pub cold: bool,
    /// What code is made for: host, or os/arch[:cpu] of a board.
    #[arg(long, default_value = "host", value_name = "TARGET")]
    pub target: String,
    /// Another machine to measure on: its kind, and a command that reaches the runner there; see docs/tuning.md.
    #[arg(long, value_name = "KIND=COMMAND")]
    pub board: Option<Board>,
    /// Where sessions (hone session) wait that measure beside this machine: a folder, or s3://, gs:// or az://.
    #[arg(long, value_name = "STORE")]
    pub fleet: Option<String>,
    /// A folder with the credentials of the fleet's store, a file for each variable.
    #[arg(long, value_name = "DIR", requires = "fleet")]
    pub fleet_credentials: Option<String>,
    /// Who measures: here (this machine or its board, and the sessions of --fleet beside it) or sessions (they alone).
    #[arg(long, default_value = "here", value_name = "WHO", value_enum)]
    pub measure: Measurers,
    /// With --measure sessions, the longest time without a session that answers, such as 10m.
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = duration)]
    pub wait: Duration,
    /// Longest time that a session may take for a round before it is set aside, such as 15m.
    #[arg(long, default_value = "15m", value_name = "TIME", value_parser = duration)]
    pub session_timeout: Duration,
    /// How far the times of a session may move before it is set aside, as a share; 2 for three times as long.
    #[arg(long, default_value_t = fleet::DRIFT, value_name = "SHARE", value_parser = drift)]
    pub session_drift: f64,
    /// The shape of an input with open dimensions.
    #[arg(long, value_name = "NAME=1,2,…")]
    pub shape: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// What may be fetched from.
    #[command(flatten)]
    pub access: AccessArguments,
    /// What is kept between calls.
    #[command(flatten)]
    pub cache: CacheArguments,
}

/// Who measures the candidates of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Measurers {
    /// This machine or its board, and the sessions of a fleet beside it.
    Here,
    /// The sessions of a fleet alone.
    Sessions,
}

/// A time above zero with its unit.
pub(super) fn duration(text: &str) -> std::result::Result<Duration, String> {
    let parsed: hone_crds::Duration =
        text.parse().map_err(|error: hone_crds::DurationError| error.to_string())?;
    match parsed.to_std() {
        zero if zero.is_zero() => Err("give a time above zero".to_owned()),
        time => Ok(time),
    }
}

fn strategy(text: &str) -> std::result::Result<String, String> {
    one_of(text, &STRATEGIES.map(|(name, _)| name))
}

fn cost_model(text: &str) -> std::result::Result<String, String> {
    one_of(text, &COST_MODELS.map(|(name, _)| name))
}

fn one_of(text: &str, names: &[&str]) -> std::result::Result<String, String> {
    match names.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("there are {}", names.join(", "))),
    }
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.001 to 60".to_owned()),
    }
}

fn drift(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.001..=1000.0).contains(&share) => Ok(share),
        _ => Err("give a share from 0.001 to 1000".to_owned()),
    }
}

/// Tunes and tells what came out.
///
/// # Errors
/// As for compiling; records that another run writes; a goal that was missed.
pub fn run(arguments: &Arguments) -> Result<()> {
    if is_artifact(&arguments.model)? {
        let message = format!(
            "'{}' is an artifact, whose schedules are fixed: give the model that it was compiled from",
            arguments.model.display()
        );
        return Err(Failure::new(Reason::Usage, message));
    }
    if arguments.trials == Some(0) {
        return Err(Failure::new(Reason::Usage, "--trials 0 measures nothing: give at least 1"));
    }
    let cache = arguments.cache.open()?;
    let (model, inputs) = model(&arguments.model, &arguments.shape, None, cache.folder())?;
    let inputs = compiler::one_size(&model, &inputs, "hone tune")?;
    let elsewhere = arguments.measure == Measurers::Sessions;
    refuse_no_sessions(arguments)?;
    let target = match elsewhere {
        true => compiler::target(&spec::target_from_text(&arguments.target)?)?,
        false => measured_target(&arguments.target, arguments.board.as_ref())?,
    };
    let _claim = arguments.board.as_ref().map(Board::claim).transpose()?;
    let settings = settings(arguments);
    let interrupt = Interrupt::on_ctrl_c();
    let fleet = fleet(arguments, &target, (&settings, &interrupt))?;
    let shown = Shown::new(&model.name);
    let session = Session {
        model: &model,
        inputs: &inputs,
        target: &target,
        board: arguments.board.as_ref(),
        cache: &cache,
        settings,
        earlier: &[],
        fleet: fleet.as_ref(),
        elsewhere,
        interrupt,
        tell: &|outcome, used| shown.tell(outcome, used),
    };
    let outcome = session.run()?;
    shown.finish();
    match arguments.json {
        true => print_json(&outcome)?,
        false => print(&text(&outcome, &cache.records_folder().display().to_string()))?,
    }
    reached(arguments, &outcome)
}

/// The sessions of the search, where it has any.
fn fleet(
    arguments: &Arguments,
    target: &Target,
    (settings, interrupt): (&Settings, &Interrupt),
) -> Result<Option<Fleet>> {
    let Some(text) = &arguments.fleet else { return Ok(None) };
    let access = arguments.access.access(Path::new("."));
    let store = fleet::open(text, arguments.fleet_credentials.as_deref(), &access)?;
    let here = || store::measured_on(arguments.board.as_ref());
    let search = Search {
        threads: settings.threads,
        timeout: settings.timeout,
        patience: arguments.wait,
        answer: arguments.session_timeout,
        drift: arguments.session_drift,
        interrupt: interrupt.clone(),
        ..Search::new(target, (arguments.measure == Measurers::Here).then(here))
    };
    Ok(Some(Fleet::new(store, search, None)))
}

/// Sessions alone can measure only where there is a place for them, and then no board is of use here.
fn refuse_no_sessions(arguments: &Arguments) -> Result<()> {
    let message = match (arguments.measure, &arguments.fleet, &arguments.board) {
        (Measurers::Sessions, None, _) => {
            "--measure sessions needs a place to meet them: add --fleet STORE"
        }
        (Measurers::Sessions, _, Some(_)) => {
            "--measure sessions measures on no board of this machine: give --board to hone session"
        }
        _ => return Ok(()),
    };
    Err(Failure::new(Reason::Usage, message))
}

/// What code is made for, which this machine or a board is to run.
pub(super) fn measured_target(text: &str, board: Option<&Board>) -> Result<Target> {
    let target = compiler::target(&spec::target_from_text(text)?)?;
    let is_here = || Machine::of(&hone_driver::manifest_target(&target)).is_here();
    if board.is_none() && !is_here() {
        let message = format!(
            "candidates for '{text}' run on a machine of it: name one with --board KIND=COMMAND"
        );
        return Err(Failure::new(Reason::Usage, message));
    }
    Ok(target)
}

fn settings(arguments: &Arguments) -> Settings {
    let unbounded = arguments.trials.is_none() && arguments.budget.is_none();
    Settings {
        trials: arguments.trials,
        budget: arguments.budget.or(unbounded.then_some(LONGEST_SEARCH)),
        earlier: Duration::ZERO,
        goal: arguments.goal.map(|goal| goal.as_secs_f64() * 1e9),
        patience: None,
        threads: arguments.threads,
        seed: arguments.seed,
        strategy: arguments.strategy.clone(),
        cost_model: arguments.cost_model.clone(),
        seconds: arguments.seconds,
        timeout: None,
        noise: NOISE,
        warm: !arguments.cold,
        whole: false,
    }
}

fn reached(arguments: &Arguments, outcome: &Outcome) -> Result<()> {
    let (Some(goal), Some((_, best))) = (arguments.goal, outcome.before_after()) else {
        return Ok(());
    };
    match u128::from(best) <= goal.as_nanos() {
        true => Ok(()),
        false => {
            let (best, goal) = (units::time(best), units::time(goal.as_nanos() as u64));
            let message = format!("a run takes {best}, the goal is {goal}; what was found is kept");
            Err(Failure::new(Reason::GoalMissed, message))
        }
    }
}

/// Rows of the table of programs.
const SHOWN: usize = 12;

fn text(outcome: &Outcome, records: &str) -> String {
    let mut table =
        table::table(&["program", "uses", "time", "trials", "best alone", "template", "kept"]);
    for task in outcome.tasks.iter().take(SHOWN) {
        let nodes: String = task.nodes.chars().take(40).collect();
        table.add_row(vec![
            nodes,
            task.uses.to_string(),
            units::time(task.nanoseconds as u64),
            task.trials.to_string(),
            units::share(task.best),
            task.template.clone(),
            if task.won { "yes" } else { "" }.to_owned(),
        ]);
    }
    let mut text = table.to_string();
    let rest = outcome.tasks.len().saturating_sub(SHOWN);
    if rest > 0 {
        text.push_str(&format!("\nand {rest} more programs"));
    }
    let failed: usize = outcome.failed.values().sum();
    text.push_str(&format!(
        "\n{} trials in {:.0} s ({:.1} a second), {failed} failed, {} from records; the search ended because {}\n",
        outcome.trials,
        outcome.seconds,
        outcome.trials as f64 / outcome.seconds.max(1e-9),
        outcome.resumed,
        outcome.ended,
    ));
    if let Some(devices) = outcome.by_device() {
        text.push_str(&format!("measured by {devices}\n"));
    }
    let (decided, won) = (outcome.decided(), outcome.winners);
    if let Some(verdict) = outcome.decision_rounds.last().filter(|_| decided > 0) {
        let all = outcome.decisions.len();
        text.push_str(&format!(
            "{}, other algorithms for {decided} of {all} convolutions\n",
            gain(verdict)
        ));
    }
    if let Some(verdict) = outcome.verdict.as_ref().filter(|_| won > 0) {
        text.push_str(&format!("{}, {won} new schedules\n", gain(verdict)));
    }
    if decided + won == 0 {
        text.push_str(
            "nothing that is surely faster in the whole network; schedules stay as they are\n",
        );
    }
    text.push_str(&format!("records   {records}\n"));
    text
}

/// What the network gained, in words.
fn gain(verdict: &Verdict) -> String {
    let [before, after] = [verdict.before, verdict.after].map(units::time);
    let (ratio, (low, high)) = (verdict.ratio, verdict.interval);
    format!(
        "{before} before, {after} after: {ratio:.3} of the time (95 % sure within {low:.3} and {high:.3})"
    )
}

/// How far the search is.
struct Shown {
    name: String,
    bar: Option<ProgressBar>,
    begin: Instant,
    last: Cell<Option<Instant>>,
}

/// Fraction of the search from where its pace says how long the rest takes.
const TELLING: f64 = 0.01;

/// Time between two lines where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

impl Shown {
    fn new(name: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:28} {msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_owned());
            bar
        });
        Self { name: name.to_owned(), bar, begin: Instant::now(), last: Cell::new(None) }
    }

    fn tell(&self, outcome: &Outcome, used: f64) {
        let time =
            |place: Option<&(usize, f64)>| units::time(place.map_or(0.0, |own| own.1) as u64);
        let left = match used >= TELLING {
            true => {
                let left = self.begin.elapsed().as_secs_f64() * (1.0 - used) / used;
                format!(", about {left:.0} s left")
            }
            false => String::new(),
        };
        let message = match outcome.curve.is_empty() {
            true => "algorithms of convolutions are compared in the whole network".to_owned(),
            false => format!(
                "{} trials, {} expected, {} at first{left}",
                outcome.trials,
                time(outcome.curve.last()),
                time(outcome.curve.first()),
            ),
        };
        match &self.bar {
            Some(bar) => {
                bar.set_position((used * 1000.0) as u64);
                bar.set_message(message);
            }
            None if self.last.get().is_none_or(|last| last.elapsed() >= BETWEEN_LINES) => {
                self.last.set(Some(Instant::now()));
                eprintln!("{}: {message}", self.name);
            }
            None => {}
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("10m").unwrap(), Duration::from_secs(600));
        assert_eq!(duration("1.5ms").unwrap(), Duration::from_micros(1500));
        for wrong in ["", "10", "ms", "-3s", "0s", "3 weeks", "infs", "99999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
