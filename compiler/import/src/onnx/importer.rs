//! The walk over a model's nodes.

use super::binding;
use super::branches::Rest;
use super::builder::{Builder, Operand};
use super::declared::{Declared, declared, spread, symbols};
use super::functions::{FunctionKey, function_key, functions};
use super::legacy;
use super::liveness::{check_names, label, live, pruned};
use super::narrow::NarrowType;
use super::node::Node;
use super::operators::{self, Import, NarrowRole};
use super::order::sorted;
use super::parts;
use super::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto,
};
use super::{NEWEST_OPSET, OLDEST_OPSET};
use crate::{ImportError, ImportOptions, Imported, InputBinding, Limits, NodeError, Signature};
use hone_graph::{Member, MemberForm};
use hone_types::Tensor;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// Functions and branches nested deeper than this are refused.
pub(super) const DEPTH: usize = 32;

/// Names of values in one graph or function body.
#[derive(Default)]
pub(super) struct Scope {
    pub values: HashMap<String, Operand>,
    /// Stored tensors that no node has read yet.
    pub stored: HashMap<String, TensorProto>,
    /// Whether names of the enclosing scopes are hidden, as in a function.
    pub isolated: bool,
    /// What the graph declares of the shapes of its values.
    pub declared: Declared,
    /// Names of the values that derivatives are taken by.
    pub variables: HashSet<String>,
    /// Versions of the operator sets.
    pub opsets: Rc<HashMap<String, i64>>,
}

/// The state of an import.
pub(super) struct Importer {
    pub(super) builder: Builder,
    pub(super) functions: HashMap<FunctionKey, Rc<FunctionProto>>,
    pub(super) scopes: Vec<Scope>,
    limits: Limits,
    nodes: usize,
    /// Extents that the inputs give to symbols.
    symbols: HashMap<String, usize>,
}

/// Builds the graph of a decoded model.
pub(super) fn import_model(
    model: ModelProto,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let Begun { mut importer, graph, signature, inputs } = begin(model, options)?;
    let names: Vec<String> = signature.outputs.iter().map(|port| port.name.clone()).collect();
    let outputs = importer.import_graph(graph, &names)?;
    let mut builder = importer.builder;
    let mut members = Vec::with_capacity(names.len());
    for (name, operand) in names.iter().zip(outputs) {
        let member = builder.add_member(name, operand).map_err(|reason| {
            let (kind, name) = ("output", name.clone());
            ImportError::Port { kind, name, reason }
        });
        members.push(member?);
    }
    // Inputs that are constants now are none of the artifact's.
    let is_known = |own: &Member| options.constants.iter().any(|(name, _)| *name == own.name);
    let inputs = inputs.into_iter().filter(|own| !is_known(own)).collect();
    let interface = builder.interface(inputs, members.clone());
    let has_tokens = !builder.tokens.is_empty();
    let (mut graph, mut warnings) = builder.finish();
    graph.set_interface(interface);
    if has_tokens {
        // Tokens that are only counted are not needed themselves, and they have a bound that counting has not.
        graph = pruned(&graph)?;
    }
    binding::check_outputs(&signature, &members, &graph, &mut warnings)?;
    graph.verify()?;
    Ok(Imported { graph, signature, warnings })
}

/// An import before its first node.
pub(super) struct Begun {
    /// Knows the inputs and functions of the model.
    pub importer: Importer,
    /// What is to be imported.
    pub graph: GraphProto,
    /// Inputs and outputs as the model declares them.
    signature: Signature,
    /// What the inputs are made of.
    inputs: Vec<Member>,
}

/// Binds the inputs of a decoded model.
pub(super) fn begin(model: ModelProto, options: &ImportOptions) -> Result<Begun, ImportError> {
    let graph = model.graph.unwrap_or_default();
    let signature = binding::signature(&graph, &options.limits)?;
    if signature.outputs.is_empty() {
        return Err(ImportError::NotOnnx { reason: "its graph has no outputs".into() });
    }
    let opsets = Rc::new(opsets(&model.opset_import)?);
    let bindings = [&options.bindings[..], &bindings_of(&options.constants)].concat();
    let (leaves, inputs) = binding::members(&signature, &options.forms, &bindings)?;
    let types = binding::bind(&leaves, &bindings, &options.limits)?;
    let mut importer = Importer {
        builder: Builder::new(options),
        functions: functions(model.functions)?,
        scopes: vec![Scope { opsets, ..Scope::default() }],
        limits: options.limits.clone(),
        nodes: 0,
        symbols: symbols(&leaves, &types),
    };
    let mut operands = Vec::with_capacity(types.len());
    for (port, tensor_type) in leaves.inputs.iter().zip(types) {
        let known = options.constants.iter().find(|(name, _)| *name == port.name);
        let operand = match known {
            Some((_, tensor)) => importer.builder.constant(tensor.clone()),
            None => importer.builder.add_input(&port.name, tensor_type),
        };
        if let Some(narrow) = port.narrow {
            importer.builder.set_narrow(operand, narrow);
        }
        operands.push(operand);
    }
    importer.bind_members(&inputs, operands);
    Ok(Begun { importer, graph, signature, inputs })
}

