"""Hone and its peers on the accelerator of this machine: what `cargo xtask gpu --device` measures, after its suites.

    gpu.py HONE ACCELERATOR PAGES SCRATCH PYTHON MODEL.onnx...

HONE is the program, ACCELERATOR what its --accelerator takes. Every model is compiled in f32 and, where the accelerator
has instructions for them, in f16 and bf16; the program verifies each artifact against the reference and measures it.
Peers run by the interpreter PYTHON on CUDA devices, each in a process of its own; what cannot run is left out, with its
reason. Writes PAGES/gpu-NAME.md, or into SCRATCH where the device is no GPU and the times mean nothing, and ends with an
error where an artifact is wrong.

A model's inputs are those of MODEL.inputs.npz beside it; without that file peers are left out.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PEERS = ["torch", "torch.compile", "onnxruntime"]
# What a narrower arithmetic may differ by, as a share of the largest output.
BOUND = "5e-2"
COMPILE_SECONDS = 3600
PEER_SECONDS = 1800


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def hone(program, *arguments):
    command = [program, *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired as error:
        return 1, "", str(error)
    return ended.returncode, ended.stdout, ended.stderr


def device(program, accelerator):
    """The device that is used, as `hone devices` shows it."""
    code, out, err = hone(program, "devices", "--json", "--no-probe")
    if code:
        sys.exit(f"hone devices: {err}")
    shown = json.loads(out)
    api = "OpenCL" if accelerator == "opencl" else "CUDA"
    own = [found for found in shown["devices"] if found["api"] == api]
    if not own:
        sys.exit(f"this machine has no {api} device: {shown['noDevices'][api]}")
    # As the runtime chooses: by the variable, else the first GPU, else the first that is no processor.
    named = os.environ.get(f"HONE_{api.upper()}_DEVICE")
    order = ["GPU", "accelerator", "processor"]
    chosen = own[int(named)] if named else min(own, key=lambda found: order.index(found["kind"]))
    return chosen, shown["facts"]["processor"]


def measured(program, accelerator, model, precision):
    """Milliseconds of a run, and what else the report says; or why there is nothing."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["compile", model, "--accelerator", accelerator, "--json", "--out", folder]
        if precision != "f32":
            arguments += ["--precision", precision, "--max-relative-error", BOUND]
        code, out, err = hone(program, *arguments)
        if code:
            return {"wrong": last_line(err)}
    target = json.loads(out)["targets"][0]
    report = target["report"]
    notes = [note for note in target["details"].get("notes", []) if precision in note]
    if not report.get("correctness"):
        return {"wrong": last_line(" ".join(target["details"].get("notes", [])))}
    if report.get("precision", "f32") != precision:
        return {"left": notes[0] if notes else f"{precision} was not kept"}
    latency = report["latency"]
    return {"p50": latency["p50"] / 1e6, "p90": latency.get("p90", latency["p50"]) / 1e6}


def peer(python, name, model, precision):
    inputs = pathlib.Path(model).with_suffix(".inputs.npz")
    if not inputs.exists():
        return {"left": f"there is no {inputs.name}"}
    script = pathlib.Path(__file__).parent / "gpu_peer.py"
    command = [python, str(script), name, model, str(inputs), precision]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PEER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"left": str(error)}
    if ended.returncode:
        return {"left": last_line(ended.stderr)}
    return json.loads(ended.stdout.strip().splitlines()[-1])


def cell(found):
    return f"{found['p50']:.3f} ({found['p90']:.3f})" if "p50" in found else "–"


def is_rehearsal(own):
    return own["kind"] != "GPU" or own["name"] == "interpreter of PTX"


def page(found, own, processor, accelerator, peers):
    lines = [
        f"# {own['name']}, by {own['api']}",
        "",
        f"Written by `cargo xtask gpu --device`: Hone for `{accelerator}`, driver {own['driver']}, {own['version']}, "
        f"{own['memoryBytes'] >> 20} MiB; host {processor}. Milliseconds of a run from arrays of the host to arrays of "
        "the host: the median, and in brackets the 90th percentile. Every artifact was verified against the reference.",
        "",
    ]
    if is_rehearsal(own):
        lines += ["**A rehearsal: this is no GPU, and the times mean nothing.**", ""]
    lines += ["| model | arithmetic | Hone | " + " | ".join(peers) + " |", "|---" * (3 + len(peers)) + "|"]
    for (model, precision), row in found.items():
        cells = [cell(row[name]) for name in ["Hone", *peers]]
        lines.append(f"| {model} | {precision} | " + " | ".join(cells) + " |")
    reasons = [
        f"- {model}, {precision}, {name}: {own.get('left') or own.get('wrong')}"
        for (model, precision), row in found.items()
        for name, own in row.items()
        if "p50" not in own
    ]
    if reasons:
        lines += ["", "What is left out:", "", *reasons]
    versions = sorted({f"{name} {own['version']} ({own['settings']})" for row in found.values()
                       for name, own in row.items() if "version" in own})
    if versions:
        lines += ["", "Peers: " + ", ".join(versions) + "."]
    return "\n".join(lines) + "\n"


def main():
    program, accelerator, pages, scratch, python, *models = sys.argv[1:]
    own, processor = device(program, accelerator)
    peers = PEERS if own["api"] == "CUDA" else []
    found, wrong = {}, []
    for model in models:
        name = pathlib.Path(model).stem
        for precision in ["f32", "f16", "bf16"] if own["api"] == "CUDA" else ["f32"]:
            row = {"Hone": measured(program, accelerator, model, precision)}
            row |= {peer_name: peer(python, peer_name, model, precision) for peer_name in peers}
            found[name, precision] = row
            print(f"{name} {precision}: " + ", ".join(f"{who} {cell(own)}" for who, own in row.items()), flush=True)
            if "wrong" in row["Hone"]:
                wrong.append(f"{name} {precision}: {row['Hone']['wrong']}")
    folder = pathlib.Path(scratch if is_rehearsal(own) else pages)
    out = folder / f"gpu-{re.sub('[^a-z0-9]+', '-', own['name'].lower()).strip('-')}.md"
    out.write_text(page(found, own, processor, accelerator, peers))
    print(f"wrote {out}")
    if wrong:
        sys.exit("\n".join(wrong))


main()
