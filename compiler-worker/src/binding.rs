//! Open dimensions of a model, bound by the shapes of the arrays that it is given.

use std::collections::HashMap;
use std::path::Path;

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Input;
use hone_artifact::{Extent, TensorInfo};
use hone_driver::{Dimension, NarrowType, PortSignature, Signature};

use crate::failure::{Failure, Result};
use crate::maps;
use crate::npz::{self, Array};

/// Arrays for a model's inputs, and the file that they come from.
#[derive(Debug)]
pub struct Arrays {
    /// The arrays, in the file's order.
    pub arrays: Vec<Array>,
    /// The file, for messages.
    pub file: String,
}

impl Arrays {
    /// Reads an `.npz` file.
    ///
    /// # Errors
    /// As for [`npz::read`].
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Self { arrays: npz::read(path)?, file: path.display().to_string() })
    }

    /// `given`, and the shapes of the arrays for all other inputs with open dimensions; what `given` says of a dimension
    /// holds for all inputs that have it.
    ///
    /// # Errors
    /// `InvalidInput` naming the array that is missing, unknown, of another type or rank, or that
    /// contradicts `given` or another array.
    pub fn bind(&self, signature: &Signature, given: Vec<Input>) -> Result<Vec<Input>> {
        let refuse = |why: String| {
            let message = format!("'{}' does not fit the model", self.file);
            Failure::because(Reason::InvalidInput, message, why)
        };
        let maps = maps::of_signature(signature);
        let own = self.laid_out(&maps)?;
        let signature = &own.with_items(signature);
        own.refuse_unknown(signature).map_err(refuse)?;
        let mut symbols = HashMap::new();
        let said = said(signature, &given);
        let mut bound = given;
        for port in &signature.inputs {
            let array = own.arrays.iter().find(|array| array.name == port.name);
            let array = array.ok_or_else(|| {
                refuse(format!("it has no array '{}', which the model takes as {port}", port.name))
            })?;
            fits(port, array).map_err(refuse)?;
            learn(port, array, &mut symbols).map_err(refuse)?;
            match bound.iter().find(|input| input.name == port.name) {
                Some(input) => agrees(input, array).map_err(refuse)?,
                // It follows from what is said of others.
                None if is_sum_of_said(signature, port, &said) => {}
                None if is_open(port) => bound.push(Input {
                    name: port.name.clone(),
                    shape: shape_of(port, array, &said).map_err(refuse)?,
                    dtype: None,
                }),
                None => {}
            }
        }
        Ok(bound)
    }

    /// The place of the first list of inputs whose shapes are those of the arrays; 0 where there is none, so that what
    /// does not fit is said of the first.
    pub fn sizes(&self, inputs: impl Iterator<Item = Vec<TensorInfo>>) -> usize {
        let fits = |ports: Vec<TensorInfo>| {
            let has = |port: &TensorInfo| {
                let array = self.arrays.iter().find(|array| array.name == port.name);
                array.is_some_and(|array| array.shape == port.shape)
            };
            ports.iter().all(has)
        };
        inputs.map(fits).position(|own| own).unwrap_or(0)
    }

    /// The same with some maps as a model takes them.
    ///
    /// # Errors
    /// As for [`maps::laid_out`].
    pub fn laid_out(&self, maps: &[String]) -> Result<Self> {
        let arrays = maps::laid_out(self.arrays.clone(), maps, &self.file)?;
        Ok(Self { arrays, file: self.file.clone() })
    }

    /// Inputs with a tensor `x[0]`, `x[1]` and so on for each array of a sequence `x`, and what a map is made
    /// of.
    fn with_items(&self, signature: &Signature) -> Signature {
        let mut inputs = Vec::with_capacity(signature.inputs.len());
        for port in &signature.inputs {
            if let Some(parts) = port.map_parts() {
                inputs.extend(parts);
                continue;
            }
            if !port.sequence {
                inputs.push(port.clone());
                continue;
            }
            for place in 0.. {
                let name = format!("{}[{place}]", port.name);
                if self.arrays.iter().all(|array| array.name != name) {
                    break;
                }
                // Tensors of a sequence may differ in shape: their shapes are always given.
                inputs.push(PortSignature { name, shape: None, sequence: false, ..port.clone() });
            }
        }
        Signature { inputs, ..signature.clone() }
    }

    fn refuse_unknown(&self, signature: &Signature) -> std::result::Result<(), String> {
        let known = |array: &&Array| signature.inputs.iter().any(|port| port.name == array.name);
        let Some(unknown) = self.arrays.iter().find(|array| !known(array)) else { return Ok(()) };
        let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        Err(format!(
            "array '{}' is no input of the model: those are {}",
            unknown.name,
            names.join(", ")
        ))
    }
}

