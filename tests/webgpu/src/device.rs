//! A device, its pipelines and memory.

use crate::text::{Binding, bindings, validate};
use anyhow::{Context, Result, anyhow, ensure};
use hone_codegen_text::Kernel;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use wgpu::{BufferUsages, PollType};

/// A device of WebGPU with its queue.
pub struct Device {
    name: String,
    storage_buffers: usize,
    device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Device {
    /// The system's Vulkan device; `None` where it has none. It has the default limits of WebGPU, so that a kernel
    /// that needs more fails; but as many storage buffers as there are, which [`Device::storage_buffers`] says.
    ///
    /// # Errors
    /// An adapter that gives no device.
    pub fn open() -> Result<Option<Self>> {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        descriptor.flags = wgpu::InstanceFlags::empty();
        let instance = wgpu::Instance::new(descriptor);
        let adapter = instance.request_adapter(&wgpu::RequestAdapterOptions::default());
        let Ok(adapter) = pollster::block_on(adapter) else { return Ok(None) };
        let most = adapter.limits().max_storage_buffers_per_shader_stage;
        let limits =
            wgpu::Limits { max_storage_buffers_per_shader_stage: most, ..wgpu::Limits::default() };
        let descriptor = wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
        let info = adapter.get_info();
        let name = format!("{} ({})", info.name, info.driver_info);
        Ok(Some(Self { name, storage_buffers: most as usize, device, queue }))
    }

    /// How many storage buffers a kernel may have here.
    pub fn storage_buffers(&self) -> usize {
        self.storage_buffers
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `make` makes, or what the device says of it.
    fn checked<T>(&self, what: &str, make: impl FnOnce() -> T) -> Result<T> {
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let made = make();
        for scope in [internal, memory, validation] {
            if let Some(error) = pollster::block_on(scope.pop()) {
                return Err(anyhow!("{what}: {error}"));
            }
        }
        Ok(made)
    }

    /// Makes pipelines of the kernels of a text.
    ///
    /// # Errors
    /// A text that is not WGSL; what the device says.
    pub fn build(&self, source: &str, kernels: &[&Kernel]) -> Result<Kernels<'_>> {
        let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        self.build_named(source, &names)
    }

    /// The same of kernels by their names.
    pub(crate) fn build_named(&self, source: &str, kernels: &[&str]) -> Result<Kernels<'_>> {
        let checked = validate(source)?;
        let module = self.checked("the text", || {
            let source = wgpu::ShaderSource::Wgsl(source.into());
            let descriptor = wgpu::ShaderModuleDescriptor { label: None, source };
            let checks = wgpu::ShaderRuntimeChecks::checked();
            // Counting every loop's iterations makes llvmpipe's compiler take minutes for a nest of many loops.
            let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..checks };
            // SAFETY: every loop of our texts ends; all other checks are made.
            unsafe { self.device.create_shader_module_trusted(descriptor, checks) }
        })?;
        let mut pipelines = BTreeMap::new();
        for kernel in kernels {
            let entries: Vec<_> = bindings(&checked, kernel).into_iter().map(entry).collect();
            let pipeline = self.checked(kernel, || {
                let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
                let layout = self.device.create_bind_group_layout(&descriptor);
                let pipeline = self.pipeline(&module, &layout, kernel);
                (pipeline, layout)
            })?;
            pipelines.insert((*kernel).to_string(), pipeline);
        }
        Ok(Kernels { device: self, pipelines })
    }

    fn pipeline(
        &self,
        module: &wgpu::ShaderModule,
        layout: &wgpu::BindGroupLayout,
        kernel: &str,
    ) -> wgpu::ComputePipeline {
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            bind_group_layouts: &[Some(layout)],
            ..Default::default()
        });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module,
            entry_point: Some(kernel),
            compilation_options: Default::default(),
            cache: None,
        })
    }

    /// Memory that begins with the given bytes, for buffers or for a counter.
    pub(crate) fn memory(&self, bytes: &[u8], usage: BufferUsages) -> Result<wgpu::Buffer> {
        // No memory may be empty, and all of it is copied by words of 32 bits.
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().max(8).next_multiple_of(8), 0);
        let size = bytes.len() as u64;
        let buffer = self.buffer(size, usage)?;
        self.queue.write_buffer(&buffer, 0, &bytes);
        Ok(buffer)
    }

    /// Memory for so many bytes, which are 0.
    pub(crate) fn empty(&self, bytes: u64) -> Result<wgpu::Buffer> {
        self.buffer(bytes.max(8).next_multiple_of(8), BufferUsages::STORAGE)
    }

    /// Memory of its own that has the bytes of a part when the commands run.
    pub(crate) fn copied(&self, commands: &mut wgpu::CommandEncoder, part: &Part) -> Result<Part> {
        let buffer = self.empty(part.bytes)?;
        commands.copy_buffer_to_buffer(&part.buffer, part.offset, &buffer, 0, part.bytes);
        Ok(Part { buffer, offset: 0, bytes: part.bytes })
    }

    fn buffer(&self, size: u64, usage: BufferUsages) -> Result<wgpu::Buffer> {
        self.checked("making memory", || {
            let usage = usage | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        })
    }

    /// The first bytes of memory.
    pub(crate) fn read(&self, memory: &wgpu::Buffer, length: usize) -> Result<Vec<u8>> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: memory.size(),
            usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(memory, 0, &staging, 0, memory.size());
        self.queue.submit([encoder.finish()]);
        let (send, receive) = std::sync::mpsc::channel();
        staging.slice(..).map_async(wgpu::MapMode::Read, move |outcome| {
            // Whoever waits is still there: it waits below.
            let _ = send.send(outcome);
        });
        self.device.poll(PollType::wait_indefinitely())?;
        receive.recv().context("the memory was not mapped")??;
        let bytes = staging.slice(..).get_mapped_range()?;
        ensure!(bytes.len() >= length, "{length} bytes of {}", bytes.len());
        Ok(bytes[..length].to_vec())
    }
}

