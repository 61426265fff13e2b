//! The C interface; `include/hone.h` says what each function does and is kept in step by hand (a test
//! compiles a program against it).

use std::cell::{RefCell, UnsafeCell};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hone_artifact::{DataType, TensorInfo, with_causes};

use crate::capi_text::{HoneMember, members};
use crate::model::Shared;
use crate::{Affinity, HugePages, Model, Options};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// `hone_model`: a model and what its introspection hands out. Only the one run that holds `running`
/// makes a reference to the model itself; everything else reads what stands beside it.
pub struct HoneModel {
    pub(crate) model: UnsafeCell<Model>,
    pub(crate) running: AtomicBool,
    shared: Shared,
    /// Inputs and outputs for each of the sizes; never empty.
    pub(crate) variants: Vec<Ports>,
    /// The sizes that the model is set to; [`COMPOSED`] where they are composed of others.
    pub(crate) current: AtomicUsize,
    /// Inputs and outputs at composed sizes. They change when the model is set to such, and then alone.
    pub(crate) composed: UnsafeCell<Described>,
    /// The axis of each input that may have any size.
    pub(crate) open: Vec<Option<u32>>,
    /// The axis of each input of which every size up to the first variant's is taken; empty where there is none.
    pub(crate) padded: Vec<Option<u32>>,
    pub(crate) input_members: Vec<HoneMember>,
    pub(crate) output_members: Vec<HoneMember>,
    /// What the tensors' names point to.
    _names: Vec<CString>,
    _shapes: Vec<Vec<u64>>,
}

/// Inputs and outputs at some sizes.
#[derive(Default)]
pub(crate) struct Ports {
    pub(crate) inputs: Vec<HoneTensor>,
    pub(crate) outputs: Vec<HoneTensor>,
}

/// Inputs and outputs, and what they point to.
#[derive(Default)]
pub(crate) struct Described {
    pub(crate) ports: Ports,
    names: Vec<CString>,
    shapes: Vec<Vec<u64>>,
}

/// The number of sizes that are composed of others.
pub(crate) const COMPOSED: usize = usize::MAX;

/// `hone_tensor`.
#[repr(C)]
#[derive(Debug)]
pub struct HoneTensor {
    name: *const c_char,
    dtype: u32,
    pub(crate) rank: u32,
    shape: *const u64,
    bytes: u64,
}

/// `hone_options`: zero means the default in every field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HoneOptions {
    size: u32,
    threads: u32,
    affinity: u32,
    huge_pages: u32,
    skip_checksums: u32,
    device_timeout_seconds: u32,
}

/// `hone_version`.
#[unsafe(no_mangle)]
pub extern "C" fn hone_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// `hone_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn hone_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|message| message.as_ptr())
}

/// `hone_load`.
///
/// # Safety
/// `path` is a string that ends with a zero; `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_load(
    path: *const c_char,
    options: *const HoneOptions,
) -> *mut HoneModel {
    if path.is_null() {
        return refuse("hone_load: the path is null");
    }
    // SAFETY: the caller's promise.
    let (path, options) = unsafe { (CStr::from_ptr(path), read_options(options)) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    give(options.and_then(|o| Model::load(path, &o).map_err(|e| with_causes(&e))))
}

/// `hone_load_memory`.
///
/// # Safety
/// `data` leads to `size` bytes that stay as they are until the model and all that share it are freed;
/// `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_load_memory(
    data: *const c_void,
    size: usize,
    options: *const HoneOptions,
) -> *mut HoneModel {
    if data.is_null() {
        return refuse("hone_load_memory: the data is null");
    }
    // SAFETY: the caller's promise; `'static` stands for "until freed".
    let (bytes, options): (&'static [u8], _) =
        unsafe { (slice::from_raw_parts(data.cast(), size), read_options(options)) };
    give(options.and_then(|o| Model::load_memory(bytes, &o).map_err(|e| with_causes(&e))))
}

/// `hone_share`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_share(model: *const HoneModel) -> *mut HoneModel {
    // SAFETY: the caller's promise.
    let Some(model) = (unsafe { model.as_ref() }) else {
        return refuse("hone_share: the model is null");
    };
    give(model.shared.model().map_err(|e| with_causes(&e)))
}

