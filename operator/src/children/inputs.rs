//! Sizes of inputs, from a spec to a request.

use hone_artifact::Extent;
use hone_artifact::request::Input;
use hone_crds::InputBinding;

/// What a worker is told of an input or of a dimension.
pub fn input(binding: &InputBinding) -> Input {
    // The schema has seen to their form; a worker refuses an empty list.
    let extent = |text: &String| text.parse().unwrap_or(Extent::Sizes(Vec::new()));
    Input {
        name: binding.name.clone(),
        shape: binding.extents().iter().map(extent).collect(),
        dtype: binding.dtype.map(|dtype| dtype.to_string()),
    }
}
