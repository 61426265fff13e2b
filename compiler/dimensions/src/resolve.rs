//! Dimensions of any size: which of a model's dimensions may have one, shown by an analysis of its graph, and at which
//! sizes it is compiled for that. Of one dimension any size is composed of others, where the model maps over it; of one
//! more every size up to a bound is served (`padding.rs`).

use std::collections::HashMap;
use std::fmt;

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Input;
use hone_artifact::{Extent, OpenDimension};
use hone_driver::{
    ANALYSED_SIZE, Combination, Dependence, Dimension, Graph, Independence, InputBinding,
    MOST_SIZES, Signature, SizedBinding, SizedGraph, open_dimension, propose_shape,
    sizes_of_open_dimension,
};

use crate::compiler::{self, Model, Substitutes, combined, import_at};
use crate::dimensions::{
    Given, Open, bindings, given_as, given_as_any, given_as_range, named, unbound, unusable, with,
};
use crate::failure::{Failure, Result};
use crate::padding::{self, Padding};

/// The sizes that a model is compiled for.
#[derive(Debug)]
pub struct Resolved {
    /// Each combination, the largest first.
    pub combinations: Vec<Combination>,
    /// The dimension that may have any size, where one may.
    pub open: Option<Opened>,
    /// The dimension that is padded, where one is.
    pub padding: Option<Padding>,
}

/// A dimension of any size, and why that is right.
#[derive(Debug)]
pub struct Opened {
    /// What the artifact says of it.
    pub dimension: OpenDimension,
    proofs: Vec<Proof>,
}

/// The analysis at one combination of the other dimensions' sizes.
#[derive(Debug)]
struct Proof {
    others: Vec<(String, usize)>,
    graph: Graph,
    independence: Independence,
}

/// Dimensions of which nothing is said, and which cannot stay so.
#[derive(Debug)]
pub struct OpenDimensions {
    /// The dimension that would stay open.
    stays: Option<String>,
    needed: Vec<Needed>,
}

/// A dimension whose size has to be given.
#[derive(Debug)]
struct Needed {
    name: String,
    /// An input that has it, in words.
    input: String,
    proposed: usize,
    /// Why not any size can be served.
    why: String,
}

impl OpenDimensions {
    /// Arguments that say how large the dimensions are, as `--shape` takes them.
    pub fn proposals(&self) -> Vec<String> {
        self.needed.iter().map(|own| format!("{}={}", own.name, own.proposed)).collect()
    }
}

impl std::error::Error for OpenDimensions {}

impl fmt::Display for OpenDimensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dimensions are open: say how large they are")?;
        for Needed { name, input, why, .. } in &self.needed {
            write!(f, "\n  '{name}' of {input}: not every size can be served, since {why}")?;
        }
        if let Some(stays) = &self.stays {
            write!(f, "\n  '{stays}' may stay open: any size of it will be served")?;
        }
        let entry = |own: &Needed| format!("{{name: \"{}\", sizes: [{}]}}", own.name, own.proposed);
        let entries: Vec<String> = self.needed.iter().map(entry).collect();
        write!(f, "\nfor example, in the YAML file: inputs: [{}]", entries.join(", "))
    }
}

/// Why a dimension may not have any size.
enum Why {
    /// The model does not map over it.
    Dependence(Dependence),
    /// The model cannot be imported.
    Failure(Failure),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dependence(error) => error.fmt(f),
            Self::Failure(failure) => f.write_str(&failure.chain()),
        }
    }
}

type Shown = std::result::Result<Opened, Why>;

