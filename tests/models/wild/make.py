"""Makes the models of the corpus that are missing.

    make.py FOLDER WRITER [NAME ...]

WRITER is the first word of `from` in list.toml: torch, sklearn, keras, tool, fuse, pypi or npm. Each is run by the Python
environment that has what it needs; `cargo xtask wild` does so in turn. FOLDER/NAME.onnx appears whole or not at all. A
model that cannot be made is named and the others still are; then the exit code is 1.
"""

import importlib
import pathlib
import sys
import tempfile
import time
import warnings

import corpus


def write(name, entry, target):
    """Writes the model of one entry to `target`."""
    writer, *rest = entry["from"].split()
    if writer in ("pypi", "npm"):
        importlib.import_module("shipped").copy(writer, *rest, target)
    elif writer == "torch":
        network, exporter, opset = rest
        inputs = corpus.inputs(name, entry, 0)
        importlib.import_module("torch_networks").export(
            target, network, exporter, int(opset), inputs, corpus.open_axes(entry))
    elif writer in ("tool", "fuse"):
        importlib.import_module("tool_models").make(target, *rest, corpus.entries(), target.parent.parent)
    else:
        importlib.import_module(f"{writer}_models").make(target, *rest)


def main():
    folder, writer, wanted = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    failed = []
    for name, entry in corpus.entries().items():
        if entry["from"].split()[0] != writer or (wanted and name not in wanted):
            continue
        path = folder / f"{name}.onnx"
        if path.exists():
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = pathlib.Path(scratch) / path.name
            try:
                write(name, entry, made)
            except Exception as error:
                lines = str(error).strip().splitlines() or [""]
                print(f"{name}: not made: {type(error).__name__}: {lines[0][:300]}", flush=True)
                failed.append(name)
                continue
            made.rename(path)
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
