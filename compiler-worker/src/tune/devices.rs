//! The devices of one search: this machine, where it measures, and the sessions of a fleet. Each does rounds by itself, on a thread of
//! its own; a round that a lost session had is done by another device, and counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use hone_search::Candidate;

use super::fleet::Fleet;
use super::protocol::{Measured, Trials};
use super::searched::spread;
use crate::failure::{Failure, Result};

/// Time between two looks for new sessions.
const LOOK: Duration = Duration::from_secs(2);
/// Rounds that lie with a session at once: the one that it does, and the next.
const AHEAD: usize = 2;
/// What this machine is called among the devices.
const LOCAL: &str = "here";

/// What measures candidates.
pub(super) trait Measurer: Send {
    /// What became of each candidate, in their order.
    ///
    /// # Errors
    /// A device that is lost, with all that was asked of it.
    fn trials(&mut self, trials: Trials) -> Result<Vec<Measured>>;
}

/// A round to be done.
pub(super) struct Round {
    /// Which program it is of, by its index among those of the search.
    pub(super) index: usize,
    /// The candidates.
    pub(super) proposed: Vec<Candidate>,
    /// The same as a device takes them.
    pub(super) trials: Trials,
}

/// A round that was done.
pub(super) struct Done {
    pub(super) round: Round,
    pub(super) measured: Vec<Measured>,
    /// Whether it was too noisy at first, and measured once more.
    pub(super) noisy: bool,
}

struct Answer {
    device: usize,
    round: Round,
    measured: Result<(Vec<Measured>, bool)>,
}

/// A device, and what it did.
struct Member {
    name: String,
    /// Tells a session from others of its name; nothing for this machine.
    instance: Option<String>,
    /// Rounds that may lie with it at once; none once it is lost.
    slots: usize,
    candidates: usize,
}

/// The devices. Threads of `scope` end when it is dropped, and none before has a round then.
pub(super) struct Devices<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    give: Sender<Round>,
    rounds: Arc<Mutex<Receiver<Round>>>,
    send: Sender<Answer>,
    answers: Receiver<Answer>,
    noise: f64,
    members: Vec<Member>,
    fleet: Option<&'env Fleet>,
    looked: Option<Instant>,
    /// When there was a device last.
    alive: Instant,
    /// Sessions that are devices, by name and instance.
    admitted: BTreeSet<(String, String)>,
}

