//! Which sizes a model is compiled for: those that are given; of a dimension of any size those that others are composed
//! of; bounds of a dimension that is padded.

use std::collections::HashMap;

use hone_artifact::request::Input;
use hone_artifact::{Extent, MOST_SIZES, with_causes};
use hone_driver::{
    ANALYSED_SIZE, Combination, DynamicDimensions, Graph, Signature, SizedBinding, SizedGraph,
    propose_shape, sizes_of_open_dimension,
};

use crate::axes::{Given, Open, given_as, given_as_any, given_as_range, named, unbound, with};
use crate::demanded::demanded;
use crate::error::{
    BoundedDimension, DimensionError, NeededDimension, OpenDimensions, PaddingError, Result,
};
use crate::padding::{self, Padding};
use crate::proof::{Opened, prove, prove_beside_others};
use crate::source::{Source, Substitutes, bindings, combined};

/// The sizes that a model is compiled for.
#[derive(Debug)]
pub struct Resolved {
    /// Each combination, the largest first.
    pub combinations: Vec<Combination>,
    /// The dimension that may have any size, where one may.
    open: Option<Opened>,
    /// The dimension that is padded, where one is.
    padding: Option<Padding>,
}

/// The sizes to compile a model for: those of `inputs`; of a dimension that is given as `1..`, or of which nothing is
/// said while the model maps over it, as many as any size is composed of well; and bounds of a dimension that is given as
/// a range of many sizes, or that is the only other one of which nothing is said.
///
/// # Errors
/// Every [`DimensionError`].
pub fn resolve(source: &Source<'_>, inputs: &[Input]) -> Result<Resolved> {
    let mut signature = source.signature()?;
    match resolve_with(source, &signature, inputs) {
        Err(DimensionError::Open(open)) => {
            let Some(sum) = demanded(source, &signature, inputs)? else {
                return Err(DimensionError::Open(open));
            };
            signature.sums.push(sum);
            resolve_with(source, &signature, inputs)
        }
        other => other,
    }
}

/// The same with what is known of a model's dimensions.
fn resolve_with(source: &Source<'_>, signature: &Signature, inputs: &[Input]) -> Result<Resolved> {
    if let Some(mapped) = over_range(source, signature, inputs)? {
        return resolve_with(source, signature, &mapped);
    }
    let mut padding = given_as_range(signature, inputs)?;
    if let Some(padding) = &mut padding {
        padding.settle(source, &|bound| import_with_ones(source, signature, inputs, bound));
    }
    let bounds = padding.as_ref().map_or(&[][..], |padding| &padding.bounds);
    if let Some(open) = given_as_any(signature, inputs)? {
        if let Some(resolved) = beside_unbound(source, signature, inputs, &open)? {
            return Ok(resolved);
        }
        // What is shown at the largest bound is so at the others: padding compares their graphs with it.
        let largest = &bounds[..bounds.len().min(1)];
        let at = bindings(inputs, Substitutes { any: &[ANALYSED_SIZE], bounds: largest })?;
        let opened = prove(source, signature, &open, &at)?;
        let given = |any: &[usize]| bindings(inputs, Substitutes { any, bounds });
        let combinations = combine(signature, &opened, padding.as_ref(), &given)?;
        return Ok(Resolved { combinations, open: Some(opened), padding });
    }
    let given = bindings(inputs, Substitutes { any: &[], bounds })?;
    // What names neither an input nor a dimension is refused before anything is said of the others.
    let is_known = |name: &str| {
        signature.inputs.iter().any(|port| port.name == name)
            || !named(signature, name).axes.is_empty()
    };
    let all_known = given.iter().all(|binding| is_known(&binding.name));
    match unbound(signature, &given) {
        Some(unbound) if all_known && !unbound.is_empty() => {
            let largest = Substitutes { any: &[], bounds: &bounds[..bounds.len().min(1)] };
            let largest = bindings(inputs, largest)?;
            by_default(source, signature, (&given, &largest), &unbound, padding)
        }
        _ => Ok(Resolved { combinations: combined(signature, &given)?, open: None, padding }),
    }
}

