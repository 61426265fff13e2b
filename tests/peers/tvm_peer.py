"""Apache TVM's default CPU pipeline for this processor, untuned."""

import os
import sys
import time

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from serve import Loaded, milliseconds, serve


def host_cpu():
    """The processor's name as LLVM knows it."""
    return tvm.get_global_func("target.llvm_get_system_cpu")()


def load(model, arrays, threads):
    os.environ["TVM_NUM_THREADS"] = str(threads)
    start = time.perf_counter()
    proto = onnx.load(model)
    order = [value.name for value in proto.graph.input]
    names = [value.name for value in proto.graph.output]
    shapes = {name: list(arrays[name].shape) for name in order}
    types = {name: str(arrays[name].dtype) for name in order}
    module = from_onnx(proto, shapes, types)
    cpu = host_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})
    executable = tvm.compile(relax.transform.DecomposeOpsForInference()(module), target)
    compiled = time.perf_counter()
    device = tvm.cpu()
    machine = relax.VirtualMachine(executable, device)
    end = time.perf_counter()

    def run(arrays):
        inputs = [tvm.runtime.tensor(np.ascontiguousarray(arrays[name]), device) for name in order]
        results = machine["main"](*inputs)
        results = [results] if hasattr(results, "numpy") else list(results)
        return {name: result.numpy() for name, result in zip(names, results)}

    return Loaded(
        run,
        tvm.__version__,
        f"default pipeline for {cpu}, untuned",
        milliseconds(start, compiled),
        milliseconds(compiled, end),
    )


serve(load)
