"""Hone through its shared library, as a program that uses it would: Python, ctypes, arrays in, arrays out.

    hone_peer.py MODEL.onnx INPUTS.npz THREADS FOLDER HONE LIBRARY TARGET PRECISION

HONE compiles ahead, in a process that has ended when the runs begin, into FOLDER, where the same program
finds the artifact of the same model again; LIBRARY is libhone_runtime.so. Memory and the cost of a call are
those that a user of the library pays.
"""

import ctypes
import hashlib
import json
import pathlib
import subprocess
import sys
import time

import numpy as np

from serve import Loaded, milliseconds, serve

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


def compile_ahead(hone, model, target, precision, threads, folder):
    """The artifact's path, the precision that it has, and the milliseconds that making it took."""
    done = folder / "done.json"
    if done.exists():
        return json.loads(done.read_text())
    command = [hone, "compile", model, "--out", str(folder), "--target", target, "--threads", str(threads), "--json"]
    if precision == "f32":
        command += ["--no-verify", "--no-measure"]
    else:
        # A narrower arithmetic is used only where verifying and measuring show that it pays.
        command += ["--precision", precision, "--max-relative-error", "1"]
    start = time.perf_counter()
    ended = subprocess.run(command, capture_output=True, text=True)
    end = time.perf_counter()
    if ended.returncode:
        sys.exit(ended.stderr.strip() or f"hone ended with {ended.returncode}")
    report = json.loads(ended.stdout)["targets"][0]["report"]
    made = report["artifact"]["uri"].removeprefix("file://"), report["precision"], milliseconds(start, end)
    done.write_text(json.dumps(made))
    return made


def digest(*paths):
    """Names what the artifact is made of: the programs and files at `paths`."""
    total = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


def load(model, _arrays, threads):
    kept, hone, library, target, precision = sys.argv[4:9]
    made_of = [path for path in (hone, model, model + ".data") if pathlib.Path(path).exists()]
    name = f"{digest(*made_of)}-{target.replace('/', '-').replace(':', '-')}-{precision}-{threads}"
    folder = pathlib.Path(kept) / name
    folder.mkdir(parents=True, exist_ok=True)
    artifact, precision, compile_ms = compile_ahead(hone, model, target, precision, threads, folder)
    start = time.perf_counter()
    library = open_library(library)
    loaded = Model(library, artifact, threads)
    end = time.perf_counter()
    version = library.hone_version().decode()
    return Loaded(
        loaded.run, version, f"{target}, {precision}, shared library", compile_ms, milliseconds(start, end)
    )


serve(load)
