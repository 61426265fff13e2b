//! Sequences of tensors, optional values and strings. The graph has tensors of numbers alone: a sequence is a list of
//! operands, whose length is known when compiling; an optional value is there or not when compiling; an element of a
//! tensor of strings is the string's handle.

use super::builder::{Builder, Operand};
use super::importer::Importer;
use super::narrow::NarrowType;
use super::node::{Node, Outputs};
use super::proto::GraphProto;
use crate::NodeError;
use hone_graph::{Interface, Member, MemberForm};
use hone_types::{Tensor, intern_text, text_of};

/// Most tensors of a sequence, and most iterations of a loop over sequences.
pub(super) const LONGEST: usize = 1 << 16;

/// What an operand is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    Tensor(Option<NarrowType>),
    Sequence(Vec<Option<NarrowType>>),
    Absent,
}

impl Builder {
    /// An optional value that is not there.
    pub fn absent(&mut self) -> Operand {
        let operand = self.constant(Tensor::scalar(false));
        self.absent.insert(operand);
        operand
    }

    /// Whether an operand stands for an optional value that is not there.
    pub fn is_absent(&self, operand: Operand) -> bool {
        self.absent.contains(&operand)
    }

    /// A list of maps with the same keys, a map in each row of `values`.
    pub fn maps(&mut self, keys: Operand, values: Operand) -> Operand {
        let operand = self.constant(Tensor::scalar(false));
        self.maps.insert(operand, (keys, values));
        operand
    }

    /// Whether an operand is a list of maps, or a map.
    pub fn is_maps(&self, operand: Operand) -> bool {
        self.maps.contains_key(&operand) || self.key_maps.contains_key(&operand)
    }

    /// A map of its keys, values, and how many of them are there.
    pub fn key_map(&mut self, parts: [Operand; 3]) -> Operand {
        let operand = self.constant(Tensor::scalar(false));
        self.key_maps.insert(operand, parts);
        operand
    }

    /// Whether an operand is no single tensor.
    pub fn is_composite(&self, operand: Operand) -> bool {
        self.is_absent(operand) || self.is_maps(operand) || self.items(operand).is_some()
    }

    /// Whether an operand is of strings.
    pub fn is_text(&self, operand: Operand) -> bool {
        self.narrow_type(operand) == Some(NarrowType::Text)
    }

    /// Marks an operand of handles as one of strings.
    pub fn as_text(&mut self, operand: Operand) -> Operand {
        self.set_narrow(operand, NarrowType::Text);
        operand
    }

    /// A list of strings.
    pub fn texts(&mut self, texts: &[String]) -> Result<Operand, NodeError> {
        let handles = texts
            .iter()
            .map(|text| intern_text(text).map_err(|error| NodeError::invalid(error.to_string())));
        let handles: Vec<u64> = handles.collect::<Result<_, _>>()?;
        self.note_texts(&handles);
        let list = self.constant(Tensor::from_elements([texts.len()], &handles)?);
        Ok(self.as_text(list))
    }

    /// Notes that the model stores some strings.
    pub fn note_texts(&mut self, handles: &[u64]) {
        let texts = handles.iter().filter_map(|handle| text_of(*handle));
        self.stored_texts.extend(texts.map(|text| text.to_string()));
    }

    fn form(&self, operand: Operand) -> Form {
        match self.items(operand) {
            _ if self.is_absent(operand) => Form::Absent,
            Some(items) => {
                Form::Sequence(items.iter().map(|operand| self.narrow_type(*operand)).collect())
            }
            None => Form::Tensor(self.narrow_type(operand)),
        }
    }

    /// The tensors that some operands are made of, and how.
    pub(super) fn flattened(&self, operands: &[Operand]) -> (Vec<Operand>, Vec<Form>) {
        let leaves = |operand: &Operand| match self.items(*operand) {
            _ if self.is_absent(*operand) => Vec::new(),
            Some(items) => items,
            None => vec![*operand],
        };
        let forms = operands.iter().map(|operand| self.form(*operand)).collect();
        (operands.iter().flat_map(leaves).collect(), forms)
    }

    /// Operands of some forms, made of tensors.
    pub(super) fn gathered(&mut self, forms: &[Form], leaves: Vec<Operand>) -> Vec<Operand> {
        let mut leaves = leaves.into_iter();
        let mut mark = |builder: &mut Self, narrow: &Option<NarrowType>| {
            let leaf = leaves.next()?;
            if let Some(narrow) = narrow {
                builder.set_narrow(leaf, *narrow);
            }
            Some(leaf)
        };
        let mut operands = Vec::with_capacity(forms.len());
        for form in forms {
            operands.extend(match form {
                Form::Absent => Some(self.absent()),
                Form::Tensor(narrow) => mark(self, narrow),
                Form::Sequence(items) => {
                    let items = items.iter().filter_map(|narrow| mark(self, narrow)).collect();
                    Some(self.sequence(items))
                }
            });
        }
        operands
    }

