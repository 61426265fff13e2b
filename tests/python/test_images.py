"""Models that decode images: the official cases, what is refused, and a decoder of the user's."""

import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hone
import hone.backend
import hone_runtime

DATA = pathlib.Path(__file__).parents[2] / "images/tests/data"
#: Of every image in `DATA`.
SHAPE = (21, 35, 3)


def decoding(length, shape=SHAPE, pixel_format="RGB"):
    node = helper.make_node("ImageDecoder", ["data"], ["pixels"], name="decode", pixel_format=pixel_format)
    data = helper.make_tensor_value_info("data", TensorProto.UINT8, [length])
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, shape)
    return helper.make_model(helper.make_graph([node], "g", [data], [pixels]), opset_imports=[helper.make_opsetid("", 20)])


def image(name):
    return np.frombuffer((DATA / name).read_bytes(), np.uint8)


def images():
    for line in (DATA / "index.txt").read_text().splitlines():
        name, expected = line.split()
        yield image(name), image(expected).reshape(SHAPE)


@pytest.fixture
def decoder():
    yield hone_runtime.set_image_decoder
    hone_runtime.set_image_decoder(None)


def test_official_cases_pass():
    from onnx.backend.test.case.node import collect_testcases

    cases = [case for case in collect_testcases() if case.name.startswith("test_image_decoder")]
    assert len(cases) == 9
    for case in cases:
        model = hone.backend.prepare(case.model)
        for inputs, outputs in case.data_sets:
            (found,) = model.run(inputs)
            np.testing.assert_array_equal(found, outputs[0], case.name)
        assert model.host_nodes and not model.fixed


def test_one_artifact_decodes_files_of_any_length_up_to_a_bound():
    model = hone.compile(decoding("n"), shapes={"n": range(1, 4001)}).load()
    for data, expected in images():
        np.testing.assert_array_equal(model.run({"data": data})["pixels"], expected)
    with pytest.raises(hone.RunError, match="'data' is not decoded: .*the JPEG image cannot be decoded"):
        model.run({"data": image("h2v2.jpg")[:500]})


def test_another_size_is_refused():
    data = image("plain.png")
    model = hone.compile(decoding(len(data), (35, 21, 3))).load()
    with pytest.raises(hone.RunError, match="PNG image is 21 high and 35 wide, 35 high and 21 wide is declared"):
        model.run({"data": data})


def test_a_size_must_be_declared():
    with pytest.raises(hone.CompileError, match="size the model does not declare.*'pixels'"):
        hone.compile(decoding(100, ("h", "w", 3)))


@pytest.mark.parametrize("given", [bytes, bytearray, lambda pixels: np.frombuffer(pixels, np.uint8).reshape(SHAPE)])
def test_a_function_of_the_user_decodes(decoder, given):
    data = image("plain.png")
    model = hone.compile(decoding(len(data), pixel_format="BGR")).load()
    calls = []

    def decode(*arguments):
        calls.append(arguments)
        return given(bytes(range(245)) * 9)

    decoder(decode)
    found = model.run({"data": data})["pixels"]
    assert found.tobytes() == bytes(range(245)) * 9
    assert calls == [(data.tobytes(), 21, 35, "BGR")]


def test_what_the_function_raises_or_gives_in_vain_ends_the_run(decoder):
    data = image("plain.png")
    model = hone.compile(decoding(len(data))).load()

    def fail(*_):
        raise ValueError("no such luck")

    for function, reason in [(fail, "ValueError: no such luck"), (lambda *_: b"short", "length"), (lambda *_: 3, "TypeError")]:
        decoder(function)
        with pytest.raises(hone.RunError, match=reason):
            model.run({"data": data})
    decoder(None)
    assert model.run({"data": data})["pixels"].shape == SHAPE
