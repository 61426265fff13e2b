//! Sizes of open dimensions: from what may be said of inputs and of dimensions to one set of shapes for each
//! combination of sizes.

use crate::{Dimension, InputBinding, PortSignature, Signature, SummedDimension};
use hone_types::DataType;
use std::collections::BTreeMap;
use thiserror::Error;

/// The sizes that each axis of an input shall have; or, under the name of an open dimension, its sizes as those of a
/// single axis.
#[derive(Clone, Debug, PartialEq)]
pub struct SizedBinding {
    /// Name of the input, or of a dimension of inputs where no input has it.
    pub name: String,
    /// Sizes of each axis; none of the lists is empty.
    pub shape: Vec<Vec<usize>>,
    /// Element type, checked against the model's.
    pub dtype: Option<DataType>,
}

/// One size for each open dimension.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Combination {
    /// The dimensions of several sizes, each with the one that it has here, in the order of the inputs. One without a
    /// name is called `input[axis]`.
    pub dimensions: Vec<(String, usize)>,
    /// The shapes of inputs.
    pub bindings: Vec<InputBinding>,
}

/// Why sizes do not fit a model.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizesError {
    /// A name that neither an input nor a dimension has.
    #[error("the model has no input and no open dimension '{name}', only {known}")]
    Unknown {
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// Sizes for the axes of an input that does not have as many.
    #[error("input '{input}' is {declared}, sizes of {given} axes are given")]
    Rank {
        /// Name of the input.
        input: String,
        /// How the model declares it.
        declared: String,
        /// How many axes have sizes.
        given: usize,
    },
    /// Several axes for a dimension.
    #[error("dimension '{name}' is one axis, sizes of {given} axes are given")]
    Axes {
        /// Name of the dimension.
        name: String,
        /// How many axes have sizes.
        given: usize,
    },
    /// Other sizes than the model fixes.
    #[error("axis {axis} of input '{input}' is {extent} in the model, {given} is given")]
    Fixed {
        /// Name of the input.
        input: String,
        /// The axis.
        axis: usize,
        /// Its extent.
        extent: usize,
        /// What is given.
        given: String,
    },
    /// Different sizes for one dimension.
    #[error(
        "dimension '{name}' is given as {first} and as {second}: it has the same sizes everywhere"
    )]
    Differs {
        /// Name of the dimension.
        name: String,
        /// What is said of it first.
        first: String,
        /// What is said of it later.
        second: String,
    },
    /// Sizes for a dimension that is a sum of others, which is none of them.
    #[error(
        "dimension '{name}' is {sum}, of which {value} comes up, and {given} is given: leave its sizes out"
    )]
    Sum {
        /// Name of the dimension.
        name: String,
        /// What it is.
        sum: String,
        /// A size that it has.
        value: usize,
        /// What is given.
        given: String,
    },
    /// More combinations than may be compiled.
    #[error(
        "{sizes} make {count} combinations of sizes, and an artifact serves at most {most}: name fewer sizes, or make several artifacts"
    )]
    Many {
        /// The dimensions with their sizes.
        sizes: String,
        /// How many combinations.
        count: usize,
        /// How many there may be.
        most: usize,
    },
}

