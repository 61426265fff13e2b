"""The wheels as they are installed: compiling, running, sessions, errors, and what is shared with numpy."""

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hone
import hone_runtime


def scaled_sum(rows="n"):
    """`z = (x + y) * 2`, with one open dimension."""
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Mul", ["s", "two"], ["z"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 3]) for name in "xyz"]
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    graph = helper.make_graph(nodes, "scaled_sum", ports[:2], ports[2:], [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def reshaped():
    """`y` is `x` under the shape that an input says."""
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"]),
    ]
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    graph = helper.make_graph(nodes, "reshaped", ports[:2], ports[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def arrays():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    return {"x": x, "y": x[::-1].copy()}


@pytest.fixture
def model():
    return hone.compile(scaled_sum(), shapes={"x": (4, 3), "y": (4, 3)}).load(threads=1)


def test_an_artifact_on_disk_runs_without_the_compiler(tmp_path, arrays):
    path = tmp_path / "sum.hone"
    hone.compile(scaled_sum(), shapes={"x": (4, 3)}, output=path)
    model = hone_runtime.load(path, threads=1)
    assert [str(port) for port in model.inputs] == ["f32[4, 3]"] * 2
    np.testing.assert_array_equal(model.run(arrays)["z"], (arrays["x"] + arrays["y"]) * 2)


def test_outputs_are_written_where_the_caller_says(model, arrays):
    mine = np.zeros((4, 3), np.float32)
    assert model.run(arrays, {"z": mine})["z"] is mine
    np.testing.assert_array_equal(mine, (arrays["x"] + arrays["y"]) * 2)
    with pytest.raises(ValueError, match="shares memory"):
        model.run(arrays, {"z": arrays["x"]})


def test_strided_inputs_are_copied_and_dlpack_is_read(model, arrays):
    class Capsule:
        """Speaks DLPack and nothing else."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    expected = (arrays["x"] + arrays["y"]) * 2
    strided = {"x": np.asfortranarray(arrays["x"]), "y": Capsule(arrays["y"])}
    result = model.run(strided)["z"]
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.from_dlpack(result), expected)


@pytest.mark.parametrize(
    "inputs, told",
    [
        ({"x": np.zeros((4, 3), np.float32)}, "input 'y' is missing: the model takes 'x', 'y'"),
        ({"x": 0, "y": 0, "w": 0}, "the model has no input 'w', only 'x', 'y'"),
        ({"x": np.zeros((4, 3)), "y": 0}, r"input 'x' is f64\[4, 3\], the model takes f32\[4, 3\]"),
        ({"x": np.zeros((2, 3), np.float32), "y": 0}, r"input 'x' is f32\[2, 3\], the model takes f32\[4, 3\]"),
    ],
)
def test_inputs_that_do_not_fit_are_named(model, inputs, told):
    with pytest.raises(hone.InputError, match=told):
        model.run(inputs)


def test_runs_in_threads_have_their_own_values(model):
    failures = []

    def work(seed):
        x = np.full((4, 3), seed, np.float32)
        for _ in range(200):
            if not (model.run({"x": x, "y": x})["z"] == 4 * seed).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_session_compiles_per_shape_and_keeps_a_bounded_number():
    session = hone.InferenceSession(
        scaled_sum().SerializeToString(), providers=["CPUExecutionProvider"], cache_size=2
    )
    assert [(own.name, own.type, own.shape) for own in session.get_inputs()] == [
        ("x", "tensor(float)", ["n", 3]),
        ("y", "tensor(float)", ["n", 3]),
    ]
    for rows in (1, 2, 5, 5, 1):
        x = np.full((rows, 3), 1.5, np.float32)
        (result,) = session.run(["z"], {"x": x, "y": x})
        np.testing.assert_array_equal(result, np.full((rows, 3), 6.0, np.float32))
    own = session._specialiser
    # 1, 2, 5, and 1 again, which had left.
    assert (own.compilations, own.forms, own.fixed) == (4, 2, [])
    with pytest.raises(hone.InputError, match=r"axis 0 \('n'\) is 2, and 1 in input 'x'"):
        session.run(None, {"x": np.zeros((1, 3), np.float32), "y": np.zeros((2, 3), np.float32)})


def test_an_input_that_decides_a_shape_makes_a_form_per_value():
    session = hone.InferenceSession(reshaped())
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [2, 3]):
        (result,) = session.run(None, {"x": x, "shape": np.array(shape, np.int64)})
        np.testing.assert_array_equal(result, x.reshape(shape))
    own = session._specialiser
    assert (own.compilations, own.fixed) == (2, ["shape"])


def declared(rows, columns):
    """The same, with the shape declared."""
    model = reshaped()
    for dim, extent in zip(model.graph.output[0].type.tensor_type.shape.dim, (rows, columns)):
        dim.dim_value = extent
    return model


def test_a_declared_shape_is_compiled_once_and_held_to():
    session = hone.InferenceSession(declared(2, 3).SerializeToString())
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [-1, 3], [2, -1]):
        (y,) = session.run(None, {"x": x, "shape": np.array(shape, np.int64)})
        np.testing.assert_array_equal(y, x.reshape(2, 3))
    assert session._specialiser.compilations == 1 and session._specialiser.fixed == []
    with pytest.raises(hone.RunError, match="input 'shape' must be"):
        session.run(None, {"x": x, "shape": np.array([3, 2], np.int64)})


def test_results_have_the_shape_that_the_run_decides():
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("y", TensorProto.INT64, [2, "n"]),
    ]
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "places", ports[:1], ports[1:])
    model = hone.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)).load()
    assert model.host_nodes == ["NonZero of y"] and str(model.outputs[0]) == "i64[2, 6]"
    for x in (np.zeros((2, 3)), np.eye(2, 3), np.ones((2, 3))):
        (y,) = model.run([x.astype(np.float32)]).values()
        np.testing.assert_array_equal(y, np.nonzero(x))
    room = np.empty((2, 6), np.int64)
    (y,) = model.run([np.eye(2, 3, dtype=np.float32)], {"y": room}).values()
    assert np.shares_memory(y, room) and y.shape == (2, 2)


def test_specialising_by_value_can_be_refused():
    own = hone.Specialiser(reshaped(), by_value=False)
    feed = {"x": np.zeros(6, np.float32), "shape": np.array([2, 3], np.int64)}
    with pytest.raises(hone.CompileError, match="must be a constant") as told:
        own.run(feed)
    assert told.value.decided_by == ["shape"]


def test_constants_leave_the_artifact():
    compiled = hone.compile(reshaped(), shapes={"x": (6,)}, constants={"shape": np.array([3, 2])})
    model = compiled.load()
    assert [port.name for port in model.inputs] == ["x"]
    assert model.run([np.zeros(6, np.float32)])["y"].shape == (3, 2)


def test_unknown_operators_are_told():
    node = helper.make_node("Nothing", ["x"], ["y"], domain="nowhere")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)]
    model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=opsets)
    with pytest.raises(hone.UnsupportedError, match="nowhere.Nothing"):
        hone.InferenceSession(model)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "x.hone"
    path.write_bytes(b"nothing")
    with pytest.raises(hone.LoadError, match="x.hone"):
        hone.load(path)
    with pytest.raises(hone.LoadError, match="missing.hone"):
        hone.load(tmp_path / "missing.hone")
    with pytest.raises(hone.CompileError):
        hone.compile(b"nothing")


def test_other_providers_are_refused():
    with pytest.raises(ValueError, match="CUDAExecutionProvider"):
        hone.InferenceSession(scaled_sum(), providers=["CUDAExecutionProvider"])


def test_types_of_eight_bits_and_fewer_are_those_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [5]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT8E4M3FN, [5]),
        helper.make_tensor_value_info("z", TensorProto.INT4, [5]),
    ]
    nodes = [
        helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node("Cast", ["x"], ["z"], to=TensorProto.INT4),
    ]
    graph = helper.make_graph(nodes, "narrow", ports[:1], ports[1:])
    session = hone.InferenceSession(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)]))
    x = np.array([0.0, 1.0, -3.3, 5.01, 7.0], np.float32)
    eight, four = session.run(None, {"x": x})
    np.testing.assert_array_equal(eight.astype(np.float32), x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32))
    np.testing.assert_array_equal(four.astype(np.int32), x.astype(np.int32))


def test_the_onnx_backend_runs_models_and_nodes():
    backend = pytest.importorskip("hone.backend")
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")
    x = np.ones((2, 3), np.float32)
    outputs = backend.run_model(scaled_sum(), [x, x])
    np.testing.assert_array_equal(outputs.z, np.full((2, 3), 4, np.float32))
    node = helper.make_node("Relu", ["x"], ["y"])
    (y,) = backend.run_node(node, [np.array([-1, 2], np.float32)])
    np.testing.assert_array_equal(y, [0, 2])
    onnx.checker.check_model(scaled_sum())
