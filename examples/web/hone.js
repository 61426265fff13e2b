// Runs a model that Hone compiled, by WebGPU: the steps of `manifest.json`, the kernels of `kernels.wgsl` and the
// weights of `weights.bin`.

/** Where a step's argument lies, as text: arguments with equal keys are one buffer. */
function keyOf(slot) {
  const [kind, { index = 0, offset }] = Object.entries(slot)[0];
  return `${kind} ${index} ${offset}`;
}

/** Memory is copied by words of 32 bits, and none may be empty. */
const whole = (bytes) => Math.max(8, Math.ceil(bytes / 8) * 8);

/** A loaded model. */
export class Model {
  /** Loads the files of a folder. Fails where the browser has no WebGPU. */
  static async load(folder) {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) throw new Error("this browser has no WebGPU adapter");
    const most = adapter.limits.maxStorageBuffersPerShaderStage;
    const device = await adapter.requestDevice({ requiredLimits: { maxStorageBuffersPerShaderStage: most } });
    const get = async (name) => {
      const response = await fetch(`${folder}/${name}`);
      if (!response.ok) throw new Error(`${name}: ${response.status}`);
      return response;
    };
    const [manifest, text, weights] = await Promise.all([
      get("manifest.json").then((file) => file.json()),
      get("kernels.wgsl").then((file) => file.text()),
      get("weights.bin").then((file) => file.arrayBuffer()),
    ]);
    const model = new Model(adapter, device, manifest, weights);
    await model.#build(text);
    return model;
  }

  #device;
  #weights;
  #commands;
  #buffers = new Map();
  #pipelines = new Map();

  constructor(adapter, device, manifest, weights) {
    this.adapter = adapter;
    this.manifest = manifest;
    this.#device = device;
    this.#weights = weights;
    this.#commands = new Map(manifest.kernels.map((kernel) => [kernel.symbol, kernel.commands]));
  }

  /** Makes a pipeline of every kernel, and a buffer for every place that a step names. */
  async #build(text) {
    const module = this.#device.createShaderModule({ code: text });
    const { messages } = await module.getCompilationInfo();
    const errors = messages.filter((message) => message.type === "error");
    if (errors.length) throw new Error(errors.map((own) => `line ${own.lineNum}: ${own.message}`).join("\n"));
    const launches = (commands) =>
      commands.flatMap((command) => (command.launch ? [command.launch] : launches(command.repeat.body)));
    for (const { kernel } of [...this.#commands.values()].flatMap(launches)) {
      const compute = { module, entryPoint: kernel };
      this.#pipelines.set(kernel, await this.#device.createComputePipelineAsync({ layout: "auto", compute }));
    }
    const sizes = new Map();
    for (const { slot, bytes } of this.manifest.steps.flatMap((step) => step.arguments)) {
      const key = keyOf(slot);
      sizes.set(key, { slot, bytes: Math.max(bytes, sizes.get(key)?.bytes ?? 0) });
    }
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    for (const [key, { slot, bytes }] of sizes) {
      const buffer = this.#device.createBuffer({ size: whole(bytes), usage });
      if (slot.weight) this.#write(buffer, new Uint8Array(this.#weights, slot.weight.offset, bytes));
      this.#buffers.set(key, buffer);
    }
  }

  #write(buffer, bytes) {
    const padded = new Uint8Array(buffer.size);
    padded.set(bytes);
    this.#device.queue.writeBuffer(buffer, 0, padded);
  }

  /** The outputs' bytes, for inputs as typed arrays in the order of the manifest. */
  async run(inputs) {
    for (const { slot, bytes } of this.manifest.steps.flatMap((step) => step.arguments)) {
      if (!slot.input) continue;
      const { buffer, byteOffset } = inputs[slot.input.index];
      this.#write(this.#buffers.get(keyOf(slot)), new Uint8Array(buffer, byteOffset + slot.input.offset, bytes));
    }
    this.#device.pushErrorScope("validation");
    const encoder = this.#device.createCommandEncoder();
    for (const step of this.manifest.steps) this.#encode(encoder, step, this.#commands.get(step.kernel), []);
    const results = this.manifest.outputs.map((output, index) => this.#result(encoder, output, index));
    this.#device.queue.submit([encoder.finish()]);
    const error = await this.#device.popErrorScope();
    if (error) throw new Error(error.message);
    return Promise.all(results.map(async (buffer) => {
      await buffer.mapAsync(GPUMapMode.READ);
      return buffer.getMappedRange();
    }));
  }

  /** Adds a step's launches; `counters` are those of the repetitions around them. */
  #encode(encoder, step, commands, counters) {
    for (const { launch, repeat } of commands) {
      for (let round = 0; repeat && round < repeat.times; round++) {
        this.#encode(encoder, step, repeat.body, [...counters, round]);
      }
      if (!launch) continue;
      const pipeline = this.#pipelines.get(launch.kernel);
      const entries = launch.arguments.map((argument, binding) => ({
        binding,
        resource: { buffer: this.#argument(step, argument, counters) },
      }));
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, this.#device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.dispatchWorkgroups(...launch.grid);
      pass.end();
    }
  }

  #argument(step, argument, counters) {
    if (argument.buffer !== undefined) return this.#buffers.get(keyOf(step.arguments[argument.buffer].slot));
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const buffer = this.#device.createBuffer({ size: 8, usage });
    this.#write(buffer, new Uint8Array(Int32Array.of(counters[argument.counter]).buffer));
    return buffer;
  }

  /** Copies an output to where it can be read; it may lie in several parts. */
  #result(encoder, output, index) {
    const parts = this.manifest.steps
      .flatMap((step) => step.arguments)
      .filter((argument) => argument.slot.output?.index === index && argument.access !== "read");
    const end = Math.max(...parts.map(({ slot, bytes }) => slot.output.offset + bytes));
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const result = this.#device.createBuffer({ size: whole(end), usage });
    for (const { slot, bytes } of parts) {
      const size = Math.ceil(bytes / 4) * 4;
      encoder.copyBufferToBuffer(this.#buffers.get(keyOf(slot)), 0, result, slot.output.offset, size);
    }
    return result;
  }
}
