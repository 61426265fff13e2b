//! How a model's inputs and outputs, as its users know them, are made of the tensors that steps read and write.

use serde::{Deserialize, Serialize};

use crate::{DataType, Manifest, ManifestError, TensorInfo};

/// What a model takes and gives where that is more than tensors of numbers. Empty of a model that takes and gives
/// no others; then each tensor is an input or output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The model's inputs in order, each with the next of [`Manifest::inputs`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Member>,
    /// The model's outputs in order, each with the next of [`Manifest::outputs`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Member>,
    /// Strings that constants of the model stand for, as [`crate::text_handle`] says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<String>,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name in the model.
    pub name: String,
    /// What it is.
    pub form: MemberForm,
    /// Whether the elements of its tensors (of a map or maps: the keys) stand for strings ([`crate::text_handle`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text: bool,
}

/// What an input or output of a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberForm {
    /// One tensor, of the member's name.
    Tensor,
    /// A list of so many tensors, called `name[0]`, `name[1]` and so on.
    Sequence(u32),
    /// A list of maps: two tensors, `name.keys` with the keys that all of them have (`[n]`), and `name.values` with a
    /// map in each row (`[maps, n]`).
    Maps,
    /// A map: three tensors, `name.keys` and `name.values` with room for as many of each (`[room]`), and `name.count`,
    /// an `i64` without axes, which says how many are there. They are the first ones.
    Map {
        /// Whether the values stand for strings.
        text_values: bool,
    },
    /// An optional value that is not there, without a tensor.
    Absent,
}