/// The model at a bound of the dimension that has a range of many sizes, with one of each dimension of which nothing is said.
fn import_with_ones(
    source: &Source<'_>,
    signature: &Signature,
    inputs: &[Input],
    bound: usize,
) -> Result<Graph> {
    let mut given = bindings(inputs, Substitutes { any: &[1], bounds: &[bound] })?;
    for open in unbound(signature, &given).unwrap_or_default() {
        given = with(signature, &given, &open, &[1]);
    }
    source.import_largest(signature, &given)
}

/// The sizes where a dimension is given as `1..` and nothing is said of others: what nothing is said of is decided as it
/// is without the dimension, which then has to be the one that stays open. `None` where something is said of all others.
fn beside_unbound(
    source: &Source<'_>,
    signature: &Signature,
    inputs: &[Input],
    open: &Open,
) -> Result<Option<Resolved>> {
    let any = Substitutes { any: &[ANALYSED_SIZE], bounds: &[ANALYSED_SIZE] };
    let unbound = unbound(signature, &bindings(inputs, any)?);
    let others = inputs.iter().filter(|input| input.name != open.name);
    let others: Vec<Input> = others.cloned().collect();
    if unbound.is_none_or(|unbound| unbound.is_empty()) || others.len() == inputs.len() {
        return Ok(None);
    }
    let resolved = resolve_with(source, signature, &others)?;
    match &resolved.open {
        Some(opened) if opened.dimension.name == open.name => Ok(Some(resolved)),
        _ => {
            let why = "not any size can be served beside dimensions of which nothing is said: name sizes of these";
            Err(DimensionError::unusable(&open.name, why))
        }
    }
}

/// What is given, with any size for the first range of many along which the model maps: then it is composed, which is
/// faster than padding. `None` where there is no such range.
fn over_range(
    source: &Source<'_>,
    signature: &Signature,
    inputs: &[Input],
) -> Result<Option<Vec<Input>>> {
    if given_as_any(signature, inputs)?.is_some() {
        return Ok(None);
    }
    /// Of ranges that are not looked at; another size than the one that the analysis follows.
    const OTHERS: usize = 64;
    let wide = given_as(signature, inputs, &|extent| Ok(padding::wide_range(extent)))?;
    for Given { open, .. } in &wide {
        let mut mapped = inputs.to_vec();
        for same in wide.iter().filter(|same| same.open == *open) {
            mapped[same.input].shape[same.axis] = Extent::From { min: 1 };
        }
        let at = bindings(&mapped, Substitutes { any: &[ANALYSED_SIZE], bounds: &[OTHERS] })?;
        if prove_beside_others(source, signature, open, &at).is_ok() {
            return Ok(Some(mapped));
        }
    }
    Ok(None)
}

/// Dimensions that are tried.
const TRIED: usize = 8;

/// A model of which nothing is said about some dimensions; `largest` is what is given at the largest bound alone.
fn by_default(
    source: &Source<'_>,
    signature: &Signature,
    (given, largest): (&[SizedBinding], &[SizedBinding]),
    unbound: &[Open],
    padding: Option<Padding>,
) -> Result<Resolved> {
    let mut stays: Option<(&Open, Opened)> = None;
    let mut needed: Vec<(&Open, String)> = Vec::new();
    for (number, open) in unbound.iter().enumerate() {
        let why = match &stays {
            Some((first, _)) => format!("this is so of one dimension alone, '{}'", first.name),
            None if number >= TRIED => "it was not looked at".to_owned(),
            None => {
                let at = with(signature, largest, open, &[ANALYSED_SIZE]);
                let shown = match unbound.len() {
                    1 => prove(source, signature, open, &at),
                    _ => prove_beside_others(source, signature, open, &at),
                };
                match shown {
                    Ok(opened) => {
                        stays = Some((open, opened));
                        continue;
                    }
                    Err(error) => cause(&error),
                }
            }
        };
        needed.push((open, why));
    }
    if let ([(open, why)], None) = (&mut needed[..], &padding) {
        match pad_by_default(source, signature, given, stays.as_ref().map(|(open, _)| *open), open)
        {
            Ok(resolved) => return Ok(resolved),
            Err(error) => {
                *why = format!("{why}; up to a bound not either, since {}", cause(&error));
            }
        }
    }
    match stays {
        Some((open, opened)) if needed.is_empty() => {
            let at = |sizes: &[usize]| Ok(with(signature, given, open, sizes));
            let combinations = combine(signature, &opened, padding.as_ref(), &at)?;
            Ok(Resolved { combinations, open: Some(opened), padding })
        }
        stays => {
            let stays = stays.map(|(open, _)| open);
            let is_decoder = needed.iter().any(|(open, _)| is_past(&open.name));
            let opens: Vec<&Open> = needed.iter().map(|(open, _)| *open).collect();
            let mut needed: Vec<NeededDimension> = needed
                .into_iter()
                .map(|(open, why)| need(signature, open, (why, is_decoder)))
                .collect();
            propose_importable(source, signature, largest, (stays, &opens), &mut needed);
            let bounded = match padding {
                None => beside(source, signature, given, (stays, &opens, &needed)),
                Some(_) => None,
            };
            let stays = stays.map(|open| open.name.clone());
            Err(DimensionError::Open(OpenDimensions { stays, bounded, needed }))
        }
    }
}

