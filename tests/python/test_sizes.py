"""Artifacts of the program `hone` that take sizes for which no code was made."""

import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hone_runtime

pytestmark = pytest.mark.skipif(
    "HONE_PROGRAM" not in os.environ, reason="HONE_PROGRAM does not say where the program `hone` is"
)


def compiled(folder, *arguments):
    """Softmax over the last axis of `x`, `[batch, length]`."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "length"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "softmax", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "softmax.onnx")
    command = [os.environ["HONE_PROGRAM"], "compile", "softmax.onnx", "--no-measure", "--out", "out", *arguments]
    environment = {**os.environ, "HONE_CACHE": str(folder / "cache")}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    (path,) = (folder / "out").glob("*.hone")
    return hone_runtime.load(path)


def test_arrays_choose_any_batch_and_every_length_up_to_the_bound(tmp_path):
    model = compiled(tmp_path, "--shape", "length=1..100")
    assert (model.open_dimension, model.padded_dimension) == ("batch", "length")
    assert [str(port) for port in model.inputs] == ["f32[1, 100]"]
    assert [own.dimensions for own in model.sizes] == [{"length": 100}, {"length": 64}, {"length": 32}]
    random = np.random.default_rng(0)
    for batch, length in [(1, 1), (3, 5), (2, 64), (4, 65), (1, 100), (7, 99)]:
        assert model.takes([(batch, length)])
        x = random.standard_normal((batch, length)).astype(np.float32)
        powers = np.exp(x - x.max(1, keepdims=True))
        (y,) = model.run({"x": x}).values()
        assert y.shape == x.shape
        np.testing.assert_allclose(y, powers / powers.sum(1, keepdims=True), rtol=1e-5)
    assert not model.takes([(1, 101)]) and not model.takes([(1, 0)]) and not model.takes([(3,)])


def test_what_is_too_long_is_refused(tmp_path):
    model = compiled(tmp_path, "--shape", "length=1..100")
    with pytest.raises(hone_runtime.InputError, match="length is 101 in input 'x', the model takes 1 to 100 of it"):
        model.run([np.zeros((2, 101), np.float32)])
    with pytest.raises(hone_runtime.InputError, match=r"input 'x' is f32\[5\], the model takes f32\[batch, length\]"):
        model.run([np.zeros(5, np.float32)])


def test_any_batch_alone(tmp_path):
    model = compiled(tmp_path, "--shape", "length=8")
    assert (model.open_dimension, model.padded_dimension) == ("batch", None)
    for batch in (0, 1, 5, 100):
        (y,) = model.run([np.ones((batch, 8), np.float32)]).values()
        np.testing.assert_allclose(y, np.full((batch, 8), 0.125), rtol=1e-6)
