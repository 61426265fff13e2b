"""A peer on the CUDA device of this machine, for tests/peers/gpu.py.

    gpu_peer.py {torch,torch.compile,onnxruntime} MODEL.onnx INPUTS.npz {f32,f16,bf16}

Writes one line of JSON: the median and the 90th percentile of a run's time in milliseconds, from arrays of the host to
arrays of the host, as Hone is timed; the version; the settings. What keeps it from running is its last line of
standard error.

torch takes the module from tests/models/zoo.py by the model file's name, in IEEE f32 (no TF32) or converted whole;
onnxruntime the file itself, in f32 without TF32.
"""

import json
import pathlib
import sys
import time

import numpy as np

SECONDS = 3.0
MOST_RUNS = 2000


def timed(run):
    for _ in range(10):
        run()
    times = []
    end = time.perf_counter() + SECONDS
    while len(times) < 10 or (time.perf_counter() < end and len(times) < MOST_RUNS):
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1e6)
    return {"p50": float(np.median(times)), "p90": float(np.quantile(times, 0.9))}


def with_torch(model, arrays, precision, compiled):
    import torch

    if not torch.cuda.is_available():
        sys.exit(f"torch {torch.__version__} sees no CUDA device")
    sys.path.append(str(pathlib.Path(__file__).parent.parent / "models"))
    import zoo

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[precision]
    module, _ = zoo.make(pathlib.Path(model).stem)
    module = module.to("cuda", dtype)
    if compiled:
        module = torch.compile(module, mode="max-autotune")

    def run():
        given = (torch.from_numpy(array).cuda() for array in arrays.values())
        given = (own.to(dtype) if own.is_floating_point() else own for own in given)
        with torch.inference_mode():
            results = module(*given)
        results = results if isinstance(results, tuple) else (results,)
        return [result.float().cpu() for result in results if isinstance(result, torch.Tensor)]

    settings = "max-autotune" if compiled else "eager, cudnn.benchmark"
    return timed(run) | {"version": torch.__version__, "settings": settings}


def with_onnxruntime(model, arrays, precision):
    import onnxruntime

    if precision != "f32":
        sys.exit("onnxruntime runs the file in the types that it has")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        sys.exit(f"onnxruntime {onnxruntime.__version__} was built without CUDA")
    providers = [("CUDAExecutionProvider", {"use_tf32": "0", "cudnn_conv_algo_search": "EXHAUSTIVE"})]
    session = onnxruntime.InferenceSession(model, providers=providers)
    if "CUDAExecutionProvider" not in session.get_providers():
        sys.exit("onnxruntime could not use the device")
    settings = "all graph optimisations, exhaustive search of convolutions"
    return timed(lambda: session.run(None, arrays)) | {"version": onnxruntime.__version__, "settings": settings}


def main():
    peer, model, inputs, precision = sys.argv[1:]
    arrays = dict(np.load(inputs))
    if peer == "onnxruntime":
        found = with_onnxruntime(model, arrays, precision)
    else:
        found = with_torch(model, arrays, precision, peer == "torch.compile")
    print(json.dumps(found))


main()
