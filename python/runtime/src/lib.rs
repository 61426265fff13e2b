//! The Python module `hone_runtime._runtime`: a loaded artifact over buffers that Python owns.
//!
//! It knows bytes only. Names, element types and shapes are compared in Python (`hone_runtime/_model.py`), which
//! hands in buffers of the right type; what is checked here is what memory safety needs: number, size,
//! alignment and contiguity of every buffer, and that an output may be written.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hone_runtime::{
    Affinity, HugePages, ImageDecoder, ImageRequest, MemberForm, Options, RunError, Sizes,
    TensorInfo,
};
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Name, element type and shape of an input or output.
type Port = (String, String, Vec<u64>);
/// Sizes of open dimensions by name, inputs, and outputs.
type Variant = (Vec<(String, u64)>, Vec<Port>, Vec<Port>);
/// An input or output as users of the model know it: its name, `tensor`, `sequence`, `maps` or `absent`, how many
/// tensors it is made of, and whether they are of strings.
type Member = (String, &'static str, usize, bool, bool);

/// The name of a dimension of any size, and the axis that it is of each input and of each output.
type OpenAxes = (String, Vec<Option<u32>>, Vec<Option<u32>>);
/// What a run leaves: the shape of each output, and the strings of those that hold some.
type Left = (Vec<Vec<u64>>, Vec<Option<Vec<String>>>);

/// A loaded artifact. Runs may be asked for from several threads at once: each takes a model of its own that
/// shares code and weights, and gives it back.
#[pyclass(frozen, module = "hone_runtime._runtime")]
struct Model {
    /// Never run: others are made from it while any number of them run.
    origin: hone_runtime::Model,
    idle: Mutex<Vec<hone_runtime::Model>>,
}

#[pymethods]
impl Model {
    /// Loads an artifact file.
    #[staticmethod]
    #[pyo3(signature = (path, threads = 0, pinned = false, verify = true))]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        threads: usize,
        pinned: bool,
        verify: bool,
    ) -> PyResult<Self> {
        let options = options(threads, pinned, verify);
        let model = py.detach(|| hone_runtime::Model::load(&path, &options));
        model.map(Self::new).map_err(|error| refuse(py, "LoadError", &error))
    }

    /// Loads an artifact from bytes, which are copied.
    #[staticmethod]
    #[pyo3(signature = (artifact, threads = 0, pinned = false, verify = true))]
    fn load_memory(
        py: Python<'_>,
        artifact: &Bound<'_, PyBytes>,
        threads: usize,
        pinned: bool,
        verify: bool,
    ) -> PyResult<Self> {
        let (options, bytes) = (options(threads, pinned, verify), artifact.as_bytes().to_vec());
        let model = py.detach(|| hone_runtime::Model::load_memory(bytes, &options));
        model.map(Self::new).map_err(|error| refuse(py, "LoadError", &error))
    }

    /// The sizes that the model serves, the largest first: the dimensions that differ, inputs, and outputs.
    #[getter]
    fn sizes(&self) -> Vec<Variant> {
        let variant = |own: Sizes<'_>| {
            let dimensions = own.shapes.iter().flat_map(|shapes| &shapes.dimensions);
            let dimensions = dimensions.map(|own| (own.name.clone(), own.size)).collect();
            let ports = |tensors: &[TensorInfo]| tensors.iter().map(port).collect();
            (dimensions, ports(own.inputs), ports(own.outputs))
        };
        self.origin.sizes().map(variant).collect()
    }

    /// Inputs in the model's order: name, element type, shape.
    #[getter]
    fn inputs(&self) -> Vec<Port> {
        self.origin.inputs().iter().map(port).collect()
    }

    /// Outputs in the model's order: name, element type, shape.
    #[getter]
    fn outputs(&self) -> Vec<Port> {
        self.origin.outputs().iter().map(port).collect()
    }

    /// Inputs in the model's order as its users know them; each takes the next of `inputs`.
    #[getter]
    fn input_members(&self) -> Vec<Member> {
        members(&self.origin, false)
    }

    /// Outputs in the model's order as its users know them; each takes the next of `outputs`.
    #[getter]
    fn output_members(&self) -> Vec<Member> {
        members(&self.origin, true)
    }

    /// Most threads that a run uses.
    #[getter]
    fn threads(&self) -> usize {
        self.origin.threads()
    }

    /// The processor that the code which runs here was made for.
    #[getter]
    fn cpu(&self) -> String {
        self.origin.variant().target.cpu.clone()
    }

    /// Bytes of the weights, and of arena and scratch of one run at a time.
    #[getter]
    fn memory(&self) -> (u64, u64) {
        let memory = self.origin.memory();
        (memory.weights, memory.reserved)
    }

    /// Names of the model's nodes that the runtime computes itself, in the order in which they run.
    #[getter]
    fn host_nodes(&self) -> Vec<String> {
        self.origin.host_nodes().into_iter().map(str::to_owned).collect()
    }

    /// The dimension of any size: its name, and the axis of each input and output that it is; none where there is none.
    #[getter]
    fn open_dimension(&self) -> Option<OpenAxes> {
        let open = self.origin.open_dimension()?;
        Some((open.name.clone(), open.inputs.clone(), open.outputs.clone()))
    }

    /// The dimension of any size up to the largest of `sizes`: as `open_dimension`.
    #[getter]
    fn padded_dimension(&self) -> Option<OpenAxes> {
        let padded = self.origin.padded_dimension()?;
        Some((padded.name.clone(), padded.inputs.clone(), padded.outputs.clone()))
    }

    /// Reads `inputs` and fills `outputs`: contiguous buffers in the model's order, at inputs of these shapes. Other Python threads
    /// run meanwhile; they must leave these buffers alone. Gives the shape that each output has: an output whose
    /// shape is decided at run time begins with as many elements. `texts` are the strings whose handles stand in
    /// inputs; of outputs that hold handles their strings are given, too. Gives nothing where every output is as large
    /// as its buffer and none holds strings.
    #[pyo3(signature = (inputs, outputs, shapes, texts = Vec::new()))]
    fn run(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
        shapes: Vec<Vec<u64>>,
        texts: Vec<String>,
    ) -> PyResult<Option<Left>> {
        let refused = |error: RunError| refuse(py, "RunError", &error);
        let mut model = Idle { pool: &self.idle, model: Some(self.take(py)?) };
        let model = model
            .model
            .as_mut()
            .ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("there is no model to run"))?;
        let shapes: Vec<&[u64]> = shapes.iter().map(Vec::as_slice).collect();
        model.set_input_shapes(&shapes).map_err(refused)?;
        let inputs = buffers(&inputs, "input", model.inputs(), false)
            .and_then(|given| given.map_err(refused))?;
        let outputs = buffers(&outputs, "output", model.outputs(), true)
            .and_then(|given| given.map_err(refused))?;
        apart(&inputs, &outputs)?;
        let known = texts.iter().try_for_each(|text| model.text_handle(text).map(drop));
        let sources = Sources(inputs.iter().map(|own| own.buf_ptr().cast_const()).collect());
        let targets = Targets(outputs.iter().map(PyUntypedBuffer::buf_ptr).collect());
        let ran = py.detach(|| {
            let (sources, targets) = (&sources, &targets);
            known?;
            // SAFETY: sizes, contiguity and that outputs overlap nothing were checked; the buffers are held
            // until the end of this function, so Python neither frees nor resizes their memory.
            unsafe { model.run_pointers(&sources.0, &targets.0) }
        });
        let left = ran.is_ok().then(|| left(model, &targets)).flatten();
        model.clear_texts();
        ran.map(|()| left).map_err(refused)
    }
}