/// `hone_free`.
///
/// # Safety
/// `model` is null or a model that was not freed and is not running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_free(model: *mut HoneModel) {
    if !model.is_null() {
        // SAFETY: it came from `Box::into_raw` in `give`.
        drop(unsafe { Box::from_raw(model) });
    }
}

/// `hone_input_count`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_input_count(model: *const HoneModel) -> usize {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }.map_or(0, |model| model.ports().inputs.len())
}

/// `hone_output_count`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_output_count(model: *const HoneModel) -> usize {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }.map_or(0, |model| model.ports().outputs.len())
}

/// `hone_input`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_input(model: *const HoneModel, index: usize) -> *const HoneTensor {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }
        .and_then(|model| model.ports().inputs.get(index))
        .map_or(ptr::null(), ptr::from_ref)
}

/// `hone_output`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_output(model: *const HoneModel, index: usize) -> *const HoneTensor {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }
        .and_then(|model| model.ports().outputs.get(index))
        .map_or(ptr::null(), ptr::from_ref)
}

/// `hone_output_shape`.
///
/// # Safety
/// `model` is null or a model that was not freed; `shape` has room for as many extents as the output has axes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_output_shape(
    model: *const HoneModel,
    index: usize,
    shape: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(model) = (unsafe { model.as_ref() }) else {
        return fail("hone_output_shape: the model is null");
    };
    let Some(output) = model.ports().outputs.get(index) else {
        return fail("hone_output_shape: there is no such output");
    };
    if shape.is_null() && output.rank > 0 {
        return fail("hone_output_shape: the shape is null");
    }
    if model.running.swap(true, Ordering::Acquire) {
        return fail("hone_output_shape: the model is running in another thread");
    }
    // SAFETY: the flag keeps runs away.
    let found = unsafe { &(*model.model.get()).output_shapes()[index] };
    // SAFETY: the caller's promise.
    unsafe { ptr::copy_nonoverlapping(found.as_ptr(), shape, found.len()) };
    model.running.store(false, Ordering::Release);
    0
}

/// `hone_memory_bytes`.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_memory_bytes(model: *const HoneModel) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }.map_or(0, |model| {
        let memory = model.shared.memory();
        memory.weights + memory.reserved
    })
}

/// `hone_run`.
///
/// # Safety
/// `model` is null or a model that was not freed; the lists have as many pointers as the model has inputs
/// and outputs, each to its tensor's bytes, as `Model::run_pointers` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_run(
    model: *mut HoneModel,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(model) = (unsafe { model.as_ref() }) else {
        return fail("hone_run: the model is null");
    };
    let ports = model.ports();
    if (inputs.is_null() && !ports.inputs.is_empty())
        || (outputs.is_null() && !ports.outputs.is_empty())
    {
        return fail("hone_run: the list of inputs or of outputs is null");
    }
    if model.running.swap(true, Ordering::Acquire) {
        return fail(
            "hone_run: the model is running in another thread; give each thread its own with hone_share",
        );
    }
    // SAFETY: the flag lets one run in at a time; the lists are the caller's promise.
    let result = unsafe {
        let inputs = list(inputs, ports.inputs.len());
        let outputs = list(outputs, ports.outputs.len());
        (*model.model.get()).run_pointers(inputs, outputs)
    };
    model.running.store(false, Ordering::Release);
    match result {
        Ok(()) => 0,
        Err(error) => fail(&with_causes(&error)),
    }
}

/// # Safety
/// `items` leads to `count` items, or `count` is 0.
pub(crate) unsafe fn list<'a, T>(items: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(items, count) }
}