/// Shapes of inputs for each combination of the sizes given, the largest sizes first; at most `most`. What has one
/// size everywhere gives one combination without dimensions. Inputs with dimensions of which nothing is said get no
/// shape.
///
/// # Errors
/// See [`SizesError`]. What [`crate::import`] refuses of a single shape is left to it.
pub fn combinations(
    signature: &Signature,
    given: &[SizedBinding],
    most: usize,
) -> Result<Vec<Combination>, SizesError> {
    let is_plain = |binding: &SizedBinding| {
        let is_single = binding.shape.iter().all(|sizes| sizes.len() == 1);
        is_single
            && (input(signature, &binding.name).is_some()
                || !is_dimension(signature, &binding.name))
    };
    if given.iter().all(is_plain) {
        let bindings = given.iter().map(|binding| plain(binding, &|_, sizes| sizes[0]));
        return Ok(vec![Combination { dimensions: Vec::new(), bindings: bindings.collect() }]);
    }
    let mut known = Known::default();
    for binding in given {
        known.learn(signature, binding)?;
    }
    let open = known.in_order(signature, given);
    let count = open.iter().try_fold(1usize, |count, (_, sizes)| count.checked_mul(sizes.len()));
    if count.is_none_or(|count| count > most) {
        let sizes: Vec<String> =
            open.iter().map(|(name, sizes)| format!("{name}={}", list(sizes))).collect();
        let (sizes, count) = (sizes.join(", "), count.unwrap_or(usize::MAX));
        return Err(SizesError::Many { sizes, count, most });
    }
    let mut chosen: Vec<Vec<(String, usize)>> = vec![Vec::new()];
    for (name, sizes) in &open {
        let with = |sizes_so_far: &Vec<(String, usize)>, size: usize| {
            sizes_so_far.iter().cloned().chain([(name.clone(), size)]).collect()
        };
        chosen = chosen
            .iter()
            .flat_map(|so_far| sizes.iter().rev().map(move |size| with(so_far, *size)))
            .collect();
    }
    chosen.into_iter().map(|dimensions| known.bind(signature, given, dimensions)).collect()
}

fn input<'a>(signature: &'a Signature, name: &str) -> Option<&'a PortSignature> {
    signature.inputs.iter().find(|port| port.name == name)
}

fn is_dimension(signature: &Signature, name: &str) -> bool {
    let has =
        |dimension: &Dimension| matches!(dimension, Dimension::Symbol(symbol) if symbol == name);
    signature.inputs.iter().any(|port| port.shape.iter().flatten().any(has))
}

/// What messages and reports call an axis: its dimension's name, or its place.
fn name_of(port: &PortSignature, axis: usize) -> String {
    match port.shape.as_ref().and_then(|shape| shape.get(axis)) {
        Some(Dimension::Symbol(name)) => name.clone(),
        _ => format!("{}[{axis}]", port.name),
    }
}

fn list(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    sizes.join("|")
}

fn plain(binding: &SizedBinding, size: &dyn Fn(usize, &[usize]) -> usize) -> InputBinding {
    let shape = binding.shape.iter().enumerate().map(|(axis, sizes)| size(axis, sizes)).collect();
    InputBinding { name: binding.name.clone(), shape, dtype: binding.dtype }
}

/// Sizes of dimensions, ascending, by their names.
#[derive(Default)]
struct Known(BTreeMap<String, Vec<usize>>);

