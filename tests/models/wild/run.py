"""Runs every model of the corpus as a user would, with no flags, and compares with onnxruntime.

    run.py FOLDER [NAME ...] [--hone PROGRAM] [--sessions] [--page FILE] [--json FILE] [--jobs N]

For each of an entry's sizes `hone run MODEL --inputs X.npz --outputs Y.npz`; with `--sessions` (where the wheel `hone` is
installed, or its folder is on the path) also the InferenceSession look-alike, one session for all sizes. What onnxruntime
answers is kept beside the model (NAME.N.expected.npz). Printed is a line for each model; the exit code is 1 where one
fails. A model that was not made fails, too.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

import corpus

LARGEST_DIFFERENCE = 2e-4
LIMIT = 300


def expected(folder, name, entry, index):
    """onnxruntime's answers at the `index`-th sizes, by name; kept in a file."""
    model = folder / f"{name}.onnx"
    path = folder / f"{name}.{index}.expected.npz"
    if path.exists() and path.stat().st_mtime > model.stat().st_mtime:
        return dict(np.load(path))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = session.run(names, fed(corpus.inputs(name, entry, index)))
    arrays = {}
    for key, value in zip(names, found):
        arrays.update(flat(key, value))
    np.savez(path, **arrays)
    return arrays


def fed(arrays):
    """Arrays as onnxruntime takes them: strings as objects, maps as they are."""
    return {
        key: value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind == "U" else value
        for key, value in arrays.items()}


def stored(arrays):
    """Arrays as `hone run` takes them from a file: a map `x` to floats as `x.keys` and `x.values`."""
    found = {}
    for key, value in arrays.items():
        found.update(flat(key, value))
        if isinstance(value, dict):
            found[f"{key}.values"] = found[f"{key}.values"].astype(np.float32)
    return found


