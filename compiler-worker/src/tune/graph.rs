//! Decisions about the graph by measuring, before schedules are searched for: which algorithm each convolution takes.
//!
//! A network takes another value than the analytic model's in all of its decisions at once, and runs in turn with the
//! analytic one. Steps are known by the nodes that they compute, so two networks tell every decision of three values;
//! one network for each decision and value would tell no more. Like schedules, the best values must win in the network
//! ([`Confirm::winners`]) to be kept.

use std::collections::BTreeMap;

use hone_artifact::exit_code::Reason;
use hone_driver::{Choice, DataType, Graph, GraphDecision, Prescription, graph_decision};
use hone_search::{Kind, Log, Record};

use super::confirm::{Confirm, Part, Verdict, median, of_part, with};
use super::measuring::Measuring;
use super::outcome::{DecisionOutcome, Outcome};
use super::protocol::{Compare, Compared};
use super::session::{Session, WORTH};
use super::statistics::paired;
use super::store::{self, Recorded, schedules_apart};
use crate::compiler::Recipe;
use crate::failure::Result;

/// Seconds of each comparison, by the seconds of a batch of candidates.
const BATCHES: f64 = 12.0;
/// Share of the time of the search that each comparison may take.
const SHARE: f64 = 0.05;

/// What measuring said of the decisions about a graph.
#[derive(Default)]
pub(super) struct Decided {
    /// Every decision that has alternatives, those that take longest first.
    pub(super) decisions: Vec<DecisionOutcome>,
    /// Every comparison in the network.
    pub(super) rounds: Vec<Verdict>,
    /// Measurements taken over from records.
    pub(super) resumed: usize,
    /// The records with the values that won.
    pub(super) records: Recorded,
}

/// Times of the values of each decision over the analytic one, by the structure that each is about.
type Ratios = BTreeMap<String, BTreeMap<i64, f64>>;

/// The search for values of decisions.
pub(super) struct GraphSearch<'a> {
    pub(super) session: &'a Session<'a>,
    pub(super) confirm: &'a Confirm<'a>,
    /// The records before.
    pub(super) so_far: &'a Recorded,
}

