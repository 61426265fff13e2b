//! Memory of branches and loops.
//!
//! A region's inputs and outputs lie where the node's do; only what a loop carries has buffers of its own. They are
//! two for each carried value, so that an iteration reads one and stores the other, and both live as long as the
//! loop. What a loop reads from around it lives until its end, since the next iteration reads it again.

use crate::artifact::data_type;
use crate::host::host_function;
use crate::kernels::LoweredGraph;
use crate::steps::{Frame, Planner};
use crate::storage::Home;
use hone_artifact::{Carried, Collected, Host, HostFunction, HostTensor, HostType, If, Part, Slot};
use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{Loop, Op};
use hone_types::TensorType;

impl<'a> Planner<'a> {
    /// What runs for a node with graphs inside.
    pub(crate) fn regions(
        &mut self,
        frame: &mut Frame<'a>,
        node: NodeId,
        regions: &'a [LoweredGraph],
    ) -> Part {
        let graph = frame.graph;
        let node = &graph.nodes()[node];
        if let Some(function) = host_function(&node.operation) {
            return self.host(frame, node, function);
        }
        match (node.operation.downcast::<Loop>(), regions) {
            (Some(own), [body]) => self.repetition(frame, node, own, body),
            _ => self.choice(frame, node, regions),
        }
    }

    fn host(&mut self, frame: &mut Frame<'a>, node: &Node<Op>, function: HostFunction) -> Part {
        let mut tensor = |value: ValueId| {
            let home = self.home(frame, value);
            self.touch(home, self.time);
            let TensorType { dtype, shape } = frame.graph.tensor_type(value);
            let shape = shape.iter().map(|extent| *extent as u64).collect();
            HostTensor { slot: self.slot(home), of: HostType { dtype: data_type(*dtype), shape } }
        };
        let inputs = node.inputs.iter().map(|input| input.map(&mut tensor)).collect();
        let outputs = node.outputs.iter().map(|output| tensor(*output)).collect();
        self.time += 1;
        Part::Host(Host { node: node.name.clone(), function, inputs, outputs })
    }

    fn choice(
        &mut self,
        frame: &mut Frame<'a>,
        node: &'a Node<Op>,
        regions: &'a [LoweredGraph],
    ) -> Part {
        let operands = self.homes(frame, node.inputs.iter().flatten());
        let results = self.homes(frame, &node.outputs);
        operands.iter().for_each(|home| self.touch(*home, self.time));
        self.time += 1;
        let mut given = operands.iter().skip(1).copied();
        let mut branches = Vec::new();
        for (graph, lowered) in node.operation.regions().into_iter().zip(regions) {
            let inputs: Vec<Home> = given.by_ref().take(graph.inputs().len()).collect();
            branches.push(self.graph(&mut Frame::new(graph, lowered, &inputs, &results)));
        }
        results.iter().for_each(|home| self.touch(*home, self.time));
        let otherwise = branches.pop().unwrap_or_default();
        let then = branches.pop().unwrap_or_default();
        let condition = operands.first().map_or(Slot::Arena { offset: 0 }, |home| self.slot(*home));
        Part::If(If { node: node.name.clone(), condition, then, otherwise })
    }

