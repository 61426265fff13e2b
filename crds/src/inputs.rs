//! Sizes of a model's open dimensions.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::common::ElementType;

/// What several sizes of an axis look like as text, besides a number alone.
pub const EXTENT_PATTERN: &str = r"^([0-9]{1,10}((\|[0-9]{1,10}){1,31}|\.\.[0-9]{1,10})?|1\.\.)$";

/// Binds a model input, or an open dimension of all inputs. One artifact serves several sizes, of which all dimensions
/// together may have at most 32 combinations.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("[has(self.shape), has(self.sizes), has(self.range)].exists_one(own, own)",
        "an input has a shape, an open dimension has sizes or a range: set exactly one of them"),
    validation = ("!has(self.dtype) || has(self.shape)",
        "dtype is of an input, not of a dimension: remove it, or set shape"),
)]
pub struct InputBinding {
    /// The name of the input, or of the open dimension, in the model.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// For an input: sizes in elements, in the model's axis order. Text gives several sizes of an axis: `"16|32|64"` each
    /// of these, `"1..8"` all from 1 to 8, `"1.."` any size from 1 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "extents")]
    pub shape: Option<Vec<IntOrString>>,
    /// For an open dimension: its sizes in elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(range(min = 1, max = 4294967296i64)))]
    pub sizes: Option<Vec<i64>>,
    /// For an open dimension: all sizes from `min` to `max`; without `max` any, where the model maps over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<SizeRange>,
    /// Must equal the model's element type where given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ElementType>,
}

/// All sizes from one to another: code is made for each of up to 32, and for a few bounds of a longer range, which a run
/// of a smaller size takes as long as. Without a largest, any size from 1 on, where the model maps over the dimension, as
/// it does over a batch.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!has(self.max) || self.min <= self.max", "min is larger than max: exchange them"),
    validation = ("has(self.max) || self.min == 1", "a range without max is any size, from 1 on: set min to 1, or set max"),
)]
pub struct SizeRange {
    /// The smallest, in elements.
    #[schemars(range(min = 0, max = 4294967296i64))]
    pub min: i64,
    /// The largest, in elements; none for any size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4294967296i64))]
    pub max: Option<i64>,
}

/// A list of sizes, each a number or a text.
fn extents(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 351,
            "maximum": 4294967296i64,
            "minimum": 1,
            "pattern": EXTENT_PATTERN,
            "x-kubernetes-int-or-string": true,
        },
    })
}

impl InputBinding {
    /// The sizes of each axis as text: `16`, `16|32|64` or `1..8`. Those of a dimension are one axis.
    pub fn extents(&self) -> Vec<String> {
        let join = |sizes: &[i64]| {
            let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
            sizes.join("|")
        };
        match (&self.shape, &self.sizes, &self.range) {
            (Some(shape), ..) => {
                let text = |own: &IntOrString| match own {
                    IntOrString::Int(size) => size.to_string(),
                    IntOrString::String(text) => text.clone(),
                };
                shape.iter().map(text).collect()
            }
            (None, Some(sizes), _) => vec![join(sizes)],
            (None, None, Some(SizeRange { min, max: Some(max) })) => vec![format!("{min}..{max}")],
            (None, None, Some(SizeRange { min, max: None })) => vec![format!("{min}..")],
            (None, None, None) => Vec::new(),
        }
    }

    /// Whether any axis has several sizes.
    pub fn has_several(&self) -> bool {
        self.extents().iter().any(|own| own.contains(['|', '.']))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_say_sizes_has_a_text() {
        let none = InputBinding {
            name: "x".to_owned(),
            shape: None,
            sizes: None,
            range: None,
            dtype: None,
        };
        let shape = vec![IntOrString::Int(1), IntOrString::String("16|32".to_owned())];
        let by_shape = InputBinding { shape: Some(shape), ..none.clone() };
        assert_eq!(
            (by_shape.extents(), by_shape.has_several()),
            (vec!["1".into(), "16|32".into()], true)
        );
        let by_sizes = InputBinding { sizes: Some(vec![16]), ..none.clone() };
        assert_eq!((by_sizes.extents(), by_sizes.has_several()), (vec!["16".into()], false));
        let range = Some(SizeRange { min: 1, max: Some(8) });
        let by_range = InputBinding { range, ..none.clone() };
        assert_eq!((by_range.extents(), by_range.has_several()), (vec!["1..8".into()], true));
        let range = Some(SizeRange { min: 1, max: None });
        let any = InputBinding { range, ..none };
        assert_eq!((any.extents(), any.has_several()), (vec!["1..".into()], true));
    }
}