impl GraphSearch<'_> {
    /// Measures what no record tells yet, and keeps the values with which the network is faster.
    ///
    /// # Errors
    /// A model that cannot be compiled, records that cannot be written, a process that cannot be started.
    pub(super) fn run(
        &self,
        graph: &Graph,
        records: &[Record],
        device: &mut Measuring<'_>,
        log: &mut Log,
    ) -> Result<Decided> {
        let options = Recipe::analytic(DataType::F32).options(self.session.target);
        let decisions = hone_driver::graph_decisions(graph, &options)
            .map_err(|error| crate::compiler::cannot_be_compiled(self.session.model, error))?;
        let mut found = Decided { records: self.so_far.clone(), ..Decided::default() };
        if decisions.is_empty() {
            return Ok(found);
        }
        let mut ratios = self.known(&decisions, records);
        found.resumed = ratios.values().map(BTreeMap::len).sum();
        let times = self.measure(&decisions, &mut ratios, device, log)?;
        let proposed = self.proposed(&decisions, &ratios);
        let part = |structure: &str| decisions.get(structure).map(nodes_of);
        let seconds = self.within_budget(self.session.in_network());
        let (won, rounds) = self.confirm.winners(device, &part, self.so_far, &proposed, seconds)?;
        for (structure, prescription) in &won {
            let ratio = ratios.get(structure).and_then(|of| of.get(&value_of(prescription)));
            let subject = (structure.as_str(), &decisions[structure]);
            let record = self.record(Kind::Winner, subject, prescription);
            let record = Record { ratio: ratio.copied(), ..record };
            log.append(&record).map_err(store::failed)?;
        }
        log.sync().map_err(store::failed)?;
        let outcome = |(structure, decision): (&String, &GraphDecision)| DecisionOutcome {
            kind: decision.kind,
            structure: structure.clone(),
            nodes: decision.nodes.clone(),
            nanoseconds: times.get(structure).copied().unwrap_or_default(),
            analytic: decision.analytic,
            ratios: ratios.remove(structure).unwrap_or_default(),
            won: won.get(structure).map(value_of),
        };
        found.decisions = decisions.iter().map(outcome).collect();
        found.decisions.sort_by(|a, b| b.nanoseconds.total_cmp(&a.nanoseconds));
        found.records = with(self.so_far, &won);
        found.rounds = rounds;
        Ok(found)
    }

    /// What records of this machine tell.
    fn known(&self, decisions: &BTreeMap<String, GraphDecision>, records: &[Record]) -> Ratios {
        let target = store::target_key(self.session.target);
        let machine = self.session.machine();
        let settings = &self.session.settings;
        let mut ratios = Ratios::new();
        let earlier = self.session.earlier.iter().chain(records).filter(|record| {
            settings.warm
                && record.kind == Kind::Decision
                && record.target == target
                && record.machine == machine
                && record.threads == settings.threads
        });
        for record in earlier {
            let Some(decision) = decisions.get(&record.program) else { continue };
            if let ([value, base], Some(ratio)) = (&record.decisions[..], record.ratio)
                && *base == over(decision)
                && record.template == decision.kind
            {
                ratios.entry(record.program.clone()).or_default().insert(value.1, ratio);
            }
        }
        ratios
    }

    /// Measures the values that have no ratio yet. Gives the nanoseconds of a run that each decision's nodes take as the
    /// analytic model has it, where something was measured.
    fn measure(
        &self,
        decisions: &BTreeMap<String, GraphDecision>,
        ratios: &mut Ratios,
        device: &mut Measuring<'_>,
        log: &mut Log,
    ) -> Result<BTreeMap<String, f64>> {
        let base = schedules_apart(self.so_far).0;
        let mut times = BTreeMap::new();
        let mut theirs = None;
        while !self.session.interrupt.is_asked() {
            let next = |(structure, decision): (&String, &GraphDecision)| {
                let known = ratios.get(structure);
                let is_new = |value: &&i64| {
                    **value != decision.analytic && known.is_none_or(|own| !own.contains_key(value))
                };
                let value = decision.alternatives.iter().find(is_new)?;
                Some((structure.clone(), graph_decision(decision.kind, *value)))
            };
            let others: BTreeMap<String, Prescription> =
                decisions.iter().filter_map(next).collect();
            if others.is_empty() {
                break;
            }
            (self.session.tell)(&Outcome::default(), 0.0);
            let theirs = match &theirs {
                Some(path) => path,
                None => theirs.insert(self.confirm.artifact("analytic", &base)?),
            };
            let ours = self.confirm.artifact("others", &with(&base, &others))?;
            let seconds = self.within_budget(BATCHES * self.session.settings.seconds);
            let compare = Compare { ours, theirs: theirs.clone(), seconds };
            let compared = match device.compare(&compare) {
                Ok(compared) => compared,
                // Another algorithm may take memory or time that there is not: schedules are searched for all the same.
                Err(failure) if failure.reason == Reason::DeviceLost => {
                    let why = failure.chain();
                    eprintln!("note: other algorithms of convolutions are not measured: {why}");
                    break;
                }
                Err(failure) => return Err(failure),
            };
            for (structure, prescription) in &others {
                let decision = &decisions[structure];
                let measured = Measured::of(&compared, &nodes_of(decision));
                times.insert(structure.clone(), measured.analytic);
                let record = Record {
                    nanoseconds: Some(measured.nanoseconds).filter(|time| *time > 0.0),
                    ratio: Some(measured.ratio),
                    interval: Some(measured.interval).filter(|own| own.1.is_finite()),
                    ..self.record(Kind::Decision, (structure, decision), prescription)
                };
                log.append(&record).map_err(store::failed)?;
                let value = value_of(prescription);
                ratios.entry(structure.clone()).or_default().insert(value, measured.ratio);
            }
        }
        Ok(times)
    }

    /// The best value of each decision, where it is not the one that is used so far and is faster than that.
    fn proposed(
        &self,
        decisions: &BTreeMap<String, GraphDecision>,
        ratios: &Ratios,
    ) -> BTreeMap<String, Prescription> {
        let best = |(structure, of): (&String, &BTreeMap<i64, f64>)| {
            let (value, ratio) = of.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
            let used = self.so_far.get(structure).map(value_of);
            let incumbent = used.and_then(|used| of.get(&used)).copied().unwrap_or(1.0);
            let is_faster = *ratio < WORTH * incumbent;
            let kind = decisions.get(structure)?.kind;
            is_faster.then(|| (structure.clone(), graph_decision(kind, *value)))
        };
        ratios.iter().filter_map(best).collect()
    }

    /// Seconds of a comparison: no more than the last word in the network takes, and fewer where the search has little time.
    fn within_budget(&self, seconds: f64) -> f64 {
        let (budget, seconds) =
            (self.session.settings.budget, seconds.min(self.session.in_network()));
        budget.map_or(seconds, |budget| seconds.min(SHARE * budget.as_secs_f64()))
    }

    /// A record of a value of a decision, without times. What was measured says which value it was compared with, since
    /// another version of the analytic model may choose another.
    fn record(
        &self,
        kind: Kind,
        (structure, decision): (&str, &GraphDecision),
        prescription: &Prescription,
    ) -> Record {
        let mut prescription = prescription.clone();
        if kind == Kind::Decision {
            prescription.choices.push(over(decision));
        }
        self.session.blank(kind, (structure, prescription), &decision.nodes.join(", "))
    }
}

/// Times of a value of a decision.
struct Measured {
    /// Median nanoseconds of a run.
    nanoseconds: f64,
    /// Those with the value of the analytic model.
    analytic: f64,
    ratio: f64,
    interval: (f64, f64),
}

impl Measured {
    fn of(compared: &Compared, part: &Part<'_>) -> Self {
        let [ours, theirs] =
            [&compared.our_steps, &compared.their_steps].map(|steps| of_part(steps, part));
        let (ratio, interval) = paired(&ours, &theirs);
        Self { nanoseconds: median(&ours), analytic: median(&theirs), ratio, interval }
    }
}

fn value_of(prescription: &Prescription) -> i64 {
    prescription.choices.first().map_or(0, |choice| choice.1)
}

/// The value that others of a decision are compared with.
fn over(decision: &GraphDecision) -> Choice {
    Choice("over".to_owned(), decision.analytic)
}

fn nodes_of(decision: &GraphDecision) -> Part<'_> {
    Part::Nodes(&decision.nodes)
}
