//! `hone session`: this machine as a device of others' searches.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use hone_artifact::exit_code::Reason;

use super::common::{AccessArguments, print};
use super::tune::{duration, measured_target};
use crate::failure::{Failure, Result};
use crate::storage::{Access, Destination};
use crate::tune::fleet::{self, Serving};
use crate::tune::{Board, Interrupt};

/// What `hone session` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Where a search asks for rounds: a folder that it sees, too, or s3://, gs:// or az:// and a folder there.
    #[arg(long, value_name = "STORE", required_unless_present = "pool", conflicts_with = "pool")]
    pub fleet: Option<String>,
    /// The DevicePool, of kind External, whose TuningRuns it measures for.
    #[arg(long, value_name = "NAME", requires = "store")]
    pub pool: Option<String>,
    /// The store of the sessions that the DevicePool names, in spec.sessions.uri.
    #[arg(long, value_name = "STORE", requires = "pool")]
    pub store: Option<String>,
    /// A folder with the store's credentials, a file for each variable.
    #[arg(long, value_name = "DIR")]
    pub credentials: Option<String>,
    /// The session's name, of lower-case letters, digits and hyphens; a new one without it.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// What code is made for: host, or os/arch[:cpu] of a board.
    #[arg(long, default_value = "host", value_name = "TARGET")]
    pub target: String,
    /// Another machine to measure on: its kind, and a command that reaches the runner there; see docs/tuning.md.
    #[arg(long, value_name = "KIND=COMMAND")]
    pub board: Option<Board>,
    /// End after so long without work, such as 10m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub idle: Option<Duration>,
    /// What may be fetched from.
    #[command(flatten)]
    pub access: AccessArguments,
}

/// Measures what is asked for until it is told to end or idle for too long.
///
/// # Errors
/// A name that is no name or that another session has; a store that fails time after time.
pub fn run(arguments: &Arguments) -> Result<()> {
    let name = arguments.name.clone().unwrap_or_else(Serving::new_name);
    if !fleet::is_name(&name) {
        let message = format!(
            "'{name}' is no name of a session: use up to 63 lower-case letters, digits and hyphens"
        );
        return Err(Failure::new(Reason::Usage, message));
    }
    let access = arguments.access.access(Path::new("."));
    let store = store(arguments, &access)?;
    let board = arguments.board.as_ref();
    let target = measured_target(&arguments.target, board)?;
    let _claim = board.map(Board::claim).transpose()?;
    eprintln!("note: session '{name}' waits at '{}' for code for {}", store.uri(""), target.cpu);
    let interrupt = Interrupt::on_signals("note: the session ends when its round is answered");
    let (store, target, idle) = (&store, &target, arguments.idle);
    let limit = access.limit;
    let serving = Serving { store, name, target, board, idle, limit, interrupt };
    let served = serving.run()?;
    print(&format!("{} rounds with {} candidates were measured", served.rounds, served.candidates))
}

/// Where the session waits.
fn store(arguments: &Arguments, access: &Access) -> Result<Destination> {
    let credentials = arguments.credentials.as_deref();
    match (&arguments.fleet, &arguments.store, &arguments.pool) {
        (Some(fleet), ..) => fleet::open(fleet, credentials, access),
        (None, Some(store), Some(pool)) => fleet::open_pool(store, pool, credentials, access),
        _ => {
            Err(Failure::new(Reason::Usage, "give --fleet STORE, or --store STORE and --pool NAME"))
        }
    }
}
