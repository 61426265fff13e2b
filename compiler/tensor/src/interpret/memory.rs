//! The buffers of a running program.

use super::InterpretError;
use super::evaluate::Fault;
use super::race::Watch;
use crate::{BufferId, Program, Role};
use hone_types::{DataType, Element, Id, Tensor, TensorError, TensorType};
use std::cell::RefCell;

/// What integers that were never written hold: easy to see in a result.
const UNWRITTEN: i64 = 0x5a5a_5a5a_5a5a_5a5a;

#[derive(Debug)]
pub(super) enum Data {
    Float(DataType, Vec<f64>),
    Int(Vec<i64>),
}

#[derive(Debug)]
pub(super) struct Memory {
    buffers: Vec<Data>,
    /// Watches the accesses of a launch while it runs.
    pub(super) watch: Option<RefCell<Watch>>,
}

impl Memory {
    pub(super) fn of(program: &Program, inputs: &[Tensor]) -> Result<Self, InterpretError> {
        let parameters = program.parameters();
        let is_input = |buffer: &BufferId| matches!(program.buffers[*buffer].role, Role::Input(_));
        let places: Vec<BufferId> = parameters.into_iter().filter(is_input).collect();
        if places.len() != inputs.len() {
            let (expected, actual) = (places.len(), inputs.len());
            return Err(InterpretError::InputCount { expected, actual });
        }
        let mut memory = Self {
            buffers: program.buffers.iter().map(|(_, own)| Data::unwritten(own)).collect(),
            watch: None,
        };
        for (buffer, tensor) in places.into_iter().zip(inputs) {
            let own = &program.buffers[buffer];
            let expected = TensorType::new(own.dtype, own.shape.clone());
            if tensor.tensor_type() != &expected {
                let (name, actual) = (own.name.clone(), tensor.tensor_type().clone());
                return Err(InterpretError::InputType { name, expected, actual });
            }
            memory.buffers[buffer.index()] = match own.dtype.is_float() {
                true => Data::Float(own.dtype, tensor.to_f64()),
                false => Data::Int(tensor.to_i64()),
            };
        }
        Ok(memory)
    }

    /// Makes a buffer unwritten again.
    pub(super) fn forget(&mut self, program: &Program, buffer: BufferId) {
        self.buffers[buffer.index()] = Data::unwritten(&program.buffers[buffer]);
    }

    /// Puts other memory in place of a buffer's, and gives what it had.
    pub(super) fn exchange(&mut self, buffer: BufferId, other: &mut Data) {
        std::mem::swap(&mut self.buffers[buffer.index()], other);
    }

    /// Tells the watch of an access.
    pub(super) fn watched(
        &self,
        buffer: BufferId,
        place: usize,
        writes: bool,
    ) -> Result<(), Fault> {
        match &self.watch {
            None => Ok(()),
            Some(watch) => watch.borrow_mut().access(buffer, place, writes),
        }
    }

    pub(super) fn float(&self, buffer: BufferId, place: usize) -> f64 {
        match &self.buffers[buffer.index()] {
            Data::Float(_, values) => values[place],
            Data::Int(values) => values[place] as f64,
        }
    }

    pub(super) fn int(&self, buffer: BufferId, place: usize) -> i64 {
        match &self.buffers[buffer.index()] {
            Data::Int(values) => values[place],
            Data::Float(_, values) => values[place] as i64,
        }
    }

    pub(super) fn set_float(&mut self, buffer: BufferId, place: usize, value: f64) {
        match &mut self.buffers[buffer.index()] {
            Data::Float(dtype, values) => values[place] = round(*dtype, value),
            Data::Int(values) => values[place] = value as i64,
        }
    }

    pub(super) fn set_int(&mut self, buffer: BufferId, place: usize, value: i64) {
        match &mut self.buffers[buffer.index()] {
            Data::Int(values) => values[place] = value,
            Data::Float(dtype, values) => values[place] = round(*dtype, value as f64),
        }
    }

    pub(super) fn tensor(
        &self,
        program: &Program,
        buffer: BufferId,
    ) -> Result<Tensor, TensorError> {
        let own = &program.buffers[buffer];
        match &self.buffers[buffer.index()] {
            Data::Float(_, values) => Tensor::from_f64(own.dtype, own.shape.clone(), values),
            Data::Int(values) => {
                let mut bytes = Vec::with_capacity(own.bytes());
                for value in values {
                    put(own.dtype, *value, &mut bytes);
                }
                Tensor::from_bytes(TensorType::new(own.dtype, own.shape.clone()), bytes)
            }
        }
    }
}

impl Data {
    pub(super) fn unwritten(buffer: &crate::Buffer) -> Data {
        let elements = buffer.elements();
        if buffer.dtype.is_float() {
            Data::Float(buffer.dtype, vec![f64::NAN; elements])
        } else {
            Data::Int(vec![super::wrap(buffer.dtype, UNWRITTEN); elements])
        }
    }
}

/// The lowest bytes of the value, as the type lies in memory.
fn put(dtype: DataType, value: i64, bytes: &mut Vec<u8>) {
    match dtype {
        DataType::Bool => (value != 0).put(bytes),
        _ => bytes.extend_from_slice(&value.to_le_bytes()[..dtype.bytes()]),
    }
}

/// The nearest value of a floating-point type.
pub(super) fn round(dtype: DataType, value: f64) -> f64 {
    match dtype {
        DataType::F32 => f64::from(value as f32),
        DataType::F16 => half::f16::from_f64(value).to_f64(),
        DataType::BF16 => half::bf16::from_f64(value).to_f64(),
        _ => value,
    }
}
