"""IREE: compiled for this processor at its highest level with data tiling, on the local-task device."""

import importlib.metadata
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import iree.runtime as runtime
import onnx

from serve import Loaded, milliseconds, serve

FLAGS = [
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
]


def tool(name, *arguments):
    command = [str(pathlib.Path(sys.executable).parent / name), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{name} failed: {result.stderr[-2000:]}")


def load(model, arrays, threads):
    # The compiler recurses deeply on large models.
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tool("iree-import-onnx", model, "-o", folder / "model.mlir")
        tool("iree-compile", *FLAGS, folder / "model.mlir", "-o", folder / "model.vmfb")
        compiled = time.perf_counter()
        module_bytes = (folder / "model.vmfb").read_bytes()
    loading = time.perf_counter()
    runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = runtime.Config("local-sync" if threads == 1 else "local-task")
    instance = config.vm_instance
    module = runtime.VmModule.copy_buffer(instance, module_bytes)
    context = runtime.SystemContext(config=config)
    context.add_vm_module(module)
    loaded = context.modules[module.name]
    graph = onnx.load(model, load_external_data=False).graph
    function = loaded[graph.name] if graph.name in module.function_names else loaded["main_graph"]
    order = [value.name for value in graph.input]
    names = [value.name for value in graph.output]
    end = time.perf_counter()

    def run(arrays):
        results = function(*(arrays[name] for name in order))
        results = results if isinstance(results, (list, tuple)) else [results]
        return {name: result.to_host() for name, result in zip(names, results)}

    return Loaded(
        run,
        importlib.metadata.version("iree-base-compiler"),
        "O3, data tiling, host CPU",
        milliseconds(start, compiled),
        milliseconds(loading, end),
    )


serve(load)
