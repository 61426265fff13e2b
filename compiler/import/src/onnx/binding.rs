//! Declared inputs and outputs, and the binding of open dimensions.

use super::composite::{LONGEST, item_name};
use super::narrow::NarrowType;
use super::proto::{
    GraphProto, TensorProto, ValueInfoProto,
    tensor_shape_proto::dimension::Value as Extent,
    type_proto::{Map, Value as TypeValue},
};
use super::tensor::{carrier_type, checked_bytes};
use crate::propose::propose;
use crate::{
    Dimension, ImportError, InputBinding, InputForm, KeyType, Limits, PortSignature, Signature,
    SummedDimension, UnboundInput,
};
use hone_graph::{Member, MemberForm};
use hone_types::{DataType, TensorType};
use std::collections::{HashMap, HashSet};

/// The part of a model that declares inputs and outputs; decoding it copies no weights.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ModelPorts {
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphPorts>,
}

/// The part of a graph that declares inputs and outputs.
#[derive(Clone, PartialEq, prost::Message)]
struct GraphPorts {
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorName>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<ValueInfoProto>,
}

/// A stored tensor without its elements.
#[derive(Clone, PartialEq, prost::Message)]
struct TensorName {
    #[prost(string, optional, tag = "8")]
    name: Option<String>,
}

impl ModelPorts {
    /// A graph that declares the same and holds nothing else.
    pub(super) fn into_graph(self) -> GraphProto {
        let GraphPorts { initializer, input, output } = self.graph.unwrap_or_default();
        let named = |TensorName { name }| TensorProto { name, ..TensorProto::default() };
        let initializer = initializer.into_iter().map(named).collect();
        GraphProto { initializer, input, output, ..GraphProto::default() }
    }
}

/// Inputs (without those that initializers fill) and outputs as declared.
pub(super) fn signature(graph: &GraphProto, limits: &Limits) -> Result<Signature, ImportError> {
    let initialized: HashSet<&str> =
        graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
    let mut signature = Signature::default();
    for value in &graph.input {
        if !initialized.contains(value.name.as_deref().unwrap_or_default()) {
            signature.inputs.push(port("input", value, limits)?);
        }
    }
    for value in &graph.output {
        signature.outputs.push(port("output", value, limits)?);
    }
    unique("input", &signature.inputs)?;
    unique("output", &signature.outputs)?;
    signature.sums = signature.named_sums();
    Ok(signature)
}

/// Compares the outputs with their declarations.
pub(super) fn check_outputs(
    signature: &Signature,
    members: &[Member],
    graph: &hone_ops::Graph,
    warnings: &mut Vec<String>,
) -> Result<(), ImportError> {
    let mut ports = graph.outputs().iter();
    for (declared, member) in signature.outputs.iter().zip(members) {
        let mut own = ports.by_ref().take(member.form.tensors());
        if member.form != MemberForm::Tensor {
            own.for_each(drop);
            continue;
        }
        let Some(port) = own.next() else { continue };
        let actual = graph.tensor_type(port.value);
        if declared.dtype.is_some_and(|dtype| dtype != actual.dtype) {
            let reason = format!("it is declared as {declared}, but the nodes make {actual}");
            let name = port.name.clone();
            return Err(ImportError::Port { kind: "output", name, reason });
        }
        let Some(shape) = &declared.shape else { continue };
        let fits = shape.len() == actual.rank()
            && shape.iter().zip(&actual.shape).all(|(dimension, extent)| match dimension {
                Dimension::Fixed(fixed) => fixed == extent,
                _ => true,
            });
        if !fits {
            let name = &port.name;
            warnings.push(format!("output '{name}' is declared as {declared} and is {actual}"));
        }
    }
    Ok(())
}

fn unique(what: &'static str, ports: &[PortSignature]) -> Result<(), ImportError> {
    let mut seen = HashSet::new();
    match ports.iter().find(|port| !seen.insert(port.name.as_str())) {
        Some(port) => Err(ImportError::Duplicate { what, name: port.name.clone() }),
        None => Ok(()),
    }
}