/// A model that is given back to those that nothing runs.
struct Idle<'a> {
    pool: &'a Mutex<Vec<hone_runtime::Model>>,
    model: Option<hone_runtime::Model>,
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        if let Some(model) = self.model.take() {
            self.pool.lock().unwrap_or_else(PoisonError::into_inner).push(model);
        }
    }
}

/// Where inputs lie.
struct Sources(Vec<*const c_void>);
/// Where outputs lie.
struct Targets(Vec<*mut c_void>);

// SAFETY: the memory belongs to buffers that outlive the call they are made for.
unsafe impl Sync for Sources {}
// SAFETY: as above.
unsafe impl Sync for Targets {}

impl Model {
    fn new(origin: hone_runtime::Model) -> Self {
        Self { origin, idle: Mutex::default() }
    }

    fn take(&self, py: Python<'_>) -> PyResult<hone_runtime::Model> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(model) => Ok(model),
            None => self.origin.share().map_err(|error| refuse(py, "LoadError", &error)),
        }
    }
}

fn members(model: &hone_runtime::Model, outputs: bool) -> Vec<Member> {
    let member = |(own, range): (hone_runtime::Member, std::ops::Range<usize>)| {
        let form = match own.form {
            MemberForm::Tensor => "tensor",
            MemberForm::Sequence(_) => "sequence",
            MemberForm::Maps => "maps",
            MemberForm::Map { .. } => "map",
            MemberForm::Absent => "absent",
        };
        let text_values = matches!(own.form, MemberForm::Map { text_values: true });
        (own.name, form, range.len(), own.text, text_values)
    };
    model.members(outputs).into_iter().map(member).collect()
}

/// What the outputs of a run are where they are not all whole tensors of numbers.
fn left(model: &hone_runtime::Model, targets: &Targets) -> Option<Left> {
    let shapes = model.output_shapes();
    let whole = model.outputs().iter().map(|own| &own.shape).eq(shapes);
    if whole && !model.text_tensors(true).contains(&true) {
        return None;
    }
    let shapes = shapes.to_vec();
    let said = strings(model, targets, &shapes);
    Some((shapes, said))
}

