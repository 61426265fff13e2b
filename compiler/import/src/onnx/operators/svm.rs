//! Support vector machines of `ai.onnx.ml`: kernels of samples and support vectors, sums, votes and probabilities.

use super::ml::{labels, largest, samples, transformed};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{BinaryFunction as B, Loop, ReduceFunction as R, UnaryFunction as U};
use hone_types::{DataType, Tensor};

/// How often the shares of the classes are improved at most; twice a round for each class where there are more.
const ROUNDS: u64 = 100;

/// Kernels of samples and support vectors, `[samples, vectors]`.
fn kernels(b: &mut Builder, node: &mut Node, x: Operand, count: usize) -> Step {
    let features = b.shape(x)[1];
    let vectors = node.floats("support_vectors")?.unwrap_or_default();
    if count.checked_mul(features) != Some(vectors.len()) {
        return Err(NodeError::invalid(format!(
            "{} numbers are not {count} vectors",
            vectors.len()
        )));
    }
    let parameters = node.floats("kernel_params")?.unwrap_or_default();
    let parameter = |place: usize| f64::from(parameters.get(place).copied().unwrap_or(0.0));
    let (gamma, offset, degree) = (parameter(0), parameter(1), parameter(2));
    let kind = node.string_or("kernel_type", "LINEAR")?;
    let vectors = b.constant(Tensor::from_elements([count, features], &vectors)?);
    if kind == "RBF" {
        let rows = b.shape(x)[0];
        let x = b.reshape(x, vec![rows, 1, features])?;
        let difference = b.subtract(x, vectors)?;
        let square = b.multiply(difference, difference)?;
        let distance = b.reduce(R::Sum, square, vec![2], false)?;
        let scaled = b.with_scalar(B::Multiply, distance, -gamma)?;
        return b.unary(U::Exp, scaled);
    }
    let turned = b.transpose(vectors, vec![1, 0])?;
    let product = b.matmul(x, turned)?;
    if kind == "LINEAR" {
        return Ok(product);
    }
    let scaled = b.with_scalar(B::Multiply, product, gamma)?;
    let moved = b.with_scalar(B::Add, scaled, offset)?;
    match kind.as_str() {
        "POLY" => b.with_scalar(B::Power, moved, degree),
        "SIGMOID" => b.unary(U::Tanh, moved),
        other => Err(NodeError::invalid(format!("kernel '{other}' is unknown"))),
    }
}

/// `SVMRegressor`.
pub(super) fn svm_regressor(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = samples(builder, node.input(0)?)?;
    let coefficients = node.floats("coefficients")?.unwrap_or_default();
    let count = usize::try_from(node.int_or("n_supports", 0)?).unwrap_or(0);
    let rho = node.floats("rho")?.unwrap_or_default();
    let one_class = node.flag("one_class", false)?;
    let transform = node.string_or("post_transform", "NONE")?;
    let read = match count {
        // Without vectors the coefficients are those of a plane.
        0 => {
            node.ignore(&["kernel_type", "kernel_params", "support_vectors"]);
            x
        }
        count => kernels(builder, node, x, count)?,
    };
    let weights = builder.constant(Tensor::from_elements([coefficients.len(), 1], &coefficients)?);
    let sums = builder.matmul(read, weights)?;
    let rho = f64::from(rho.first().copied().unwrap_or(0.0));
    let mut scores = builder.with_scalar(B::Add, sums, rho)?;
    if one_class {
        let above = builder.with_scalar(B::Greater, scores, 0.0)?;
        let (one, minus) =
            (builder.scalar(DataType::F32, 1.0)?, builder.scalar(DataType::F32, -1.0)?);
        scores = builder.select(above, one, minus)?;
    }
    Ok(vec![transformed(builder, &transform, scores)?])
}