fn port(
    kind: &'static str,
    value: &ValueInfoProto,
    limits: &Limits,
) -> Result<PortSignature, ImportError> {
    let name = value.name.clone().unwrap_or_default();
    let shown = name.clone();
    let refuse = |reason: String| ImportError::Port { kind, name: shown.clone(), reason };
    if name.is_empty() {
        return Err(refuse("it has no name".into()));
    }
    let mut declared = value.r#type.as_ref().and_then(|declared| declared.value.as_ref());
    let (mut sequence, mut optional) = (false, false);
    if let Some(TypeValue::OptionalType(own)) = declared {
        optional = true;
        declared = own.elem_type.as_ref().and_then(|inner| inner.value.as_ref());
    }
    if let Some(TypeValue::SequenceType(own)) = declared {
        sequence = true;
        declared = own.elem_type.as_ref().and_then(|inner| inner.value.as_ref());
    }
    let open = PortSignature { name, sequence, optional, ..PortSignature::default() };
    let tensor = match declared {
        Some(TypeValue::TensorType(tensor)) => tensor,
        Some(TypeValue::MapType(_)) if kind == "output" && sequence => return Ok(open),
        Some(TypeValue::MapType(map)) if kind == "input" && !sequence && !optional => {
            return map_port(open, map).map_err(refuse);
        }
        None if kind == "output" => return Ok(open),
        None => return Err(refuse("its type is left out; export the model again".into())),
        Some(_) => {
            let reason = "only tensors, sequences of tensors, optional ones and maps from strings or i64 to numbers or strings are supported";
            return Err(refuse(reason.into()));
        }
    };
    let (dtype, narrow) = match carrier_type(tensor.elem_type.unwrap_or(0)) {
        Ok((dtype, narrow)) => (Some(dtype), narrow),
        Err(_) if kind == "output" && tensor.elem_type.unwrap_or(0) == 0 => (None, None),
        Err(reason) => return Err(refuse(reason)),
    };
    let Some(shape) = &tensor.shape else {
        return Ok(PortSignature { dtype, narrow, ..open });
    };
    if shape.dim.len() > limits.rank {
        return Err(refuse(format!("it has more than {} axes", limits.rank)));
    }
    let shape = shape.dim.iter().map(|dim| match &dim.value {
        // Some exporters write -1 for a dimension that is open.
        Some(Extent::DimValue(extent)) => {
            usize::try_from(*extent).map_or(Dimension::Unknown, Dimension::Fixed)
        }
        Some(Extent::DimParam(symbol)) if is_name(symbol) => Dimension::Symbol(symbol.clone()),
        _ => Dimension::Unknown,
    });
    let shape = Some(shape.collect());
    Ok(PortSignature { dtype, shape, narrow, ..open })
}

/// A map that is an input.
fn map_port(open: PortSignature, map: &Map) -> Result<PortSignature, String> {
    let key = match carrier_type(map.key_type.unwrap_or(0)) {
        Ok((_, Some(NarrowType::Text))) => KeyType::Text,
        Ok((DataType::I64, None)) => KeyType::I64,
        _ => return Err("its keys are neither strings nor of i64".into()),
    };
    let value = map.value_type.as_ref().and_then(|own| own.value.as_ref());
    let Some(TypeValue::TensorType(value)) = value else {
        return Err("its values are no tensors; give them as tensors of one element".into());
    };
    match carrier_type(value.elem_type.unwrap_or(0))? {
        (dtype, narrow @ (None | Some(NarrowType::Text))) => {
            Ok(PortSignature { dtype: Some(dtype), narrow, map: Some(key), ..open })
        }
        (_, Some(narrow)) => Err(format!("its values are of {}", narrow.name())),
    }
}

/// Whether a dimension's symbol names it, so that equal symbols mean equal extents. Exporters write
/// some symbols for every dimension of which they know nothing.
fn is_name(symbol: &str) -> bool {
    let symbol = symbol.trim();
    !matches!(symbol, "" | "?" | "-1" | "None" | "none") && !symbol.starts_with("unk__")
}