/// # Safety
/// `options` is null or points to as many bytes of options as their `size` says.
unsafe fn read_options(options: *const HoneOptions) -> Result<Options, String> {
    let mut given = HoneOptions::default();
    if !options.is_null() {
        // SAFETY: the caller's promise; an older program's options are shorter, the rest stays default.
        unsafe {
            let size = ((*options).size as usize).min(size_of::<HoneOptions>());
            ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut given).cast(), size);
        }
        if given.size < 4 {
            return Err("hone_options: size is not set; start from HONE_OPTIONS_INIT".into());
        }
    }
    Ok(Options {
        threads: given.threads as usize,
        affinity: match given.affinity {
            0 => Affinity::None,
            1 => Affinity::Pinned,
            other => return Err(format!("hone_options: affinity {other} is unknown")),
        },
        huge_pages: match given.huge_pages {
            0 => HugePages::Arena,
            1 => HugePages::None,
            2 => HugePages::ArenaAndWeights,
            other => return Err(format!("hone_options: huge_pages {other} is unknown")),
        },
        verify: given.skip_checksums == 0,
        device: None,
        device_timeout: match given.device_timeout_seconds {
            0 => Options::default().device_timeout,
            seconds => Duration::from_secs(seconds.into()),
        },
    })
}

fn give(model: Result<Model, String>) -> *mut HoneModel {
    match model {
        Ok(model) => Box::into_raw(Box::new(HoneModel::new(model))),
        Err(message) => refuse(&message),
    }
}

impl HoneModel {
    fn new(model: Model) -> Self {
        let mut all = Described::default();
        let mut variants = Vec::new();
        for sizes in model.sizes() {
            let (inputs, outputs) = (all.describe(sizes.inputs), all.describe(sizes.outputs));
            variants.push(Ports { inputs, outputs });
        }
        let Described { mut names, shapes, .. } = all;
        let input_members = members(&model, false, &mut names);
        let output_members = members(&model, true, &mut names);
        Self {
            shared: model.shared(),
            current: AtomicUsize::new(model.current_sizes().unwrap_or(COMPOSED)),
            composed: UnsafeCell::new(match model.current_sizes() {
                None => Described::current(&model),
                Some(_) => Described::default(),
            }),
            padded: model.padded_dimension().map(|own| own.inputs.clone()).unwrap_or_default(),
            open: model.open_dimension().map(|own| own.inputs.clone()).unwrap_or_default(),
            model: UnsafeCell::new(model),
            running: AtomicBool::new(false),
            variants,
            input_members,
            output_members,
            _names: names,
            _shapes: shapes,
        }
    }
}

impl HoneModel {
    /// Inputs and outputs at the sizes that the model is set to.
    fn ports(&self) -> &Ports {
        match self.current.load(Ordering::Acquire) {
            // SAFETY: they change in `hone_set_input_shapes` alone, beside which the caller asks for nothing.
            COMPOSED => unsafe { &(*self.composed.get()).ports },
            number => &self.variants[number],
        }
    }
}

impl Described {
    /// At the sizes that a model is set to.
    pub(crate) fn current(model: &Model) -> Self {
        let mut described = Self::default();
        let (inputs, outputs) =
            (described.describe(model.inputs()), described.describe(model.outputs()));
        described.ports = Ports { inputs, outputs };
        described
    }

    fn describe(&mut self, tensors: &[TensorInfo]) -> Vec<HoneTensor> {
        let mut list = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            // The manifest was validated: names hold no zero byte.
            let name = CString::new(tensor.name.as_str()).unwrap_or_default();
            let shape = tensor.shape.clone();
            list.push(HoneTensor {
                name: name.as_ptr(),
                dtype: number(tensor.dtype),
                rank: shape.len() as u32,
                shape: shape.as_ptr(),
                bytes: tensor.bytes,
            });
            self.names.push(name);
            self.shapes.push(shape);
        }
        list
    }
}

/// The number of a type in `hone_dtype`.
fn number(dtype: DataType) -> u32 {
    DataType::ALL.iter().position(|&other| other == dtype).map_or(u32::MAX, |at| at as u32)
}

fn remember(message: &str) {
    let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = message);
}

fn refuse(message: &str) -> *mut HoneModel {
    remember(message);
    ptr::null_mut()
}

pub(crate) fn fail(message: &str) -> c_int {
    remember(message);
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crosses_threads<T: Sync>() {}

    /// What other threads may use while a run holds the model.
    #[test]
    fn what_models_share_crosses_threads() {
        crosses_threads::<Shared>();
    }
}