/// The sizes to compile a model for: those of `inputs`; of a dimension that is given as `1..`, or of which nothing is
/// said while the model maps over it, as many as any size is composed of well; and bounds of a dimension that is given as
/// a range of many sizes, or that is the only other one of which nothing is said.
///
/// # Errors
/// As for [`compiler::combinations`]; `InvalidShape` for dimensions that are open and cannot stay so.
pub fn resolve(model: &Model, inputs: &[Input]) -> Result<Resolved> {
    let signature = compiler::signature(model)?;
    if let Some(mapped) = over_range(model, &signature, inputs)? {
        return resolve(model, &mapped);
    }
    let padding = given_as_range(&signature, inputs)?;
    let bounds = padding.as_ref().map_or(&[][..], |padding| &padding.bounds);
    if let Some(open) = given_as_any(&signature, inputs)? {
        if let Some(resolved) = beside_unbound(model, &signature, inputs, &open)? {
            return Ok(resolved);
        }
        // What is shown at the largest bound is so at the others: padding compares their graphs with it.
        let largest = &bounds[..bounds.len().min(1)];
        let at = bindings(inputs, Substitutes { any: &[ANALYSED_SIZE], bounds: largest })?;
        let shown = prove(model, &signature, &open, &at);
        let opened = shown.map_err(|why| match why {
            Why::Failure(failure) => failure,
            Why::Dependence(error) => depends(model, &open.name, error),
        })?;
        let given = |any: &[usize]| bindings(inputs, Substitutes { any, bounds });
        let combinations = combine(model, &signature, &opened, padding.as_ref(), &given)?;
        return Ok(Resolved { combinations, open: Some(opened), padding });
    }
    let given = bindings(inputs, Substitutes { any: &[], bounds })?;
    // What names neither an input nor a dimension is refused before anything is said of the others.
    let is_known = |name: &str| {
        signature.inputs.iter().any(|port| port.name == name)
            || !named(&signature, name).axes.is_empty()
    };
    let all_known = given.iter().all(|binding| is_known(&binding.name));
    match unbound(&signature, &given) {
        Some(unbound) if all_known && !unbound.is_empty() => {
            let largest = Substitutes { any: &[], bounds: &bounds[..bounds.len().min(1)] };
            let largest = bindings(inputs, largest)?;
            by_default(model, &signature, (&given, &largest), &unbound, padding)
        }
        _ if padding.is_some() => {
            let combinations = combined(model, &signature, &given, MOST_SIZES)?;
            Ok(Resolved { combinations, open: None, padding })
        }
        _ => Ok(Resolved {
            combinations: compiler::combinations(model, inputs)?,
            open: None,
            padding: None,
        }),
    }
}

/// The sizes where a dimension is given as `1..` and nothing is said of others: what nothing is said of is decided as it
/// is without the dimension, which then has to be the one that stays open. `None` where something is said of all others.
fn beside_unbound(
    model: &Model,
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
    let resolved = resolve(model, &others)?;
    match &resolved.open {
        Some(opened) if opened.dimension.name == open.name => Ok(Some(resolved)),
        _ => {
            let why = "not any size can be served beside dimensions of which nothing is said: name sizes of these";
            Err(unusable(&open.name, why.to_owned()))
        }
    }
}

fn depends(model: &Model, name: &str, error: Dependence) -> Failure {
    let model = &model.name;
    let message = format!(
        "model '{model}' cannot be compiled for any size of '{name}'; name its sizes instead"
    );
    Failure::because(Reason::InvalidShape, message, error)
}

/// What is given, with any size for the first range of many along which the model maps: then it is composed, which is
/// faster than padding. `None` where there is no such range.
fn over_range(
    model: &Model,
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
        if prove_beside_others(model, signature, open, &at).is_ok() {
            return Ok(Some(mapped));
        }
    }
    Ok(None)
}

/// Dimensions that are tried.
const TRIED: usize = 8;

/// A model of which nothing is said about some dimensions; `largest` is what is given at the largest bound alone.
fn by_default(
    model: &Model,
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
                    1 => prove(model, signature, open, &at),
                    _ => prove_beside_others(model, signature, open, &at),
                };
                match shown {
                    Ok(opened) => {
                        stays = Some((open, opened));
                        continue;
                    }
                    Err(why) => why.to_string(),
                }
            }
        };
        needed.push((open, why));
    }
    if let ([(open, why)], None) = (&mut needed[..], &padding) {
        match pad_by_default(model, signature, given, stays.as_ref().map(|(open, _)| *open), open) {
            Ok(resolved) => return Ok(resolved),
            Err(reason) => *why = format!("{why}; up to a bound not either, since {reason}"),
        }
    }
    match stays {
        Some((open, opened)) if needed.is_empty() => {
            let at = |sizes: &[usize]| Ok(with(signature, given, open, sizes));
            let combinations = combine(model, signature, &opened, padding.as_ref(), &at)?;
            Ok(Resolved { combinations, open: Some(opened), padding })
        }
        stays => {
            let stays = stays.map(|(open, _)| open.name.clone());
            let needed = needed.into_iter().map(|(open, why)| need(signature, open, why));
            let message = format!("model '{}' cannot be compiled", model.name);
            let error = OpenDimensions { stays, needed: needed.collect() };
            Err(Failure::because(Reason::InvalidShape, message, error))
        }
    }
}