    fn repetition(
        &mut self,
        frame: &mut Frame<'a>,
        node: &'a Node<Op>,
        own: &'a Loop,
        lowered: &'a LoweredGraph,
    ) -> Part {
        let [trips, condition] = [0, 1].map(|place| node.inputs.get(place).copied().flatten());
        let trips = trips.map(|value| self.home(frame, value));
        let condition = condition.map(|value| self.home(frame, value));
        let operands = self.homes(frame, node.inputs.iter().skip(2).flatten());
        let results = self.homes(frame, &node.outputs);
        let (initial, read) = operands.split_at(own.carried.min(operands.len()));
        // The buffers of the body's own inputs and outputs.
        let mut buffers = |count: usize, types: &mut dyn Iterator<Item = ValueId>| -> Vec<Home> {
            let sizes = types.take(count).map(|value| own.body.tensor_type(value).bytes() as u64);
            sizes.map(|bytes| self.buffer(bytes.max(1))).collect()
        };
        let mut inputs = own.body.inputs().iter().map(|port| port.value);
        let mut outputs = own.body.outputs().iter().map(|port| port.value);
        let number = buffers(1, &mut inputs);
        let current = buffers(own.carried, &mut inputs);
        let goes_on = buffers(usize::from(own.tests), &mut outputs);
        let next = buffers(own.carried, &mut outputs);
        let from = buffers(own.reversed.len(), &mut outputs);
        let inside: Vec<Home> =
            [&number, &current, &goes_on, &next, &from].into_iter().flatten().copied().collect();
        let given: Vec<Home> = number.iter().chain(&current).chain(read).copied().collect();
        let stored: Vec<Home> = goes_on.iter().chain(&next).chain(&from).copied().collect();
        let before = trips.iter().chain(&condition).chain(initial);
        before.for_each(|home| self.touch(*home, self.time));
        let alive: Vec<Home> = inside.iter().chain(read).chain(&results).copied().collect();
        alive.iter().for_each(|home| self.touch(*home, self.time));
        self.time += 1;
        let body = self.graph(&mut Frame::new(&own.body, lowered, &given, &stored));
        alive.iter().for_each(|home| self.touch(*home, self.time));
        self.time += 1;
        let bytes = |value: ValueId| own.body.tensor_type(value).bytes() as u64;
        let carried = (0..own.carried).map(|place| Carried {
            initial: self.slot(initial[place]),
            current: self.slot(current[place]),
            next: self.slot(next[place]),
            result: self.slot(results[place]),
            bytes: bytes(own.body.inputs()[1 + place].value),
        });
        let first = usize::from(own.tests) + own.carried;
        let collected = own.reversed.iter().enumerate().map(|(place, reversed)| Collected {
            from: self.slot(from[place]),
            all: self.slot(results[own.carried + place]),
            bytes: bytes(own.body.outputs()[first + place].value),
            reversed: *reversed,
        });
        Part::Loop(Box::new(hone_artifact::Loop {
            node: node.name.clone(),
            most: own.most,
            trips: trips.map(|home| self.slot(home)),
            condition: condition.map(|home| self.slot(home)),
            goes_on: goes_on.first().map(|home| self.slot(*home)),
            capacity: own.capacity,
            number: self.slot(number[0]),
            count: self.slot(results[results.len() - 1]),
            carried: carried.collect(),
            collected: collected.collect(),
            body,
        }))
    }

    fn homes<'b>(
        &mut self,
        frame: &mut Frame<'_>,
        values: impl IntoIterator<Item = &'b ValueId>,
    ) -> Vec<Home> {
        values.into_iter().map(|value| self.home(frame, *value)).collect()
    }
}

/// Changes every slot of a program.
pub(crate) fn each_slot(parts: &mut [Part], change: &dyn Fn(&mut Slot)) {
    for part in parts {
        match part {
            Part::Steps { .. } => {}
            Part::Host(own) => {
                own.inputs.iter_mut().flatten().for_each(|input| change(&mut input.slot));
                own.outputs.iter_mut().for_each(|output| change(&mut output.slot));
            }
            Part::If(own) => {
                change(&mut own.condition);
                each_slot(&mut own.then, change);
                each_slot(&mut own.otherwise, change);
            }
            Part::Loop(own) => {
                let optional = [&mut own.trips, &mut own.condition, &mut own.goes_on];
                optional.into_iter().flatten().for_each(change);
                change(&mut own.number);
                change(&mut own.count);
                for carried in &mut own.carried {
                    let Carried { initial, current, next, result, .. } = carried;
                    [initial, current, next, result].into_iter().for_each(change);
                }
                for collected in &mut own.collected {
                    change(&mut collected.from);
                    change(&mut collected.all);
                }
                each_slot(&mut own.body, change);
            }
        }
    }
}
