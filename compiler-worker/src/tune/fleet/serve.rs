//! A session: measures what is asked of it, one round at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hone_artifact::exit_code::Reason;
use hone_driver::Target;

use super::artifacts::Fetched;
use super::{
    Announcement, Answered, Asked, BEAT, Comparison, FAULTS, LARGEST, Order, POLL, RESULTS,
    SESSIONS, WORK, json, key, names,
};
use crate::failure::{Failure, Result};
use crate::storage::Destination;
use crate::tune::board::Board;
use crate::tune::device::Device;
use crate::tune::interrupt::Interrupt;
use crate::tune::protocol::Compare;
use crate::tune::store;

/// Most candidates of a round that a session takes.
const MOST_CANDIDATES: usize = 256;
/// Most seconds of measuring that a session takes for a round.
const MOST_SECONDS: f64 = 600.0;

/// A session and where it waits.
pub struct Serving<'a> {
    /// Where orders come from.
    pub store: &'a Destination,
    /// Its name: one that no other session has.
    pub name: String,
    /// What it runs code for; this machine, or the board.
    pub target: &'a Target,
    /// What candidates run on, where that is not this machine.
    pub board: Option<&'a Board>,
    /// Ends after so long without work; never without it.
    pub idle: Option<Duration>,
    /// Most bytes of an artifact that it fetches.
    pub limit: u64,
    /// Whether it is to end, when the round under way is answered.
    pub interrupt: Interrupt,
}

/// What a session measures with, kept from order to order.
struct Bench {
    /// By threads and longest milliseconds of a candidate.
    device: Option<(usize, Option<u64>, Device)>,
    artifacts: Fetched,
    round_robin: RoundRobin,
}

/// What a session did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Rounds that it answered.
    pub rounds: usize,
    /// Candidates in them.
    pub candidates: usize,
}

