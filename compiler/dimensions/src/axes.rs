//! Dimensions of a model's inputs, and what a request says of them: any size, a range of many, or nothing.

use hone_artifact::Extent;
use hone_artifact::request::Input;
use hone_driver::{Dimension, PortSignature, Signature, SizeSum, SizedBinding};

use crate::error::{DimensionError, Result};
use crate::padding::{self, Padding};

/// An open dimension of a model's inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// Its name, or `input[axis]`.
    pub(crate) name: String,
    /// The inputs that have it, alone or with something that is joined to it, and along which axis.
    pub(crate) axes: Vec<(String, usize)>,
}

/// The dimension that is given as `1..`, if one is.
pub(crate) fn given_as_any(signature: &Signature, inputs: &[Input]) -> Result<Option<Open>> {
    let is_any = |extent: &Extent| match extent.is_any() {
        Ok(is_any) => Ok(is_any.then_some(())),
        Err(error) => Err(error.to_string()),
    };
    Ok(only_one(given_as(signature, inputs, &is_any)?)?.map(|(open, ())| open))
}

/// The dimension that is given as a range of more sizes than are compiled each, if one is.
pub(crate) fn given_as_range(signature: &Signature, inputs: &[Input]) -> Result<Option<Padding>> {
    let wide = given_as(signature, inputs, &|extent| Ok(padding::wide_range(extent)))?;
    Ok(only_one(wide)?.map(|(Open { name, axes }, (least, most))| Padding {
        name,
        axes,
        least,
        bounds: padding::bounds(least, most),
        multiple: None,
    }))
}

/// An extent that was looked for: the dimension that it is of, what was found, and where it is given.
pub(crate) struct Given<T> {
    pub(crate) open: Open,
    pub(crate) sizes: T,
    pub(crate) input: usize,
    pub(crate) axis: usize,
}

/// The extents of which `what` finds something.
pub(crate) fn given_as<T>(
    signature: &Signature,
    inputs: &[Input],
    what: &dyn Fn(&Extent) -> std::result::Result<Option<T>, String>,
) -> Result<Vec<Given<T>>> {
    let mut found = Vec::new();
    for (number, input) in inputs.iter().enumerate() {
        for (axis, extent) in input.shape.iter().enumerate() {
            let sizes =
                what(extent).map_err(|error| DimensionError::unusable(&input.name, error))?;
            let Some(sizes) = sizes else { continue };
            let port = signature.inputs.iter().find(|port| port.name == input.name);
            if let Some((name, sum)) = summed(signature, port, &input.name, axis) {
                let why = format!("'{name}' is {sum}: leave its sizes out");
                return Err(DimensionError::unusable(&input.name, why));
            }
            let open = match port.map(|port| (port, declared(port, axis))) {
                Some((_, Some(Dimension::Fixed(extent)))) => {
                    let why = format!("axis {axis} is {extent} in the model");
                    return Err(DimensionError::unusable(&input.name, why));
                }
                Some((_, Some(Dimension::Symbol(name)))) => named(signature, name),
                Some((port, _)) => unnamed(port, axis),
                None => named(signature, &input.name),
            };
            found.push(Given { open, sizes, input: number, axis });
        }
    }
    Ok(found)
}

/// The name of what is given, where it is a sum of other dimensions, and that sum.
fn summed<'a>(
    signature: &'a Signature,
    port: Option<&'a PortSignature>,
    name: &'a str,
    axis: usize,
) -> Option<(&'a str, &'a SizeSum)> {
    let name = match port {
        None => name,
        Some(port) => match declared(port, axis) {
            Some(Dimension::Symbol(name)) => name,
            _ => return None,
        },
    };
    Some((name, signature.sum_of(name)?))
}

