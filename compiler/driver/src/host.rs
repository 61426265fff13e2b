//! Operators that the runtime computes itself.

use hone_artifact::HostFunction;
use hone_ops::{Compress, NonMaxSuppression, NonZero, Op, Require, Unique};

/// The runtime's function that computes an operator, where one does.
pub(crate) fn host_function(operation: &Op) -> Option<HostFunction> {
    let axis = |axis: Option<usize>| axis.map(|axis| axis as u32);
    if operation.downcast::<NonZero>().is_some() {
        return Some(HostFunction::NonZero);
    }
    if let Some(own) = operation.downcast::<Compress>() {
        return Some(HostFunction::Compress { axis: axis(own.axis) });
    }
    if let Some(own) = operation.downcast::<Unique>() {
        return Some(HostFunction::Unique { axis: axis(own.axis), sorted: own.sorted });
    }
    if let Some(own) = operation.downcast::<Require>() {
        return Some(HostFunction::Require { message: own.message.clone() });
    }
    let own = operation.downcast::<NonMaxSuppression>()?;
    Some(HostFunction::NonMaxSuppression { centers: own.centers, most: own.most as u64 })
}
