// Runs a model that Hone compiled for WebGPU (`hone compile MODEL.onnx --accelerator webgpu`), from its artifact.

/** The first bytes of every artifact; `artifact/src/layout.rs` describes the file. */
const MARK = [0x89, 0x48, 0x4f, 0x4e, 0x45, 0x1a, 0x0d, 0x0a];
const FORMAT_VERSION = 1;
/** The newest schema of manifests that this file knows. */
const SCHEMA_VERSION = 5;
const SECTIONS = { manifest: 1, code: 2, weights: 3 };

/** Memory is copied by words of 32 bits and bound by elements of up to 8 bytes, and none may be empty. */
const whole = (bytes) => Math.max(8, Math.ceil(bytes / 8) * 8);

/** The manifest of an artifact, its variant for WebGPU, and that variant's text and weights. */
function read(file) {
  const view = new DataView(file);
  const long = (at) => Number(view.getBigUint64(at, true));
  if (file.byteLength < 32 || MARK.some((byte, at) => view.getUint8(at) !== byte)) {
    throw new Error("this is no artifact of Hone's");
  }
  const version = view.getUint32(8, true);
  if (version !== FORMAT_VERSION) throw new Error(`the artifact has format version ${version}`);
  if (long(16) !== file.byteLength) throw new Error("the artifact was cut short");
  const sections = Array.from({ length: view.getUint32(12, true) }, (_, index) => {
    const at = 32 + 32 * index;
    return { kind: view.getUint32(at, true), offset: long(at + 8), length: long(at + 16) };
  });
  const section = (kind, number) => {
    const { offset, length } = sections.filter((own) => own.kind === kind)[number];
    return new Uint8Array(file, offset, length);
  };
  const text = (bytes) => new TextDecoder().decode(bytes);
  const manifest = JSON.parse(text(section(SECTIONS.manifest, 0)));
  if (manifest.schemaVersion > SCHEMA_VERSION) throw new Error("the artifact is newer than this page");
  const variant = manifest.variants.find((own) => own.device?.language === "wgsl");
  if (!variant) throw new Error("the artifact is not for WebGPU: compile with --accelerator webgpu");
  if (variant.program?.length) throw new Error("this page runs steps one after another");
  return {
    manifest,
    variant,
    code: text(section(SECTIONS.code, variant.code)),
    weights: section(SECTIONS.weights, variant.weights),
  };
}

/** Whether two arguments of a step have bytes in common. */
function overlap(one, other) {
  const [[kind, a]] = Object.entries(one.slot);
  const [[otherKind, b]] = Object.entries(other.slot);
  if (kind !== otherKind) return false;
  if (kind === "input" || kind === "output") return a.index === b.index;
  return a.offset < b.offset + Math.max(1, other.bytes) && b.offset < a.offset + Math.max(1, one.bytes);
}

