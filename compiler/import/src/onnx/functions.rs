//! Functions that a model brings along: looked through for unsupported operators, and inlined.

use super::builder::Operand;
use super::importer::{DEPTH, Importer, Scope, normal_domain, opsets};
use super::liveness::label;
use super::node::Node;
use super::operators;
use super::proto::{AttributeProto, FunctionProto, NodeProto};
use crate::{ImportError, NodeError, UnsupportedOperator};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// A function's domain, name and overload.
pub(super) type FunctionKey = (String, String, String);

/// A model's functions by what calls them.
pub(super) fn functions(
    protos: Vec<FunctionProto>,
) -> Result<HashMap<FunctionKey, Rc<FunctionProto>>, ImportError> {
    let mut functions = HashMap::new();
    for function in protos {
        let domain = normal_domain(function.domain.as_deref().unwrap_or_default());
        let name = function.name.clone().unwrap_or_default();
        let key = (domain.to_string(), name.clone(), function.overload.clone().unwrap_or_default());
        if functions.insert(key, Rc::new(function)).is_some() {
            return Err(ImportError::Duplicate { what: "function", name });
        }
    }
    Ok(functions)
}

/// The function or operator that a node calls.
pub(super) fn function_key(node: &NodeProto) -> FunctionKey {
    (
        normal_domain(node.domain.as_deref().unwrap_or_default()).to_string(),
        node.op_type.clone().unwrap_or_default(),
        node.overload.clone().unwrap_or_default(),
    )
}

impl Importer {
    /// Refuses operators that are not supported, in `nodes` and the functions they call, all at once.
    pub(super) fn check_supported<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodeProto>,
    ) -> Result<(), ImportError> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for node in nodes {
            self.find_unsupported(node, "", &|domain| self.opset(domain), &mut seen, &mut found);
        }
        if found.is_empty() { Ok(()) } else { Err(ImportError::Unsupported(found)) }
    }

    fn find_unsupported(
        &self,
        node: &NodeProto,
        caller: &str,
        opset: &dyn Fn(&str) -> Option<i64>,
        seen: &mut HashSet<FunctionKey>,
        found: &mut Vec<UnsupportedOperator>,
    ) {
        let key = function_key(node);
        if let Some(function) = self.functions.get(&key) {
            // Each function is looked into once; the depth is that of calls, bounded as they are.
            if !seen.insert(key) || caller.split('/').count() > DEPTH {
                return;
            }
            let caller = format!("{caller}{}/", label(node));
            let own = |domain: &str| {
                let imports = function.opset_import.iter();
                let mut versions = imports.filter(|import| {
                    normal_domain(import.domain.as_deref().unwrap_or_default()) == domain
                });
                versions.next().and_then(|import| import.version).or_else(|| opset(domain))
            };
            for inner in &function.node {
                self.find_unsupported(inner, &caller, &own, seen, found);
            }
            return;
        }
        if operators::find(&key.0, &key.1).is_none() {
            found.push(UnsupportedOperator {
                node: format!("{caller}{}", label(node)),
                opset: opset(&key.0).unwrap_or(0),
                domain: key.0,
                operator: key.1,
            });
        }
    }

    /// Imports the body of a function in place of the node that calls it.
    pub(super) fn inline(
        &mut self,
        function: &FunctionProto,
        node: &mut Node,
    ) -> Result<Vec<Operand>, NodeError> {
        let opsets = Rc::new(opsets(&function.opset_import)?);
        let mut scope = Scope { isolated: true, opsets, ..Scope::default() };
        for (name, operand) in function.input.iter().zip(&node.inputs) {
            if let Some(operand) = operand {
                scope.values.insert(name.clone(), *operand);
            }
        }
        for (name, shape) in function.output.iter().zip(&node.declared) {
            if let Some(shape) = shape {
                let shape = shape.iter().copied().map(Some).collect();
                scope.declared.insert(name.clone(), shape);
            }
        }
        let left_out: HashSet<&String> =
            function.input.iter().filter(|name| !scope.values.contains_key(*name)).collect();
        let mut given = std::mem::take(&mut node.attributes);
        for default in &function.attribute_proto {
            let name = default.name.clone().unwrap_or_default();
            given.entry(name).or_insert_with(|| default.clone());
        }
        let mut body = function.node.clone();
        for inner in &mut body {
            // An input of the function that the caller leaves out is left out inside, too.
            for input in &mut inner.input {
                if left_out.contains(input) {
                    input.clear();
                }
            }
            substitute(&mut inner.attribute, &given, 0);
            inner.name = Some(format!("{}/{}", node.name, label(inner)));
        }
        self.enter(scope)?;
        let imported = self.import_nodes(body, &function.output);
        self.scopes.pop();
        Ok(imported?)
    }
}

/// Replaces references to a function's attributes by what the caller gave or the function's default.
fn substitute(
    attributes: &mut Vec<AttributeProto>,
    given: &BTreeMap<String, AttributeProto>,
    depth: usize,
) {
    attributes.retain_mut(|attribute| {
        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            if depth < DEPTH {
                graph.node.iter_mut().for_each(|node| {
                    substitute(&mut node.attribute, given, depth + 1);
                });
            }
        }
        let reference = attribute.ref_attr_name.as_deref().unwrap_or_default();
        if reference.is_empty() {
            return true;
        }
        match given.get(reference) {
            Some(value) => {
                *attribute = AttributeProto { name: attribute.name.clone(), ..value.clone() };
                true
            }
            None => false,
        }
    });
}