/// What the values of inputs say of their types.
fn bindings_of(constants: &[(String, Tensor)]) -> Vec<InputBinding> {
    let bind = |(name, tensor): &(String, Tensor)| InputBinding {
        name: name.clone(),
        shape: tensor.shape().to_vec(),
        dtype: Some(tensor.dtype()),
    };
    constants.iter().map(bind).collect()
}

/// The versions of operator sets that a model or function names.
pub(super) fn opsets(imports: &[OperatorSetIdProto]) -> Result<HashMap<String, i64>, ImportError> {
    let mut opsets = HashMap::new();
    for import in imports {
        let domain = normal_domain(import.domain.as_deref().unwrap_or_default());
        let version = import.version.unwrap_or(0);
        if domain.is_empty() && !(OLDEST_OPSET..=NEWEST_OPSET).contains(&version) {
            let what = format!("the model uses opset {version}");
            return Err(ImportError::Version { what, oldest: OLDEST_OPSET, newest: NEWEST_OPSET });
        }
        if opsets.insert(domain.to_string(), version).is_some_and(|other| other != version) {
            return Err(ImportError::Duplicate { what: "operator set", name: domain.to_string() });
        }
    }
    Ok(opsets)
}

/// ONNX's own operator set has two names.
pub(super) fn normal_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

