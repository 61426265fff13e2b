"""tract through its Python package, which has one thread."""

import sys
import time

import numpy as np
import onnx
import tract

from serve import Loaded, milliseconds, serve


def load(model, arrays, threads):
    if threads != 1:
        sys.exit("tract's Python package runs on one thread only")
    start = time.perf_counter()
    inference = tract.onnx().load(model)
    order = [inference.input_name(index) for index in range(inference.input_count())]
    runnable = inference.into_model().into_runnable()
    end = time.perf_counter()
    # tract names its outputs after the nodes that make them.
    names = [output.name for output in onnx.load(model, load_external_data=False).graph.output]

    def run(arrays):
        results = runnable.run([np.ascontiguousarray(arrays[name]) for name in order])
        return {name: result.to_numpy() for name, result in zip(names, results)}

    return Loaded(run, tract.version(), "optimised", 0.0, milliseconds(start, end))


serve(load)