impl Serving<'_> {
    /// A name that no other session has.
    pub fn new_name() -> String {
        super::unique()
    }

    /// Answers until it is interrupted or idle for too long. Its announcement and what is asked of it are gone then.
    ///
    /// # Errors
    /// A store that fails time after time; a name that another session has.
    pub fn run(&self) -> Result<Served> {
        self.refuse_taken_name()?;
        // Left by one of the same name that was killed.
        self.clear(WORK);
        self.clear(RESULTS);
        let (ended, doing) = (AtomicBool::new(false), Mutex::new(String::new()));
        let artifacts = Fetched::new(self.limit)?;
        let bench = Bench { device: None, artifacts, round_robin: RoundRobin::default() };
        let done = std::thread::scope(|scope| {
            let beats = scope.spawn(|| self.beat(&ended, &doing));
            let served = self.serve(&ended, &doing, bench);
            ended.store(true, Ordering::Relaxed);
            let lost = || Err(Failure::internal("the thread that announces the session ended"));
            beats.join().unwrap_or_else(|_| lost()).and(served)
        });
        let _ = self.store.remove(&self.announcement());
        // Answers stay: a tuner may be about to take them.
        self.clear(WORK);
        done
    }

    /// Two sessions of one name would measure the same orders.
    fn refuse_taken_name(&self) -> Result<()> {
        let path = self.announcement();
        let Some(before) = self.store.read(&path, LARGEST)? else { return Ok(()) };
        std::thread::sleep(2 * BEAT + BEAT / 2);
        if self.store.read(&path, LARGEST)?.is_none_or(|after| after == before) {
            return Ok(());
        }
        let message = format!(
            "a session named '{}' is there already: choose another name with --name",
            self.name
        );
        Err(Failure::new(Reason::Usage, message))
    }

    fn announcement(&self) -> String {
        format!("{SESSIONS}/{}.json", self.name)
    }

    /// Says again and again that the session is there.
    fn beat(&self, ended: &AtomicBool, doing: &Mutex<String>) -> Result<()> {
        let mut announcement = Announcement {
            session: self.name.clone(),
            instance: super::unique(),
            machine: store::measured_on(self.board),
            target: key(self.target),
            kind: self.board.map_or_else(|| self.target.cpu.clone(), |own| own.kind.clone()),
            compares: true,
            doing: String::new(),
            beat: 0,
        };
        let mut faults = 0;
        while !ended.load(Ordering::Relaxed) {
            announcement.beat += 1;
            announcement.doing = doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match self.store.overwrite(&self.announcement(), &json(&announcement)) {
                Ok(()) => faults = 0,
                Err(failure) => {
                    faults += 1;
                    if faults >= FAULTS {
                        ended.store(true, Ordering::Relaxed);
                        return Err(failure);
                    }
                }
            }
            // In parts, so that the end does not wait for a beat.
            let begin = Instant::now();
            while begin.elapsed() < BEAT && !ended.load(Ordering::Relaxed) {
                std::thread::sleep(BEAT / 20);
            }
        }
        Ok(())
    }

    fn serve(&self, ended: &AtomicBool, doing: &Mutex<String>, mut bench: Bench) -> Result<Served> {
        let mut served = Served::default();
        let (mut last, mut faults) = (Instant::now(), 0);
        loop {
            let over = self.idle.is_some_and(|idle| last.elapsed() >= idle);
            if over || self.interrupt.is_asked() || ended.load(Ordering::Relaxed) {
                return Ok(served);
            }
            match self.one(&mut bench, doing) {
                Ok(Some(candidates)) => {
                    served.rounds += 1;
                    served.candidates += candidates;
                    (last, faults) = (Instant::now(), 0);
                }
                Ok(None) => {
                    faults = 0;
                    // Quick while there is work, slow where there is none.
                    std::thread::sleep((last.elapsed() / 20).clamp(POLL[0], POLL[1]));
                }
                Err(failure) => {
                    faults += 1;
                    if faults >= FAULTS {
                        return Err(failure);
                    }
                    std::thread::sleep(POLL[1]);
                }
            }
        }
    }

    /// Answers one order, where there is one; how many candidates it had.
    fn one(&self, bench: &mut Bench, doing: &Mutex<String>) -> Result<Option<usize>> {
        let orders = names(self.store, &format!("{WORK}/{}", self.name))?;
        let Some(name) = bench.round_robin.next(&orders) else { return Ok(None) };
        let path = format!("{WORK}/{}/{name}.json", self.name);
        // The tuner may have taken it back.
        let Some(bytes) = self.store.read(&path, LARGEST)? else { return Ok(None) };
        let order = serde_json::from_slice::<Order>(&bytes)
            .map_err(|error| format!("the order is not understood: {error}"))
            .and_then(|order| self.refusal(&order).map_or(Ok(order), Err));
        let tell = |name: &str| {
            name.clone_into(&mut doing.lock().unwrap_or_else(PoisonError::into_inner));
        };
        tell(&name);
        let answered =
            order.and_then(|order| self.answer(order, bench).map_err(|failure| failure.chain()));
        tell("");
        let answered = answered.unwrap_or_else(|refused| Answered {
            measured: Vec::new(),
            compared: None,
            refused: Some(refused),
        });
        let candidates = answered.measured.len();
        let result = format!("{RESULTS}/{}/{name}.json", self.name);
        self.store.write_once(&result, &json(&answered))?;
        self.store.remove(&path)?;
        Ok(Some(candidates))
    }

    /// Why an order is not done.
    fn refusal(&self, order: &Order) -> Option<String> {
        let here = key(self.target);
        if order.target != here {
            return Some(format!("the order is for {}, this machine is {here}", order.target));
        }
        let (seconds, count) = match &order.asked {
            Asked::Trials(trials) => (trials.seconds, trials.candidates.len()),
            Asked::Compare(comparison) => (comparison.seconds, 0),
        };
        let fits = (0.0..=MOST_SECONDS).contains(&seconds) && count <= MOST_CANDIDATES;
        (!fits).then(|| {
            format!("a session takes {MOST_CANDIDATES} candidates and {MOST_SECONDS} s at once")
        })
    }

    /// Measures what an order asks for.
    fn answer(&self, order: Order, bench: &mut Bench) -> Result<Answered> {
        let wanted = (order.threads, order.timeout_milliseconds);
        let mut kept = bench.device.take().filter(|kept| (kept.0, kept.1) == wanted);
        let used = kept.get_or_insert_with(|| {
            let timeout = order.timeout_milliseconds.map(Duration::from_millis);
            (wanted.0, wanted.1, Device::new((self.target, self.board), order.threads, timeout))
        });
        let nothing = Answered { measured: Vec::new(), compared: None, refused: None };
        let answered = match order.asked {
            Asked::Trials(trials) => {
                used.2.trials(trials).map(|measured| Answered { measured, ..nothing })
            }
            Asked::Compare(Comparison { ours, theirs, seconds }) => {
                let mut file = |name: &str| bench.artifacts.file(self.store, name);
                let (ours, theirs) = (file(&ours)?, file(&theirs)?);
                let compared = used.2.compare(&Compare { ours, theirs, seconds });
                compared.map(|compared| Answered { compared: Some(compared), ..nothing })
            }
        };
        bench.device = kept;
        answered
    }

    /// Removes what lies in a folder of the session. What cannot be removed harms nobody.
    fn clear(&self, folder: &str) {
        let folder = format!("{folder}/{}", self.name);
        for name in names(self.store, &folder).unwrap_or_default() {
            let _ = self.store.remove(&format!("{folder}/{name}.json"));
        }
    }
}

/// Whose order is next: runs take round_robin, however many orders one of them has.
#[derive(Default)]
struct RoundRobin {
    served: HashMap<String, u64>,
    count: u64,
}

impl RoundRobin {
    fn next(&mut self, orders: &[String]) -> Option<String> {
        let run = |name: &String| name.split('-').next().unwrap_or_default().to_owned();
        let last = |name: &&String| self.served.get(&run(name)).copied().unwrap_or(0);
        // Of one run the first in order of their numbers: the names are sorted.
        let name = orders.iter().min_by_key(last)?.clone();
        self.count += 1;
        self.served.insert(run(&name), self.count);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_take_round_robin() {
        let mut round_robin = RoundRobin::default();
        let orders: Vec<String> =
            ["a-00000001", "a-00000002", "b-00000001"].map(str::to_owned).to_vec();
        let mut left = orders.clone();
        let mut taken = Vec::new();
        while let Some(name) = round_robin.next(&left) {
            left.retain(|other| *other != name);
            taken.push(name);
        }
        assert_eq!(taken, ["a-00000001", "b-00000001", "a-00000002"]);
    }
}