impl Importer {
    pub(super) fn bind(&mut self, name: &str, operand: Operand) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.values.insert(name.to_string(), operand);
        }
    }

    /// Binds the names of a model's inputs to the tensors that they are made of.
    fn bind_members(&mut self, members: &[Member], operands: Vec<Operand>) {
        let mut operands = operands.into_iter();
        for member in members {
            let mut own = operands.by_ref().take(member.form.tensors());
            let operand = match member.form {
                MemberForm::Tensor => own.next(),
                MemberForm::Sequence(_) => Some(self.builder.sequence(own.collect())),
                MemberForm::Map { .. } => {
                    let parts: Vec<Operand> = own.collect();
                    <[Operand; 3]>::try_from(parts).ok().map(|parts| self.builder.key_map(parts))
                }
                MemberForm::Absent | MemberForm::Maps => Some(self.builder.absent()),
            };
            if let Some(operand) = operand {
                self.bind(&member.name, operand);
            }
        }
    }

    /// The scopes that can be seen, innermost first.
    fn visible(&self) -> impl Iterator<Item = usize> {
        let outermost = self.scopes.iter().rposition(|scope| scope.isolated).unwrap_or(0);
        (outermost..self.scopes.len()).rev()
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.visible().any(|place| {
            let scope = &self.scopes[place];
            scope.values.contains_key(name) || scope.stored.contains_key(name)
        })
    }

    /// Whether a value that is known already has no axes.
    fn is_scalar(&self, name: &str) -> bool {
        let found = self.visible().find_map(|place| {
            let scope = &self.scopes[place];
            let computed = scope.values.get(name).map(|own| self.builder.rank(*own) == 0);
            computed.or_else(|| scope.stored.get(name).map(|tensor| tensor.dims.is_empty()))
        });
        found.unwrap_or(false)
    }

    /// The operand of a name; a stored tensor is read when it is first asked for.
    pub(super) fn lookup(&mut self, name: &str) -> Result<Option<Operand>, ImportError> {
        let places: Vec<usize> = self.visible().collect();
        for place in places {
            let scope = &mut self.scopes[place];
            if let Some(operand) = scope.values.get(name) {
                return Ok(Some(*operand));
            }
            if let Some(proto) = scope.stored.remove(name) {
                let operand = self.builder.load(proto)?;
                self.scopes[place].values.insert(name.to_string(), operand);
                return Ok(Some(operand));
            }
        }
        Ok(None)
    }

    /// Imports a graph into the innermost scope; returns its outputs.
    pub(super) fn import_graph(
        &mut self,
        graph: GraphProto,
        outputs: &[String],
    ) -> Result<Vec<Operand>, ImportError> {
        let nodes = self.store(graph)?;
        self.import_nodes(nodes, outputs)
    }

    /// Keeps what a graph stores and declares in the innermost scope; returns its nodes.
    pub(super) fn store(&mut self, graph: GraphProto) -> Result<Vec<NodeProto>, ImportError> {
        if let Some(sparse) = graph.sparse_initializer.first() {
            let values = sparse.values.as_ref().and_then(|values| values.name.clone());
            return Err(ImportError::Tensor {
                name: values.unwrap_or_default(),
                reason: "it is sparse, which is not supported".into(),
            });
        }
        let mut stored = HashMap::new();
        for tensor in graph.initializer {
            let name = tensor.name.clone().unwrap_or_default();
            if stored.insert(name.clone(), tensor).is_some() {
                return Err(ImportError::Duplicate { what: "initializer", name });
            }
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.stored = stored;
            scope.declared = declared(graph.output.iter().chain(&graph.value_info), &self.symbols);
        }
        Ok(graph.node)
    }

    /// Imports those of `nodes` that `outputs` need; returns the outputs.
    pub(super) fn import_nodes(
        &mut self,
        nodes: Vec<NodeProto>,
        outputs: &[String],
    ) -> Result<Vec<Operand>, ImportError> {
        self.count_nodes(nodes.len())?;
        let nodes = sorted(nodes, |name| self.knows(name))?;
        self.note_variables(&nodes)?;
        check_names(
            &nodes,
            |name| self.knows(name),
            |name| {
                let scope = self.scopes.last();
                scope.is_some_and(|scope| {
                    scope.values.contains_key(name) || scope.stored.contains_key(name)
                })
            },
        )?;
        let mut declared =
            self.scopes.last_mut().map(|own| std::mem::take(&mut own.declared)).unwrap_or_default();
        spread(&nodes, &mut declared, |name| self.is_scalar(name));
        if let Some(scope) = self.scopes.last_mut() {
            scope.declared = declared;
        }
        let (read, live) = live(&nodes, outputs.iter().map(String::as_str));
        self.check_supported(
            nodes.iter().zip(&live).filter(|(_, live)| **live).map(|(node, _)| node),
        )?;
        let needed = nodes.into_iter().zip(live).filter(|(_, live)| *live).map(|(node, _)| node);
        self.import_sorted(needed.collect(), outputs, &read)
    }

    /// Imports nodes in their order, all of which are needed; returns the outputs of their graph.
    pub(super) fn import_sorted(
        &mut self,
        mut nodes: VecDeque<NodeProto>,
        outputs: &[String],
        read: &HashSet<String>,
    ) -> Result<Vec<Operand>, ImportError> {
        while let Some(node) = nodes.pop_front() {
            let again = self.is_decided_branch(&node)?.then(|| node.clone());
            match (self.import_node(node, read), again) {
                (Err(ImportError::Node { source: NodeError::BranchesDiffer, .. }), Some(again)) => {
                    return self.branch_apart(again, &Rest { nodes, outputs, read });
                }
                (imported, _) => imported?,
            }
        }
        let mut operands = Vec::with_capacity(outputs.len());
        for name in outputs {
            let operand = self.lookup(name)?.ok_or_else(|| ImportError::Undefined {
                reader: "the output of the graph".into(),
                value: name.clone(),
            })?;
            operands.push(operand);
        }
        Ok(operands)
    }

    /// Whether a node is an `If` whose condition is not known while compiling.
    fn is_decided_branch(&mut self, node: &NodeProto) -> Result<bool, ImportError> {
        let (domain, operator, _) = function_key(node);
        let Some(condition) = node.input.first().filter(|_| domain.is_empty() && operator == "If")
        else {
            return Ok(false);
        };
        let condition = self.lookup(condition)?;
        Ok(condition.is_some_and(|own| self.builder.tensor(own).is_none()))
    }

    pub(super) fn count_nodes(&mut self, nodes: usize) -> Result<(), ImportError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= self.limits.nodes {
            return Ok(());
        }
        Err(ImportError::TooLarge {
            what: "the number of nodes".into(),
            actual: self.nodes as u64,
            limit: self.limits.nodes as u64,
        })
    }

    pub(super) fn opset(&self, domain: &str) -> Option<i64> {
        self.scopes.last().and_then(|scope| scope.opsets.get(domain).copied())
    }

    /// A node with its inputs, whose attributes are not read yet.
    pub(super) fn begin_node(
        &mut self,
        proto: &NodeProto,
        read: &HashSet<String>,
    ) -> Result<Node, ImportError> {
        let (domain, operator, _) = function_key(proto);
        let opset = match self.opset(&domain) {
            Some(opset) => opset,
            None if !domain.is_empty() => 1,
            None => {
                let what = "the model names no version of ONNX's own operator set".into();
                let (oldest, newest) = (OLDEST_OPSET, NEWEST_OPSET);
                return Err(ImportError::Version { what, oldest, newest });
            }
        };
        let mut node = Node {
            name: label(proto),
            operator,
            opset,
            inputs: Vec::with_capacity(proto.input.len()),
            wanted: proto.output.iter().map(|output| read.contains(output)).collect(),
            input_names: proto.input.clone(),
            declared: self.declared_shapes(&proto.output),
            output_names: proto.output.clone(),
            attributes: BTreeMap::new(),
        };
        for name in &proto.input {
            let operand = if name.is_empty() { None } else { self.lookup(name)? };
            node.inputs.push(operand);
        }
        Ok(node)
    }

    pub(super) fn import_node(
        &mut self,
        proto: NodeProto,
        read: &HashSet<String>,
    ) -> Result<(), ImportError> {
        let (domain, operator, overload) = function_key(&proto);
        let mut node = self.begin_node(&proto, read)?;
        let opset = node.opset;
        self.note_declared(&node);
        // What they give is what they are given, with its part.
        let forwards = ["Identity", "SequenceConstruct", "SequenceInsert"];
        let forwards = domain.is_empty() && forwards.contains(&operator.as_str());
        let names = proto.output;
        let full =
            if domain.is_empty() { operator.clone() } else { format!("{domain}.{operator}") };
        let name = node.name.clone();
        let key = (domain, operator, overload);
        self.builder.from_shapes.begin(&node.inputs);
        let outputs: Vec<Operand> = collect_attributes(proto.attribute)
            .and_then(|attributes| {
                node.attributes = attributes;
                let forwards = forwards || self.functions.contains_key(&key);
                let outputs = self.import_in_parts(&key, &mut node, forwards)?;
                let named = names.iter().zip(outputs);
                named.map(|(name, own)| self.as_result(name, own, &node.inputs)).collect()
            })
            .map_err(|source| ImportError::Node { node: name, operator: full, opset, source })?;
        let measures = key.0.is_empty() && matches!(key.1.as_str(), "Shape" | "Size");
        self.builder.from_shapes.end(&node.inputs, measures, &outputs);
        for (name, operand) in names.iter().zip(outputs) {
            if !name.is_empty() {
                self.builder.name_value(operand, name);
                self.bind(name, operand);
            }
        }
        Ok(())
    }

    /// The outputs of a node, some of whose inputs may be there in part.
    fn import_in_parts(
        &mut self,
        key: &FunctionKey,
        node: &mut Node,
        forwards: bool,
    ) -> Result<Vec<Operand>, NodeError> {
        let (pending, outputs) = match forwards {
            true => (None, None),
            false => {
                self.builder.name_nodes(&node.name);
                parts::begin(&mut self.builder, node, &key.0)?
            }
        };
        if let Some(outputs) = outputs {
            return Ok(outputs);
        }
        let outputs = self.import_operator(key, node)?;
        let outputs = check_results(node, outputs)?;
        match pending {
            Some(pending) => pending.finish(&mut self.builder, outputs),
            None => Ok(outputs),
        }
    }

    /// Tells the builder what is declared of the inputs of a node.
    fn note_declared(&mut self, node: &Node) {
        for (name, operand) in node.input_names.iter().zip(&node.inputs) {
            let declared = self.scopes.last().and_then(|scope| scope.declared.get(name));
            let shape = declared.and_then(|own| own.iter().copied().collect::<Option<Vec<_>>>());
            if let (Some(shape), Some(operand)) = (shape, operand) {
                self.builder.declare(*operand, shape);
            }
        }
    }

    /// The shapes that are declared for some values, where every extent is known.
    fn declared_shapes(&self, names: &[String]) -> Vec<Option<Vec<usize>>> {
        let declared = self.scopes.last().map(|scope| &scope.declared);
        let shape = |name: &String| declared?.get(name)?.iter().copied().collect();
        names.iter().map(shape).collect()
    }

    fn import_operator(
        &mut self,
        key: &FunctionKey,
        node: &mut Node,
    ) -> Result<Vec<Operand>, NodeError> {
        if let Some(function) = self.functions.get(key) {
            let function = Rc::clone(function);
            return self.inline(&function, node);
        }
        self.builder.name_nodes(&node.name);
        if node.opset < legacy::ALIGNED_OPSET && key.0.is_empty() {
            node.ignore(&["consumed_inputs"]);
        }
        if !operators::takes_sequences(&key.1) {
            for input in &mut node.inputs {
                input.take_if(|own| self.builder.is_absent(*own));
            }
            let composite = |own: &&Operand| self.builder.is_composite(**own);
            if let Some(own) = node.inputs.iter().flatten().find(composite) {
                let what = if self.builder.is_maps(*own) { "maps" } else { "a sequence" };
                return Err(NodeError::unsupported(format!("operator {} of {what}", key.1)));
            }
        }
        let narrow =
            node.inputs.iter().flatten().find_map(|input| self.builder.narrow_type(*input));
        let Some(narrow) = narrow else { return self.import_by_list(key, node) };
        let role = match narrow {
            NarrowType::Text => operators::text_role(&key.1),
            _ => operators::narrow_role(&key.1),
        };
        match role {
            NarrowRole::Reads => self.import_by_list(key, node),
            NarrowRole::Moves => {
                let outputs = self.import_by_list(key, node)?;
                outputs.iter().for_each(|output| self.builder.set_narrow(*output, narrow));
                Ok(outputs)
            }
            NarrowRole::None => {
                Err(NodeError::unsupported(format!("operator {} of {}", key.1, narrow.name())))
            }
        }
    }

    /// The outputs of a node of the list's operators.
    fn import_by_list(
        &mut self,
        key: &FunctionKey,
        node: &mut Node,
    ) -> Result<Vec<Operand>, NodeError> {
        match operators::find(&key.0, &key.1) {
            Some(Import::Function(import)) => import(&mut self.builder, node),
            Some(Import::Unary(function)) => {
                let input = node.input(0)?;
                Ok(vec![self.builder.unary(function, input)?])
            }
            Some(Import::Binary(function)) => {
                let left = node.input(0)?;
                let right = legacy::second_operand(&mut self.builder, node, left)?;
                Ok(vec![self.builder.binary(function, left, right)?])
            }
            Some(Import::If) => self.branch(node, None),
            Some(Import::Loop) => self.repetition(node),
            Some(Import::Scan) => self.scan(node),
            Some(Import::FlexAttention) => self.flex_attention(node),
            Some(Import::SequenceMap) => self.map_sequence(node),
            Some(Import::Gradient) => self.gradient(node),
            None => Err(NodeError::unsupported(format!("operator {}", key.1))),
        }
    }

    pub(super) fn enter(&mut self, scope: Scope) -> Result<(), NodeError> {
        if self.scopes.len() > DEPTH {
            return Err(NodeError::invalid(format!(
                "functions and branches are nested deeper than {DEPTH}"
            )));
        }
        self.scopes.push(scope);
        Ok(())
    }
}