/// A part of a buffer.
pub(crate) struct Part {
    pub(crate) buffer: wgpu::Buffer,
    /// Where it begins, in bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What a layout says of a binding.
fn entry((binding, kind): (u32, Binding)) -> wgpu::BindGroupLayoutEntry {
    let ty = match kind {
        Binding::Read => wgpu::BufferBindingType::Storage { read_only: true },
        Binding::Written => wgpu::BufferBindingType::Storage { read_only: false },
        Binding::Counter => wgpu::BufferBindingType::Uniform,
    };
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}

/// The kernels of a text.
pub struct Kernels<'a> {
    device: &'a Device,
    pipelines: BTreeMap<String, (wgpu::ComputePipeline, wgpu::BindGroupLayout)>,
}

impl Kernels<'_> {
    /// Commands that are run together.
    pub(crate) fn commands(&self) -> wgpu::CommandEncoder {
        self.device.device.create_command_encoder(&Default::default())
    }

    /// Adds the launch of a kernel.
    pub(crate) fn launch(
        &self,
        commands: &mut wgpu::CommandEncoder,
        kernel: &Kernel,
        arguments: &[wgpu::Buffer],
    ) -> Result<()> {
        let whole = |buffer: &wgpu::Buffer| Part {
            buffer: buffer.clone(),
            offset: 0,
            bytes: buffer.size(),
        };
        let parts: Vec<Part> = arguments.iter().map(whole).collect();
        let groups = kernel.groups.map(|extent| extent as u64);
        self.launch_parts(commands, (&kernel.name, groups), &parts)
    }

    /// The same of a kernel by its name, over so many groups, on parts of buffers.
    pub(crate) fn launch_parts(
        &self,
        commands: &mut wgpu::CommandEncoder,
        (kernel, groups): (&str, [u64; 3]),
        arguments: &[Part],
    ) -> Result<()> {
        let (pipeline, layout) =
            self.pipelines.get(kernel).with_context(|| format!("'{kernel}' was not built"))?;
        let entries: Vec<wgpu::BindGroupEntry<'_>> = (0..)
            .zip(arguments)
            .map(|(binding, part)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &part.buffer,
                    offset: part.offset,
                    size: NonZeroU64::new(part.bytes),
                }),
            })
            .collect();
        let [x, y, z] = groups.map(|extent| extent as u32);
        self.device.checked(kernel, || {
            let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
            let group = self.device.device.create_bind_group(&descriptor);
            let mut pass = commands.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(x, y, z);
        })
    }

    /// Runs commands.
    pub(crate) fn submit(&self, commands: wgpu::CommandEncoder) -> Result<()> {
        self.device.checked("running", || {
            self.device.queue.submit([commands.finish()]);
        })
    }
}
