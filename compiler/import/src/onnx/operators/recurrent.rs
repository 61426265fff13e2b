//! `RNN`, `GRU` and `LSTM`.

use crate::NodeError;
use crate::onnx::builder::Builder;
use crate::onnx::node::{Node, Outputs};
use hone_ops::{Activation, Direction, Gru, Lstm, Rnn};

/// The attributes that all three share.
struct Common {
    hidden: usize,
    direction: Direction,
    activations: Vec<Activation>,
    clip: Option<f64>,
    batch_first: bool,
}

fn common(builder: &Builder, node: &mut Node, defaults: &[&str]) -> Result<Common, NodeError> {
    let direction = match node.string_or("direction", "forward")?.as_str() {
        "forward" => Direction::Forward,
        "reverse" => Direction::Reverse,
        "bidirectional" => Direction::Bidirectional,
        other => return Err(NodeError::invalid(format!("direction '{other}' is unknown"))),
    };
    // The recurrence weights are [directions, gates * hidden, hidden].
    let found = builder.shape(node.input(2)?).last().copied().unwrap_or(0);
    let hidden = node.int_or("hidden_size", found as i64)?;
    if hidden != found as i64 {
        return Err(NodeError::invalid(format!(
            "hidden_size {hidden} does not fit recurrence weights for {found}"
        )));
    }
    let names = node.strings("activations")?.unwrap_or_else(|| {
        let names = defaults.iter().map(|name| name.to_string());
        names.cycle().take(defaults.len() * direction.count()).collect()
    });
    let mut alphas = node.floats("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = node.floats("activation_beta")?.unwrap_or_default().into_iter();
    let activations = names
        .iter()
        .map(|name| activation(name, &mut alphas, &mut betas))
        .collect::<Result<_, _>>()?;
    Ok(Common {
        hidden: found,
        direction,
        activations,
        clip: node.float("clip")?,
        batch_first: node.flag("layout", false)?,
    })
}

/// An activation; those with parameters take the next given ones, or their defaults.
fn activation(
    name: &str,
    alphas: &mut impl Iterator<Item = f32>,
    betas: &mut impl Iterator<Item = f32>,
) -> Result<Activation, NodeError> {
    let mut alpha = |default: f64| alphas.next().map_or(default, f64::from);
    let mut beta = |default: f64| betas.next().map_or(default, f64::from);
    Ok(match name.to_ascii_lowercase().as_str() {
        "relu" => Activation::Relu,
        "tanh" => Activation::Tanh,
        "sigmoid" => Activation::Sigmoid,
        "softsign" => Activation::Softsign,
        "softplus" => Activation::Softplus,
        "affine" => Activation::Affine { alpha: alpha(1.0), beta: beta(0.0) },
        "leakyrelu" => Activation::LeakyRelu { alpha: alpha(0.01) },
        "thresholdedrelu" => Activation::ThresholdedRelu { alpha: alpha(1.0) },
        "scaledtanh" => Activation::ScaledTanh { alpha: alpha(1.0), beta: beta(1.0) },
        "hardsigmoid" => Activation::HardSigmoid { alpha: alpha(0.2), beta: beta(0.5) },
        "elu" => Activation::Elu { alpha: alpha(1.0) },
        other => return Err(NodeError::invalid(format!("activation '{other}' is unknown"))),
    })
}

/// `RNN`.
pub(super) fn rnn(builder: &mut Builder, node: &mut Node) -> Outputs {
    let Common { hidden, direction, activations, clip, batch_first } =
        common(builder, node, &["Tanh"])?;
    builder.apply_all(Rnn { hidden, direction, activations, clip, batch_first }, &node.inputs)
}

/// `GRU`.
pub(super) fn gru(builder: &mut Builder, node: &mut Node) -> Outputs {
    let Common { hidden, direction, activations, clip, batch_first } =
        common(builder, node, &["Sigmoid", "Tanh"])?;
    let linear_before_reset = node.flag("linear_before_reset", false)?;
    let operator = Gru { hidden, direction, activations, clip, linear_before_reset, batch_first };
    builder.apply_all(operator, &node.inputs)
}

/// `LSTM`.
pub(super) fn lstm(builder: &mut Builder, node: &mut Node) -> Outputs {
    lstm_rounding(builder, node, false)
}

/// `LSTM`, perhaps one that rounds what its weights multiply to bytes.
pub(super) fn lstm_rounding(
    builder: &mut Builder,
    node: &mut Node,
    rounds_operands: bool,
) -> Outputs {
    let Common { hidden, direction, activations, clip, batch_first } =
        common(builder, node, &["Sigmoid", "Tanh", "Tanh"])?;
    let input_forget = node.flag("input_forget", false)?;
    let operator =
        Lstm { hidden, direction, activations, clip, input_forget, batch_first, rounds_operands };
    builder.apply_all(operator, &node.inputs)
}
