//! The functions of graphs, as the driver's library exports them.

#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    reason = "the manual of the CUDA driver API has them"
)]
#![allow(unsafe_op_in_unsafe_fn, reason = "every function is the other side of a C interface")]

use crate::api::{code, give_handle, handle, here};
use crate::driver::Code;
use std::ffi::{c_uint, c_ulonglong, c_void};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: *mut c_void, mode: c_uint) -> Code {
    code(here(|driver, own| driver.begin_capture(own, handle(stream), mode)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> Code {
    give_handle(graph, here(|driver, own| driver.end_capture(own, handle(stream))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    flags: c_ulonglong,
) -> Code {
    give_handle(executable, here(|driver, own| driver.instantiate(own, handle(graph), flags)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(executable: *mut c_void, stream: *mut c_void) -> Code {
    code(here(|driver, own| driver.launch_graph(own, handle(executable), handle(stream))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: *mut c_void) -> Code {
    code(here(|driver, own| driver.remove_graph(own, handle(graph), false)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(executable: *mut c_void) -> Code {
    code(here(|driver, own| driver.remove_graph(own, handle(executable), true)))
}
