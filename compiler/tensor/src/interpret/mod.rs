//! Runs a loop program on host tensors, scheduled or not: the judge of every schedule.
//!
//! How it computes:
//! - floating-point values are `f64` between a load and a store, and are rounded to the buffer's
//!   type at each store and at each cast; a reduction therefore accumulates in the type of its
//!   buffer, element by element in loop order, as generated code without wider registers does;
//! - integers are `i64`, cut to their type after every operation; `u64` values are its bit patterns;
//! - a reduction's initial value is stored at the point where all reduction iterators are zero,
//!   before that point's own update;
//! - loops run in order, but parallel ones from the last iteration to the first, and each of their
//!   iterations finds the memory of its thread unwritten: what threads may not share shows up;
//! - a launch runs every lane of every block, in an order that changes with each `sync` (`launch`), and
//!   reports accesses of several lanes that no `sync` orders (`race`), `sync`s that not all lanes reach, and
//!   reads of shared memory that no lane has written;
//! - an extent of zero or less runs nothing;
//! - temporaries start as NaN (integers: a pattern that is easy to see), so that reading what was
//!   never written shows up in the result;
//! - an access outside its buffer is an error that names the block.

mod compile;
mod evaluate;
mod launch;
mod memory;
mod race;

pub use race::{Accessor, Race};

use crate::{BufferId, Program, Role};
use compile::{Action, Node, Update};
use evaluate::{Fault, Int, State, Value, combine_float, combine_int, wrap};
use hone_types::{Tensor, TensorError, TensorType};
use memory::Memory;
use race::Access;
use thiserror::Error;

/// Why a program could not be run.
#[derive(Debug, Error)]
pub enum InterpretError {
    /// Not as many tensors as the program has inputs.
    #[error("the program has {expected} inputs, {actual} tensors were given")]
    InputCount {
        /// Inputs of the program.
        expected: usize,
        /// Tensors given.
        actual: usize,
    },
    /// A tensor of another type than its input.
    #[error("input '{name}' is {expected}, a tensor of {actual} was given")]
    InputType {
        /// The input's name.
        name: String,
        /// Its type.
        expected: TensorType,
        /// The tensor's type.
        actual: TensorType,
    },
    /// An index outside its buffer.
    #[error("block '{block}' accesses '{buffer}' at {index} on axis {axis} of extent {extent}")]
    OutOfBounds {
        /// The block.
        block: String,
        /// The buffer.
        buffer: String,
        /// The axis.
        axis: usize,
        /// The index.
        index: i64,
        /// The axis' extent.
        extent: usize,
    },
    /// Integer division by zero.
    #[error("block '{block}' divides an integer by zero")]
    DivisionByZero {
        /// The block.
        block: String,
    },
    /// Two lanes access one element, one of them writing, and no `sync` orders them.
    #[error("race: {0}")]
    Race(Box<Race>),
    /// A read of shared memory that no lane of the block has written.
    #[error(
        "block '{block}' reads element {place} of '{buffer}' on lane {lane:?}, which is poisoned: no lane has written it"
    )]
    Poisoned {
        /// The block.
        block: String,
        /// The buffer.
        buffer: String,
        /// The element's place in it, row by row.
        place: usize,
        /// The lane, along `x`, `y` and `z`.
        lane: [usize; 3],
    },
    /// A `sync` that lanes of one block do not reach alike.
    #[error(
        "divergent sync: loop '{target}' around it runs differently on lanes {first:?} and {second:?}"
    )]
    DivergentSync {
        /// The loop.
        target: String,
        /// One lane, along `x`, `y` and `z`.
        first: [usize; 3],
        /// Another one.
        second: [usize; 3],
    },
    /// The program is not well formed; the verifier says more.
    #[error("block '{block}' cannot be run: {reason}")]
    Malformed {
        /// The block, or what else.
        block: String,
        /// What is wrong.
        reason: String,
    },
    /// A result could not be made a tensor.
    #[error("cannot form the result tensor")]
    Tensor(#[source] TensorError),
}

/// Runs `program` on `inputs` (those of [`Role::Input`], in the order of their numbers) and returns
/// its outputs in the order of theirs.
pub fn interpret(program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, InterpretError> {
    let mut memory = Memory::of(program, inputs)?;
    let nodes = compile::program(program)?;
    let mut run = Run { program, state: State::new(program.vars.len(), &mut memory), lane: [0; 3] };
    run.all(&nodes)?;
    let outputs = program.parameters().into_iter();
    outputs
        .filter(|buffer| matches!(program.buffers[*buffer].role, Role::Output(_)))
        .map(|buffer| memory.tensor(program, buffer).map_err(InterpretError::Tensor))
        .collect()
}

struct Run<'a> {
    program: &'a Program,
    state: State<'a>,
    /// The lane that runs, along `x`, `y` and `z`.
    lane: [usize; 3],
}