/// Serves every size of the only dimension of which nothing is said beside `open`, up to the largest bound that the model
/// takes.
fn pad_by_default(
    model: &Model,
    signature: &Signature,
    given: &[SizedBinding],
    open: Option<&Open>,
    padded: &Open,
) -> std::result::Result<Resolved, padding::Why> {
    let at = |any: &[usize], bounds: &[usize]| {
        let given = with(signature, given, padded, bounds);
        open.map_or(given.clone(), |open| with(signature, &given, open, any))
    };
    let failed = padding::Why::Failure;
    let combined = |given: &[SizedBinding]| combined(model, signature, given, MOST_SIZES);
    let import = |bound: usize| -> Result<Graph> {
        let first = combined(&at(&[1], &[bound]))?.into_iter().next();
        import_at(model, first.unwrap_or_default().bindings)
    };
    let (bound, graph) = padding::largest_bound(&import).map_err(failed)?;
    let Open { name, axes } = padded.clone();
    let padding = Padding { name, axes, bounds: padding::bounds(1, bound) };
    padding.prove(model, &graph)?;
    let opened = open.map(|open| prove(model, signature, open, &at(&[ANALYSED_SIZE], &[bound])));
    let opened = opened.transpose().map_err(|why| match why {
        Why::Failure(failure) => failed(failure),
        Why::Dependence(_) => padding::Why::Other("the model maps over no dimension there"),
    })?;
    let combinations = combined(&at(&[1], &padding.bounds)).map_err(failed)?;
    Ok(Resolved { combinations, open: opened, padding: Some(padding) })
}

fn need(signature: &Signature, open: &Open, why: String) -> Needed {
    let first = open.axes.first();
    let port = first.and_then(|(input, _)| signature.inputs.iter().find(|own| own.name == *input));
    let (input, proposed) = match (port, first) {
        (Some(port), Some((_, axis))) => {
            let shape = propose_shape(port, &mut HashMap::new());
            (format!("input '{}' ({port})", port.name), shape.get(*axis).copied().unwrap_or(1))
        }
        _ => (String::new(), 1),
    };
    Needed { name: open.name.clone(), input, proposed, why }
}

/// Shows that the model maps over a dimension, with what is given of all others.
fn prove(model: &Model, signature: &Signature, open: &Open, given: &[SizedBinding]) -> Shown {
    let combinations = combined(model, signature, given, MOST_SIZES).map_err(Why::Failure)?;
    let mut proofs = Vec::with_capacity(combinations.len());
    let mut dimension = None;
    for combination in combinations {
        let graph = import_at(model, combination.bindings).map_err(Why::Failure)?;
        let independence = analyse(&graph, open).map_err(Why::Dependence)?;
        dimension = dimension.or_else(|| Some(open_dimension(&graph, &open.name, &independence)));
        let others = combination.dimensions.into_iter().filter(|own| own.0 != open.name).collect();
        proofs.push(Proof { others, graph, independence });
    }
    let none = || Why::Failure(Failure::internal("there is no combination of sizes"));
    Ok(Opened { dimension: dimension.ok_or_else(none)?, proofs })
}

