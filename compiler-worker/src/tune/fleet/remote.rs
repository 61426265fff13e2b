//! A session as a device, and all sessions as the one device that a search asks where it has none itself.

use std::path::Path;
use std::time::{Duration, Instant};

use hone_artifact::exit_code::Reason;

use super::trust::Verdict;
use super::tuner::Fleet;
use super::{
    Announcement, Answered, Asked, Comparison, FAULTS, LARGEST, Order, POLL, RESULTS, WORK, json,
};
use crate::failure::{Failure, Result};
use crate::tune::devices::Measurer;
use crate::tune::protocol::{Compare, Compared, Measured, Trials};

/// Sessions that are asked to compare before a search gives up: what one cannot hold in memory another may.
const TRIES: usize = 3;

/// A session of the fleet. Several of one session may be used at once: the session does their orders one by one, and so
/// need not wait for the next.
pub struct Remote<'a> {
    fleet: &'a Fleet,
    session: String,
    instance: String,
}

impl<'a> Remote<'a> {
    /// The session that announced itself so.
    pub(super) fn new(fleet: &'a Fleet, announcement: &Announcement) -> Self {
        let (session, instance) = (announcement.session.clone(), announcement.instance.clone());
        Self { fleet, session, instance }
    }

    /// Asks the session for one thing.
    fn ask(&self, asked: Asked) -> Result<Answered> {
        let search = &self.fleet.search;
        let milliseconds =
            |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let order = Order {
            target: search.target.clone(),
            threads: search.threads,
            timeout_milliseconds: search.timeout.map(milliseconds),
            asked,
        };
        let name = format!("{}-{:08}", self.fleet.run, self.fleet.number());
        let work = format!("{WORK}/{}/{name}.json", self.session);
        self.fleet.store.write_once(&work, &json(&order))?;
        self.wait(&name).inspect_err(|_| {
            // Nobody is to measure it any more.
            let _ = self.fleet.store.remove(&work);
        })
    }

    /// Waits for an answer, for as long as the session beats and does not stay at one order for too long.
    fn wait(&self, name: &str) -> Result<Answered> {
        let result = format!("{RESULTS}/{}/{name}.json", self.session);
        let since = Instant::now();
        loop {
            if self.fleet.wait(name)? {
                let bytes = self.answer(&result)?;
                let _ = self.fleet.store.remove(&result);
                return serde_json::from_slice(&bytes)
                    .map_err(|_| self.lost("its answer is not understood"));
            }
            match self.fleet.state(&self.session) {
                None => return Err(self.lost("it has fallen silent")),
                Some(own) if own.instance != self.instance => {
                    return Err(self.lost("another one of its name took over"));
                }
                Some(own) if !own.answers => return Err(self.lost("it has fallen silent")),
                Some(own) => {
                    let limit = self.fleet.search.answer;
                    if own.doing_since.max(since).elapsed() >= limit {
                        let why = format!("it hangs: no answer within {} s", limit.as_secs());
                        return Err(self.aside(&why));
                    }
                }
            }
        }
    }

    /// The bytes of an answer that is there. A store may fail for a moment.
    fn answer(&self, result: &str) -> Result<Vec<u8>> {
        let mut faults = 0;
        loop {
            match self.fleet.store.read(result, LARGEST) {
                Ok(bytes) => return bytes.ok_or_else(|| self.lost("its answer is gone")),
                Err(failure) if faults + 1 >= FAULTS => return Err(failure),
                Err(_) => faults += 1,
            }
            std::thread::sleep(POLL[1]);
        }
    }

    /// The session is gone; it may come again.
    fn lost(&self, why: &str) -> Failure {
        self.fleet.lose(&self.session, &self.instance);
        Failure::new(Reason::DeviceLost, format!("session '{}' is lost: {why}", self.session))
    }

    /// The session is there and not used any more.
    fn aside(&self, why: &str) -> Failure {
        self.fleet.set_aside(&self.session, why);
        self.is_aside(why)
    }

    fn is_aside(&self, why: &str) -> Failure {
        let message = format!("session '{}' is set aside: {why}", self.session);
        Failure::new(Reason::DeviceLost, message)
    }