impl MemberForm {
    /// How many tensors it is made of.
    pub fn tensors(self) -> usize {
        match self {
            Self::Tensor => 1,
            Self::Sequence(count) => count as usize,
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
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Manifest {
    /// For each input (or output), whether its elements stand for strings.
    pub fn text_tensors(&self, outputs: bool) -> Vec<bool> {
        let of = |(member, range): (Member, std::ops::Range<usize>)| {
            (0..range.len()).map(move |place| member.has_text(place)).collect::<Vec<_>>()
        };
        self.members(outputs).into_iter().flat_map(of).collect()
    }

    /// Inputs (or outputs) as users know them, each with the range of its tensors.
    pub fn members(&self, outputs: bool) -> Vec<(Member, std::ops::Range<usize>)> {
        let (members, tensors) = match outputs {
            false => (&self.interface.inputs, &self.inputs[..self.given_inputs()]),
            true => (&self.interface.outputs, &self.outputs[..]),
        };
        if members.is_empty() {
            let plain = |entry: &TensorInfo| Member {
                name: entry.name.clone(),
                form: MemberForm::Tensor,
                text: false,
            };
            return tensors
                .iter()
                .enumerate()
                .map(|(at, entry)| (plain(entry), at..at + 1))
                .collect();
        }
        let mut first = 0;
        let mut with_range = |member: &Member| {
            let range = first..first + member.form.tensors();
            first = range.end;
            (member.clone(), range)
        };
        members.iter().map(&mut with_range).collect()
    }

    /// Checks that members and tensors fit one another.
    pub(crate) fn check_interface(&self) -> Result<(), ManifestError> {
        let sides = [
            ("input", &self.interface.inputs, &self.inputs),
            ("output", &self.interface.outputs, &self.outputs),
        ];
        for (role, members, tensors) in sides {
            if members.is_empty() {
                continue;
            }
            let mut rest = tensors.iter();
            for member in members {
                let refuse = |what: &str| {
                    let (name, what) = (member.name.clone(), what.to_owned());
                    Err(ManifestError::Tensor { role, name, what })
                };
                if member.name.contains('\0') {
                    return refuse("its name holds a zero byte");
                }
                let count = member.form.tensors();
                if count > rest.len() {
                    return refuse("it has more tensors than are left");
                }
                let entry: Vec<&TensorInfo> = rest.by_ref().take(count).collect();
                let is_other = |own: &(usize, &&TensorInfo)| {
                    member.has_text(own.0) && own.1.dtype != DataType::U64
                };
                if entry.iter().enumerate().any(|own| is_other(&own)) {
                    return refuse("its strings are not handles of u64");
                }
                if !fit_together(member.form, &entry) {
                    return refuse("its keys and values do not fit one another");
                }
            }
            if let Some(tensor) = rest.next() {
                let (name, what) = (tensor.name.clone(), "it belongs to no member".to_owned());
                return Err(ManifestError::Tensor { role, name, what });
            }
        }
        Ok(())
    }
}

/// Whether the tensors of a map or a list of maps fit one another.
fn fit_together(form: MemberForm, tensors: &[&TensorInfo]) -> bool {
    let shape = |place: usize| tensors.get(place).map_or(&[][..], |tensor| &tensor.shape[..]);
    let typed = |place: usize| tensors.get(place).map(|tensor| tensor.dtype);
    match form {
        MemberForm::Maps => shape(0).len() == 1 && shape(0).first() == shape(1).get(1),
        MemberForm::Map { .. } => {
            shape(0).len() == 1
                && shape(0) == shape(1)
                && matches!(typed(0), Some(DataType::U64 | DataType::I64))
                && typed(2) == Some(DataType::I64)
                && shape(2).is_empty()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn manifest(members: Vec<Member>, tensors: &[(&str, DataType)]) -> Manifest {
        let tensor = |entry: &(&str, DataType)| {
            TensorInfo::new(entry.0.to_owned(), entry.1, vec![2]).unwrap()
        };
        Manifest {
            schema_version: 2,
            model_digest: String::new(),
            compiler_version: String::new(),
            records_digest: None,
            inputs: tensors.iter().map(tensor).collect(),
            outputs: Vec::new(),
            interface: Interface { inputs: members, ..Interface::default() },
            open: None,
            padded: None,
            variants: Vec::new(),
        }
    }

    fn member(name: &str, form: MemberForm, text: bool) -> Member {
        Member { name: name.into(), form, text }
    }

    #[test]
    fn members_take_the_tensors_in_order() {
        let list = vec![
            member("a", MemberForm::Sequence(2), false),
            member("b", MemberForm::Absent, false),
            member("c", MemberForm::Tensor, true),
        ];
        let tensors = [("a[0]", DataType::F32), ("a[1]", DataType::I8), ("c", DataType::U64)];
        let entry = manifest(list, &tensors);
        entry.check_interface().unwrap();
        let ranges: Vec<_> = entry.members(false).into_iter().map(|entry| entry.1).collect();
        assert_eq!(ranges, [0..2, 2..2, 2..3]);
        let plain = manifest(Vec::new(), &tensors);
        assert_eq!(plain.members(false)[1].0, member("a[1]", MemberForm::Tensor, false));
    }

    #[test]
    fn a_map_has_keys_values_and_a_count() {
        let check = |keys: DataType, count: DataType| {
            let form = MemberForm::Map { text_values: false };
            let tensors = [("m.keys", keys), ("m.values", DataType::F32), ("m.count", count)];
            let mut entry = manifest(vec![member("m", form, true)], &tensors);
            entry.inputs[2] = TensorInfo::new("m.count".to_owned(), count, Vec::new()).unwrap();
            assert_eq!(entry.text_tensors(false), [true, false, false]);
            entry.check_interface().map_err(|error| error.to_string())
        };
        check(DataType::U64, DataType::I64).unwrap();
        assert!(check(DataType::I64, DataType::I64).unwrap_err().contains("not handles"));
        assert!(check(DataType::U64, DataType::F32).unwrap_err().contains("do not fit"));
    }

    #[test]
    fn members_that_do_not_fit_are_refused() {
        let refused = |list: Vec<Member>| {
            let entry = manifest(list, &[("a[0]", DataType::F32), ("b", DataType::U64)]);
            entry.check_interface().unwrap_err().to_string()
        };
        let tensor = member("b", MemberForm::Tensor, true);
        assert!(refused(vec![tensor.clone()]).contains("not handles"));
        let long = member("a", MemberForm::Sequence(u32::MAX), false);
        assert!(refused(vec![long, tensor.clone()]).contains("more tensors"));
        let first = member("a", MemberForm::Sequence(1), false);
        assert!(refused(vec![first.clone()]).contains("belongs to no member"));
        assert!(refused(vec![member("a\0", MemberForm::Sequence(1), false)]).contains("zero byte"));
        let entry = manifest(vec![first, tensor], &[("a[0]", DataType::F32), ("b", DataType::U64)]);
        entry.check_interface().unwrap();
    }
}
