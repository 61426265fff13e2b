"""The C interface of Hone's runtime (runtime/hone.h) for Python programs that compare it with others."""

import ctypes
import sys

import numpy as np

DTYPES = [
    np.float32, np.float16, None, np.float64, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32,
    np.int64, np.uint64, np.bool_,
]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_uint64)),
        ("bytes", ctypes.c_uint64),
    ]


class Options(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("size", "threads", "affinity", "huge_pages", "skip_checksums")]


def open_library(path):
    library = ctypes.CDLL(path)
    library.hone_version.restype = ctypes.c_char_p
    library.hone_last_error.restype = ctypes.c_char_p
    library.hone_load.restype = ctypes.c_void_p
    library.hone_load.argtypes = [ctypes.c_char_p, ctypes.POINTER(Options)]
    for kind in ("input", "output"):
        count, tensor = getattr(library, f"hone_{kind}_count"), getattr(library, f"hone_{kind}")
        count.restype, count.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
        tensor.restype, tensor.argtypes = ctypes.POINTER(Tensor), [ctypes.c_void_p, ctypes.c_size_t]
    library.hone_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return library


class Model:
    """A loaded artifact; run() gives new arrays for every call, as the other peers do."""

    def __init__(self, library, path, threads):
        self.library = library
        options = Options(ctypes.sizeof(Options), threads, 0, 0, 0)
        self.handle = library.hone_load(path.encode(), ctypes.byref(options))
        if not self.handle:
            sys.exit(library.hone_last_error().decode())
        self.inputs = self.describe("input")
        self.outputs = self.describe("output")

    def describe(self, kind):
        count = getattr(self.library, f"hone_{kind}_count")(self.handle)
        tensors = [getattr(self.library, f"hone_{kind}")(self.handle, index).contents for index in range(count)]
        return [(t.name.decode(), DTYPES[t.dtype], tuple(t.shape[: t.rank])) for t in tensors]

    def run(self, arrays):
        taken = [np.ascontiguousarray(arrays[name], dtype) for name, dtype, _ in self.inputs]
        given = [np.empty(shape, dtype) for _, dtype, shape in self.outputs]
        inputs = (ctypes.c_void_p * len(taken))(*(array.ctypes.data for array in taken))
        outputs = (ctypes.c_void_p * len(given))(*(array.ctypes.data for array in given))
        if self.library.hone_run(self.handle, inputs, outputs):
            sys.exit(self.library.hone_last_error().decode())
        return {name: array for (name, _, _), array in zip(self.outputs, given)}
