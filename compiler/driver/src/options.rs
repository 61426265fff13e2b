//! What a compilation may be asked.

use crate::Target;
use hone_artifact::{Recipe, RecordedDecision, Variant};
use hone_passes::{GRAPH_DECISIONS, GraphDecision, GraphDecisions};
use hone_tune::{Choice, Prescription};
use hone_types::DataType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How schedules are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulePolicy {
    /// The plain loop order, spread over threads; the baseline that speed-ups are counted from.
    Naive,
    /// By the analytic model, without measuring.
    Analytic,
}

/// Options of a compilation; equal options and models give bit-identical artifacts.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine to compile for.
    pub target: Target,
    /// How schedules are chosen.
    pub schedules: SchedulePolicy,
    /// The element type in which kernels hand numbers to one another, and multiply them where the
    /// target has instructions for it: [`DataType::F32`] or [`DataType::BF16`].
    pub precision: DataType,
    /// Names of nodes that stay in `f32` whatever the precision.
    pub wide: Vec<String>,
    /// What tuning records say: schedules of programs by their structural digest, and decisions about graphs by the
    /// structure that each is about ([`GRAPH_DECISIONS`]). Both go before those of the analytic model.
    pub records: Arc<BTreeMap<String, Prescription>>,
    /// Keep schedules, loop programs and assembly of each kernel in the artifact, for `hone inspect`.
    pub keep_inspection: bool,
}

impl Options {
    /// Analytic schedules for `target`, with inspection texts.
    pub fn new(target: impl Into<Target>) -> Self {
        Self {
            target: target.into(),
            schedules: SchedulePolicy::Analytic,
            precision: DataType::F32,
            wide: Vec::new(),
            records: Arc::default(),
            keep_inspection: true,
        }
    }

    /// The decisions about graphs that records have.
    pub(crate) fn graph_decisions(&self) -> GraphDecisions {
        let measured = self.recorded_decisions();
        let value = |(structure, record): (&String, &Prescription)| {
            record.choices.first().map(|choice| (structure.clone(), choice.1))
        };
        GraphDecisions::new(measured.filter_map(value).collect())
    }

    /// These options with those decisions about graphs alone that were taken from records.
    pub(crate) fn with_used(&self, taken: &BTreeMap<String, GraphDecision>) -> Self {
        let mut options = self.clone();
        if self.recorded_decisions().next().is_some() {
            let is_used = |structure: &String, record: &Prescription| {
                let value = record.choices.first().map(|choice| choice.1);
                taken.get(structure).is_some_and(|decision| Some(decision.taken) == value)
            };
            Arc::make_mut(&mut options.records).retain(|structure, record| {
                !is_graph_decision(record) || is_used(structure, record)
            });
        }
        options
    }

    /// The records that are decisions about graphs, by the structure that each is about.
    pub(crate) fn recorded_decisions(&self) -> impl Iterator<Item = (&String, &Prescription)> {
        self.records.iter().filter(|(_, record)| is_graph_decision(record))
    }

    /// What an artifact's manifest says of these options.
    pub fn recipe(&self) -> Recipe {
        let schedules = match self.schedules {
            SchedulePolicy::Naive => "naive",
            SchedulePolicy::Analytic => "analytic",
        };
        Recipe {
            schedules: schedules.to_owned(),
            precision: self.precision.name().to_owned(),
            wide: self.wide.clone(),
            features: self.target.features.clone(),
            decisions: self
                .recorded_decisions()
                .filter_map(|(structure, record)| {
                    let value = record.choices.first()?.1;
                    let (kind, structure) = (record.template.clone(), structure.clone());
                    Some(RecordedDecision { kind, structure, value })
                })
                .collect(),
        }
    }

    /// The options that a variant of an artifact was compiled with; `None` where its manifest does not say
    /// so, or says what this compiler does not know.
    pub fn of_variant(variant: &Variant) -> Option<Self> {
        let Recipe { schedules, precision, wide, features, decisions } = variant.recipe.clone()?;
        let schedules = match schedules.as_str() {
            "naive" => SchedulePolicy::Naive,
            "analytic" => SchedulePolicy::Analytic,
            _ => return None,
        };
        let hone_artifact::Target { triple, cpu, accelerator, .. } = &variant.target;
        let target =
            Target { accelerator: *accelerator, ..Target::new(triple, cpu, features).ok()? };
        let precision = precision.parse().ok()?;
        let options = Self { schedules, precision, wide, ..Self::new(target) };
        Some(options.with_decisions(&decisions))
    }

    /// These options with the decisions about graphs of an artifact's manifest, and no other records.
    pub fn with_decisions(self, decisions: &[RecordedDecision]) -> Self {
        let records = decisions.iter().map(|RecordedDecision { kind, structure, value }| {
            (structure.clone(), graph_decision(kind, *value))
        });
        Self { records: Arc::new(records.collect()), ..self }
    }
}

/// What a record of a decision about a graph says.
pub fn graph_decision(kind: &str, value: i64) -> Prescription {
    Prescription { template: kind.to_owned(), choices: vec![Choice("value".to_owned(), value)] }
}

/// Whether a record is of a decision about a graph, not of a schedule.
pub fn is_graph_decision(record: &Prescription) -> bool {
    GRAPH_DECISIONS.contains(&record.template.as_str())
}