impl Known {
    fn learn(&mut self, signature: &Signature, binding: &SizedBinding) -> Result<(), SizesError> {
        let Some(port) = input(signature, &binding.name) else {
            if !is_dimension(signature, &binding.name) {
                return Err(unknown(signature, &binding.name));
            }
            return match &binding.shape[..] {
                [sizes] => self.set(binding.name.clone(), sizes),
                axes => Err(SizesError::Axes { name: binding.name.clone(), given: axes.len() }),
            };
        };
        let declared = port.shape.as_deref();
        if declared.is_some_and(|shape| shape.len() != binding.shape.len()) {
            let (input, declared) = (port.name.clone(), port.to_string());
            return Err(SizesError::Rank { input, declared, given: binding.shape.len() });
        }
        for (axis, sizes) in binding.shape.iter().enumerate() {
            match declared.and_then(|shape| shape.get(axis)) {
                Some(Dimension::Fixed(extent)) if sizes[..] != [*extent] => {
                    let (input, given) = (port.name.clone(), list(sizes));
                    return Err(SizesError::Fixed { input, axis, extent: *extent, given });
                }
                Some(Dimension::Fixed(_)) => {}
                Some(Dimension::Symbol(_) | Dimension::Unknown) | None => {
                    self.set(name_of(port, axis), sizes)?;
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, name: String, sizes: &[usize]) -> Result<(), SizesError> {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        match self.0.get(&name) {
            Some(known) if *known != sizes => {
                let (first, second) = (list(known), list(&sizes));
                Err(SizesError::Differs { name, first, second })
            }
            Some(_) => Ok(()),
            None => {
                self.0.insert(name, sizes);
                Ok(())
            }
        }
    }

    /// The dimensions of several sizes, in the order in which inputs have them first.
    fn in_order(&self, signature: &Signature, given: &[SizedBinding]) -> Vec<(String, Vec<usize>)> {
        let mut found: Vec<(String, Vec<usize>)> = Vec::new();
        for port in &signature.inputs {
            let binding = given.iter().find(|binding| binding.name == port.name);
            let given = binding.map_or(0, |binding| binding.shape.len());
            let rank = port.shape.as_ref().map_or(given, Vec::len);
            for axis in 0..rank {
                let name = name_of(port, axis);
                let sizes = self.0.get(&name).filter(|sizes| sizes.len() > 1);
                let sizes = sizes.filter(|_| signature.sum_of(&name).is_none());
                if let Some(sizes) = sizes
                    && found.iter().all(|known| known.0 != name)
                {
                    found.push((name, sizes.clone()));
                }
            }
        }
        found
    }

    fn bind(
        &self,
        signature: &Signature,
        given: &[SizedBinding],
        dimensions: Vec<(String, usize)>,
    ) -> Result<Combination, SizesError> {
        let plain_size = |name: &str| -> Option<usize> {
            let chosen = dimensions.iter().find(|known| known.0 == name).map(|known| known.1);
            chosen.or_else(|| self.0.get(name).map(|sizes| sizes[0]))
        };
        let size = |name: &str| match signature.sum_of(name) {
            Some(sum) => sum.value(&plain_size),
            None => plain_size(name),
        };
        self.check_sums(signature, &size)?;
        let mut bindings = Vec::new();
        for port in &signature.inputs {
            let binding = given.iter().find(|binding| binding.name == port.name);
            let chosen =
                |axis: usize, sizes: &[usize]| size(&name_of(port, axis)).unwrap_or(sizes[0]);
            if let Some(binding) = binding {
                bindings.push(plain(binding, &chosen));
                continue;
            }
            let extent = |(axis, dimension): (usize, &Dimension)| match dimension {
                Dimension::Fixed(extent) => Some(*extent),
                _ => size(&name_of(port, axis)),
            };
            let shape = port.shape.as_ref();
            let shape: Option<Vec<usize>> =
                shape.and_then(|shape| shape.iter().enumerate().map(extent).collect());
            let is_open = |dimension: &Dimension| !matches!(dimension, Dimension::Fixed(_));
            if let Some(shape) = shape.filter(|_| port.shape.iter().flatten().any(is_open)) {
                bindings.push(InputBinding { name: port.name.clone(), shape, dtype: None });
            }
        }
        Ok(Combination { dimensions, bindings })
    }

    /// Compares sizes that are given of sums with what comes up.
    fn check_sums(
        &self,
        signature: &Signature,
        size: &dyn Fn(&str) -> Option<usize>,
    ) -> Result<(), SizesError> {
        for SummedDimension { name, sum } in &signature.sums {
            let (Some(value), Some(given)) = (size(name), self.0.get(name)) else { continue };
            if !given.contains(&value) {
                let (name, sum, given) = (name.clone(), sum.to_string(), list(given));
                return Err(SizesError::Sum { name, sum, value, given });
            }
        }
        Ok(())
    }
}

fn unknown(signature: &Signature, name: &str) -> SizesError {
    let mut known: Vec<String> = Vec::new();
    for port in &signature.inputs {
        known.push(format!("input '{}' ({port})", port.name));
    }
    SizesError::Unknown { name: name.to_owned(), known: known.join(", ") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn signature(inputs: &[(&str, &[&str])]) -> Signature {
        let port = |(name, dimensions): &(&str, &[&str])| {
            let shape = dimensions.iter().map(|text| match (text.parse(), *text) {
                (Ok(extent), _) => Dimension::Fixed(extent),
                (_, "?") => Dimension::Unknown,
                _ => Dimension::Symbol((*text).to_owned()),
            });
            let (name, shape) = ((*name).to_owned(), Some(shape.collect()));
            PortSignature { name, dtype: Some(DataType::F32), shape, ..PortSignature::default() }
        };
        let mut signature =
            Signature { inputs: inputs.iter().map(port).collect(), ..Signature::default() };
        signature.sums = signature.named_sums();
        signature
    }

    fn given(name: &str, shape: &[&[usize]]) -> SizedBinding {
        let shape = shape.iter().map(|sizes| sizes.to_vec()).collect();
        SizedBinding { name: name.to_owned(), shape, dtype: None }
    }

    /// Each combination as `dimensions; input shape, …`.
    fn shown(signature: &Signature, given: &[SizedBinding]) -> Vec<String> {
        let line = |combination: Combination| {
            let shapes: Vec<String> = combination
                .bindings
                .iter()
                .map(|binding| format!("{}{:?}", binding.name, binding.shape))
                .collect();
            format!("{:?}; {}", combination.dimensions, shapes.join(" "))
        };
        combinations(signature, given, 8).unwrap().into_iter().map(line).collect()
    }

    #[test]
    fn dimensions_are_bound_in_every_input() {
        let model = signature(&[("x", &["n", "s"]), ("m", &["s"]), ("c", &["3"])]);
        let sizes = [given("s", &[&[2, 4]]), given("n", &[&[1]])];
        let expected =
            ["[(\"s\", 4)]; x[1, 4] m[4]".to_owned(), "[(\"s\", 2)]; x[1, 2] m[2]".to_owned()];
        assert_eq!(shown(&model, &sizes), expected);
        // The same by the shape of one input.
        assert_eq!(shown(&model, &[given("x", &[&[1], &[4, 2, 4]])]), expected);
        // One size by name is a shape of every input; nothing said of a dimension leaves inputs open.
        assert_eq!(shown(&model, &[given("s", &[&[7]])]), ["[]; m[7]"]);
        assert_eq!(shown(&model, &[given("x", &[&[1], &[4]])]), ["[]; x[1, 4]"]);
    }

    #[test]
    fn several_dimensions_give_their_product_with_the_largest_first() {
        let model = signature(&[("x", &["n", "?"]), ("y", &["?"])]);
        let sizes = [given("x", &[&[1, 2], &[8]]), given("y", &[&[5, 6]])];
        let found = shown(&model, &sizes);
        assert_eq!(found.len(), 4);
        assert_eq!(found[0], "[(\"n\", 2), (\"y[0]\", 6)]; x[2, 8] y[6]");
        assert_eq!(found[3], "[(\"n\", 1), (\"y[0]\", 5)]; x[1, 8] y[5]");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let model = signature(&[("x", &["n", "8"]), ("y", &["n", "s"])]);
        let refused = |all: &[SizedBinding]| combinations(&model, all, 8).unwrap_err().to_string();
        let two: &[usize] = &[1, 2];
        for (all, expected) in [
            (vec![given("z", &[two])], "the model has no input and no open dimension 'z'"),
            (vec![given("x", &[two])], "input 'x' is f32[n, 8], sizes of 1 axes are given"),
            (vec![given("n", &[two, two])], "dimension 'n' is one axis, sizes of 2 axes"),
            (vec![given("x", &[two, two])], "axis 1 of input 'x' is 8 in the model, 1|2 is given"),
            (
                vec![given("n", &[two]), given("x", &[&[1, 3], &[8]])],
                "dimension 'n' is given as 1|2 and as 1|3",
            ),
            (
                vec![given("n", &[&[1, 2, 3]]), given("s", &[&[1, 2, 3]])],
                "n=1|2|3, s=1|2|3 make 9 combinations of sizes, and an artifact serves at most 8",
            ),
        ] {
            let found = refused(&all);
            assert!(found.contains(expected), "{found}");
        }
        // What is wrong with one shape is said when importing.
        assert_eq!(shown(&model, &[given("q", &[&[1]])]), ["[]; q[1]"]);
    }
}
