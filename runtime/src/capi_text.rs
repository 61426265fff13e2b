//! The C interface to strings, sequences and optional values; `include/hone.h` says what each function does.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::slice;
use std::sync::atomic::Ordering;

use hone_artifact::MemberForm;

use crate::Model;
use crate::capi::{HoneModel, fail};

/// `hone_member`.
#[repr(C)]
#[derive(Debug)]
pub struct HoneMember {
    name: *const c_char,
    form: u32,
    tensors: u32,
    text: u32,
    text_values: u32,
}

/// The members of a model, with the names that they point to.
pub(crate) fn members(model: &Model, outputs: bool, names: &mut Vec<CString>) -> Vec<HoneMember> {
    let mut list = Vec::new();
    for (member_, range) in model.members(outputs) {
        // The manifest was validated: names hold no zero byte.
        let name = CString::new(member_.name).unwrap_or_default();
        let form = match member_.form {
            MemberForm::Tensor => 0,
            MemberForm::Sequence(_) => 1,
            MemberForm::Absent => 2,
            MemberForm::Maps => 3,
            MemberForm::Map { .. } => 4,
        };
        let text_values = match member_.form {
            MemberForm::Map { text_values } => u32::from(text_values),
            _ => 0,
        };
        let (tensors, text) = (range.len() as u32, u32::from(member_.text));
        list.push(HoneMember { name: name.as_ptr(), form, tensors, text, text_values });
        names.push(name);
    }
    list
}

fn member(list: Option<&[HoneMember]>, index: usize) -> *const HoneMember {
    list.and_then(|list| list.get(index)).map_or(ptr::null(), ptr::from_ref)
}

/// `hone_input_member`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_input_member(
    model: *const HoneModel,
    index: usize,
) -> *const HoneMember {
    // SAFETY: the caller's promise.
    member(unsafe { model.as_ref() }.map(|model| &*model.input_members), index)
}

/// `hone_output_member`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_output_member(
    model: *const HoneModel,
    index: usize,
) -> *const HoneMember {
    // SAFETY: the caller's promise.
    member(unsafe { model.as_ref() }.map(|model| &*model.output_members), index)
}

/// Runs `work` on a model that no other thread runs meanwhile.
///
/// # Safety
/// `model` is null or a model that was not freed.
unsafe fn alone(
    model: *const HoneModel,
    name: &str,
    work: impl FnOnce(&mut Model) -> Result<(), String>,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(model) = (unsafe { model.as_ref() }) else {
        return fail(&format!("{name}: the model is null"));
    };
    if model.running.swap(true, Ordering::Acquire) {
        return fail(&format!("{name}: the model is running in another thread"));
    }
    // SAFETY: the flag keeps runs away.
    let done = work(unsafe { &mut *model.model.get() });
    model.running.store(false, Ordering::Release);
    done.map_or_else(|reason| fail(&format!("{name}: {reason}")), |()| 0)
}

/// `hone_text_handle`.
///
/// # Safety
/// `model` is null or a model that was not freed; `text` leads to `length` bytes, `handle` to room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_text_handle(
    model: *mut HoneModel,
    text: *const c_char,
    length: usize,
    handle: *mut u64,
) -> c_int {
    if (text.is_null() && length > 0) || handle.is_null() {
        return fail("hone_text_handle: the text or the handle is null");
    }
    let bytes: &[u8] = match length {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { slice::from_raw_parts(text.cast(), length) },
    };
    let Ok(text) = str::from_utf8(bytes) else {
        return fail("hone_text_handle: the text is not UTF-8");
    };
    // SAFETY: the caller's promise.
    unsafe {
        alone(model, "hone_text_handle", |model| {
            *handle = model.text_handle(text).map_err(|error| error.to_string())?;
            Ok(())
        })
    }
}

/// `hone_text`.
///
/// # Safety
/// `model` is null or a model that was not freed; `text` and `length` lead to room for a pointer and a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_text(
    model: *const HoneModel,
    handle: u64,
    text: *mut *const c_char,
    length: *mut usize,
) -> c_int {
    if text.is_null() || length.is_null() {
        return fail("hone_text: the room for the text or its length is null");
    }
    // SAFETY: the caller's promise.
    unsafe {
        alone(model, "hone_text", |model| {
            let found = model.text(handle);
            let found = found.ok_or_else(|| format!("handle {handle:#x} stands for no string"))?;
            *text = found.as_ptr().cast();
            *length = found.len();
            Ok(())
        })
    }
}

/// `hone_clear_texts`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_clear_texts(model: *mut HoneModel) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        alone(model, "hone_clear_texts", |model| {
            model.clear_texts();
            Ok(())
        })
    }
}
