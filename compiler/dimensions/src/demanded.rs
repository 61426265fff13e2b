//! Dimensions that are sums of others because the graph asks for it: a mask as long as what is joined of the past and of new
//! tokens, under a name of its own. They are found by importing the model at sizes of which no two, and no sum of two, are
//! the same.

use hone_artifact::request::Input;
use hone_driver::{Dimension, Signature, SizeSum, SizedBinding, SummedDimension};

use crate::axes::unbound;
use crate::error::Result;
use crate::source::{Source, Substitutes, bindings};

/// Dimensions beyond which nothing is tried.
const MOST: usize = 6;

/// Sizes of dimensions in two trials: no sum of two is another one, nor another one and one.
const TRIALS: [[usize; MOST]; 2] = [[3, 5, 9, 17, 31, 60], [4, 7, 13, 23, 42, 79]];

/// The first dimension that has to be a sum of others, or equal to one, so that the model can be imported; where it can be imported
/// with sizes that have nothing to do with each other, one that is a sum by the names that exporters give.
///
/// # Errors
/// Sizes that cannot be used.
pub(crate) fn demanded(
    source: &Source<'_>,
    signature: &Signature,
    inputs: &[Input],
) -> Result<Option<SummedDimension>> {
    let substitutes = Substitutes { any: &[2], bounds: &[64] };
    let given = bindings(inputs, substitutes)?;
    let Some(open) = unbound(signature, &given) else { return Ok(None) };
    let open: Vec<String> = open.into_iter().map(|open| open.name).collect();
    let all = names(signature);
    if open.len() > MOST || all.len() > MOST || open.iter().any(|name| !all.contains(name)) {
        return Ok(None);
    }
    let imports = |sum: Option<&SummedDimension>, trial: usize| {
        let mut signature = signature.clone();
        signature.sums.extend(sum.cloned());
        let free = open.iter().enumerate();
        let free = free.filter(|(_, name)| sum.is_none_or(|sum| sum.name != **name));
        let free = free.map(|(place, name)| SizedBinding {
            name: name.clone(),
            shape: vec![vec![TRIALS[trial][place]]],
            dtype: None,
        });
        let given: Vec<SizedBinding> = given.iter().cloned().chain(free).collect();
        source.import_largest(&signature, &given).is_ok()
    };
    if imports(None, 0) {
        let mut sums = open.iter().filter_map(|name| by_convention(name, &all));
        return Ok(sums.find(|sum| imports(Some(sum), 0)));
    }
    let candidates = open.iter().flat_map(|name| candidates(name, &all));
    Ok(candidates.into_iter().find(|sum| imports(Some(sum), 0) && imports(Some(sum), 1)))
}

/// The names of dimensions that are no sums.
fn names(signature: &Signature) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for port in &signature.inputs {
        for dimension in port.shape.iter().flatten() {
            let Dimension::Symbol(name) = dimension else { continue };
            if signature.sum_of(name).is_none() && !found.contains(name) {
                found.push(name.clone());
            }
        }
    }
    found
}

/// What exporters mean by `total_length` beside `past_length` and `length`: attention that is one node counts how many positions
/// a mask shows, and asks nothing of its length.
fn by_convention(name: &str, all: &[String]) -> Option<SummedDimension> {
    let new = name.strip_prefix("total_")?;
    let parts = [format!("past_{new}"), new.to_owned()];
    let is_known = parts.iter().all(|part| all.contains(part));
    let sum = SizeSum { terms: parts.map(|part| (part, 1)).to_vec(), constant: 0 };
    is_known.then(|| SummedDimension { name: name.to_owned(), sum })
}

/// What a dimension may be of the others: sums of two, one and one more, or one of them.
fn candidates(name: &str, all: &[String]) -> Vec<SummedDimension> {
    let others: Vec<&String> = all.iter().filter(|other| *other != name).collect();
    let mut sums: Vec<SizeSum> = Vec::new();
    for (place, first) in others.iter().enumerate() {
        for second in &others[place + 1..] {
            let terms = vec![((*first).clone(), 1), ((*second).clone(), 1)];
            sums.push(SizeSum { terms, constant: 0 });
        }
    }
    for constant in [1, 0] {
        let one = |other: &&String| SizeSum { terms: vec![((*other).clone(), 1)], constant };
        sums.extend(others.iter().map(one));
    }
    sums.into_iter().map(|sum| SummedDimension { name: name.to_owned(), sum }).collect()
}