/// The only dimension of some, with what was found of it.
fn only_one<T: PartialEq>(all: Vec<Given<T>>) -> Result<Option<(Open, T)>> {
    let mut all = all.into_iter();
    let Some(Given { open, sizes, .. }) = all.next() else { return Ok(None) };
    match all.find(|other| other.open != open || other.sizes != sizes) {
        None => Ok(Some((open, sizes))),
        Some(other) if other.open == open => {
            let why = "it has the same sizes everywhere".to_owned();
            Err(DimensionError::unusable(&open.name, why))
        }
        Some(other) => {
            let why = format!(
                "one dimension may have any size or a range of many, '{}' and '{}' are given as such: name sizes of one of them",
                open.name, other.open.name
            );
            Err(DimensionError::unusable(&other.open.name, why))
        }
    }
}

fn declared(port: &PortSignature, axis: usize) -> Option<&Dimension> {
    port.shape.as_ref().and_then(|shape| shape.get(axis))
}

/// The dimension of a name: first where it is alone, then where something is joined to it.
pub(crate) fn named(signature: &Signature, name: &str) -> Open {
    let (mut axes, mut sums) = (Vec::new(), Vec::new());
    for port in &signature.inputs {
        for (axis, dimension) in port.shape.iter().flatten().enumerate() {
            let Dimension::Symbol(own) = dimension else { continue };
            let sum = signature.sum_of(own);
            if own == name {
                axes.push((port.name.clone(), axis));
            } else if sum.is_some_and(|sum| sum.terms.iter().any(|term| term.0 == name)) {
                sums.push((port.name.clone(), axis));
            }
        }
    }
    axes.append(&mut sums);
    Open { name: name.to_owned(), axes }
}

pub(crate) fn unnamed(port: &PortSignature, axis: usize) -> Open {
    Open { name: format!("{}[{axis}]", port.name), axes: vec![(port.name.clone(), axis)] }
}

/// Dimensions of which nothing is said, in the order of the inputs; `None` where inputs say too little to tell.
pub(crate) fn unbound(signature: &Signature, given: &[SizedBinding]) -> Option<Vec<Open>> {
    let said = |name: &str| given.iter().any(|own| own.name == name);
    // What is said of an input is said of its dimensions in all inputs.
    let is_said =
        |name: &str| said(name) || named(signature, name).axes.iter().any(|own| said(&own.0));
    let mut found: Vec<Open> = Vec::new();
    for port in signature.inputs.iter().filter(|port| !said(&port.name)) {
        if port.map.is_some() {
            continue;
        }
        if port.sequence || port.optional {
            return None;
        }
        for (axis, dimension) in port.shape.as_ref()?.iter().enumerate() {
            let open = match dimension {
                Dimension::Fixed(_) => continue,
                Dimension::Symbol(name) if is_said(name) => continue,
                Dimension::Symbol(name) if signature.sum_of(name).is_some() => continue,
                Dimension::Symbol(name) => named(signature, name),
                Dimension::Unknown => unnamed(port, axis),
            };
            if !found.contains(&open) {
                found.push(open);
            }
        }
    }
    // Axes without a name are bound by the shape of their input, all at once.
    let has_name =
        |open: &Open| open.axes.iter().all(|own| open.name != format!("{}[{}]", own.0, own.1));
    match found.len() {
        0 | 1 => Some(found),
        _ => found.iter().all(has_name).then_some(found),
    }
}

/// What is given, and a dimension of which nothing is at some sizes.
pub(crate) fn with(
    signature: &Signature,
    given: &[SizedBinding],
    open: &Open,
    sizes: &[usize],
) -> Vec<SizedBinding> {
    let mut all = given.to_vec();
    let (name, shape) = match &open.axes[..] {
        // Its input's other axes are fixed: it is the only open one.
        [(input, at)] if open.name == format!("{input}[{at}]") => {
            let port = signature.inputs.iter().find(|port| port.name == *input);
            let extents = port.iter().flat_map(|port| port.shape.iter().flatten()).enumerate();
            let extent = |(axis, dimension): (usize, &Dimension)| match dimension {
                Dimension::Fixed(extent) if axis != *at => vec![*extent],
                _ => sizes.to_vec(),
            };
            (input.clone(), extents.map(extent).collect())
        }
        _ => (open.name.clone(), vec![sizes.to_vec()]),
    };
    all.push(SizedBinding { name, shape, dtype: None });
    all
}
