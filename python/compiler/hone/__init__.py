"""Compiles ONNX models into native code and runs them.

    import hone
    model = hone.compile("model.onnx", shapes={"x": (1, 3, 224, 224)}, output="model.hone").load()
    outputs = hone.load("model.hone").run({"x": x})

A script that uses onnxruntime changes one import: `import hone as onnxruntime`.
"""

from hone_runtime import (
    CompileError,
    HoneError,
    InputError,
    LoadError,
    Model,
    Port,
    RunError,
    Sizes,
    UnsupportedError,
    __version__,
    load,
    set_image_decoder,
)
from hone_runtime._images import offer as _offer

from ._compile import Compiled, Signature, compile, signature, supported_operators
from ._session import (
    ExecutionMode,
    GraphOptimizationLevel,
    InferenceSession,
    ModelMetadata,
    NodeArg,
    RunOptions,
    SessionOptions,
    get_available_providers,
    get_device,
    set_default_logger_severity,
)
from ._compiler import decode_image as _decode_image
from ._specialise import Specialiser

# The wheel that only runs artifacts has no decoders.
_offer(_decode_image)

__all__ = [
    "CompileError",
    "Compiled",
    "ExecutionMode",
    "GraphOptimizationLevel",
    "HoneError",
    "InferenceSession",
    "InputError",
    "LoadError",
    "Model",
    "ModelMetadata",
    "NodeArg",
    "Port",
    "RunError",
    "RunOptions",
    "SessionOptions",
    "Signature",
    "Sizes",
    "Specialiser",
    "UnsupportedError",
    "__version__",
    "compile",
    "get_available_providers",
    "get_device",
    "load",
    "set_image_decoder",
    "set_default_logger_severity",
    "signature",
    "supported_operators",
]
