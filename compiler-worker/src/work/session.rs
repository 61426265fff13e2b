//! A session of a tuning run: candidates in, times out, for as long as the run has any.

use std::time::Duration;

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Session;

use super::search::refuse_elsewhere;
use crate::compiler;
use crate::failure::{Failure, Result};
use crate::storage::Access;
use crate::tune::Interrupt;
use crate::tune::fleet::{self, Serving};

/// Measures what the run's tuner asks for, until it is idle for too long.
///
/// # Errors
/// A name that is none; a target that is not this machine; what the log's store refuses; a request to end, after which
/// another pod goes on.
pub fn serve(request: &Session, access: &Access) -> Result<()> {
    if !fleet::is_name(&request.name) {
        let message = format!("'{}' is no name of a session: please report this", request.name);
        return Err(Failure::new(Reason::InvalidSpec, message));
    }
    let store = fleet::open_in_log(&request.log, access)?;
    let target = compiler::target(&request.target)?;
    refuse_elsewhere(&target)?;
    let interrupt = Interrupt::on_signals("note: the session ends when its round is answered");
    let serving = Serving {
        store: &store,
        name: request.name.clone(),
        target: &target,
        board: None,
        idle: Some(Duration::from_secs(request.idle_seconds)),
        limit: access.limit,
        interrupt: interrupt.clone(),
    };
    let served = serving.run()?;
    eprintln!("{} rounds with {} candidates were measured", served.rounds, served.candidates);
    if interrupt.is_asked() {
        let message = "the session was told to end; it is started again";
        return Err(Failure::new(Reason::Terminated, message));
    }
    Ok(())
}
