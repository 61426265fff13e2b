//! What runs a model's steps: the processor's threads, or a device.

use std::ffi::c_void;

use crate::accelerator::Session;
use crate::context::Context;
use crate::plan::Plan;
use crate::{Profile, RunError};

/// What runs the steps.
pub(crate) enum Engine {
    Processor(Box<Context>),
    Device(Box<Session>),
}

impl Engine {
    /// Goes over to the plan of this number; a device has one.
    pub(crate) fn select(&mut self, plan: usize) {
        if let Self::Processor(context) = self {
            context.select(plan);
        }
    }

    /// Says of which size of the padded dimension runs are from now on; 0 where there is none.
    pub(crate) fn set_size(&mut self, size: u64) {
        if let Self::Processor(context) = self {
            context.set_size(size);
        }
    }

    /// Whether an address is one of the memory of a device that runs the steps.
    pub(crate) fn is_on_device(&self, address: usize) -> bool {
        match self {
            Self::Processor(_) => false,
            Self::Device(session) => session.is_on_device(address),
        }
    }

    /// # Safety
    /// As for [`Context::run`].
    pub(crate) unsafe fn run(
        &mut self,
        plan: &Plan,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
        profile: Option<&mut Profile>,
    ) -> Result<(), RunError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Processor(context) => unsafe { context.run(plan, inputs, outputs, profile) },
            // SAFETY: as above.
            Self::Device(session) => unsafe { session.run(plan, inputs, outputs, profile) },
        }
    }
}