/// `SVMClassifier`: one machine for each two classes, which votes for one of them; or one plane for each class.
///
/// The label is the class with the most votes (the first of several). Scores are the machines' sums (for two classes
/// also with the other sign), or probabilities of the classes where the model has what it takes.
pub(super) fn svm_classifier(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = samples(builder, node.input(0)?)?;
    let transform = node.string_or("post_transform", "NONE")?;
    let counts = node.ints("vectors_per_class")?.unwrap_or_default();
    let rho = node.floats("rho")?.unwrap_or_default();
    let (place, scores) = if counts.is_empty() {
        planes(builder, node, x, &rho)?
    } else {
        let sums = pairs(builder, node, x, &counts, &rho)?;
        let place = votes(builder, &sums, counts.len())?;
        (place, pair_scores(builder, node, &sums, counts.len(), &transform)?)
    };
    let scores = transformed(builder, &transform, scores)?;
    Ok(vec![labels(builder, node, place, "classlabels_ints")?, scores])
}

/// A plane for each class: its place of the largest score, and the scores.
fn planes(
    b: &mut Builder,
    node: &mut Node,
    x: Operand,
    rho: &[f32],
) -> Result<(Operand, Operand), NodeError> {
    node.ignore(&["kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b"]);
    let (rows, features) = (b.shape(x)[0], b.shape(x)[1]);
    let coefficients = node.floats("coefficients")?.unwrap_or_default();
    let classes = coefficients.len().checked_div(features).unwrap_or(0);
    if classes < 2 || classes * features != coefficients.len() {
        let count = coefficients.len();
        return Err(NodeError::invalid(format!(
            "{count} coefficients for {features} features of several classes"
        )));
    }
    let weights = b.constant(Tensor::from_elements([classes, features], &coefficients)?);
    let weights = b.transpose(weights, vec![1, 0])?;
    let sums = b.matmul(x, weights)?;
    let scores = b.with_scalar(B::Add, sums, f64::from(rho.first().copied().unwrap_or(0.0)))?;
    let mut place = largest(b, scores)?;
    if classes == 2 && rho.len() == 1 {
        // The second of two classes has the label where any score is large.
        let least = if coefficients.iter().all(|own| *own >= 0.0) { 0.5 } else { 0.0 };
        let most = b.reduce(R::Maximum, scores, vec![1], false)?;
        let function = if least > 0.0 { B::GreaterEqual } else { B::Greater };
        let second = b.with_scalar(function, most, least)?;
        let one = b.integers(&vec![1; rows])?;
        place = b.select(second, one, place)?;
    }
    Ok((place, scores))
}

/// The sum of each two classes' machine, `[samples, 1]` each, in the order (0, 1), (0, 2), … (1, 2), …
fn pairs(
    b: &mut Builder,
    node: &mut Node,
    x: Operand,
    counts: &[i64],
    rho: &[f32],
) -> Result<Vec<Operand>, NodeError> {
    let counts: Option<Vec<usize>> = counts.iter().map(|own| usize::try_from(*own).ok()).collect();
    let counts = counts.ok_or_else(|| NodeError::invalid("a class has fewer than no vectors"))?;
    let classes = counts.len();
    let total = counts.iter().try_fold(0usize, |sum, own| sum.checked_add(*own));
    let total = total.ok_or_else(|| NodeError::invalid("there are too many vectors"))?;
    let coefficients = node.floats("coefficients")?.unwrap_or_default();
    let machines = classes * (classes - 1) / 2;
    if total.checked_mul(classes - 1) != Some(coefficients.len()) || rho.len() < machines {
        return Err(NodeError::invalid(format!(
            "{} coefficients and {} offsets do not fit {classes} classes with {total} vectors",
            coefficients.len(),
            rho.len()
        )));
    }
    let kernels = kernels(b, node, x, total)?;
    // A column for each machine; vectors of other classes have no part in it.
    let mut weights = vec![0.0f32; total * machines];
    let starts: Vec<usize> =
        counts.iter().scan(0, |sum, own| Some(std::mem::replace(sum, *sum + own))).collect();
    let each = (0..classes).flat_map(|one| (one + 1..classes).map(move |other| (one, other)));
    for (machine, (one, other)) in each.enumerate() {
        for (class, row) in [(one, other - 1), (other, one)] {
            for vector in starts[class]..starts[class] + counts[class] {
                weights[vector * machines + machine] = coefficients[row * total + vector];
            }
        }
    }
    let weights = b.constant(Tensor::from_elements([total, machines], &weights)?);
    let sums = b.matmul(kernels, weights)?;
    let rho = b.constant(Tensor::from_elements([machines], &rho[..machines])?);
    let sums = b.add(sums, rho)?;
    (0..machines).map(|machine| b.narrow(sums, 1, machine, 1)).collect()
}

