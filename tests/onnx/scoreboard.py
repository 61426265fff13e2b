"""Runs ONNX's own backend suite through `hone.backend`, as its users would, and counts.

    scoreboard.py [--json FILE] [--page FILE] [--only PATTERN] [--processes N]

All cases of all kinds (node, real, simple, both PyTorch ones) on the CPU. No input is made a constant
beforehand. Cases for which Hone compiled a form per value are counted apart. Cases run in processes of
their own, so that one that ends its process is counted and the rest still run. `--page` writes the page of
operators.
"""

import argparse
import collections
import json
import multiprocessing
import re
import sys
import time
import unittest
import warnings

KINDS = [
    (r"unsupported operators \(([^)]*)\)", r"operator missing: \1"),
    (r"operator (\w+) is not supported", r"operator missing: \1"),
    (r"the model uses opset (\d+)", r"opset \1 of the model is not taken"),
    (r"only tensors are supported, no sequences", "sequences, maps and options"),
    (r"element type.*?(STRING|FLOAT8\w*|FLOAT4\w*|U?INT4|U?INT2|COMPLEX\d+)", r"element type \1"),
    (r"a branch that '.*' decides when the model runs", "a branch decided at run time"),
    (r"must be a constant", "a shape that depends on data"),
    (r"has no tensor expression|could not be lowered", "no compiled form"),
    (r"Not equal to tolerance|not equal|Mismatch", "another answer"),
]


def reason_of(error):
    text = str(error)
    for pattern, told in KINDS:
        if found := re.search(pattern, text, re.S):
            return found.expand(told)
    return f"{type(error).__name__}: {text.splitlines()[0][:120] if text else ''}"


def cases():
    from onnx.backend.test import BackendTest

    import hone.backend as backend

    prepared = []

    class Watched(backend.HoneBackend):
        """Notes what was prepared, to ask afterwards whether a form per value was made."""

        @classmethod
        def prepare(cls, *arguments, **options):
            prepared.append(super().prepare(*arguments, **options))
            return prepared[-1]

    items = BackendTest(Watched, __name__)._test_items
    names = {
        name: (kind, item)
        for kind, group in items.items()
        for name, item in group.items()
        if name.endswith("_cpu")
    }
    return names, prepared


def operators_of(model):
    found = set()

    def walk(graph):
        for node in graph.node:
            found.add((node.domain, node.op_type))
            for attribute in node.attribute:
                for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                    walk(inner)

    if hasattr(model, "graph"):
        walk(model.graph)
    return sorted(found)


def run_one(name, kind, item, prepared):
    prepared.clear()
    line = {"case": name.removesuffix("_cpu"), "kind": kind}
    start = time.perf_counter()
    try:
        item.func(unittest.TestCase())
        fixed = sorted({own for rep in prepared for own in rep.fixed})
        by_runtime = sorted({own for rep in prepared for own in rep.host_nodes})
        outcome = "by value" if fixed else "host" if by_runtime else "passed"
        line |= {"outcome": outcome, "fixed": fixed, "host": by_runtime}
    except unittest.SkipTest as skip:
        line |= {"outcome": "skipped", "reason": str(skip)}
    except Exception as error:  # noqa: BLE001
        line |= {"outcome": "failed", "reason": reason_of(error), "error": str(error)[:2000]}
    line["seconds"] = round(time.perf_counter() - start, 3)
    line["operators"] = operators_of(item.proto[0]) if item.proto and item.proto[0] is not None else []
    return line


def work(names, pipe):
    warnings.simplefilter("ignore")
    known, prepared = cases()
    for name in names:
        pipe.send(("begin", name))
        kind, item = known[name]
        pipe.send(("end", run_one(name, kind, item, prepared)))
    pipe.send(("done", None))


def run_share(names, lines):
    """Runs `names` in a process of their own; starts another behind a case that ended it."""
    while names:
        mine, theirs = multiprocessing.Pipe(False)
        process = multiprocessing.get_context("fork").Process(target=work, args=(names, theirs))
        process.start()
        theirs.close()
        current, done = names[0], 0
        while True:
            try:
                if not mine.poll(300):
                    process.kill()
                    lines.append({"case": current, "outcome": "failed", "reason": "no answer in 300 s"})
                    done += 1
                    break
                what, value = mine.recv()
            except EOFError:
                process.join()
                reason = f"the process ended with {process.exitcode}"
                lines.append({"case": current, "kind": "", "outcome": "failed", "reason": reason})
                done += 1
                break
            if what == "done":
                break
            if what == "begin":
                current = value
            else:
                lines.append(value)
                done += 1
        process.join()
        names = names[done:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--page")
    parser.add_argument("--only", default="")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    import threading

    known, _ = cases()
    names = sorted(name for name in known if re.search(arguments.only, name))
    lines, start = [], time.perf_counter()
    shares = [names[first :: arguments.processes] for first in range(arguments.processes)]
    threads = [threading.Thread(target=run_share, args=(share, lines)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.sort(key=lambda line: line["case"])
    report(lines, time.perf_counter() - start)
    if arguments.json:
        with open(arguments.json, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    if arguments.page:
        import operators_page

        with open(arguments.page, "w") as file:
            file.write(operators_page.page(lines))


def report(lines, seconds):
    outcomes = collections.Counter(line["outcome"] for line in lines)
    for outcome in ("failed", "skipped"):
        reasons = collections.Counter(line["reason"] for line in lines if line["outcome"] == outcome)
        for reason, count in reasons.most_common():
            print(f"{count:5}  {outcome}: {reason}")
    print(
        f"{outcomes['passed']} passed as compiled code, {outcomes['host']} passed with steps of the runtime's own, "
        f"{outcomes['by value']} passed as code compiled per value, "
        f"{outcomes['failed']} failed, {outcomes['skipped']} skipped; {len(lines)} cases in {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