def flat(key, value):
    """An output as `hone run` writes it: a sequence's tensors are `key[0]`, `key[1]`; a map's keys and values `key.keys`
    and `key.values`, which have a row for each map of a sequence."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        names = sorted(value[0])
        return {f"{key}.keys": np.array(names), f"{key}.values": np.array([[row[name] for name in names] for row in value])}
    if isinstance(value, dict):
        names = sorted(value)
        return {f"{key}.keys": np.array(names), f"{key}.values": np.array([value[name] for name in names])}
    if isinstance(value, list):
        found = {}
        for place, item in enumerate(value):
            found.update(flat(f"{key}[{place}]", item))
        return found
    value = np.asarray(value)
    return {key: value.astype(str) if value.dtype.kind == "O" else value}


def difference(got, want, is_exact):
    """The largest difference over the largest of `want`, over all arrays; a sentence where they are not alike. Unless
    `is_exact`, one in ten integers, and one of fewer, may be another one: a choice between nearly equal numbers that were
    rounded."""
    worst = 0.0
    for key, right in want.items():
        if key not in got:
            raise ValueError(f"no output {key}; there are {', '.join(got)}"[:200])
        left = got[key]
        if left.shape != right.shape:
            raise ValueError(f"{key} has shape {list(left.shape)} where onnxruntime has {list(right.shape)}")
        if left.dtype.kind != right.dtype.kind:
            raise ValueError(f"{key} is {left.dtype} where onnxruntime has {right.dtype}")
        if right.dtype.kind in "US":
            if (left != right).any():
                raise ValueError(f"{key}: {int((left != right).sum())} of {right.size} strings differ")
            continue
        if not is_exact and right.dtype.kind in "iu" and (left != right).sum() <= max(1, 0.1 * right.size):
            continue
        left, right = left.astype(np.float64), right.astype(np.float64)
        if not np.array_equal(np.isfinite(left), np.isfinite(right)):
            raise ValueError(f"{key}: finite at other places than with onnxruntime")
        finite = np.isfinite(right)
        if finite.any():
            scale = max(np.abs(right[finite]).max(), 1e-6)
            worst = max(worst, np.abs(left[finite] - right[finite]).max() / scale)
    return worst


def by_program(hone, model, arrays, scratch):
    """Answers of `hone run`, and the seconds of the call."""
    given, answered = scratch / "given.npz", scratch / "answered.npz"
    answered.unlink(missing_ok=True)
    np.savez(given, **stored(arrays))
    started = time.monotonic()
    try:
        done = subprocess.run(
            [hone, "run", model, "--inputs", given, "--outputs", answered], capture_output=True, text=True, timeout=LIMIT,
            env={**os.environ, "HONE_CACHE": str(scratch / "cache")})
    except subprocess.TimeoutExpired:
        raise ValueError(f"takes longer than {LIMIT} s") from None
    if done.returncode:
        raise ValueError(f"exit code {done.returncode}: {' '.join(done.stderr.split())[:1500]}")
    return dict(np.load(answered)), time.monotonic() - started


def one(arguments, name, entry):
    """What is found out about one entry."""
    model = arguments.folder / f"{name}.onnx"
    row = {"name": name, "from": entry["from"], "sizes": len(entry["sizes"]), "error": 0.0, "seconds": 0.0}
    if not model.exists():
        return {**row, "failure": "not made"}
    bound = entry.get("tolerance", LARGEST_DIFFERENCE)
    is_exact = "tolerance" not in entry
    session = None
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for index in range(len(entry["sizes"])):
            way = "onnxruntime"
            try:
                arrays = corpus.inputs(name, entry, index)
                want = expected(arguments.folder, name, entry, index)
                if arguments.hone:
                    way = "hone run"
                    got, seconds = by_program(arguments.hone, model, arrays, scratch)
                    row["error"] = max(row["error"], difference(got, want, is_exact))
                    row["seconds"] = row["seconds"] or seconds
                if arguments.sessions:
                    way = "session"
                    import hone

                    session = session or hone.InferenceSession(str(model))
                    found = session.run(None, fed(arrays))
                    got = {}
                    for output, value in zip(session.get_outputs(), found):
                        got.update(flat(output.name, value))
                    row["error"] = max(row["error"], difference(got, want, is_exact))
            except Exception as error:  # one model that fails must not hide the others
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                row["failure"] = f"{way} at sizes {index + 1}: {kind}{' '.join(str(error).split())[:1500]}"
                return row
    if row["error"] > bound:
        row["failure"] = f"differs by {row['error']:.1e}, {bound:.0e} is allowed"
    return row


def page(rows):
    """The rows as a page of documentation."""
    good = sum("failure" not in row for row in rows)
    lines = [
        "# Models as people have them",
        "",
        f"Written by `cargo xtask wild`: {good} of {len(rows)} models run with no flags and answer as onnxruntime does, at each",
        "of two sizes where axes are open. What they are made of stands in `tests/models/wild/list.toml`. The error is the largest",
        "difference from onnxruntime over the largest output; the time is that of the first `hone run`, which compiles and",
        "verifies, and tells little more than whether it is seconds or minutes.",
        "",
        "| model | from | sizes | runs | error | first run |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        failure = re.sub(r"[|`]", " ", row.get("failure", ""))
        runs = f"no: {failure[:160]}" if failure else "yes"
        error = "" if failure else f"{row['error']:.0e}"
        lines.append(f"| {row['name']} | {row['from']} | {row['sizes']} | {runs} | {error} | {row['seconds']:.1f} s |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--hone")
    parser.add_argument("--sessions", action="store_true")
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = []
    for name, entry in corpus.entries().items():
        if arguments.names and name not in arguments.names:
            continue
        row = one(arguments, name, entry)
        rows.append(row)
        print(f"{name:26} {row.get('failure') or 'right, {:.0e}, {:.1f} s'.format(row['error'], row['seconds'])}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1))
    if arguments.page:
        arguments.page.write_text(page(rows))
    failed = sum("failure" in row for row in rows)
    print(f"{len(rows) - failed} of {len(rows)} models run and are right")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
