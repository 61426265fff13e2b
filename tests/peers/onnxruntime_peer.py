"""onnxruntime: all graph optimisations, one pool of THREADS."""

import time

import onnxruntime

from serve import Loaded, milliseconds, serve


def load(model, _arrays, threads):
    start = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    end = time.perf_counter()
    names = [output.name for output in session.get_outputs()]
    return Loaded(
        lambda arrays: dict(zip(names, session.run(names, arrays))),
        onnxruntime.__version__,
        "all graph optimisations",
        0.0,
        milliseconds(start, end),
    )


serve(load)
