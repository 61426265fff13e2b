"""What every runner of `cargo xtask bench-peers` speaks, and how a Python one speaks it.

    RUNNER MODEL.onnx INPUTS.npz THREADS

When the model is ready the runner writes one line of JSON to standard output:

    {"version": "1.2", "settings": "…", "compile_ms": 0.0, "load_ms": 12.3}

compile_ms is what needs to be done once per model, load_ms what every new process does. Then it
answers lines of standard input, each with one line of JSON, until that ends:

    run N           runs N times, host arrays to host arrays: a list of N latencies in nanoseconds
    outputs PATH    writes the last run's outputs as .npz, named as the model's outputs: {}

A runner that cannot do what it is asked for ends with a message on standard error.
"""

import json
import os
import sys
import time

import numpy as np


def milliseconds(start, end):
    return round((end - start) * 1e3, 3)


class Loaded:
    """What a peer makes of a model.

    run: a dict of arrays by name to the outputs by name; called once per measurement.
    """

    def __init__(self, run, version, settings, compile_ms, load_ms):
        self.run = run
        self.ready = {
            "version": version,
            "settings": settings,
            "compile_ms": compile_ms,
            "load_ms": load_ms,
        }


def serve(load):
    """Answers requests with the `Loaded` that load(model path, arrays by name, threads) gives."""
    model, inputs, threads = sys.argv[1:4]
    # Whatever a library prints must not look like an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    arrays = dict(np.load(inputs))
    loaded = load(model, arrays, int(threads))
    answer(loaded.ready)
    outputs = {}
    for line in sys.stdin:
        command, argument = line.split(maxsplit=1)
        if command == "run":
            latencies = []
            for _ in range(int(argument)):
                start = time.perf_counter_ns()
                outputs = loaded.run(arrays)
                latencies.append(time.perf_counter_ns() - start)
            answer(latencies)
        elif command == "outputs":
            np.savez(argument.strip(), **outputs)
            answer({})
        else:
            sys.exit(f"unknown command {command!r}")
