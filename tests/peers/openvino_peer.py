"""OpenVINO's CPU plugin for latency: one stream; in f32, or as it decides (fourth argument)."""

import sys
import time

import openvino

from serve import Loaded, milliseconds, serve


def load(model, _arrays, threads):
    precision = sys.argv[4]
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(threads),
    }
    if precision != "default":
        settings["INFERENCE_PRECISION_HINT"] = precision
    start = time.perf_counter()
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    end = time.perf_counter()
    request = compiled.create_infer_request()
    names = [output.get_any_name() for output in compiled.outputs]

    def run(arrays):
        results = request.infer(arrays, share_inputs=True, share_outputs=True)
        return {name: results[index] for index, name in enumerate(names)}

    chosen = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    version = openvino.get_version().split("-")[0]
    return Loaded(run, version, f"latency hint, {chosen}", 0.0, milliseconds(start, end))


serve(load)
