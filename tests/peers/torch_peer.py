"""torch.compile with its best documented settings: inductor with max-autotune and frozen weights, inference
mode, scaled dot-product attention where a model offers it.

    torch_peer.py MODEL.onnx INPUTS.npz THREADS FOLDER

The module comes from tests/models/zoo.py by the model file's name, with the weights that its ONNX
file was exported with. What was compiled is kept in FOLDER, with the time that it took. Needs a C++ compiler.
"""

import pathlib
import shutil
import sys
import time

import torch

sys.path.append(str(pathlib.Path(__file__).parent.parent / "models"))
import zoo  # noqa: E402
from serve import Loaded, milliseconds, serve  # noqa: E402


def load(model, arrays, threads):
    if not shutil.which("g++") and not shutil.which("clang++"):
        sys.exit("torch.compile needs a C++ compiler: install g++")
    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    # A cache for each model and number of threads: what is compiled first is the whole of it.
    cache = pathlib.Path(sys.argv[4]) / f"{torch.__version__}-{pathlib.Path(model).stem}-{threads}"
    cache.mkdir(parents=True, exist_ok=True)
    torch._inductor.runtime.cache_dir_utils.cache_dir = lambda: str(cache)
    module, _ = zoo.make(pathlib.Path(model).stem)
    for part in module.modules():
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation("sdpa")
    start = time.perf_counter()
    compiled = torch.compile(module, mode="max-autotune")

    def run(arrays):
        with torch.inference_mode():
            results = compiled(*(torch.from_numpy(array) for array in arrays.values()))
        if not isinstance(results, tuple):
            return {"y": results.numpy()}
        names = ["y"] if len(results) == 1 else [f"y{index}" for index in range(len(results))]
        return {name: result.numpy() for name, result in zip(names, results)}

    run(arrays)
    took = cache / "compile_ms"
    if not took.exists():
        took.write_text(str(milliseconds(start, time.perf_counter())))
    return Loaded(run, torch.__version__, "max-autotune, freezing, SDPA", float(took.read_text()), 0.0)


serve(load)
