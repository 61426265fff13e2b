//! Which sessions a search believes.
//!
//! Whatever a session answers is held against what is known before it is used: against the time that the schedule without
//! tuning took on the same session before (its calibration), against the same on other sessions of the kind, against the
//! time below which no machine of the target can be, and where all of that says nothing, by a probe: candidates of a program
//! whose answers and times are known. What does not fit is measured again and never used; a session that does not fit
//! [`STRIKES`] times in a row is set aside. So no record is of a session in doubt.

use std::collections::BTreeMap;

use hone_artifact::progress::LONGEST_REASON;
use hone_search::Class;

use crate::tune::protocol::{Measured, Trials};

/// Times in a row that a session may be in doubt.
const STRIKES: usize = 3;
/// A time that is shorter than the shortest possible one by this factor is no measurement: the shortest one is of a model.
const IMPOSSIBLE: f64 = 4.0;
/// Seconds of measuring of a probe, by those of the round that it was taken from.
const PROBE: f64 = 0.25;

/// How far times may move without a noise budget: they may triple, since other work on a machine shows in its times and not
/// in the ratios that a search goes by.
pub const DRIFT: f64 = 2.0;

/// What an answer is worth.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It fits what is known.
    Fits,
    /// Nothing is known that it could be held against: these candidates tell.
    Probe(Trials),
    /// It does not fit: why.
    Doubt(String),
}

/// What is known of all sessions of a search.
#[derive(Debug)]
pub(super) struct Trust {
    /// How far the times of a session may move from its calibration, as a share; twice as far those of two sessions apart.
    drift: f64,
    /// By session.
    standings: BTreeMap<String, Standing>,
    /// Candidates that some session answered well.
    probe: Option<Trials>,
}

#[derive(Debug, Default)]
struct Standing {
    /// Nanoseconds of the schedule without tuning, by program.
    times: BTreeMap<String, f64>,
    strikes: usize,
    aside: Option<String>,
}

impl Trust {
    /// Nothing is known yet.
    pub(super) fn new(drift: f64) -> Self {
        Self { drift, standings: BTreeMap::new(), probe: None }
    }

    /// Why a session is set aside, where it is.
    pub(super) fn aside(&self, session: &str) -> Option<&str> {
        self.standings.get(session)?.aside.as_deref()
    }

    /// Sets a session aside.
    pub(super) fn set_aside(&mut self, session: &str, why: &str) {
        let why: String = why.chars().take(LONGEST_REASON).collect();
        self.standings.entry(session.to_owned()).or_default().aside = Some(why);
    }

    /// A session began anew: nothing is known of it.
    pub(super) fn forget(&mut self, session: &str) {
        self.standings.remove(session);
    }

    /// Judges what a session answered.
    pub(super) fn judge(&self, session: &str, asked: &Trials, found: &[Measured]) -> Verdict {
        if let Some(why) = impossible(asked, found) {
            return Verdict::Doubt(why);
        }
        let none = Standing::default();
        let own = self.standings.get(session).unwrap_or(&none);
        let probe = self.probe.as_ref().filter(|probe| probe.digest != asked.digest);
        // Wrong answers may be the candidates' fault; of a probe they are the session's.
        if let Some(why) = unusable(found) {
            return match probe {
                Some(probe) => Verdict::Probe(probe.clone()),
                None => Verdict::Doubt(why),
            };
        }
        let Some(time) = incumbent(found) else {
            return probe.map_or(Verdict::Fits, |probe| Verdict::Probe(probe.clone()));
        };
        if let Some(before) = own.times.get(&asked.digest) {
            return match moved(time, *before, 1.0 + self.drift) {
                false => Verdict::Fits,
                true => Verdict::Doubt(format!(
                    "its times drift: {:.1} µs for what took {:.1} µs there before",
                    time / 1e3,
                    before / 1e3
                )),
            };
        }
        if let Some(other) = self.others(session, &asked.digest)
            && moved(time, other, (1.0 + self.drift) * (1.0 + self.drift))
        {
            return Verdict::Doubt(format!(
                "its times are not those of others of its kind: {:.1} µs for {:.1} µs there",
                time / 1e3,
                other / 1e3
            ));
        }
        probe.map_or(Verdict::Fits, |probe| Verdict::Probe(probe.clone()))
    }

    /// Takes down an answer that fits.
    pub(super) fn fits(&mut self, session: &str, asked: &Trials, found: &[Measured]) {
        let own = self.standings.entry(session.to_owned()).or_default();
        own.strikes = 0;
        if let Some(time) = incumbent(found) {
            own.times.entry(asked.digest.clone()).or_insert(time);
        }
        let good = found.iter().position(|own| own.class == Class::Ok && own.ratio.is_some());
        if let (None, Some(place)) = (&self.probe, good) {
            let one = |all: &[f64]| all.get(place).copied().into_iter().collect();
            self.probe = Some(Trials {
                candidates: asked.candidates.get(place).cloned().into_iter().collect(),
                least: one(&asked.least),
                seconds: PROBE * asked.seconds,
                ..asked.clone()
            });
        }
    }

    /// Takes down a doubt: whether the session is set aside for it.
    pub(super) fn doubt(&mut self, session: &str, why: &str) -> bool {
        let own = self.standings.entry(session.to_owned()).or_default();
        own.strikes += 1;
        let is_over = own.strikes >= STRIKES;
        if is_over {
            self.set_aside(session, why);
        }
        is_over
    }

    /// Median of a program's times on the other sessions that are believed.
    fn others(&self, session: &str, program: &str) -> Option<f64> {
        let others = self.standings.iter();
        let others = others.filter(|(name, own)| *name != session && own.aside.is_none());
        let mut times: Vec<f64> =
            others.filter_map(|(_, own)| own.times.get(program).copied()).collect();
        times.sort_unstable_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }
}

/// Whether one time is another by more than a factor.
fn moved(time: f64, before: f64, factor: f64) -> bool {
    let ratio = time / before;
    // Not so where either is no number.
    !(1.0 / factor..=factor).contains(&ratio)
}

/// Nanoseconds of the schedule without tuning, as the candidates' ratios tell: the median.
fn incumbent(found: &[Measured]) -> Option<f64> {
    let times = found.iter().filter(|own| own.class == Class::Ok);
    let mut times: Vec<f64> =
        times.filter_map(|own| Some(own.nanoseconds? / own.ratio?.0)).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// A time that cannot be.
fn impossible(asked: &Trials, found: &[Measured]) -> Option<String> {
    let times = asked.least.iter().zip(found);
    let times = times.filter_map(|(least, own)| Some((*least, own.nanoseconds?)));
    let mut times = times.filter(|(least, time)| time.is_nan() || time * IMPOSSIBLE < *least);
    times.next().map(|(least, time)| {
        format!(
            "its times cannot be: {time:.0} ns for what takes {least:.0} ns at the target's peak"
        )
    })
}

/// Why most candidates have no time, where that may be the session's fault.
fn unusable(found: &[Measured]) -> Option<String> {
    let of = |class: Class| found.iter().filter(|own| own.class == class).count();
    let is_most = |count: usize| 2 * count > found.len();
    if is_most(of(Class::WrongResult)) {
        return Some("its answers are wrong".to_owned());
    }
    let gone = is_most(of(Class::Timeout) + of(Class::DeviceLost));
    gone.then(|| "it ends or hangs when it runs candidates".to_owned())
}
