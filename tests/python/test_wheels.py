"""The wheels as they are installed: compiling, running, sessions, errors, and what is shared with numpy."""

import threading

import numpy as np
import onnx
import onnx.reference
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


def test_what_ran_before_decides_nothing_about_the_next_call(model, arrays):
    """The second call of a kind takes a shorter way; a call of another kind must not."""
    expected = (arrays["x"] + arrays["y"]) * 2
    first, second = model.run(arrays)["z"], model.run(arrays)["z"]
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(second, expected)
    strided = np.asfortranarray(arrays["x"])
    swapped = arrays["x"].astype(">f4")
    storage = np.zeros(4 * 3 * 4 + 1, np.uint8)
    unaligned = storage[1:].view(np.float32).reshape(4, 3)
    unaligned[:] = arrays["x"]
    for x in (strided, swapped, unaligned, arrays["x"].view(np.ndarray), memoryview(arrays["x"])):
        np.testing.assert_array_equal(model.run(arrays | {"x": x})["z"], expected)
    np.testing.assert_array_equal(model.run([arrays["x"], arrays["y"]])["z"], expected)
    for wrong in (arrays["x"].astype(np.float64), arrays["x"].T, arrays["x"][:2]):
        with pytest.raises(hone_runtime.InputError, match="input 'x'"):
            model.run(arrays | {"x": wrong})
    with pytest.raises(hone_runtime.InputError, match="no input 'w'"):
        model.run(arrays | {"w": arrays["x"]})
    with pytest.raises(hone_runtime.InputError, match="'y' is missing"):
        model.run({"x": arrays["x"]})


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


def test_a_session_compiles_the_first_shape_and_then_every_size():
    session = hone.InferenceSession(
        scaled_sum().SerializeToString(), providers=["CPUExecutionProvider"], cache_size=2
    )
    assert [(own.name, own.type, own.shape) for own in session.get_inputs()] == [
        ("x", "tensor(float)", ["n", 3]),
        ("y", "tensor(float)", ["n", 3]),
    ]
    own = session._specialiser
    for rows, compilations in [(1, 1), (1, 1), (2, 2), (5, 2), (1000, 2), (1, 2)]:
        x = np.full((rows, 3), 1.5, np.float32)
        (result,) = session.run(["z"], {"x": x, "y": x})
        np.testing.assert_array_equal(result, np.full((rows, 3), 6.0, np.float32))
        assert (own.compilations, own.forms, own.fixed) == (compilations, 1, [])
    with pytest.raises(hone.InputError, match=r"axis 0 \('n'\) is 2, and 1 in input 'x'"):
        session.run(None, {"x": np.zeros((1, 3), np.float32), "y": np.zeros((2, 3), np.float32)})


def test_a_session_holds_later_calls_to_what_the_model_declares():
    """A call like the one before takes a shorter way, whatever differs is looked at again."""
    session = hone.InferenceSession(scaled_sum().SerializeToString())
    feed = {name: np.full((2, 3), number, np.float32) for number, name in enumerate("xy")}
    for _ in range(3):
        np.testing.assert_array_equal(session.run(["z"], feed)[0], np.full((2, 3), 2))
    with pytest.raises(hone.InputError, match="'n'"):
        session.run(None, feed | {"y": np.zeros((4, 3), np.float32)})
    with pytest.raises(hone.InputError, match="input 'y'"):
        session.run(None, feed | {"y": np.zeros((2, 3), np.int32)})
    longer = {name: np.full((5, 3), 3, np.float32) for name in "xy"}
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, longer)[0], np.full((5, 3), 12))
        np.testing.assert_array_equal(session.run(None, feed)[0], np.full((2, 3), 2))


def test_what_a_value_decided_is_decided_anew():
    session = hone.InferenceSession(reshaped().SerializeToString())
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [2, 3], [6, 1]):
        np.testing.assert_array_equal(session.run(None, {"x": x, "shape": np.array(shape)})[0], x.reshape(shape))