    fn refuse_aside(&self) -> Result<()> {
        self.fleet.aside(&self.session).map_or(Ok(()), |why| Err(self.is_aside(&why)))
    }

    /// A round as the session answers it, believed or not.
    fn round(&self, trials: &Trials) -> Result<Vec<Measured>> {
        self.refuse_aside()?;
        match self.ask(Asked::Trials(trials.clone()))? {
            Answered { refused: Some(refused), .. } => Err(self.aside(&refused)),
            Answered { measured, .. } if measured.len() == trials.candidates.len() => Ok(measured),
            Answered { .. } => Err(self.aside("it answered for another number of candidates")),
        }
    }

    /// What keeps an answer from being used, where something does.
    fn doubt(&self, trials: &Trials, found: &[Measured]) -> Result<Option<String>> {
        let probe = match self.fleet.judge(&self.session, trials, found) {
            Verdict::Fits => return Ok(None),
            Verdict::Doubt(why) => return Ok(Some(why)),
            Verdict::Probe(probe) => probe,
        };
        let answered = self.round(&probe)?;
        match self.fleet.judge(&self.session, &probe, &answered) {
            Verdict::Doubt(why) => Ok(Some(why)),
            Verdict::Fits | Verdict::Probe(_) => {
                self.fleet.fits(&self.session, &probe, &answered);
                Ok(None)
            }
        }
    }

    /// Compares two artifacts.
    fn compare(&self, compare: &Compare) -> Result<Compared> {
        self.refuse_aside()?;
        let name = |path: &Path| self.fleet.send(path);
        let (ours, theirs) = (name(&compare.ours)?, name(&compare.theirs)?);
        let asked = Comparison { ours, theirs, seconds: compare.seconds };
        match self.ask(Asked::Compare(asked))? {
            Answered { compared: Some(compared), .. } => Ok(compared),
            Answered { refused, .. } => {
                let why = refused.unwrap_or_else(|| "it answered something else".to_owned());
                let message = format!("session '{}' compares nothing: {why}", self.session);
                Err(Failure::new(Reason::DeviceLost, message))
            }
        }
    }
}

impl Measurer for Remote<'_> {
    fn trials(&mut self, trials: Trials) -> Result<Vec<Measured>> {
        loop {
            let found = self.round(&trials)?;
            let Some(why) = self.doubt(&trials, &found)? else {
                self.fleet.fits(&self.session, &trials, &found);
                return Ok(found);
            };
            eprintln!("note: session '{}' measures once more: {why}", self.session);
            if self.fleet.doubt(&self.session, &why) {
                return Err(self.is_aside(&why));
            }
        }
    }
}

/// Whichever session of a fleet is believed, asked for one thing at a time.
pub struct Remotes<'a>(pub(in crate::tune) &'a Fleet);

impl Remotes<'_> {
    /// Waits for a session.
    ///
    /// # Errors
    /// As for [`Fleet::first`].
    pub(in crate::tune) fn reach(&self) -> Result<()> {
        self.0.first().map(drop)
    }

    /// What became of each candidate, on whichever session does not get lost over it.
    ///
    /// # Errors
    /// As for [`Fleet::first`].
    pub(in crate::tune) fn trials(&self, trials: &Trials) -> Result<Vec<Measured>> {
        loop {
            let mut session = self.0.remote(&self.0.first()?);
            match session.trials(trials.clone()) {
                Err(failure) if failure.reason == Reason::DeviceLost => {
                    eprintln!("note: {}", failure.chain());
                }
                done => return done,
            }
        }
    }

    /// Times of two artifacts in turn.
    ///
    /// # Errors
    /// As for [`Fleet::first`]; `DeviceLost` where several sessions could not do it.
    pub(in crate::tune) fn compare(&self, compare: &Compare) -> Result<Compared> {
        let mut tries = 0;
        loop {
            tries += 1;
            let session = self.0.remote(&self.0.first()?);
            match session.compare(compare) {
                Err(failure) if failure.reason == Reason::DeviceLost && tries < TRIES => {
                    eprintln!("note: {}", failure.chain());
                }
                done => return done,
            }
        }
    }
}
