//! Strings of a model's inputs and outputs.

use hone_artifact::Member;

use crate::{Model, RunError};

impl Model {
    /// The handle by which an element of `u64` stands for a string, where a member of the interface says that its
    /// tensors hold strings ([`Member::text`]). Equal strings have equal handles. The string is kept until
    /// [`Model::clear_texts`], so that runs may read it.
    ///
    /// # Errors
    /// [`RunError::Text`] where the strings kept have more than 256 MiB, or another string has the same handle.
    pub fn text_handle(&mut self, text: &str) -> Result<u64, RunError> {
        self.texts().intern(text).map_err(RunError::Text)
    }

    /// The string that a handle in an output stands for; `None` of a handle that stands for none.
    pub fn text(&self, handle: u64) -> Option<&str> {
        self.known_text(handle)
    }

    /// Forgets the strings that were given or made by runs; those that the model stores stay. Handles in outputs of
    /// earlier runs stand for nothing after this.
    pub fn clear_texts(&mut self) {
        self.texts().clear();
    }

    /// For each of [`Model::inputs`] (or [`Model::outputs`]), whether its elements stand for strings.
    pub fn text_tensors(&self, outputs: bool) -> Vec<bool> {
        self.manifest().text_tensors(outputs)
    }

    /// Inputs (or outputs) as users of the model know them, each with the range of its tensors among
    /// [`Model::inputs`] (or [`Model::outputs`]): tensors, sequences of tensors, optional values that are not there.
    pub fn members(&self, outputs: bool) -> Vec<(Member, std::ops::Range<usize>)> {
        self.manifest().members(outputs)
    }
}
