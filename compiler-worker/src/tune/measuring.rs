//! What a search measures with, one thing at a time: this machine or its board, or the sessions of a fleet where the search
//! measures nothing itself.

use super::device::Device;
use super::devices::Measurer;
use super::fleet::{Fleet, Remotes};
use super::protocol::{Compare, Compared, Measured, Trials};
use crate::failure::Result;

/// This machine or its board, or sessions.
pub(super) enum Measuring<'a> {
    /// A process of this machine.
    Here(Box<Device>),
    /// Sessions.
    Elsewhere(Remotes<'a>),
}

impl<'a> Measuring<'a> {
    /// Any of the sessions of `fleet`.
    pub(super) fn elsewhere(fleet: &'a Fleet) -> Self {
        Self::Elsewhere(Remotes(fleet))
    }

    /// Waits until a board or a session answers, where one is needed.
    ///
    /// # Errors
    /// `DeviceLost` where the board does not, `NoSession` where no session does.
    pub(super) fn reach(&mut self) -> Result<()> {
        match self {
            Self::Here(device) => device.reach(),
            Self::Elsewhere(sessions) => sessions.reach(),
        }
    }

    /// What became of each candidate.
    ///
    /// # Errors
    /// A process that cannot be started; a board or sessions that do not answer.
    pub(super) fn trials(&mut self, trials: Trials) -> Result<Vec<Measured>> {
        match self {
            Self::Here(device) => device.trials(trials),
            Self::Elsewhere(sessions) => sessions.trials(&trials),
        }
    }

    /// Times of two artifacts in turn.
    ///
    /// # Errors
    /// `DeviceLost` where that cannot be done; sessions that do not answer.
    pub(super) fn compare(&mut self, compare: &Compare) -> Result<Compared> {
        match self {
            Self::Here(device) => device.compare(compare),
            Self::Elsewhere(sessions) => sessions.compare(compare),
        }
    }

    /// The process of this machine, as one of the devices of a search.
    pub(super) fn here(&mut self) -> Option<impl Measurer + '_> {
        match self {
            Self::Here(device) => Some(&mut **device),
            Self::Elsewhere(_) => None,
        }
    }

    /// Seconds in which code was made and executed here.
    pub(super) fn seconds(&self) -> (f64, f64) {
        match self {
            Self::Here(own) => (own.building.as_secs_f64(), own.executing.as_secs_f64()),
            Self::Elsewhere(_) => (0.0, 0.0),
        }
    }
}
