"""Runs artifacts that Hone compiled: no compiler, no LLVM, numpy in and out.

    import hone_runtime
    model = hone_runtime.load("model.hone")
    outputs = model.run({"x": x})
"""

from ._errors import CompileError, HoneError, InputError, LoadError, RunError, UnsupportedError
from ._images import set_image_decoder
from ._model import Model, Port, Sizes, load
from ._runtime import VERSION as __version__

__all__ = [
    "CompileError",
    "HoneError",
    "InputError",
    "LoadError",
    "Model",
    "Port",
    "RunError",
    "Sizes",
    "UnsupportedError",
    "__version__",
    "load",
    "set_image_decoder",
]
