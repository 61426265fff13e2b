//! A source of decisions that are meant for another program.

use hone_tune::{Question, Source};

/// Answers with the candidate that is nearest to a wanted number, and with the preferred one where none is wanted.
pub(crate) struct Towards<'a> {
    /// Numbers by the names of questions.
    pub(crate) wanted: Vec<(&'a str, i64)>,
}

impl Source for Towards<'_> {
    fn answer(&mut self, question: &Question<'_>) -> usize {
        let wanted = self.wanted.iter().find(|(name, _)| *name == question.name);
        let Some((_, wanted)) = wanted else { return question.preferred };
        // Numbers of a record may be any.
        let distance = |index: &usize| question.candidates[*index].abs_diff(*wanted);
        (0..question.candidates.len()).min_by_key(distance).unwrap_or(question.preferred)
    }
}