/// Whether a dimension counts what was computed before, by its name.
fn is_past(name: &str) -> bool {
    name.to_lowercase().contains("past")
}

/// Of two dimensions whose sizes are needed the one that may stay open up to a bound where the other has the size that is
/// proposed; of a decoder rather the length of the past.
fn beside(
    source: &Source<'_>,
    signature: &Signature,
    given: &[SizedBinding],
    (stays, opens, needed): (Option<&Open>, &[&Open], &[NeededDimension]),
) -> Option<BoundedDimension> {
    let ([one, other], [_, _]) = (opens, needed) else { return None };
    let mut orders = [(one, other, &needed[1]), (other, one, &needed[0])];
    orders.sort_by_key(|(open, ..)| !is_past(&open.name));
    orders.into_iter().find_map(|(open, named, size)| {
        let given = with(signature, given, named, &[size.proposed]);
        let resolved = pad_by_default(source, signature, &given, stays, open).ok()?;
        let most = *resolved.padding?.bounds.first()?;
        Some(BoundedDimension { name: open.name.clone(), most })
    })
}

/// Serves every size of the only dimension of which nothing is said beside `open`, up to the largest bound that the model
/// takes.
fn pad_by_default(
    source: &Source<'_>,
    signature: &Signature,
    given: &[SizedBinding],
    open: Option<&Open>,
    padded: &Open,
) -> Result<Resolved> {
    let at = |any: &[usize], bounds: &[usize]| {
        let given = with(signature, given, padded, bounds);
        open.map_or(given.clone(), |open| with(signature, &given, open, any))
    };
    let import = |bound: usize| source.import_largest(signature, &at(&[1], &[bound]));
    let (bound, graph) = padding::largest_bound(&import)?;
    let Open { name, axes } = padded.clone();
    let mut padding = Padding { name, axes, least: 1, bounds: vec![bound], multiple: None };
    let mut bound = bound;
    let enough = padding.prove(source, &graph, bound)?.saturating_mul(padding::MOST_LEAST);
    let mut larger = padding.clone();
    if enough > bound
        && let Ok(graph) = import(enough)
        && larger.prove(source, &graph, enough).is_ok()
    {
        (padding, bound) = (larger, enough);
    }
    let opened = open.map(|open| prove(source, signature, open, &at(&[ANALYSED_SIZE], &[bound])));
    let opened = opened.transpose().map_err(|error| match error {
        DimensionError::Dependence { .. } => DimensionError::NotPadded {
            name: padding.name.clone(),
            source: PaddingError::Other("the model maps over no dimension there"),
        },
        other => other,
    })?;
    let combinations = combined(signature, &at(&[1], &padding.bounds))?;
    Ok(Resolved { combinations, open: opened, padding: Some(padding) })
}

/// Times that proposed sizes are halved.
const HALVINGS: u32 = 5;
/// The largest size that is no length: batches and the colours of images stay.
const FEW: usize = 4;