impl Run<'_> {
    fn all(&mut self, nodes: &[Node]) -> Result<(), InterpretError> {
        nodes.iter().try_for_each(|node| self.one(node))
    }

    fn one(&mut self, node: &Node) -> Result<(), InterpretError> {
        match node {
            Node::Loop { slot, extent, body, .. } => {
                let extent =
                    self.state.int(extent).map_err(|fault| self.explain("a loop", fault))?;
                for value in 0..extent {
                    self.state.vars[*slot] = value;
                    self.all(body)?;
                }
                Ok(())
            }
            Node::Parallel { slot, extent, private, body } => {
                let extent =
                    self.state.int(extent).map_err(|fault| self.explain("a loop", fault))?;
                for value in (0..extent).rev() {
                    self.state.vars[*slot] = value;
                    private
                        .iter()
                        .for_each(|buffer| self.state.memory.forget(self.program, *buffer));
                    self.all(body)?;
                }
                Ok(())
            }
            Node::Launch(launched) => self.launch(launched),
            Node::Lanes { slot, dimension, extent, body, .. } => {
                let place = self.lane[*dimension];
                if place < *extent {
                    self.state.vars[*slot] = place as i64;
                    self.all(body)?;
                }
                Ok(())
            }
            Node::Where { condition, body } => {
                let holds =
                    self.state.int(condition).map_err(|fault| self.explain("a limit", fault))?;
                if holds == 0 { Ok(()) } else { self.all(body) }
            }
            // All lanes pass it at once; a single one has nobody to wait for.
            Node::Sync => Ok(()),
            Node::Action(action) => self
                .act(action)
                .map_err(|fault| self.explain(&self.program.blocks[action.block].name, fault)),
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), Fault> {
        if action.first_along.iter().zip(&self.lane).any(|(alone, place)| *alone && *place > 0) {
            return Ok(());
        }
        if let Some(watch) = &self.state.memory.watch {
            watch.borrow_mut().statement(action.block);
        }
        if let Some(predicate) = &action.predicate
            && self.state.int(predicate)? == 0
        {
            return Ok(());
        }
        let place = self.state.address(&action.target)?;
        match &action.update {
            Update::Store(value) => self.store(action, place, value),
            Update::Combine { combiner, first, initial, value } => {
                if let Some(initial) = initial
                    && self.all_zero(first)?
                {
                    self.store(action, place, initial)?;
                }
                let buffer = action.target.buffer;
                match value {
                    Value::Float(value) => {
                        let own = self.state.float(value)?;
                        self.state.memory.watched(buffer, place, false)?;
                        let old = self.state.memory.float(buffer, place);
                        self.state.memory.watched(buffer, place, true)?;
                        self.state.memory.set_float(
                            buffer,
                            place,
                            combine_float(*combiner, old, own),
                        );
                    }
                    Value::Int(value) => {
                        let own = self.state.int(value)?;
                        self.state.memory.watched(buffer, place, false)?;
                        let old = self.state.memory.int(buffer, place);
                        self.state.memory.watched(buffer, place, true)?;
                        let new = combine_int(*combiner, old, own, action.dtype);
                        self.state.memory.set_int(buffer, place, wrap(action.dtype, new));
                    }
                }
                Ok(())
            }
        }
    }

    fn store(&mut self, action: &Action, place: usize, value: &Value) -> Result<(), Fault> {
        match value {
            Value::Float(value) => {
                let value = self.state.float(value)?;
                self.state.memory.watched(action.target.buffer, place, true)?;
                self.state.memory.set_float(action.target.buffer, place, value);
            }
            Value::Int(value) => {
                let value = wrap(action.dtype, self.state.int(value)?);
                self.state.memory.watched(action.target.buffer, place, true)?;
                self.state.memory.set_int(action.target.buffer, place, value);
            }
        }
        Ok(())
    }

    fn all_zero(&mut self, indices: &[Int]) -> Result<bool, Fault> {
        for index in indices {
            if self.state.int(index)? != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn explain(&self, block: &str, fault: Fault) -> InterpretError {
        let block = block.to_string();
        let buffer_name = |buffer: BufferId| self.program.buffers[buffer].name.clone();
        match fault {
            Fault::DivisionByZero => InterpretError::DivisionByZero { block },
            Fault::Race(meeting) => {
                let accessor = |own: &Access| Accessor {
                    block: self.program.blocks[own.statement].name.clone(),
                    writes: own.writes,
                    lane: own.lane,
                    group: own.block,
                };
                InterpretError::Race(Box::new(Race {
                    buffer: buffer_name(meeting.buffer),
                    place: meeting.place,
                    earlier: accessor(&meeting.earlier),
                    later: accessor(&meeting.now),
                }))
            }
            Fault::Poisoned { buffer, place, now } => InterpretError::Poisoned {
                block,
                buffer: buffer_name(buffer),
                place,
                lane: now.lane,
            },
            Fault::OutOfBounds { buffer, axis, index } => {
                let buffer: &crate::Buffer = &self.program.buffers[buffer];
                let extent = buffer.shape[axis];
                InterpretError::OutOfBounds {
                    block,
                    buffer: buffer.name.clone(),
                    axis,
                    index,
                    extent,
                }
            }
        }
    }
}

/// The place of an element: an index per axis, checked against the shape when evaluated.
#[derive(Debug)]
struct Address {
    buffer: BufferId,
    indices: Vec<Int>,
    shape: Vec<i64>,
}

#[cfg(test)]
mod tests;
