//! The part of the C interface that is about sizes of open dimensions.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::capi::{COMPOSED, Described, HoneModel, HoneTensor, fail, list};
use crate::with_causes;

/// `hone_open_axis`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_open_axis(model: *const HoneModel, index: usize) -> c_int {
    // SAFETY: the caller's promise.
    let axis = unsafe { model.as_ref() }.and_then(|model| model.open.get(index).copied());
    axis.flatten().map_or(-1, |axis| axis as c_int)
}

/// `hone_bounded_axis`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_bounded_axis(model: *const HoneModel, index: usize) -> c_int {
    // SAFETY: the caller's promise.
    let axis = unsafe { model.as_ref() }.and_then(|model| model.padded.get(index).copied());
    axis.flatten().map_or(-1, |axis| axis as c_int)
}

/// `hone_variant_count`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_variant_count(model: *const HoneModel) -> usize {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }.map_or(0, |model| model.variants.len())
}

/// `hone_variant_input`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_variant_input(
    model: *const HoneModel,
    variant: usize,
    index: usize,
) -> *const HoneTensor {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }
        .and_then(|model| model.variants.get(variant)?.inputs.get(index))
        .map_or(ptr::null(), ptr::from_ref)
}

/// `hone_variant_output`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_variant_output(
    model: *const HoneModel,
    variant: usize,
    index: usize,
) -> *const HoneTensor {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }
        .and_then(|model| model.variants.get(variant)?.outputs.get(index))
        .map_or(ptr::null(), ptr::from_ref)
}

/// `hone_set_input_shapes`.
///
/// # Safety
/// `model` is null or a model that was not freed; `shapes` has a pointer for each input, to as many extents as the
/// input has axes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_set_input_shapes(
    model: *mut HoneModel,
    shapes: *const *const u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(model) = (unsafe { model.as_ref() }) else {
        return fail("hone_set_input_shapes: the model is null");
    };
    let inputs = &model.variants[0].inputs;
    if shapes.is_null() && !inputs.is_empty() {
        return fail("hone_set_input_shapes: the list of shapes is null");
    }
    // SAFETY: the caller's promise.
    let given = unsafe { list(shapes, inputs.len()) };
    let mut lists: Vec<&[u64]> = Vec::with_capacity(inputs.len());
    for (shape, input) in given.iter().zip(inputs) {
        if shape.is_null() && input.rank > 0 {
            return fail("hone_set_input_shapes: a shape is null");
        }
        // SAFETY: the caller's promise.
        lists.push(unsafe { list(*shape, input.rank as usize) });
    }
    if model.running.swap(true, Ordering::Acquire) {
        return fail("hone_set_input_shapes: the model is running in another thread");
    }
    // SAFETY: the flag keeps runs away.
    let loaded = unsafe { &mut *model.model.get() };
    let done = loaded.set_input_shapes(&lists);
    let current = loaded.current_sizes().unwrap_or(COMPOSED);
    if current == COMPOSED {
        // SAFETY: the caller asks for inputs and outputs before or after this call.
        unsafe { *model.composed.get() = Described::current(loaded) };
    }
    model.current.store(current, Ordering::Release);
    model.running.store(false, Ordering::Release);
    match done {
        Ok(()) => 0,
        Err(error) => fail(&with_causes(&error)),
    }
}
