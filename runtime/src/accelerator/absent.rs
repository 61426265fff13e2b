//! What stands for code and sessions on devices in a library that was built without accelerators: types of which there
//! is no value, so that nothing of them is in the library.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use hone_artifact::{Accelerator, Argument, DeviceApi, DeviceCode, Manifest, Texts, Variant};

use super::DeviceError;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::step::StepArgument;
use crate::{Options, RunError};

/// There is none.
pub(crate) enum Code {}

impl Code {
    /// # Errors
    /// [`DeviceError::NotBuilt`].
    pub(crate) fn load(
        _: &Manifest,
        (variant, _): (&Variant, &DeviceCode),
        _: (&[u8], &[u8]),
        _: &Options,
    ) -> Result<Self, DeviceError> {
        let api = variant.target.accelerator.map_or(DeviceApi::OpenCl, Accelerator::api);
        Err(refusal(api))
    }
}

/// Why nothing runs on an API's devices.
fn refusal(api: DeviceApi) -> DeviceError {
    match api {
        DeviceApi::WebGpu => DeviceError::NotDriven { api },
        _ => DeviceError::NotBuilt { api },
    }
}

/// There are none.
pub(super) mod driver {
    use hone_artifact::DeviceApi;

    use crate::accelerator::{DeviceError, DeviceInfo};

    pub(crate) fn devices(api: DeviceApi) -> Result<Vec<DeviceInfo>, DeviceError> {
        Err(super::refusal(api))
    }

    pub(crate) fn chosen(api: DeviceApi, _: Option<usize>) -> Result<DeviceInfo, DeviceError> {
        Err(super::refusal(api))
    }
}

/// There is none.
pub(crate) enum Session {}

impl Session {
    pub(crate) fn new(_: &Plan, code: &Arc<Code>, _: &Texts) -> Result<Self, DeviceError> {
        match **code {}
    }

    pub(crate) fn code(&self) -> Arc<Code> {
        match *self {}
    }

    pub(crate) fn bytes(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn extents(&self) -> &[u64] {
        match *self {}
    }

    pub(crate) fn texts(&mut self) -> &mut Texts {
        match *self {}
    }

    pub(crate) fn text(&self, _: u64) -> Option<&str> {
        match *self {}
    }

    pub(crate) fn is_on_device(&self, _: usize) -> bool {
        match *self {}
    }

    pub(crate) unsafe fn run(
        &mut self,
        _: &Plan,
        _: &[*const c_void],
        _: &[*mut c_void],
        _: Option<&mut Profile>,
    ) -> Result<(), RunError> {
        match *self {}
    }

    pub(crate) fn run_steps(
        &mut self,
        _: &Plan,
        _: Range<usize>,
        _: &[Argument],
        _: &mut [StepArgument<'_>],
    ) -> Result<(), RunError> {
        match *self {}
    }
}