    /// Adds an output of the model, with all tensors that it is made of.
    ///
    /// # Errors
    /// A sequence of something else than tensors.
    pub fn add_member(&mut self, name: &str, operand: Operand) -> Result<Member, String> {
        let member = |form, text| Member { name: name.to_owned(), form, text };
        if self.is_absent(operand) {
            return Ok(member(MemberForm::Absent, false));
        }
        if let Some((keys, values)) = self.maps.get(&operand).copied() {
            self.add_output(&format!("{name}.keys"), keys);
            self.add_output(&format!("{name}.values"), values);
            return Ok(member(MemberForm::Maps, self.is_text(keys)));
        }
        if self.is_maps(operand) {
            return Err("it is a map as the model is given it; take it from there".into());
        }
        let Some(items) = self.items(operand) else {
            let operand = self.compacted(operand).map_err(|error| error.to_string())?;
            self.add_output(name, operand);
            return Ok(member(MemberForm::Tensor, self.is_text(operand)));
        };
        if items.iter().any(|item| self.is_composite(*item)) {
            return Err("it is a sequence of something else than tensors".into());
        }
        for (index, item) in items.iter().enumerate() {
            let item = self.compacted(*item).map_err(|error| error.to_string())?;
            self.add_output(&item_name(name, index), item);
        }
        let text = items.iter().any(|item| self.is_text(*item));
        Ok(member(MemberForm::Sequence(items.len()), text))
    }

    /// What the model takes and gives.
    pub(super) fn interface(&self, inputs: Vec<Member>, outputs: Vec<Member>) -> Interface {
        let texts = self.stored_texts.iter().cloned().collect();
        let interface = Interface { inputs, outputs, texts };
        if interface.is_plain() { Interface::default() } else { interface }
    }
}

/// The name of one tensor of a sequence that is an input or output.
pub(super) fn item_name(name: &str, index: usize) -> String {
    format!("{name}[{index}]")
}

impl Importer {
    /// `Loop` of which sequences or optional values are carried: as many copies of its body as there are iterations.
    pub(super) fn unrolled(
        &mut self,
        node: &mut Node,
        body: &GraphProto,
        mut carried: Vec<Operand>,
    ) -> Outputs {
        let trips = match node.optional(0) {
            Some(_) => self.builder.integer_of(node, 0)?.max(0) as u64,
            None => u64::MAX,
        };
        let mut holds = match node.optional(1) {
            Some(condition) => {
                let known = self.builder.tensor(condition);
                let known = known.ok_or_else(|| self.builder.not_constant(node, 1))?;
                known.bytes() == [1]
            }
            None => true,
        };
        let names: Vec<String> =
            body.input.iter().map(|input| input.name.clone().unwrap_or_default()).collect();
        let collected = body.output.len().saturating_sub(1 + carried.len());
        let mut rows: Vec<Vec<Operand>> = vec![Vec::new(); collected];
        let mut number = 0;
        while holds && number < trips {
            if number >= LONGEST as u64 {
                return Err(NodeError::unsupported(format!(
                    "a loop over sequences of more than {LONGEST} iterations"
                )));
            }
            let first = carried.clone();
            let mut outputs = self.inner(body.clone(), |importer| {
                let number = importer.builder.constant(Tensor::scalar(number as i64));
                let holds = importer.builder.constant(Tensor::scalar(true));
                let given = [number, holds].into_iter().chain(first);
                names.iter().zip(given).for_each(|(name, operand)| importer.bind(name, operand));
                Ok(())
            })?;
            let known =
                self.builder.tensor(outputs.remove(0)).map(|operand| operand.bytes() == [1]);
            holds = known.ok_or_else(|| {
                NodeError::unsupported("a loop over sequences whose end a run decides")
            })?;
            let last = outputs.split_off(carried.len().min(outputs.len()));
            rows.iter_mut().zip(last).for_each(|(row, operand)| row.push(operand));
            carried = outputs;
            number += 1;
        }
        for row in rows {
            carried.push(self.stacked(&row)?);
        }
        Ok(carried)
    }

    /// Tensors along a new first axis.
    pub(super) fn stacked(&mut self, items: &[Operand]) -> Result<Operand, NodeError> {
        let mut rows = Vec::with_capacity(items.len());
        for item in items {
            self.builder.check_extent(*item, "what a loop collects")?;
            let shape = [&[1], &self.builder.shape(*item)[..]].concat();
            rows.push(self.builder.reshape(*item, shape)?);
        }
        match rows.is_empty() {
            true => Err(NodeError::unsupported("a loop over sequences without an iteration")),
            false => self.builder.concat(&rows, 0),
        }
    }

    /// `SequenceMap`: the body for each item of sequences; tensors are the same for all.
    pub(super) fn map_sequence(&mut self, node: &mut Node) -> Outputs {
        let body = node.graph("body")?.ok_or_else(|| NodeError::invalid("the body is left out"))?;
        let inputs = node.variadic()?;
        let lists: Vec<Option<Vec<Operand>>> =
            inputs.iter().map(|input| self.builder.items(*input)).collect();
        let count = lists.first().and_then(Option::as_ref).map(Vec::len);
        let count = count.ok_or_else(|| NodeError::invalid("input number 0 is no sequence"))?;
        if lists.iter().flatten().any(|list| list.len() != count) {
            return Err(NodeError::invalid("the sequences differ in length"));
        }
        let names: Vec<String> =
            body.input.iter().map(|input| input.name.clone().unwrap_or_default()).collect();
        let mut results = vec![Vec::with_capacity(count); body.output.len()];
        for index in 0..count {
            let given = inputs.iter().zip(&lists);
            let given: Vec<Operand> = given
                .map(|(operand, list)| list.as_ref().map_or(*operand, |list| list[index]))
                .collect();
            let outputs = self.inner(body.clone(), |importer| {
                names.iter().zip(given).for_each(|(name, operand)| importer.bind(name, operand));
                Ok(())
            })?;
            results.iter_mut().zip(outputs).for_each(|(list, operand)| list.push(operand));
        }
        Ok(results.into_iter().map(|list| self.builder.sequence(list)).collect())
    }
}
