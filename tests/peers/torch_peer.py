"""torch.compile with its best documented settings: inductor with max-autotune and frozen weights, inference
mode, scaled dot-product attention where a model offers it.

The module comes from tests/models/zoo.py by the model file's name, with the weights that its ONNX
file was exported with. Needs a C++ compiler.
"""

import pathlib
import shutil
import sys
import tempfile
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
    # A cache of its own, so that the time to compile is not that of an earlier run's leftovers.
    cache = tempfile.TemporaryDirectory()
    torch._inductor.runtime.cache_dir_utils.cache_dir = lambda: cache.name
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
    end = time.perf_counter()
    loaded = Loaded(run, torch.__version__, "max-autotune, freezing, SDPA", milliseconds(start, end), 0.0)
    loaded.cache = cache
    return loaded


serve(load)
