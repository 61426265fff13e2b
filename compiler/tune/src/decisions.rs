//! Decisions: the questions that a template asks while it schedules, and who answers them.
//!
//! A template never looks at where an answer comes from. The analytic model's answer comes with
//! each question, so that [`Preferred`] gives the schedules that are compiled without tuning, a record
//! replays the answers that won before ([`Replay`]), and a search answers at random ([`Randomly`]) or
//! replays answers that it changed. Equal answers give equal schedules.
//!
//! Invariants: an answer is one of the question's candidates; a question with a single candidate is
//! not asked; the questions of a template depend on the program, the machine and the answers so far
//! alone.

use serde::{Deserialize, Serialize};

/// A question: which of some values a knob shall have.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Name of the knob, unique among the questions of a schedule.
    pub name: &'a str,
    /// The values, ascending and distinct; at least two.
    pub candidates: &'a [i64],
    /// Index of the value that the analytic model takes.
    pub preferred: usize,
}

/// Who answers questions.
pub trait Source {
    /// The index of the chosen candidate. An index beyond the last counts as the preferred one.
    fn answer(&mut self, question: &Question<'_>) -> usize;
}

/// The knob that says how many keys an attention's softmax takes at a time.
pub(crate) const KEYS_OF_A_PART: &str = "keys of a part";

/// The analytic model's answers but that softmaxes are not computed in parts, so that their reductions can end with a size.
#[derive(Clone, Copy, Debug, Default)]
pub struct WholeSoftmax;

impl Source for WholeSoftmax {
    fn answer(&mut self, question: &Question<'_>) -> usize {
        match question.name == KEYS_OF_A_PART {
            true => question.candidates.len() - 1,
            false => question.preferred,
        }
    }
}

/// A question that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Name of the knob.
    pub name: String,
    /// Its candidates.
    pub candidates: Vec<i64>,
    /// Index of the one that was chosen.
    pub chosen: usize,
}

impl Decision {
    /// The value that was chosen.
    pub fn value(&self) -> i64 {
        self.candidates.get(self.chosen).copied().unwrap_or_default()
    }

    /// The decision as records keep it.
    pub fn choice(&self) -> Choice {
        Choice(self.name.clone(), self.value())
    }
}

/// What records keep of a decision: the knob's name and its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Choice(pub String, pub i64);

/// How a program is to be scheduled: the template and its decisions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prescription {
    /// Name of the template.
    pub template: String,
    /// Its decisions.
    pub choices: Vec<Choice>,
}

/// The decisions of one schedule: what templates ask.
pub struct Decisions<'a> {
    source: &'a mut dyn Source,
    taken: Vec<Decision>,
}

impl<'a> Decisions<'a> {
    /// Nothing decided yet.
    pub fn new(source: &'a mut dyn Source) -> Self {
        Self { source, taken: Vec::new() }
    }

    /// The decisions so far, in the order of the questions.
    pub fn taken(self) -> Vec<Decision> {
        self.taken
    }

    /// A factor of a loop of `extent` iterations: one of `candidates` that are at least 1 and no more than
    /// the extent, or the one that the analytic model prefers.
    pub(crate) fn factor(
        &mut self,
        name: &str,
        extent: usize,
        candidates: &[usize],
        preferred: usize,
    ) -> usize {
        let fits = |factor: &usize| (1..=extent).contains(factor);
        self.number(name, candidates.iter().copied().filter(fits), preferred)
    }

    /// One of some numbers, or the one that the analytic model prefers.
    pub(crate) fn number(
        &mut self,
        name: &str,
        candidates: impl IntoIterator<Item = usize>,
        preferred: usize,
    ) -> usize {
        let mut values: Vec<i64> = candidates.into_iter().map(|number| number as i64).collect();
        values.push(preferred as i64);
        values.sort_unstable();
        values.dedup();
        usize::try_from(self.ask(name, values, preferred as i64)).unwrap_or(preferred)
    }

    /// One of `count` alternatives, numbered from 0.
    pub(crate) fn choose(&mut self, name: &str, count: usize, preferred: usize) -> usize {
        self.number(name, 0..count, preferred)
    }

    fn ask(&mut self, name: &str, candidates: Vec<i64>, preferred: i64) -> i64 {
        let index =
            candidates.iter().position(|candidate| *candidate == preferred).unwrap_or_default();
        if candidates.len() < 2 {
            return preferred;
        }
        let name = self.unique(name);
        let question = Question { name: &name, candidates: &candidates, preferred: index };
        let answer = self.source.answer(&question);
        let chosen = if answer < candidates.len() { answer } else { index };
        let value = candidates[chosen];
        self.taken.push(Decision { name, candidates, chosen });
        value
    }

