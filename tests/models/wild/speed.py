"""Times every model of the corpus beside onnxruntime and OpenVINO, on one thread.

    speed.py FOLDER [NAME ...] --hone PROGRAM --package FOLDER [--page FILE] [--json FILE]

A model is compiled for the last of its entry's sizes, with no flags but the shapes, and run by the package `hone_runtime` as
its users call it; the folder holds the package as its wheel ships it. A process for each model, pinned to one processor,
runs all of them: in turn, in rounds of at least 30 ms for each. A figure is the median of the rounds. What a peer cannot load, or ends the process with, is left out for that peer; entries with
strings or maps as inputs are left out. Printed is a line for each model and the geometric mean; nothing fails because of a
time.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

# Before any peer starts threads of its own.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime

import corpus

ROUNDS = 5
ROUND_SECONDS = 0.03
COMPILE_LIMIT = 300


def artifact(hone, model, arrays, scratch):
    """The artifact of a model for the shapes of `arrays`."""
    command = [hone, "compile", str(model), "--out", str(scratch), "--cache", str(scratch / "cache"), "--threads", "1",
               "--no-verify", "--no-measure"]
    for name, value in arrays.items():
        if value.ndim:
            command += ["--shape", f"{name}={','.join(map(str, value.shape))}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT)
    if done.returncode:
        raise ValueError(f"hone compile: exit code {done.returncode}: {' '.join(done.stderr.split())[:300]}")
    return str(next(scratch.glob("*.hone")))


def by_onnxruntime(model, arrays):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, arrays)


def by_openvino(model, arrays):
    import openvino

    read = openvino.Core().read_model(str(model))
    read.reshape({port: list(arrays[port.get_any_name()].shape) for port in read.inputs})
    settings = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "1",
                "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(read, "CPU", settings).create_infer_request()
    return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)


def seconds(run):
    """Seconds of a run, over as many as fill a round."""
    count, start = 0, time.perf_counter()
    while True:
        run()
        count += 1
        passed = time.perf_counter() - start
        if passed >= ROUND_SECONDS:
            return passed / count


def measured(arguments, runtime, name, entry):
    """Median seconds by peer, and what was left out by peer."""
    model = arguments.folder / f"{name}.onnx"
    arrays = corpus.inputs(name, entry, len(entry["sizes"]) - 1)
    found, absent = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        loaded = runtime.load(artifact(arguments.hone, model, arrays, pathlib.Path(scratch)), threads=1)
        runs = {"hone": lambda: loaded.run(arrays)}
        for peer in arguments.peers:
            load = {"onnxruntime": by_onnxruntime, "openvino": by_openvino}[peer]
            try:
                run = load(model, arrays)
                run()
                runs[peer] = run
            except Exception as error:
                absent[peer] = " ".join(str(error).split())[:200]
        for run in runs.values():
            run()
        rounds = [{peer: seconds(run) for peer, run in runs.items()} for _ in range(ROUNDS)]
    for peer in runs:
        found[peer] = statistics.median(one[peer] for one in rounds)
    return found, absent


def apart(arguments, name):
    """As `measured`, in a process of its own: a peer may end it."""
    absent = {}
    for peers in (["onnxruntime", "openvino"], ["onnxruntime"], []):
        command = [sys.executable, __file__, str(arguments.folder), name, "--hone", arguments.hone,
                   "--package", arguments.package, "--one", "--peers", *peers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * COMPILE_LIMIT)
        if done.returncode == 0:
            found, others = json.loads(done.stdout.splitlines()[-1])
            return found, {**absent, **others}
        if done.returncode > 0:
            raise ValueError(" ".join(done.stderr.split())[-300:])
        for peer in peers[-1:]:
            absent[peer] = f"ended the process with signal {-done.returncode}"
    raise ValueError("the process ended with a signal without any peer")


def is_taken(entry):
    return all(corpus.parsed(text)[0] not in ("str", "map") for text in entry["inputs"].values())


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


def page(lines, processor):
    """The page of a run: the models from the slowest beside their best peer on."""
    ratios = [line["ratio"] for line in lines if line["ratio"]]
    slow = sum(ratio < 0.95 for ratio in ratios)
    text = [
        "# Speed of the models as people have them", "",
        "Written by `cargo xtask wild --speed --page`: one run on one thread of",
        f"{processor}, {len(ratios)} models. Beside the faster of onnxruntime and OpenVINO (f32) for each model:",
        f"geometric mean {mean(ratios):.2f}, {slow} models below 0.95. A figure is the median of {ROUNDS} rounds in one process for a model, the",
        "call from Python included, which is most of it where a run takes microseconds. Models are small, with seeded weights;",
        "a single run says where to look, and the tables of `cargo xtask bench-peers` what is so.", "",
        "| model | Hone, ms | onnxruntime, ms | OpenVINO, ms | ratio |", "|---|---|---|---|---|",
    ]
    shown = lambda line, peer: f"{line['seconds'][peer] * 1e3:.3f}" if peer in line["seconds"] else "–"
    for line in sorted(lines, key=lambda line: line["ratio"] or math.inf):
        cells = [shown(line, peer) for peer in ("hone", "onnxruntime", "openvino")]
        ratio = f"{line['ratio']:.2f}" if line["ratio"] else "–"
        text.append(f"| {line['model']} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(text) + "\n"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return "an " + line.split(":", 1)[1].strip()
    return "an unnamed processor"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--hone", required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    # What a process for one model is asked.
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--peers", nargs="*", default=[], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if arguments.one:
        [name] = arguments.names
        sys.path.insert(0, arguments.package)
        import hone_runtime

        found = measured(arguments, hone_runtime, name, corpus.entries()[name])
        print(json.dumps(found), flush=True)
        # Without the peers' clean-up, which is not what is measured.
        os._exit(0)
    lines = []
    for name, entry in corpus.entries().items():
        if arguments.names and name not in arguments.names or not is_taken(entry):
            continue
        try:
            found, absent = apart(arguments, name)
        except (ValueError, OSError, subprocess.TimeoutExpired) as error:
            print(f"{name:30} not measured: {error}", flush=True)
            continue
        peers = [took for peer, took in found.items() if peer != "hone"]
        ratio = min(peers) / found["hone"] if peers else None
        times = ", ".join(f"{peer} {took * 1e3:.3f} ms" for peer, took in found.items())
        lines.append({"model": name, "seconds": found, "absent": absent, "ratio": ratio})
        print(f"{name:30} {ratio or float('nan'):6.2f}  {times}", flush=True)
    ratios = [line["ratio"] for line in lines if line["ratio"]]
    if ratios:
        print(f"geometric mean {mean(ratios):.2f} over {len(ratios)} models, worst {min(ratios):.2f}, "
              f"{sum(ratio < 0.95 for ratio in ratios)} below 0.95")
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=1) + "\n")
    if arguments.page:
        arguments.page.write_text(page(lines, processor()))


if __name__ == "__main__":
    main()