def in_order():
    """`y` f32[n] is `x` in order: no code of it takes every `n`."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("TopK", ["x", "n"], ["y", "places"], largest=0),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph(nodes, "in_order", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_bounded_number_of_forms_is_kept_where_none_takes_every_size():
    session = hone.InferenceSession(in_order(), cache_size=2)
    random = np.random.default_rng(3)
    for length in (3, 4, 5, 5, 3):
        x = random.standard_normal(length).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.sort(x))
    # 3, 4, 5, and 3 again, which had left.
    assert (session._specialiser.compilations, session._specialiser.forms) == (4, 2)
    own = hone.Specialiser(scaled_sum(), every_size=False)
    for rows in (1, 2, 5):
        own.run(sum_of(rows)[0])
    assert (own.compilations, own.forms) == (3, 3)


def sum_of(rows, seed=0):
    random = np.random.default_rng(seed)
    given = {name: random.standard_normal((rows, 3)).astype(np.float32) for name in "xy"}
    return given, (given["x"] + given["y"]) * 2


@pytest.mark.parametrize(
    "shapes",
    [{"n": [1, 2, 4]}, {"x": ([4, 2, 1], 3)}, {"n": [4, 1, 2, 2], "y": ([1, 2, 4], 3)}],
)
def test_one_artifact_serves_several_sizes(tmp_path, shapes):
    path = tmp_path / "sum.hone"
    hone.compile(scaled_sum(), shapes=shapes, output=path)
    model = hone_runtime.load(path, threads=1)
    assert [own.dimensions for own in model.sizes] == [{"n": 4}, {"n": 2}, {"n": 1}]
    assert [str(port) for port in model.inputs] == ["f32[4, 3]"] * 2
    assert model.sizes[1].outputs[0].shape == (2, 3)
    assert model.takes([(1, 3), (1, 3)]) and not model.takes([(1, 3), (2, 3)])
    for rows in [1, 4, 2, 2, 4]:
        given, expected = sum_of(rows, rows)
        np.testing.assert_array_equal(model.run(given)["z"], expected)
    mine = np.zeros((2, 3), np.float32)
    given, expected = sum_of(2)
    assert model.run(given, {"z": mine})["z"] is mine
    np.testing.assert_array_equal(mine, expected)


def test_other_sizes_are_refused_and_nothing_is_padded():
    model = hone.compile(scaled_sum(), shapes={"n": range(1, 3)}).load(threads=1)
    taken = r"the model takes f32\[2, 3\] or f32\[1, 3\], with the other inputs of the same sizes"
    with pytest.raises(hone.InputError, match=rf"input 'x' is f32\[3, 3\], {taken}"):
        model.run(sum_of(3)[0])
    with pytest.raises(hone.InputError, match=rf"input '[xy]' is f32\[[12], 3\], {taken}"):
        model.run({"x": np.zeros((1, 3), np.float32), "y": np.zeros((2, 3), np.float32)})
    with pytest.raises(hone.InputError, match=rf"input 'x' is f64\[1, 3\], {taken}"):
        model.run({"x": np.zeros((1, 3)), "y": np.zeros((1, 3), np.float32)})
    for shapes, told in [
        ({"n": list(range(1, 40))}, "39 sizes are more than the 32 that one artifact serves"),
        ({"n": "2-3"}, "the sizes of 'n': '2-3' is no size"),
        ({"n": "2.."}, "2.. is no range of sizes"),
        ({"n": []}, "dimension 'n' is one axis, sizes of 0 axes are given"),
        ({"m": [1, 2]}, "has no such input"),
        ({"x": ([1, 2], [1, 2])}, "axis 1 of input 'x' is 3 in the model, 1|2 is given"),
    ]:
        with pytest.raises((hone.HoneError, ValueError), match=told.replace("|", r"\|")):
            hone.compile(scaled_sum(), shapes=shapes)


def test_threads_run_different_sizes_of_one_model_at_once():
    sizes = [1, 2, 7, 16]
    model = hone.compile(scaled_sum(), shapes={"n": sizes}).load()
    wrong = []

    def work(first):
        for turn in range(100):
            given, expected = sum_of(sizes[(first + turn) % 4], turn)
            if not np.array_equal(model.run(given)["z"], expected):
                wrong.append((first, turn))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_session_holds_several_sizes_in_one_form_and_compiles_what_is_missing(tmp_path):
    path = tmp_path / "sum.onnx"
    onnx.save(scaled_sum(), path)
    session = hone.InferenceSession(path, shapes={"n": [1, 4]})
    assert session._specialiser.compilations == 1
    for rows in [4, 1, 3, 3, 1]:
        given, expected = sum_of(rows)
        np.testing.assert_array_equal(session.run(None, given)[0], expected)
    assert (session._specialiser.compilations, session._specialiser.forms) == (2, 2)
    assert session.get_inputs()[0].shape == ["n", 3]


def test_a_session_runs_an_artifact(tmp_path):
    path = tmp_path / "sum.hone"
    hone.compile(scaled_sum(), shapes={"n": [1, 4]}, output=path)
    for given_as in [path, path.read_bytes()]:
        session = hone.InferenceSession(given_as)
        assert [own.name for own in session.get_inputs()] == ["x", "y"]
        assert session.get_inputs()[0].shape == [None, 3]
        for rows in [1, 4]:
            given, expected = sum_of(rows)
            np.testing.assert_array_equal(session.run(["z"], given)[0], expected)
        with pytest.raises(hone.InputError, match="the model takes"):
            session.run(None, sum_of(2)[0])


def attention(seed=1):
    """A layer of a transformer over sequences of any length: `y` f32[batch, sequence, 16] of `x`."""
    random = np.random.default_rng(seed)
    tensors = [
        onnx.numpy_helper.from_array(random.standard_normal((16, 16)).astype(np.float32) / 4, name)
        for name in ["q", "k", "v", "o"]
    ]
    tensors += [
        helper.make_tensor("split", TensorProto.INT64, [4], [0, 0, 4, 4]),
        helper.make_tensor("join", TensorProto.INT64, [3], [0, 0, 16]),
        helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
    ]
    nodes = []

    def node(operator, inputs, output, **attributes):
        nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))

    for part, order in [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])]:
        node("MatMul", ["x", part], f"{part}1")
        node("Reshape", [f"{part}1", "split"], f"{part}2")
        node("Transpose", [f"{part}2"], f"{part}3", perm=order)
    node("MatMul", ["q3", "k3"], "scores")
    node("Mul", ["scores", "half"], "scaled")
    node("Softmax", ["scaled"], "weights", axis=-1)
    node("MatMul", ["weights", "v3"], "heads")
    node("Transpose", ["heads"], "turned", perm=[0, 2, 1, 3])
    node("Reshape", ["turned", "join"], "joined")
    node("MatMul", ["joined", "o"], "projected")
    node("Add", ["projected", "x"], "y")
    port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "sequence", 16])
    graph = helper.make_graph(nodes, "attention", [port("x")], [port("y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_transformer_is_right_at_every_length():
    model = attention()
    reference = onnx.reference.ReferenceEvaluator(model)
    compiled = hone.compile(model, shapes={"batch": [1, 2], "sequence": [8, 16, 48]})
    alone = hone.compile(model, shapes={"batch": 2, "sequence": 48})
    assert len(compiled.artifact) < 6 * len(alone.artifact)
    loaded = compiled.load()
    assert len(loaded.sizes) == 6
    for sizes in loaded.sizes:
        shape = sizes.inputs[0].shape
        x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
        (expected,) = reference.run(None, {"x": x})
        np.testing.assert_allclose(loaded.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_dimensions_stay_open_where_the_model_allows_it():
    model = attention()
    reference = onnx.reference.ReferenceEvaluator(model)
    loaded = hone.compile(model, shapes={"sequence": range(1, 101)}).load()
    assert (loaded.open_dimension, loaded.padded_dimension) == ("batch", "sequence")
    for batch, length in [(1, 1), (3, 40), (2, 77), (1, 100)]:
        x = np.random.default_rng(length).standard_normal((batch, length, 16)).astype(np.float32)
        (expected,) = reference.run(None, {"x": x})
        np.testing.assert_allclose(loaded.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(hone.InputError, match="sequence is 101 in input 'x', the model takes 1 to 100 of it"):
        loaded.run({"x": np.zeros((1, 101, 16), np.float32)})
    for shapes in [None, {"n": "1.."}]:
        loaded = hone.compile(scaled_sum(), shapes=shapes).load()
        given, expected = sum_of(13)
        np.testing.assert_array_equal(loaded.run(given)["z"], expected)
    loaded = hone.compile(scaled_sum(), constants={"y": np.ones((4, 3), np.float32)}, shapes={"n": 4}).load()
    np.testing.assert_array_equal(loaded.run([np.ones((4, 3), np.float32)])["z"], np.full((4, 3), 4, np.float32))


def test_a_session_keeps_forms_of_sizes_over_the_bound():
    model = attention()
    reference = onnx.reference.ReferenceEvaluator(model)
    session = hone.InferenceSession(model)
    for length, compilations in [(600, 1), (40, 2), (77, 2), (600, 2)]:
        x = np.random.default_rng(length).standard_normal((1, length, 16)).astype(np.float32)
        (expected,) = reference.run(None, {"x": x})
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
        assert session._specialiser.compilations == compilations
    assert session._specialiser.forms == 2


def test_dimensions_that_cannot_stay_open_are_named_with_a_proposal():
    with pytest.raises(hone.CompileError, match=r"'n' of input 'x' \(f32\[n\]\)(.|\n)*shapes=\{\"n\": \d+\}"):
        hone.compile(in_order())
    with pytest.raises(hone.CompileError, match="cannot be compiled for any size of 'n'"):
        hone.compile(in_order(), shapes={"n": "1.."})
    with pytest.raises(hone.CompileError, match="cannot be compiled for every size of 'n'"):
        hone.compile(in_order(), shapes={"n": "1..100"})


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