    /// The name itself, or with a number where a question of this name was asked before.
    fn unique(&self, name: &str) -> String {
        let is_taken = |name: &str| self.taken.iter().any(|decision| decision.name == name);
        if !is_taken(name) {
            return name.to_owned();
        }
        let numbered = (2..).map(|number| format!("{name} {number}"));
        numbered.into_iter().find(|name| !is_taken(name)).unwrap_or_default()
    }
}

/// The analytic model: schedules as they are without tuning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preferred;

impl Source for Preferred {
    fn answer(&mut self, question: &Question<'_>) -> usize {
        question.preferred
    }
}

/// Answers that were given before. A question that they do not answer, or with a value that is no
/// candidate, gets the analytic model's answer and is noted.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    choices: Vec<Choice>,
    used: Vec<bool>,
    unanswered: Vec<String>,
}

impl Replay {
    /// Replays these answers.
    pub fn new(choices: &[Choice]) -> Self {
        let used = vec![false; choices.len()];
        Self { choices: choices.to_vec(), used, unanswered: Vec::new() }
    }

    /// The first question that the answers did not fit, or answer that no question asked for: the answers
    /// are those of another program, machine or compiler.
    pub fn misfit(&self) -> Option<&str> {
        let unused = self.choices.iter().zip(&self.used).find(|(_, used)| !**used);
        let unused = unused.map(|(choice, _)| choice.0.as_str());
        self.unanswered.first().map(String::as_str).or(unused)
    }
}

impl Source for Replay {
    fn answer(&mut self, question: &Question<'_>) -> usize {
        let index = self.choices.iter().position(|choice| choice.0 == question.name);
        let value = index.map(|index| {
            self.used[index] = true;
            self.choices[index].1
        });
        let found = value
            .and_then(|value| question.candidates.iter().position(|candidate| *candidate == value));
        found.unwrap_or_else(|| {
            self.unanswered.push(question.name.to_owned());
            question.preferred
        })
    }
}

/// Random answers, each candidate as likely as any other.
#[derive(Clone, Debug)]
pub struct Randomly<F> {
    /// A number below the one given.
    pub below: F,
}

impl<F: FnMut(usize) -> usize> Source for Randomly<F> {
    fn answer(&mut self, question: &Question<'_>) -> usize {
        (self.below)(question.candidates.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn decide(source: &mut dyn Source) -> (usize, usize, Vec<Decision>) {
        let mut decisions = Decisions::new(source);
        let rows = decisions.factor("rows", 7, &[1, 2, 4, 8], 3);
        let order = decisions.choose("order", 2, 0);
        assert_eq!(decisions.choose("single", 1, 0), 0);
        (rows, order, decisions.taken())
    }

    #[test]
    fn the_models_answers_are_candidates_and_the_default() {
        let (rows, order, taken) = decide(&mut Preferred);
        assert_eq!((rows, order), (3, 0));
        assert_eq!(taken[0].candidates, [1, 2, 3, 4]);
        assert_eq!(taken.len(), 2, "a question with one candidate is not asked");
    }

    #[test]
    fn replayed_answers_give_the_same_decisions() {
        let (.., random) = decide(&mut Randomly { below: |count| count - 1 });
        let choices: Vec<Choice> = random.iter().map(Decision::choice).collect();
        let mut replay = Replay::new(&choices);
        let (rows, order, replayed) = decide(&mut replay);
        assert_eq!((rows, order), (4, 1));
        assert_eq!(replayed, random);
        assert_eq!(replay.misfit(), None);
    }

    #[test]
    fn answers_of_another_program_are_noticed() {
        for foreign in [
            vec![Choice("rows".to_owned(), 5), Choice("order".to_owned(), 0)],
            vec![Choice("rows".to_owned(), 4)],
            vec![
                Choice("rows".to_owned(), 4),
                Choice("order".to_owned(), 0),
                Choice("other".to_owned(), 0),
            ],
        ] {
            let mut replay = Replay::new(&foreign);
            decide(&mut replay);
            assert!(replay.misfit().is_some(), "{foreign:?}");
        }
    }

    #[test]
    fn questions_of_one_name_are_numbered() {
        let mut model = Preferred;
        let mut decisions = Decisions::new(&mut model);
        decisions.choose("width", 2, 0);
        decisions.choose("width", 2, 1);
        let names: Vec<String> =
            decisions.taken().into_iter().map(|decision| decision.name).collect();
        assert_eq!(names, ["width", "width 2"]);
    }
}