/// The place of the class that most machines are for.
fn votes(b: &mut Builder, sums: &[Operand], classes: usize) -> Step {
    let mut columns = vec![Vec::new(); classes];
    let each = (0..classes).flat_map(|one| (one + 1..classes).map(move |other| (one, other)));
    for ((one, other), sum) in each.zip(sums) {
        let first = b.with_scalar(B::Greater, *sum, 0.0)?;
        let first = b.cast(first, DataType::F32)?;
        columns[one].push(first);
        columns[other].push(b.scalar_with(B::Subtract, 1.0, first)?);
    }
    let mut counts = Vec::with_capacity(classes);
    for column in columns {
        let all = b.concat(&column, 1)?;
        counts.push(b.reduce(R::Sum, all, vec![1], true)?);
    }
    let counts = b.concat(&counts, 1)?;
    largest(b, counts)
}

/// What the machines' sums give as scores.
fn pair_scores(
    b: &mut Builder,
    node: &mut Node,
    sums: &[Operand],
    classes: usize,
    transform: &str,
) -> Step {
    let (slopes, offsets) =
        (node.floats("prob_a")?.unwrap_or_default(), node.floats("prob_b")?.unwrap_or_default());
    if !slopes.is_empty() {
        if slopes.len() < sums.len() || offsets.len() < sums.len() {
            return Err(NodeError::invalid("prob_a and prob_b need a number for each two classes"));
        }
        return probabilities(b, sums, classes, &slopes, &offsets);
    }
    match sums {
        [only] if transform == "NONE" => {
            let other = b.unary(U::Negate, *only)?;
            b.concat(&[other, *only], 1)
        }
        [_] => Err(NodeError::unsupported(format!(
            "post_transform {transform} of two classes without probabilities"
        ))),
        sums => b.concat(sums, 1),
    }
}

/// The probabilities of the classes, `[samples, classes]`, from those of each two of them (Wu, Lin and Weng 2004,
/// "Probability estimates for multi-class classification by pairwise coupling", the second of their methods).
fn probabilities(
    b: &mut Builder,
    sums: &[Operand],
    classes: usize,
    slopes: &[f32],
    offsets: &[f32],
) -> Step {
    let mut rows = vec![Vec::new(); classes];
    let nothing = b.with_scalar(B::Multiply, sums[0], 0.0)?;
    let mut of_pair = Vec::with_capacity(sums.len());
    for (machine, sum) in sums.iter().enumerate() {
        let scaled = b.with_scalar(B::Multiply, *sum, -f64::from(slopes[machine]))?;
        let moved = b.with_scalar(B::Subtract, scaled, f64::from(offsets[machine]))?;
        let share = b.unary(U::Sigmoid, moved)?;
        let share = b.with_scalar(B::Maximum, share, 1e-7)?;
        of_pair.push(b.with_scalar(B::Minimum, share, 1.0 - 1e-7)?);
    }
    let number = |one: usize, other: usize| one * classes - one * (one + 1) / 2 + other - one - 1;
    for one in 0..classes {
        for other in 0..classes {
            rows[one].push(match one.cmp(&other) {
                std::cmp::Ordering::Less => of_pair[number(one, other)],
                std::cmp::Ordering::Equal => nothing,
                std::cmp::Ordering::Greater => {
                    b.scalar_with(B::Subtract, 1.0, of_pair[number(other, one)])?
                }
            });
        }
    }
    let all: Vec<Operand> = rows.concat();
    let all = b.concat(&all, 1)?;
    let samples = b.shape(sums[0])[0];
    let ratios = b.reshape(all, vec![samples, classes, classes])?;
    coupled(b, ratios, samples, classes)
}