/// The strings of outputs that hold handles; a handle that stands for none is an empty one.
fn strings(
    model: &hone_runtime::Model,
    targets: &Targets,
    shapes: &[Vec<u64>],
) -> Vec<Option<Vec<String>>> {
    let mut found = vec![None; shapes.len()];
    for (place, text) in model.text_tensors(true).into_iter().enumerate() {
        if !text {
            continue;
        }
        let count = shapes[place].iter().product::<u64>() as usize;
        let first = targets.0[place].cast::<u64>().cast_const();
        let text = |at: usize| {
            // SAFETY: the output has as many elements as its shape says, and was checked before the run.
            let handle = unsafe { first.add(at).read_unaligned() };
            model.text(handle).unwrap_or_default().to_owned()
        };
        found[place] = Some((0..count).map(text).collect());
    }
    found
}

/// The handles of strings, `u64` in this machine's byte order.
#[pyfunction]
fn text_handles<'py>(py: Python<'py>, texts: Vec<String>) -> Bound<'py, PyBytes> {
    let handles = texts.iter().flat_map(|text| hone_runtime::text_handle(text).to_ne_bytes());
    PyBytes::new(py, &handles.collect::<Vec<u8>>())
}

/// Lets a function decode images, or with None what the library has itself: called with the encoded bytes, height, width and
/// `RGB`, `BGR` or `Grayscale`, it gives a buffer of `height * width * channels` bytes.
#[pyfunction]
#[pyo3(signature = (decoder))]
fn set_image_decoder(decoder: Option<Py<PyAny>>) {
    let given = decoder.map(|decoder| -> Arc<ImageDecoder> {
        Arc::new(move |request: &ImageRequest<'_>, pixels: &mut [u8]| {
            Python::attach(|py| {
                decode(decoder.bind(py), request, pixels)
                    .map_err(|error| format!("the decoder that was set fails: {error}"))
            })
        })
    });
    hone_runtime::set_image_decoder(given);
}

fn decode(
    decoder: &Bound<'_, PyAny>,
    request: &ImageRequest<'_>,
    pixels: &mut [u8],
) -> PyResult<()> {
    let py = decoder.py();
    let (bytes, format) = (PyBytes::new(py, request.bytes), request.format.name());
    let decoded = decoder.call1((bytes, request.height, request.width, format))?;
    PyBuffer::<u8>::get(&decoded)?.copy_to_slice(py, pixels)
}

/// Whether images can be decoded now.
#[pyfunction]
fn has_image_decoder() -> bool {
    hone_runtime::has_image_decoder()
}

fn options(threads: usize, pinned: bool, verify: bool) -> Options {
    let affinity = if pinned { Affinity::Pinned } else { Affinity::None };
    Options { threads, affinity, huge_pages: HugePages::Arena, verify, ..Options::default() }
}

fn port(info: &TensorInfo) -> Port {
    (info.name.clone(), info.dtype.name().to_owned(), info.shape.clone())
}

/// The memory of `objects`, each as large as its tensor.
fn buffers(
    objects: &[Bound<'_, PyAny>],
    role: &'static str,
    tensors: &[TensorInfo],
    written: bool,
) -> PyResult<Result<Vec<PyUntypedBuffer>, RunError>> {
    if objects.len() != tensors.len() {
        return Ok(Err(RunError::Count { role, expected: tensors.len(), found: objects.len() }));
    }
    let mut buffers = Vec::with_capacity(objects.len());
    for (object, tensor) in objects.iter().zip(tensors) {
        let buffer = PyUntypedBuffer::get(object)?;
        let name = tensor.name.clone();
        if buffer.len_bytes() as u64 != tensor.bytes {
            let found = buffer.len_bytes() as u64;
            return Ok(Err(RunError::Size { role, name, expected: tensor.bytes, found }));
        }
        if !buffer.is_c_contiguous() || (written && buffer.readonly()) {
            let needed = if written { "contiguous and writable" } else { "contiguous" };
            let message = format!("the buffer of {role} '{name}' must be {needed}");
            return Err(pyo3::exceptions::PyBufferError::new_err(message));
        }
        buffers.push(buffer);
    }
    Ok(Ok(buffers))
}

/// Refuses outputs that share memory with each other or with an input.
fn apart(inputs: &[PyUntypedBuffer], outputs: &[PyUntypedBuffer]) -> PyResult<()> {
    let span =
        |own: &PyUntypedBuffer| (own.buf_ptr().addr(), own.buf_ptr().addr() + own.len_bytes());
    for (place, output) in outputs.iter().enumerate() {
        let (begin, end) = span(output);
        let others = inputs.iter().chain(&outputs[..place]).map(span);
        if others.into_iter().any(|(first, last)| begin < last && first < end) {
            let message =
                format!("output number {place} shares memory with an input or another output");
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        }
    }
    Ok(())
}

/// The exception `class` of `hone_runtime` that says `error` and its causes.
fn refuse(py: Python<'_>, class: &str, error: &dyn std::error::Error) -> PyErr {
    let text = hone_runtime::with_causes(error);
    let made = py.import("hone_runtime").and_then(|module| module.getattr(class)?.call1((text,)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// What `hone_runtime` is made of.
#[pymodule]
fn _runtime(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(text_handles, module)?)?;
    module.add_function(wrap_pyfunction!(set_image_decoder, module)?)?;
    module.add_function(wrap_pyfunction!(has_image_decoder, module)?)?;
    module.add_class::<Model>()
}