/// Inputs with a tensor for each item of a sequence, and what the model's own inputs are made of.
pub(super) fn members(
    signature: &Signature,
    forms: &[(String, InputForm)],
    bindings: &[InputBinding],
) -> Result<(Signature, Vec<Member>), ImportError> {
    if let Some((name, _)) =
        forms.iter().find(|(name, _)| signature.inputs.iter().all(|port| port.name != *name))
    {
        let reason = "the model has no such input".into();
        return Err(ImportError::Binding { input: name.clone(), reason });
    }
    let (mut leaves, mut members) = (Vec::new(), Vec::new());
    for port in &signature.inputs {
        let refuse =
            |reason: String| Err(ImportError::Binding { input: port.name.clone(), reason });
        let named = forms.iter().find(|(name, _)| *name == port.name).map(|(_, form)| *form);
        let form = match (named, port.sequence) {
            (Some(InputForm::Absent), _) if port.optional => MemberForm::Absent,
            (Some(InputForm::Absent), _) => return refuse("it may not be left out".into()),
            (Some(InputForm::Sequence(_)), false) => return refuse(format!("it is {port}")),
            (None, false) if port.map.is_some() => {
                MemberForm::Map { text_values: port.narrow == Some(NarrowType::Text) }
            }
            (None, false) => MemberForm::Tensor,
            (Some(InputForm::Sequence(count)), true) if count > LONGEST => {
                return refuse(format!("a sequence has at most {LONGEST} tensors"));
            }
            (Some(InputForm::Sequence(count)), true) => MemberForm::Sequence(count),
            (None, true) => {
                let bound = |place: &usize| {
                    let name = item_name(&port.name, *place);
                    bindings.iter().any(|own| own.name == name)
                };
                match (0..LONGEST).take_while(bound).count() {
                    0 => {
                        return refuse(format!(
                            "it is a sequence: give the shape of each tensor, as '{}' and so on",
                            item_name(&port.name, 0)
                        ));
                    }
                    count => MemberForm::Sequence(count),
                }
            }
        };
        match form {
            MemberForm::Tensor => leaves.push(port.clone()),
            MemberForm::Map { .. } => leaves.extend(port.map_parts().into_iter().flatten()),
            _ => leaves.extend((0..form.tensors()).map(|place| item(port, place))),
        }
        let text = match port.map {
            Some(key) => key == KeyType::Text,
            None => port.narrow == Some(NarrowType::Text),
        };
        members.push(Member { name: port.name.clone(), form, text });
    }
    unique("input", &leaves)?;
    Ok((Signature { inputs: leaves, ..signature.clone() }, members))
}

/// One tensor of a sequence. Equal symbols say nothing: its tensors may differ in shape.
fn item(port: &PortSignature, place: usize) -> PortSignature {
    let open = |dimension: &Dimension| match dimension {
        Dimension::Symbol(_) => Dimension::Unknown,
        other => other.clone(),
    };
    PortSignature {
        name: item_name(&port.name, place),
        shape: port.shape.as_ref().map(|shape| shape.iter().map(open).collect()),
        sequence: false,
        optional: false,
        ..port.clone()
    }
}

/// Static types of all inputs.
pub(super) fn bind(
    signature: &Signature,
    bindings: &[InputBinding],
    limits: &Limits,
) -> Result<Vec<TensorType>, ImportError> {
    let bindings = by_name(signature, bindings)?;
    let mut symbols = Symbols::new();
    for port in &signature.inputs {
        if let Some(binding) = bindings.get(port.name.as_str()) {
            fit(port, binding, &mut symbols)
                .map_err(|reason| ImportError::Binding { input: port.name.clone(), reason })?;
        }
    }
    add_up(signature, &mut symbols)?;
    let mut unbound = Vec::new();
    let mut types = Vec::new();
    for port in &signature.inputs {
        match bindings.get(port.name.as_str()) {
            Some(binding) => types.push(typed(port, binding.shape.clone(), limits)?),
            None => match resolve(port, &symbols) {
                Ok(shape) => types.push(typed(port, shape, limits)?),
                Err(open) => unbound.push((port, open)),
            },
        }
    }
    if unbound.is_empty() { Ok(types) } else { Err(open_inputs(unbound, &symbols)) }
}

/// The refusal of inputs whose dimensions nothing binds, with shapes that would do.
fn open_inputs(unbound: Vec<(&PortSignature, Vec<String>)>, symbols: &Symbols<'_>) -> ImportError {
    let known = symbols.iter().map(|(symbol, (extent, _))| (symbol.to_string(), *extent));
    let mut known: HashMap<String, usize> = known.collect();
    let unbound = unbound.into_iter().map(|(port, open)| UnboundInput {
        declared: port.clone(),
        open,
        proposed: propose(port, &mut known),
    });
    ImportError::Unbound(unbound.collect())
}

fn by_name<'a>(
    signature: &Signature,
    bindings: &'a [InputBinding],
) -> Result<HashMap<&'a str, &'a InputBinding>, ImportError> {
    let mut found = HashMap::new();
    for binding in bindings {
        if !signature.inputs.iter().any(|port| port.name == binding.name) {
            let names: Vec<&str> =
                signature.inputs.iter().map(|port| port.name.as_str()).take(20).collect();
            return Err(ImportError::Binding {
                input: binding.name.clone(),
                reason: format!("the model has no such input, only {}", names.join(", ")),
            });
        }
        if found.insert(binding.name.as_str(), binding).is_some() {
            return Err(ImportError::Duplicate {
                what: "the shape of input",
                name: binding.name.clone(),
            });
        }
    }
    Ok(found)
}