fn is_open(port: &PortSignature) -> bool {
    let open = |dimension: &Dimension| !matches!(dimension, Dimension::Fixed(_));
    port.shape.as_ref().is_none_or(|shape| shape.iter().any(open))
}

/// Whether an input has a dimension that is a sum of others of which something is said.
fn is_sum_of_said(
    signature: &Signature,
    port: &PortSignature,
    said: &HashMap<&str, Extent>,
) -> bool {
    port.shape.iter().flatten().any(|dimension| match dimension {
        Dimension::Symbol(symbol) => signature
            .sum_of(symbol)
            .is_some_and(|sum| sum.terms.iter().any(|term| said.contains_key(term.0.as_str()))),
        _ => false,
    })
}

/// Whether an array has the declared type, rank and fixed extents.
fn fits(port: &PortSignature, array: &Array) -> std::result::Result<(), String> {
    let found = array.description();
    let is_text = port.narrow == Some(NarrowType::Text);
    if port.dtype.is_some() && is_text != array.texts.is_some() {
        let advice = if is_text { ", with .astype(str)" } else { "" };
        return Err(format!(
            "array '{}' is {found}, the model takes {port}: convert it before saving{advice}",
            port.name
        ));
    }
    if let Some(dtype) = port.dtype.filter(|dtype| dtype.name() != array.dtype.name()) {
        return Err(format!(
            "array '{}' is {found}, the model takes {port}: convert it before saving{}",
            port.name,
            conversion(dtype.name())
        ));
    }
    let Some(shape) = &port.shape else { return Ok(()) };
    let same = |(dimension, extent): (&Dimension, &u64)| match dimension {
        Dimension::Fixed(fixed) => *fixed as u64 == *extent,
        _ => true,
    };
    if shape.len() == array.shape.len() && shape.iter().zip(&array.shape).all(same) {
        return Ok(());
    }
    Err(format!("array '{}' is {found}, the model takes {port}: give it that shape", port.name))
}

/// How numpy converts to an element type, where it has it.
fn conversion(dtype: &str) -> String {
    let bits = |text: &str| text.parse::<u32>().is_ok();
    let long = match dtype.split_at_checked(1) {
        _ if dtype == "bool" => "bool".to_owned(),
        Some(("f", size)) if bits(size) => format!("float{size}"),
        Some(("i", size)) if bits(size) => format!("int{size}"),
        Some(("u", size)) if bits(size) => format!("uint{size}"),
        _ => return String::new(),
    };
    format!(", with .astype(\"{long}\")")
}

/// Extents of named dimensions, each with the array that gave it.
type Symbols<'a> = HashMap<&'a str, (u64, &'a str)>;

fn learn<'a>(
    port: &'a PortSignature,
    array: &Array,
    symbols: &mut Symbols<'a>,
) -> std::result::Result<(), String> {
    let shape = port.shape.iter().flatten().zip(&array.shape).enumerate();
    for (axis, (dimension, extent)) in shape {
        let Dimension::Symbol(symbol) = dimension else { continue };
        let (known, by) = *symbols.entry(symbol).or_insert((*extent, &port.name));
        if known != *extent {
            return Err(format!(
                "dimension '{symbol}' is {known} in array '{by}' and {extent} in array '{}' (axis {axis}): \
                 it must be the same",
                port.name
            ));
        }
    }
    Ok(())
}

fn agrees(input: &Input, array: &Array) -> std::result::Result<(), String> {
    let same = input.shape.len() == array.shape.len();
    if same && input.shape.iter().zip(&array.shape).all(|(own, extent)| has(own, *extent)) {
        return Ok(());
    }
    let given: Vec<String> = input.shape.iter().map(Extent::to_string).collect();
    let advice = match input.shape.iter().all(|own| own.single().is_some()) {
        true => "leave --shape out, the array decides",
        false => "give an array of one of these sizes",
    };
    Err(format!(
        "array '{}' is {}, and --shape says {}={}: {advice}",
        input.name,
        array.description(),
        input.name,
        given.join(",")
    ))
}

