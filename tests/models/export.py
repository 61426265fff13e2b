"""Exports the models of zoo.py, and those named of others.py, restoration.py, more.py, cliffs.py and sets.QUANTIZED,
to ONNX with seeded inputs and onnxruntime's outputs.

    export.py FOLDER [NAME ...]

For each name: FOLDER/NAME.onnx, NAME.facts.json, NAME.inputs.npz and NAME.outputs.npz, whose arrays
are named as the inputs and outputs. A name ending in `.dynamo` uses torch's newer exporter (opset 18), the
others the tracing one (opset 17). What exists is kept. `--operators FILE` writes the operators of
every model in FOLDER as a table.
"""

import argparse
import collections
import json
import pathlib
import sys
import time
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from torch.utils.flop_counter import FlopCounterMode

import quantize
import sets
import zoo

DYNAMO = ["resnet50", "mobilenet_v3_large", "bert-base", "lstm", "unet_bilinear"]
EVERYTHING = [*zoo.MODELS, *(f"{name}.dynamo" for name in DYNAMO)]


def export(name, folder):
    model, inputs = zoo.make(name.removesuffix(".dynamo"))
    with torch.no_grad():
        results = model(*inputs.values())
    results = results if isinstance(results, tuple) else (results,)
    names = [f"y{index}" for index in range(len(results))] if len(results) > 1 else ["y"]
    path = folder / f"{name}.onnx"
    common = {"input_names": list(inputs), "output_names": names}
    if name.endswith(".dynamo"):
        torch.onnx.export(
            model, tuple(inputs.values()), path, opset_version=18, dynamo=True,
            external_data=False, **common,
        )
    else:
        torch.onnx.export(
            model, tuple(inputs.values()), path, opset_version=17, dynamo=False, **common
        )
    arrays = {key: value.numpy() for key, value in inputs.items()}
    np.savez(folder / f"{name}.inputs.npz", **arrays)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = dict(zip(names, session.run(names, arrays)))
    for key, value in zip(names, results):
        difference = np.abs(outputs[key] - value.numpy()).max()
        scale = np.abs(outputs[key]).max()
        print(f"  {key}: largest {scale:.4g}, torch differs by {difference:.3g}")
    facts = {"gflop": floating_point_operations(model, inputs) / 1e9}
    (folder / f"{name}.facts.json").write_text(json.dumps(facts) + "\n")
    # Last, so that a file of outputs means a finished export.
    np.savez(folder / f"{name}.outputs.npz", **outputs)


def export_quantized(name, folder):
    """Quantizes the plain model, which is exported first where it is missing."""
    plain = name.rsplit(".", 1)[0]
    if not (folder / f"{plain}.outputs.npz").exists():
        export(plain, folder)
    quantize.make(folder, name)


def floating_point_operations(model, inputs):
    """Additions and multiplications in the convolutions and matrix products of one run."""
    # torch's own fused attention is one operator to the counter, which leaves out the products that make its operands.
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(*inputs.values())
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    return counter.get_total_flops()


def operators(folder, target):
    lines = [
        "# Operators of the exported models",
        "",
        "Written by `cargo xtask models`; counts in brackets. The models ending in `.dynamo` come",
        "from torch's newer exporter, the others from the tracing one.",
        "",
        "| model | opset | operators |",
        "|---|---|---|",
    ]
    for name in EVERYTHING:
        path = folder / f"{name}.onnx"
        if not path.exists():
            continue
        model = onnx.load(path)
        counts = collections.Counter()
        count_nodes(model.graph, counts)
        opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
        listed = ", ".join(f"{op} ({count})" for op, count in sorted(counts.items()))
        functions = "".join(f"; function {f.name}" for f in model.functions)
        lines.append(f"| {name} | {opsets} | {listed}{functions} |")
        print(lines[-1])
    target.write_text("\n".join(lines) + "\n")


def count_nodes(graph, counts):
    for node in graph.node:
        counts[f"{node.domain}.{node.op_type}" if node.domain else node.op_type] += 1
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                count_nodes(inner, counts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--operators", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    failed, quantized = [], []
    for name in arguments.names or EVERYTHING:
        if (arguments.folder / f"{name}.outputs.npz").exists():
            continue
        if name in sets.QUANTIZED:
            quantized.append(name)
            continue
        started = time.monotonic()
        print(f"{name}: exporting", flush=True)
        try:
            export(name, arguments.folder)
        except Exception as error:  # one model that cannot be exported must not hide the others
            print(f"{name}: failed: {type(error).__name__}: {str(error).splitlines()[-1]}")
            failed.append(name)
            continue
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
    for name in quantized:
        export_quantized(name, arguments.folder)
    if arguments.operators:
        operators(arguments.folder, arguments.operators)
    sys.exit(f"not exported: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