/// Extents of named dimensions, each with the input that gave it.
type Symbols<'a> = HashMap<&'a str, (usize, &'a str)>;

/// Checks a binding against the declaration and learns what it says of symbols.
fn fit<'a>(
    port: &'a PortSignature,
    binding: &InputBinding,
    symbols: &mut Symbols<'a>,
) -> Result<(), String> {
    if let (Some(declared), Some(given)) = (port.dtype, binding.dtype)
        && declared != given
    {
        return Err(format!("the model takes {declared}, not {given}"));
    }
    let Some(shape) = &port.shape else { return Ok(()) };
    let given = &binding.shape;
    if shape.len() != given.len() {
        return Err(format!("it is {port}, {} extents are given", given.len()));
    }
    for (axis, (dimension, extent)) in shape.iter().zip(given).enumerate() {
        let (expected, by) = match dimension {
            Dimension::Fixed(expected) => (*expected, "the model"),
            Dimension::Symbol(symbol) => *symbols.entry(symbol).or_insert((*extent, &port.name)),
            Dimension::Unknown => (*extent, ""),
        };
        if expected == *extent {
            continue;
        }
        return Err(match dimension {
            Dimension::Fixed(_) => format!("axis {axis} has extent {expected}, {extent} is given"),
            _ => format!(
                "axis {axis} ('{dimension}') is given as {extent}, and as {expected} for input \
                 '{by}'"
            ),
        });
    }
    Ok(())
}

/// Gives dimensions that are sums of known ones their sizes, and compares those that have one with it.
fn add_up<'a>(signature: &'a Signature, symbols: &mut Symbols<'a>) -> Result<(), ImportError> {
    for SummedDimension { name, sum } in &signature.sums {
        let is_known = |term: &(String, i64)| symbols.contains_key(term.0.as_str());
        if !sum.terms.iter().all(is_known) {
            continue;
        }
        let value = sum.value(&|part| symbols.get(part).map(|known| known.0));
        let parts = sum.terms.iter().filter_map(|term| {
            symbols.get(term.0.as_str()).map(|known| format!("{}={}", term.0, known.0))
        });
        let parts = parts.collect::<Vec<_>>().join(", ");
        match (value, symbols.get(name.as_str())) {
            (Some(value), None) => {
                symbols.insert(name, (value, ""));
            }
            (value, Some((found, input))) if value != Some(*found) => {
                let is = value.map_or("no size".to_owned(), |value| value.to_string());
                let reason = format!(
                    "'{name}' is given as {found}; it is {sum}, which is {is} where {parts}"
                );
                return Err(ImportError::Binding { input: (*input).to_owned(), reason });
            }
            _ => {}
        }
    }
    Ok(())
}

/// The shape of an input that no binding names, or its open dimensions.
fn resolve(port: &PortSignature, symbols: &Symbols<'_>) -> Result<Vec<usize>, Vec<String>> {
    let Some(shape) = &port.shape else { return Err(vec!["its rank".into()]) };
    let mut open = Vec::new();
    let mut extents = Vec::new();
    for (axis, dimension) in shape.iter().enumerate() {
        match dimension {
            Dimension::Fixed(extent) => extents.push(*extent),
            Dimension::Symbol(symbol) => match symbols.get(symbol.as_str()) {
                Some((extent, _)) => extents.push(*extent),
                None => open.push(format!("axis {axis} ('{symbol}')")),
            },
            Dimension::Unknown => open.push(format!("axis {axis} (without a name)")),
        }
    }
    if open.is_empty() { Ok(extents) } else { Err(open) }
}

fn typed(
    port: &PortSignature,
    shape: Vec<usize>,
    limits: &Limits,
) -> Result<TensorType, ImportError> {
    let refuse =
        |reason: String| ImportError::Port { kind: "input", name: port.name.clone(), reason };
    let dtype = port.dtype.ok_or_else(|| refuse("its element type is left out".into()))?;
    let tensor_type = TensorType::new(dtype, shape);
    let fits = checked_bytes(&tensor_type).is_some_and(|bytes| bytes <= limits.tensor_bytes)
        && tensor_type.rank() <= limits.rank;
    if fits { Ok(tensor_type) } else { Err(refuse(format!("{tensor_type} is too large"))) }
}