/** A loaded model. */
export class Model {
  /** Loads the artifact at an address. Fails where the browser has no WebGPU, or less of it than the model needs. */
  static async load(address) {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) throw new Error("this browser has no WebGPU adapter");
    const response = await fetch(address);
    if (!response.ok) throw new Error(`${address}: ${response.status}`);
    const artifact = read(await response.arrayBuffer());
    const names = ["maxStorageBuffersPerShaderStage", "maxBufferSize", "maxStorageBufferBindingSize"];
    const most = adapter.limits.maxStorageBuffersPerShaderStage;
    const needed = artifact.variant.device.limits.storageBuffers ?? 0;
    if (needed > most) throw new Error(`the model needs ${needed} storage buffers, the adapter has ${most}`);
    const requiredLimits = Object.fromEntries(names.map((name) => [name, adapter.limits[name]]));
    const model = new Model(adapter, await adapter.requestDevice({ requiredLimits }), artifact);
    await model.#build(artifact.code);
    return model;
  }

  #device;
  #variant;
  #commands;
  #weights;
  #arena;
  #pipelines = new Map();
  #counters = new Map();

  constructor(adapter, device, { manifest, variant, weights }) {
    this.adapter = adapter;
    /** Names, element types and shapes of what goes in and comes out. */
    this.inputs = manifest.inputs;
    this.outputs = manifest.outputs;
    this.#device = device;
    this.#variant = variant;
    this.#commands = new Map(variant.device.kernels.map((kernel) => [kernel.symbol, kernel.commands]));
    this.#weights = this.#buffer(weights.byteLength);
    this.#write(this.#weights, weights);
    this.#arena = this.#buffer(variant.arenaBytes);
  }

  #buffer(bytes, usage = GPUBufferUsage.STORAGE) {
    const size = whole(bytes);
    return this.#device.createBuffer({ size, usage: usage | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
  }

  #write(buffer, bytes) {
    const padded = new Uint8Array(buffer.size);
    padded.set(bytes);
    this.#device.queue.writeBuffer(buffer, 0, padded);
  }

  /** Makes a pipeline of every kernel. */
  async #build(code) {
    const module = this.#device.createShaderModule({ code });
    const { messages } = await module.getCompilationInfo();
    const errors = messages.filter((message) => message.type === "error");
    if (errors.length) throw new Error(errors.map((own) => `line ${own.lineNum}: ${own.message}`).join("\n"));
    const launches = (commands) =>
      commands.flatMap((command) => (command.launch ? [command.launch] : launches(command.repeat.body)));
    for (const { kernel } of [...this.#commands.values()].flatMap(launches)) {
      if (this.#pipelines.has(kernel)) continue;
      const compute = { module, entryPoint: kernel };
      this.#pipelines.set(kernel, await this.#device.createComputePipelineAsync({ layout: "auto", compute }));
    }
  }

  /** The outputs' bytes, for inputs as typed arrays in the order of the model. */
  async run(inputs) {
    const run = {
      encoder: this.#device.createCommandEncoder(),
      inputs: inputs.map(({ buffer, byteOffset, byteLength }, index) => {
        const { name, bytes } = this.inputs[index];
        if (byteLength !== bytes) throw new Error(`input '${name}' has ${byteLength} bytes, not ${bytes}`);
        const memory = this.#buffer(bytes);
        this.#write(memory, new Uint8Array(buffer, byteOffset, byteLength));
        return memory;
      }),
      outputs: this.outputs.map(({ bytes }) => this.#buffer(bytes)),
      copies: [],
    };
    this.#device.pushErrorScope("validation");
    for (const step of this.#variant.steps) this.#encode(run, step, this.#commands.get(step.kernel), []);
    const results = run.outputs.map((output) => {
      const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
      const result = this.#device.createBuffer({ size: output.size, usage });
      run.encoder.copyBufferToBuffer(output, 0, result, 0, output.size);
      return result;
    });
    this.#device.queue.submit([run.encoder.finish()]);
    const error = await this.#device.popErrorScope();
    if (error) throw new Error(error.message);
    const bytes = await Promise.all(results.map(async (buffer, index) => {
      await buffer.mapAsync(GPUMapMode.READ);
      return buffer.getMappedRange().slice(0, this.outputs[index].bytes);
    }));
    for (const buffer of [...run.inputs, ...run.outputs, ...run.copies, ...results]) buffer.destroy();
    return bytes;
  }

  /** Adds a step's launches; `counters` are those of the repetitions around them. */
  #encode(run, step, commands, counters) {
    for (const { launch, repeat } of commands) {
      for (let round = 0; repeat && round < repeat.times; round++) {
        this.#encode(run, step, repeat.body, [...counters, round]);
      }
      if (launch) this.#launch(run, step, launch, counters);
    }
  }

  #launch(run, step, launch, counters) {
    const pipeline = this.#pipelines.get(launch.kernel);
    const given = launch.arguments.map(({ buffer }) => step.arguments[buffer]);
    const entries = launch.arguments.map(({ counter }, binding) => {
      const argument = given[binding];
      if (!argument) return { binding, resource: { buffer: this.#counter(counters[counter]) } };
      const resource = this.#part(run, argument);
      return { binding, resource: this.#isShared(given, binding) ? this.#copied(run, resource) : resource };
    });
    const pass = run.encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, this.#device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(...launch.grid);
    pass.end();
  }

  /**
   * Whether an argument that is only read has bytes in common with another one of its launch: WebGPU lets no two
   * bindings of `read_write` access have them, so it is copied first. Of two that are read, the second is.
   */
  #isShared(given, binding) {
    const own = given[binding];
    return own.access === "read" && given.some((other, place) =>
      other && place !== binding && overlap(own, other) && (other.access !== "read" || place < binding));
  }

  #copied(run, { buffer, offset, size }) {
    const copy = this.#buffer(size);
    run.copies.push(copy);
    run.encoder.copyBufferToBuffer(buffer, offset, copy, 0, size);
    return { buffer: copy, offset: 0, size };
  }

  #part(run, { slot, bytes }) {
    const [[kind, { index, offset }]] = Object.entries(slot);
    const buffer = {
      arena: this.#arena,
      weight: this.#weights,
      input: run.inputs[index],
      output: run.outputs[index],
    }[kind];
    return { buffer, offset, size: whole(bytes) };
  }

  #counter(value) {
    if (!this.#counters.has(value)) {
      const buffer = this.#buffer(8, GPUBufferUsage.UNIFORM);
      this.#write(buffer, new Uint8Array(Int32Array.of(value).buffer));
      this.#counters.set(value, buffer);
    }
    return this.#counters.get(value);
  }
}