impl<'scope, 'env> Devices<'scope, 'env> {
    /// This machine, where it measures, and those sessions of a fleet that are found while rounds are done. A round whose confidence
    /// intervals are wider than `noise` is measured once more.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        here: Option<impl Measurer + 'scope>,
        fleet: Option<&'env Fleet>,
        noise: f64,
    ) -> Self {
        let ((give, rounds), (send, answers)) = (channel(), channel());
        let rounds = Arc::new(Mutex::new(rounds));
        let mut devices = Self {
            scope,
            give,
            rounds,
            send,
            answers,
            noise,
            members: Vec::new(),
            fleet,
            looked: None,
            alive: Instant::now(),
            admitted: BTreeSet::new(),
        };
        if let Some(here) = here {
            devices.add(LOCAL, None, vec![here]);
        }
        devices
    }

    /// Where threads of the search run.
    pub(super) fn scope(&self) -> &'scope Scope<'scope, 'env> {
        self.scope
    }

    /// The sessions, where the search has any.
    pub(super) fn fleet(&self) -> Option<&'env Fleet> {
        self.fleet
    }

    /// Rounds that may be under way at once, so that no device waits.
    pub(super) fn slots(&self) -> usize {
        self.members.iter().map(|member| member.slots).sum()
    }

    /// Candidates that each device measured, by its name.
    pub(super) fn measured(&self) -> BTreeMap<String, usize> {
        let each = self.members.iter().filter(|member| member.candidates > 0);
        let mut sums = BTreeMap::new();
        for member in each {
            *sums.entry(member.name.clone()).or_default() += member.candidates;
        }
        sums
    }

    /// Asks for a round.
    ///
    /// # Errors
    /// None where this object is used as it is meant to be.
    pub(super) fn give(&self, round: Round) -> Result<()> {
        self.give.send(round).map_err(|_| Failure::internal("no device takes rounds"))
    }

    /// The next round that is done. A session that is lost is named on standard error.
    ///
    /// # Errors
    /// This machine's device is lost; no session answers for too long where there is no other device.
    pub(super) fn next(&mut self) -> Result<Done> {
        loop {
            self.admit();
            let answer = match self.answers.recv_timeout(LOOK) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => {
                    self.refuse_nobody()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::internal("no device does rounds"));
                }
            };
            if let Some(done) = self.take(answer)? {
                return Ok(done);
            }
        }
    }

    /// A round that is done already, where there is one.
    ///
    /// # Errors
    /// This machine's device is lost.
    pub(super) fn ready(&mut self) -> Result<Option<Done>> {
        while let Ok(answer) = self.answers.try_recv() {
            if let Some(done) = self.take(answer)? {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Takes an answer: the round, where it is done; another device does it where its own was lost.
    fn take(&mut self, answer: Answer) -> Result<Option<Done>> {
        let Answer { device, round, measured } = answer;
        match measured {
            Ok((measured, noisy)) => {
                let member = &mut self.members[device];
                member.candidates += measured.len();
                if let (None, Some(fleet)) = (&member.instance, self.fleet) {
                    // Sessions are held against this machine, which is of their kind.
                    fleet.fits(LOCAL, &round.trials, &measured);
                }
                Ok(Some(Done { round, measured, noisy }))
            }
            Err(failure) => {
                self.lose(device, failure)?;
                self.give(round)?;
                Ok(None)
            }
        }
    }

    /// A device has failed: it does no more rounds.
    ///
    /// # Errors
    /// The failure, where it is this machine's.
    fn lose(&mut self, device: usize, failure: Failure) -> Result<()> {
        let member = &mut self.members[device];
        let Some(instance) = member.instance.clone() else { return Err(failure) };
        if member.slots > 0 {
            eprintln!("note: {}; others do its rounds", failure.chain());
        }
        member.slots = 0;
        // One that was lost may come again; one that is set aside is not believed any more.
        self.admitted.remove(&(member.name.clone(), instance));
        Ok(())
    }

    /// Waits until there is a device.
    ///
    /// # Errors
    /// No session answers for too long.
    pub(super) fn wait(&mut self) -> Result<()> {
        while self.slots() == 0 {
            self.refuse_nobody()?;
            std::thread::sleep(LOOK / 4);
            self.admit();
        }
        Ok(())
    }

    /// Fails where there has been no device for longer than the search waits, or where it is to end.
    fn refuse_nobody(&mut self) -> Result<()> {
        if self.slots() > 0 {
            self.alive = Instant::now();
            return Ok(());
        }
        let waited = self.alive.elapsed();
        match self.fleet {
            Some(fleet) if fleet.gives_up(waited) => Err(fleet.nobody(waited)),
            Some(_) => Ok(()),
            None => Err(Failure::internal("a search has no device")),
        }
    }

    /// Looks for new sessions, now and then. A store that fails hides them and does no other harm.
    pub(super) fn admit(&mut self) {
        let Some(fleet) = self.fleet else { return };
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        for announcement in fleet.believed().unwrap_or_default() {
            let (name, instance) = (announcement.session.clone(), announcement.instance.clone());
            if !self.admitted.insert((name.clone(), instance.clone())) {
                continue;
            }
            let remotes = (0..AHEAD).map(|_| fleet.remote(&announcement)).collect();
            eprintln!("note: session '{name}' measures, too");
            self.add(&name, Some(instance), remotes);
        }
        if self.slots() > 0 {
            self.alive = Instant::now();
        }
    }

    /// A device, with one measurer for each round that may lie with it.
    fn add<M: Measurer + 'scope>(
        &mut self,
        name: &str,
        instance: Option<String>,
        measurers: Vec<M>,
    ) {
        let (device, slots) = (self.members.len(), measurers.len());
        self.members.push(Member { name: name.to_owned(), instance, slots, candidates: 0 });
        for mut measurer in measurers {
            let (rounds, send, noise) = (Arc::clone(&self.rounds), self.send.clone(), self.noise);
            self.scope.spawn(move || {
                loop {
                    let next = rounds.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(round) = next else { return };
                    let measured = measure(&mut measurer, &round.trials, noise);
                    let lost = measured.is_err();
                    if send.send(Answer { device, round, measured }).is_err() || lost {
                        return;
                    }
                }
            });
        }
    }
}

/// Measures a round; one that is too noisy once more, for longer.
fn measure(
    measurer: &mut impl Measurer,
    trials: &Trials,
    noise: f64,
) -> Result<(Vec<Measured>, bool)> {
    let measured = measurer.trials(trials.clone())?;
    if spread(&measured) <= noise {
        return Ok((measured, false));
    }
    let longer = Trials { seconds: 3.0 * trials.seconds, ..trials.clone() };
    Ok((measurer.trials(longer)?, true))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_artifact::exit_code::Reason;
    use hone_search::Class;

    /// Answers `left` rounds, and is lost then.
    struct FailsAfter {
        left: usize,
    }

    impl Measurer for FailsAfter {
        fn trials(&mut self, trials: Trials) -> Result<Vec<Measured>> {
            if self.left == 0 {
                return Err(Failure::new(Reason::DeviceLost, "lost"));
            }
            self.left -= 1;
            Ok(vec![Measured::failed(Class::CompileError, trials.program)])
        }
    }

    fn round(index: usize) -> Round {
        let trials = Trials {
            program: index.to_string(),
            digest: String::new(),
            candidates: Vec::new(),
            seconds: 0.0,
            least: Vec::new(),
        };
        Round { index, proposed: Vec::new(), trials }
    }

    #[test]
    fn a_lost_device_costs_no_round_and_none_is_done_twice() {
        let indices = std::thread::scope(|scope| {
            let mut devices = Devices::new(scope, Some(FailsAfter { left: usize::MAX }), None, 1.0);
            let remotes = vec![FailsAfter { left: 3 }, FailsAfter { left: 0 }];
            devices.add("a", Some("1".to_owned()), remotes);
            devices.add("b", Some("2".to_owned()), vec![FailsAfter { left: 5 }]);
            assert_eq!(devices.slots(), 4);
            (0..100).for_each(|index| devices.give(round(index)).unwrap());
            let mut indices = Vec::new();
            for _ in 0..100 {
                let done = devices.next().unwrap();
                assert_eq!(done.measured[0].cause, Some(done.round.index.to_string()));
                indices.push(done.round.index);
            }
            let sums = devices.measured();
            assert_eq!(sums.values().sum::<usize>(), 100);
            assert!(sums.get("a").copied().unwrap_or(0) <= 3);
            indices
        });
        let mut sorted = indices;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn without_this_machine_the_search_ends() {
        std::thread::scope(|scope| {
            let mut devices = Devices::new(scope, Some(FailsAfter { left: 1 }), None, 1.0);
            devices.give(round(0)).unwrap();
            assert!(devices.next().is_ok());
            devices.give(round(1)).unwrap();
            assert_eq!(devices.next().err().unwrap().reason, Reason::DeviceLost);
        });
    }
}