/// Whether a size is among others; those that are none are refused later.
fn has(extent: &Extent, size: u64) -> bool {
    extent.sizes().map_or(true, |sizes| sizes.contains(&size))
}

/// What is said of dimensions by name: on their own, or as an axis of an input.
fn said<'a>(signature: &'a Signature, given: &[Input]) -> HashMap<&'a str, Extent> {
    let mut said = HashMap::new();
    for port in &signature.inputs {
        let own = given.iter().find(|own| own.name == port.name);
        for (axis, dimension) in port.shape.iter().flatten().enumerate() {
            let Dimension::Symbol(symbol) = dimension else { continue };
            // One size is compared with the arrays where it is given.
            let by_axis = own.and_then(|own| own.shape.get(axis));
            let by_axis = by_axis.filter(|extent| extent.single().is_none());
            let is_input = signature.inputs.iter().any(|port| port.name == *symbol);
            let by_name = given.iter().find(|own| own.name == *symbol && !is_input);
            let extent = by_axis.or_else(|| by_name.and_then(|own| own.shape.first()));
            if let Some(extent) = extent {
                said.entry(symbol.as_str()).or_insert_with(|| extent.clone());
            }
        }
    }
    said
}

/// The shape of an input of which nothing is said itself.
fn shape_of(
    port: &PortSignature,
    array: &Array,
    said: &HashMap<&str, Extent>,
) -> std::result::Result<Vec<Extent>, String> {
    let extent = |(axis, extent): (usize, &u64)| {
        let own = Extent::One(*extent as i64);
        let dimension = port.shape.as_ref().and_then(|shape| shape.get(axis));
        let Some(Dimension::Symbol(symbol)) = dimension else { return Ok(own) };
        match said.get(symbol.as_str()) {
            Some(said) if has(said, *extent) => Ok(said.clone()),
            Some(said) => Err(format!(
                "array '{}' is {}, and --shape says {symbol}={said}: give an array of one of these sizes",
                port.name,
                array.description()
            )),
            None => Ok(own),
        }
    };
    array.shape.iter().enumerate().map(extent).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_artifact::DataType;

    fn signature(inputs: &[(&str, &[&str])]) -> Signature {
        let port = |(name, dimensions): &(&str, &[&str])| {
            let shape = dimensions.iter().map(|text| match (text.parse(), *text) {
                (Ok(extent), _) => Dimension::Fixed(extent),
                (_, "?") => Dimension::Unknown,
                _ => Dimension::Symbol((*text).to_owned()),
            });
            let dtype = Some(hone_driver::DataType::F32);
            PortSignature {
                name: (*name).to_owned(),
                dtype,
                shape: Some(shape.collect()),
                ..PortSignature::default()
            }
        };
        Signature { inputs: inputs.iter().map(port).collect(), ..Signature::default() }
    }

    fn arrays(all: &[(&str, &[u64])]) -> Arrays {
        let arrays = all.iter().map(|(name, shape)| Array {
            name: (*name).to_owned(),
            dtype: DataType::F32,
            shape: shape.to_vec(),
            bytes: Vec::new(),
            texts: None,
        });
        Arrays { arrays: arrays.collect(), file: "a.npz".into() }
    }

    fn shapes(bound: Vec<Input>) -> Vec<(String, Vec<i64>)> {
        let single = |own: &Extent| own.single().unwrap();
        let shape = |own: &[Extent]| own.iter().map(single).collect();
        bound.into_iter().map(|input| (input.name, shape(&input.shape))).collect()
    }

    #[test]
    fn arrays_bind_what_is_open() {
        let signature = signature(&[("x", &["n", "3"]), ("fixed", &["2"]), ("z", &["?", "?"])]);
        let arrays = arrays(&[("fixed", &[2]), ("z", &[5, 6]), ("x", &[4, 3])]);
        let bound = arrays.bind(&signature, Vec::new()).unwrap();
        let expected = [("x".to_owned(), vec![4, 3]), ("z".to_owned(), vec![5, 6])];
        assert_eq!(shapes(bound), expected);
        // What is given by hand stays, where it agrees.
        let shape = vec![Extent::One(5), Extent::One(6)];
        let given = vec![Input { name: "z".into(), shape, dtype: None }];
        assert_eq!(shapes(arrays.bind(&signature, given).unwrap()).len(), 2);
    }

    #[test]
    fn what_is_said_of_a_dimension_holds_for_all_inputs() {
        let signature = signature(&[("x", &["n", "3"]), ("y", &["n"])]);
        let arrays = arrays(&[("x", &[4, 3]), ("y", &[4])]);
        let sizes = |name: &str, shape: &[&str]| {
            let shape = shape.iter().map(|text| text.parse().unwrap()).collect();
            vec![Input { name: name.into(), shape, dtype: None }]
        };
        let shown = |bound: Vec<Input>| -> Vec<String> {
            let text = |own: &Input| {
                let shape: Vec<String> = own.shape.iter().map(Extent::to_string).collect();
                format!("{}={}", own.name, shape.join(","))
            };
            bound.iter().map(text).collect()
        };
        let bound = arrays.bind(&signature, sizes("n", &["2|4"])).unwrap();
        assert_eq!(shown(bound), ["n=2|4", "x=2|4,3", "y=2|4"]);
        let bound = arrays.bind(&signature, sizes("y", &["1..4"])).unwrap();
        assert_eq!(shown(bound), ["y=1..4", "x=1..4,3"]);
        let refused = arrays.bind(&signature, sizes("n", &["1..3"])).unwrap_err().chain();
        assert!(refused.contains("'x' is f32[4, 3], and --shape says n=1..3: give"), "{refused}");
        let refused = arrays.bind(&signature, sizes("x", &["1..3", "3"])).unwrap_err().chain();
        assert!(refused.contains("--shape says x=1..3,3: give an array of one"), "{refused}");
    }

    #[test]
    fn arrays_of_a_sequence_bind_one_by_one() {
        let mut signature = signature(&[("x", &["n"]), ("y", &["2"])]);
        signature.inputs[0].sequence = true;
        let given = arrays(&[("x[1]", &[5]), ("y", &[2]), ("x[0]", &[4])]);
        let expected = [("x[0]".to_owned(), vec![4]), ("x[1]".to_owned(), vec![5])];
        assert_eq!(shapes(given.bind(&signature, Vec::new()).unwrap()), expected);
        let gap = arrays(&[("x[1]", &[5]), ("y", &[2])]).bind(&signature, Vec::new());
        assert!(gap.unwrap_err().chain().contains("'x[1]' is no input"));
    }

    #[test]
    fn a_map_is_two_arrays() {
        let mut signature = signature(&[("m", &[])]);
        signature.inputs[0].map = Some(hone_driver::KeyType::Text);
        let mut given = arrays(&[("m.keys", &[2]), ("m.values", &[2])]);
        let refused = given.bind(&signature, Vec::new()).unwrap_err().chain();
        assert!(refused.contains("'m.keys' is f32[65536], the model takes string"), "{refused}");
        given.arrays[0].dtype = DataType::U64;
        given.arrays[0].texts = Some(vec!["a".into(), "b".into()]);
        assert!(given.bind(&signature, Vec::new()).unwrap().is_empty());
        let lone = arrays(&[("m.keys", &[2])]).bind(&signature, Vec::new());
        assert!(lone.unwrap_err().chain().contains("'m.values'"));
    }

    #[test]
    fn contradictions_name_both() {
        let signature = signature(&[("x", &["n", "3"]), ("y", &["n"])]);
        let refused = |all: &[(&str, &[u64])], given: Vec<Input>| {
            arrays(all).bind(&signature, given).unwrap_err().chain()
        };
        let both = refused(&[("x", &[4, 3]), ("y", &[5])], Vec::new());
        assert!(both.contains("'n' is 4 in array 'x' and 5 in array 'y'"), "{both}");
        let given = vec![Input { name: "y".into(), shape: vec![Extent::One(9)], dtype: None }];
        let flag = refused(&[("x", &[4, 3]), ("y", &[4])], given);
        assert!(flag.contains("'y' is f32[4], and --shape says y=9"), "{flag}");
    }
}
