"""Writes the models of tests/models/control: branches and loops that the data decides, as torch exports them.

    .hone/python-models/bin/python tests/models/control.py FOLDER

For each case FOLDER/CASE-in.npz has the inputs and FOLDER/CASE-want.npz the outputs of onnxruntime; the model is
what stands before the dash.
"""

import pathlib
import sys

import numpy as np
import onnxruntime
import torch


class Choice(torch.nn.Module):
    """A branch with weights of its own on either side."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 8)
        self.b = torch.nn.Linear(8, 8)

    def forward(self, x):
        if bool(x.sum() > 0):
            y = torch.relu(self.a(x))
        else:
            y = torch.tanh(self.b(x)) * 2.0
        return y + x


class Steps(torch.nn.Module):
    """A loop whose length is an input, with a branch inside."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.Linear(8, 8)

    def forward(self, x, steps: int):
        h = x
        for i in range(steps):
            if i % 2 == 0:
                h = torch.tanh(self.cell(h))
            else:
                h = h + x
        return h


class While(torch.nn.Module):
    """A loop that the data ends."""

    def forward(self, x):
        while bool(x.abs().max() < 100.0):
            x = x * 2.0 + 1.0
        return x


class Cond(torch.nn.Module):
    """A branch of the exporter by torch.export."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: torch.relu(self.a(x)), lambda x: torch.sin(x), (x,))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    x = torch.randn(3, 8)
    for name, model, args, names in [
        ("choice", Choice(), (x,), ["x"]),
        ("steps", Steps(), (x, 3), ["x", "steps"]),
        ("while", While(), (x,), ["x"]),
    ]:
        torch.onnx.export(
            torch.jit.script(model.eval()), args, str(folder / f"{name}.onnx"),
            input_names=names, output_names=["y"], opset_version=17, dynamo=False,
        )
    torch.onnx.export(
        Cond().eval(), (x,), str(folder / "cond.onnx"), input_names=["x"], output_names=["y"],
        opset_version=18, dynamo=True, external_data=False,
    )

    def save(case, **inputs):
        session = onnxruntime.InferenceSession(str(folder / f"{case.split('-')[0]}.onnx"))
        outputs = session.run(None, inputs)
        np.savez(folder / f"{case}-in.npz", **inputs)
        named = {port.name: value for port, value in zip(session.get_outputs(), outputs)}
        np.savez(folder / f"{case}-want.npz", **named)

    x = np.abs(np.random.default_rng(0).standard_normal((3, 8))).astype(np.float32)
    for model in ["choice", "cond"]:
        save(f"{model}-a", x=x)
        save(f"{model}-b", x=-x)
    for steps in [0, 1, 4, 7]:
        save(f"steps-{steps}", x=x, steps=np.array(steps, np.int64))
    save("while-a", x=x)
    save("while-b", x=x * 1000)


main()