/// The shares that fit `ratios` best: in turns each class's share is made the best for those of the others, until the
/// largest difference is below a bound.
fn coupled(b: &mut Builder, ratios: Operand, samples: usize, classes: usize) -> Step {
    let turned = b.transpose(ratios, vec![0, 2, 1])?;
    let products = b.multiply(ratios, turned)?;
    let squares = b.multiply(turned, turned)?;
    let diagonal = b.reduce(R::Sum, squares, vec![2], false)?;
    let identity: Vec<f32> =
        (0..classes * classes).map(|own| f32::from(u8::from(own % (classes + 1) == 0))).collect();
    let identity = b.constant(Tensor::from_elements([classes, classes], &identity)?);
    let column = b.reshape(diagonal, vec![samples, classes, 1])?;
    let spread = b.multiply(column, identity)?;
    let form = b.subtract(spread, products)?;
    let equal = vec![1.0 / classes as f32; samples * classes];
    let first = b.constant(Tensor::from_elements([samples, classes], &equal)?);
    b.begin_region();
    let most = ROUNDS.max(classes as u64);
    b.add_number("round", Some(most));
    let shares_type = b.tensor_type(first).clone();
    let shares = b.add_input("shares", shares_type);
    let (goes_on, next) = round(b, form, diagonal, shares)?;
    let body = b.end_region(&[goes_on, next])?;
    let operator = Loop {
        body: body.graph,
        carried: 1,
        tests: true,
        most: Some(most),
        capacity: None,
        reversed: Vec::new(),
    };
    let operands = [None, None, Some(first)].into_iter().chain(body.captured.into_iter().map(Some));
    let operands: Vec<Option<Operand>> = operands.collect();
    let outputs = b.apply_all(operator, &operands)?;
    outputs.first().copied().ok_or_else(|| NodeError::invalid("the loop has no result"))
}

/// One round over all classes: whether another one is needed, and the shares after it. Rows that were near enough stay.
fn round(
    b: &mut Builder,
    form: Operand,
    diagonal: Operand,
    shares: Operand,
) -> Result<(Operand, Operand), NodeError> {
    let (samples, classes) = (b.shape(shares)[0], b.shape(shares)[1]);
    let column = b.reshape(shares, vec![samples, classes, 1])?;
    let gradient = b.matmul(form, column)?;
    let mut gradient = b.reshape(gradient, vec![samples, classes])?;
    let weighted = b.multiply(shares, gradient)?;
    let mut value = b.reduce(R::Sum, weighted, vec![1], true)?;
    let error = b.subtract(gradient, value)?;
    let error = b.unary(U::Abs, error)?;
    let error = b.reduce(R::Maximum, error, vec![1], true)?;
    let far = b.with_scalar(B::GreaterEqual, error, 0.005 / classes as f64)?;
    let mut next = shares;
    for class in 0..classes {
        let own = b.narrow(gradient, 1, class, 1)?;
        let curve = b.narrow(diagonal, 1, class, 1)?;
        let row = b.narrow(form, 1, class, 1)?;
        let row = b.reshape(row, vec![samples, classes])?;
        let less = b.subtract(value, own)?;
        let step = b.divide(less, curve)?;
        let total = b.with_scalar(B::Add, step, 1.0)?;
        let unit: Vec<f32> =
            (0..classes).map(|other| f32::from(u8::from(other == class))).collect();
        let unit = b.constant(Tensor::from_elements([classes], &unit)?);
        let moved = b.multiply(step, unit)?;
        let moved = b.add(next, moved)?;
        next = b.divide(moved, total)?;
        let change = b.multiply(step, row)?;
        let changed = b.add(gradient, change)?;
        gradient = b.divide(changed, total)?;
        let weighted = b.multiply(next, gradient)?;
        value = b.reduce(R::Sum, weighted, vec![1], true)?;
    }
    let next = b.select(far, next, shares)?;
    let bits = b.cast(far, DataType::I32)?;
    let any = b.reduce(R::Maximum, bits, vec![0, 1], false)?;
    Ok((b.cast(any, DataType::Bool)?, next))
}
