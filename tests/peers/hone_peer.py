"""Hone through its shared library, as a program that uses it would: Python, ctypes, arrays in, arrays out.

    hone_peer.py MODEL.onnx INPUTS.npz THREADS FOLDER HONE LIBRARY TARGET PRECISION

HONE compiles ahead, in a process that has ended when the runs begin, into FOLDER, where the same program
finds the artifact of the same model again; LIBRARY is libhone_runtime.so. Memory and the cost of a call are
those that a user of the library pays.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import time

from hone_library import Model, open_library
from serve import Loaded, milliseconds, serve


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
