//! How a model's inputs and outputs, as its users know them, are made of the graph's tensors.

use serde::{Deserialize, Serialize};

/// What a model takes and gives where that is more than tensors of numbers: sequences of tensors, optional values,
/// strings. The graph itself has tensors of numbers alone. Empty of a model that takes and gives no others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The model's inputs in order, each with the graph's next inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Member>,
    /// The model's outputs in order, each with the graph's next outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Member>,
    /// Strings that constants of the model stand for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<String>,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name in the model.
    pub name: String,
    /// What it is.
    pub form: MemberForm,
    /// Whether the elements of its tensors (of a map or maps: the keys), of `u64`, stand for strings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text: bool,
}

/// What an input or output of a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberForm {
    /// A tensor: one of the graph's.
    Tensor,
    /// A list of so many tensors.
    Sequence(usize),
    /// A list of maps: two tensors, the keys that all of them have (`[n]`) and the values, a map in each row
    /// (`[maps, n]`).
    Maps,
    /// A map: three tensors, keys and values (`[room]` both), and how many of them are there (`i64`).
    Map {
        /// Whether the values, of `u64`, stand for strings.
        text_values: bool,
    },
    /// An optional value that is not there: none of the graph's tensors.
    Absent,
}

impl MemberForm {
    /// How many of the graph's tensors it is made of.
    pub fn tensors(self) -> usize {
        match self {
            Self::Tensor => 1,
            Self::Sequence(count) => count,
            Self::Maps => 2,
            Self::Map { .. } => 3,
            Self::Absent => 0,
        }
    }
}

impl Member {
    /// Whether the elements of its tensor at a place stand for strings.
    pub fn has_text(&self, place: usize) -> bool {
        match self.form {
            MemberForm::Map { text_values } if place == 1 => text_values,
            MemberForm::Map { .. } | MemberForm::Maps => self.text && place == 0,
            _ => self.text,
        }
    }
}

impl Interface {
    /// Whether a model takes and gives tensors of numbers alone, and stores no strings.
    pub fn is_plain(&self) -> bool {
        let plain = |member: &Member| member.form == MemberForm::Tensor && !member.text;
        self.texts.is_empty() && self.inputs.iter().chain(&self.outputs).all(plain)
    }

    /// Whether members and so many inputs and outputs of a graph fit one another.
    pub fn fits(&self, inputs: usize, outputs: usize) -> bool {
        let sum = |members: &[Member]| {
            members.iter().try_fold(0usize, |sum, member| sum.checked_add(member.form.tensors()))
        };
        self.is_plain()
            || (sum(&self.inputs) == Some(inputs) && sum(&self.outputs) == Some(outputs))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn members_count_the_tensors_of_the_graph() {
        let member = |form| Member { name: "x".into(), form, text: false };
        let interface = Interface {
            inputs: vec![member(MemberForm::Sequence(3)), member(MemberForm::Tensor)],
            outputs: vec![member(MemberForm::Absent)],
            texts: Vec::new(),
        };
        assert!(interface.fits(4, 0) && !interface.fits(3, 0) && !interface.is_plain());
        let text = serde_json::to_string(&interface).unwrap();
        assert_eq!(serde_json::from_str::<Interface>(&text).unwrap(), interface);
        assert!(Interface::default().is_plain() && Interface::default().fits(7, 1));
        let whole =
            Interface { inputs: vec![member(MemberForm::Sequence(usize::MAX)); 2], ..interface };
        assert!(!whole.fits(4, 0));
    }
}