pub(super) fn collect_attributes(
    attributes: Vec<AttributeProto>,
) -> Result<BTreeMap<String, AttributeProto>, NodeError> {
    let mut collected = BTreeMap::new();
    for attribute in attributes {
        let name = attribute.name.clone().unwrap_or_default();
        if attribute.ref_attr_name.as_deref().is_some_and(|reference| !reference.is_empty()) {
            return Err(NodeError::invalid(format!(
                "attribute '{name}' refers to an attribute of a function, but is in none"
            )));
        }
        if collected.insert(name.clone(), attribute).is_some() {
            return Err(NodeError::invalid(format!("attribute '{name}' is given twice")));
        }
    }
    Ok(collected)
}

/// Refuses attributes that were not read, and results that are missing.
fn check_results(node: &Node, outputs: Vec<Operand>) -> Result<Vec<Operand>, NodeError> {
    if let Some(name) = node.attributes.keys().next() {
        return Err(NodeError::invalid(format!(
            "attribute '{name}' is unknown in this version of the operator"
        )));
    }
    match node.wanted.iter().skip(outputs.len()).position(|wanted| *wanted) {
        Some(place) => {
            Err(NodeError::unsupported(format!("output number {}", outputs.len() + place)))
        }
        None => Ok(outputs),
    }
}