/// The same, with proposed sizes of other dimensions, of which nothing is said.
fn prove_beside_others(
    model: &Model,
    signature: &Signature,
    open: &Open,
    given: &[SizedBinding],
) -> Shown {
    let combinations = combined(model, signature, given, MOST_SIZES).map_err(Why::Failure)?;
    let mut bindings = combinations.into_iter().next().unwrap_or_default().bindings;
    let mut known = HashMap::from([(open.name.clone(), ANALYSED_SIZE)]);
    for port in &signature.inputs {
        let own = bindings.iter().find(|own| own.name == port.name);
        let sizes = own.iter().flat_map(|own| &own.shape);
        for (dimension, size) in port.shape.iter().flatten().zip(sizes) {
            if let Dimension::Symbol(name) = dimension {
                known.insert(name.clone(), *size);
            }
        }
    }
    for port in &signature.inputs {
        if bindings.iter().all(|own| own.name != port.name) {
            let shape = propose_shape(port, &mut known);
            bindings.push(InputBinding { name: port.name.clone(), shape, dtype: None });
        }
    }
    let graph = import_at(model, bindings).map_err(Why::Failure)?;
    let independence = analyse(&graph, open).map_err(Why::Dependence)?;
    let dimension = open_dimension(&graph, &open.name, &independence);
    Ok(Opened { dimension, proofs: vec![Proof { others: Vec::new(), graph, independence }] })
}

fn analyse(graph: &Graph, open: &Open) -> std::result::Result<Independence, Dependence> {
    for (place, (name, _)) in open.axes.iter().enumerate() {
        if open.axes[..place].iter().any(|other| other.0 == *name) {
            let why = format!("has '{}' along several axes", open.name);
            return Err(Dependence::Port { role: "input", name: name.clone(), why });
        }
    }
    let axis = |name: &str| open.axes.iter().find(|own| own.0 == *name).map(|own| own.1);
    let axes: Vec<Option<usize>> = graph.inputs().iter().map(|port| axis(&port.name)).collect();
    Independence::prove(graph, &axes, ANALYSED_SIZE)
}

/// Each combination of the sizes that were chosen for the dimension with those of the others.
fn combine(
    model: &Model,
    signature: &Signature,
    opened: &Opened,
    padding: Option<&Padding>,
    at: &dyn Fn(&[usize]) -> Result<Vec<SizedBinding>>,
) -> Result<Vec<Combination>> {
    if padding.is_some() {
        // Slices with room for a bound do not lie one behind the other, so each is a run.
        return combined(model, signature, &at(&[1])?, MOST_SIZES);
    }
    let others = opened.proofs.len();
    let sizes =
        sizes_of_open_dimension(&opened.proofs[0].graph, ANALYSED_SIZE, MOST_SIZES / others);
    if sizes.len() < 2 {
        let (model, name) = (&model.name, &opened.dimension.name);
        let message = format!(
            "model '{model}' cannot be compiled for any size of '{name}' beside {others} combinations of others: name fewer sizes of these"
        );
        return Err(Failure::new(Reason::InvalidShape, message));
    }
    combined(model, signature, &at(&sizes)?, MOST_SIZES)
}

impl Opened {
    /// Checks that graphs at other sizes compute the same of each slice.
    ///
    /// # Errors
    /// `InvalidShape` with the first difference.
    pub fn check(
        &self,
        model: &Model,
        graphs: &[SizedGraph],
        padding: Option<&Padding>,
    ) -> Result<()> {
        let name = &self.dimension.name;
        let is_shown = |sized: &&SizedGraph| {
            padding.is_none_or(|padding| {
                let bound = sized.dimensions.iter().find(|entry| entry.0 == padding.name);
                bound.is_none_or(|bound| padding.bounds.first() == Some(&bound.1))
            })
        };
        for SizedGraph { dimensions, graph } in graphs.iter().filter(is_shown) {
            let size = dimensions.iter().find(|own| own.0 == *name).map_or(1, |own| own.1);
            let padded = padding.map(|padding| padding.name.as_str());
            let is_other = |entry: &&(String, usize)| entry.0 != *name && Some(&*entry.0) != padded;
            let others = || dimensions.iter().filter(is_other);
            let proof = self.proofs.iter().find(|own| own.others.iter().eq(others()));
            let proof = proof.ok_or_else(|| Failure::internal("sizes were not analysed"))?;
            let holds = proof.independence.proves_at(&proof.graph, graph, size);
            holds.map_err(|error| depends(model, name, error))?;
        }
        Ok(())
    }
}