/// Halves what is proposed by names and ranks until the model can be imported so: tables of positions end somewhere. Where
/// no such sizes can be imported, the proposal stays.
fn propose_importable(
    source: &Source<'_>,
    signature: &Signature,
    given: &[SizedBinding],
    (stays, opens): (Option<&Open>, &[&Open]),
    needed: &mut [NeededDimension],
) {
    let can_import = |sizes: &Vec<usize>| {
        let mut given = stays.map_or(given.to_vec(), |open| with(signature, given, open, &[1]));
        for (open, size) in opens.iter().zip(sizes) {
            given = with(signature, &given, open, &[*size]);
        }
        source.import_largest(signature, &given).is_ok()
    };
    let proposed: Vec<usize> = needed.iter().map(|needed| needed.proposed).collect();
    let halved = |times: u32| -> Vec<usize> {
        let size = |size: &usize| if *size <= FEW { *size } else { (size >> times).max(1) };
        proposed.iter().map(size).collect()
    };
    if let Some(sizes) = (0..=HALVINGS).map(halved).find(can_import) {
        for (needed, size) in needed.iter_mut().zip(sizes) {
            needed.proposed = size;
        }
    }
}

fn need(signature: &Signature, open: &Open, (why, is_decoder): (String, bool)) -> NeededDimension {
    let first = open.axes.first();
    let port = first.and_then(|(input, _)| signature.inputs.iter().find(|own| own.name == *input));
    let (input, proposed) = match (port, first) {
        (Some(port), Some((_, axis))) => {
            let shape = propose_shape(port, &mut HashMap::new());
            (format!("input '{}' ({port})", port.name), shape.get(*axis).copied().unwrap_or(1))
        }
        _ => (String::new(), 1),
    };
    // A decoder goes on from its past one token at a time.
    let proposed = if is_decoder && !is_past(&open.name) { 1 } else { proposed };
    NeededDimension { name: open.name.clone(), input, proposed, why }
}

/// Each combination of the sizes that were chosen for the dimension with those of the others.
fn combine(
    signature: &Signature,
    opened: &Opened,
    padding: Option<&Padding>,
    at: &dyn Fn(&[usize]) -> Result<Vec<SizedBinding>>,
) -> Result<Vec<Combination>> {
    if padding.is_some() {
        // Slices with room for a bound do not lie one behind the other, so each is a run.
        return combined(signature, &at(&[1])?);
    }
    let others = opened.proofs.len();
    let sizes =
        sizes_of_open_dimension(&opened.proofs[0].graph, ANALYSED_SIZE, MOST_SIZES / others);
    if sizes.len() < 2 {
        return Err(DimensionError::Beside { name: opened.dimension.name.clone(), others });
    }
    combined(signature, &at(&sizes)?)
}

impl Resolved {
    /// The model's graphs at these sizes, and what an artifact of them says of sizes that it is not compiled for.
    ///
    /// # Errors
    /// What [`hone_driver::import_sizes`] refuses; a dimension that is not at every size what it was shown to be at one.
    pub fn import(self, source: &Source<'_>) -> Result<(Vec<SizedGraph>, DynamicDimensions)> {
        let Self { combinations, open, padding } = self;
        let mut graphs = hone_driver::import_sizes(source.bytes, source.options, &combinations)?;
        if let Some(open) = &open {
            open.check(&graphs, padding.as_ref())?;
        }
        let open = open.map(|open| open.dimension);
        let mut dimensions = DynamicDimensions { open, padded: None };
        if let Some(padding) = padding {
            let (with_size, padded) = padding.apply(source, graphs)?;
            (graphs, dimensions.padded) = (with_size, Some(padded));
            if let Some(open) = &mut dimensions.open {
                // The size is their last input.
                open.inputs.push(None);
            }
        }
        Ok((graphs, dimensions))
    }
}

/// The combinations of sizes that inputs and dimensions are given, the largest first; one of nothing where none is given.
///
/// # Errors
/// Sizes that are none, do not fit the model or are too many.
pub fn combinations(source: &Source<'_>, inputs: &[Input]) -> Result<Vec<Combination>> {
    let given = bindings(inputs, Substitutes::default())?;
    // The importer says what is wrong with a signature that nothing needs.
    match given.is_empty() {
        true => Ok(vec![Combination::default()]),
        false => combined(&source.signature()?, &given),
    }
}

/// Why a dimension cannot be of any size: what is behind the error, where it only says that it cannot.
fn cause(error: &DimensionError) -> String {
    match error {
        DimensionError::Dependence { source, .. } => source.to_string(),
        DimensionError::NotPadded { source, .. } => source.to_string(),
        other => with_causes(other),
    }
}
