"""Sequences, optional values, strings and random numbers: through sessions and artifacts, against onnxruntime where it has them."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import hone
import hone_runtime

ort = pytest.importorskip("onnxruntime")
CLASSICAL = "ai.onnx.ml"


def port(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes, inputs, outputs, stored=(), opset=20, classical=3):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(stored))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(CLASSICAL, classical)]
    opsets.append(helper.make_opsetid("com.microsoft", 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def both(model, feed):
    """The outputs of both."""
    expected = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)
    return hone.InferenceSession(model).run(None, feed), expected


def same(actual, expected):
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected):
        if isinstance(theirs, list):
            same(mine, theirs)
            continue
        theirs = np.asarray(theirs)
        assert mine.shape == theirs.shape
        if theirs.dtype.kind in "OUS":
            assert mine.tolist() == theirs.tolist()
        else:
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def text_node(op, inputs, outputs, domain="", opset=20, **attributes):
    """A model of one node over arrays of strings and numbers; outputs are (type, shape)."""
    names = [f"i{place}" for place in range(len(inputs))]
    made = [f"o{place}" for place in range(len(outputs))]
    ports = [
        port(name, T.STRING if own.dtype == object else helper.np_dtype_to_tensor_dtype(own.dtype), own.shape)
        for name, own in zip(names, inputs)
    ]
    results = [port(name, *own) for name, own in zip(made, outputs)]
    node = helper.make_node(op, names, made, domain=domain, **attributes)
    return model_of([node], ports, results, opset=opset), dict(zip(names, inputs))


def words(*texts, shape=None):
    array = np.array(texts, object)
    return array if shape is None else array.reshape(shape)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attributes"),
    [
        ("StringConcat", [words("a", "é", ""), words("x\0y")], [(T.STRING, [3])], {}),
        ("StringSplit", [words("a,b,,c", "d", ",")], [(T.STRING, [3, 4]), (T.INT64, [3])], {"delimiter": ","}),
        ("StringSplit", [words(" a  b\tc ", "d")], [(T.STRING, [2, 2]), (T.INT64, [2])], {"maxsplit": 1}),
        ("RegexFullMatch", [words("ab1", "ab", "é1", "")], [(T.BOOL, [4])], {"pattern": r"\w+\d|é."}),
        ("RegexFullMatch", [words("a.b@c.de", "@c.de")], [(T.BOOL, [2])], {"pattern": r"[\w.]+@(c|d)\.[[:alpha:]]{2}"}),
        ("StringNormalizer", [words("Mon", "tue", "MON")], [(T.STRING, [None])], {"case_change_action": "UPPER", "locale": "C"}),
        (
            "StringNormalizer",
            [words("mon", "tue", "Mon", shape=(1, 3))],
            [(T.STRING, [1, None])],
            {"stopwords": ["mon"], "is_case_sensitive": 1, "case_change_action": "LOWER", "locale": "C"},
        ),
        ("Equal", [words("a", "b"), words("a", "c")], [(T.BOOL, [2])], {}),
        ("Where", [np.array([True, False]), words("a", "b"), words("c", "d")], [(T.STRING, [2])], {}),
        ("Cast", [np.array([1.5, -0.1, 1e20, np.inf], np.float32)], [(T.STRING, [4])], {"to": T.STRING}),
        ("Cast", [np.array([-7, 2**40])], [(T.STRING, [2])], {"to": T.STRING}),
        ("Cast", [words("1.5", "-2e3")], [(T.FLOAT, [2])], {"to": T.FLOAT}),
        ("Cast", [words("-12", "34")], [(T.INT32, [2])], {"to": T.INT32}),
        (
            "TfIdfVectorizer",
            [words("a", "b", "a", "c", "b")],
            [(T.FLOAT, [4])],
            {
                "mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0,
                "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2, 3], "pool_strings": ["a", "b", "a", "b", "c", "b"],
            },
        ),
    ],
)  # fmt: skip
def test_operators_of_strings_agree_with_onnxruntime(op, inputs, outputs, attributes):
    model, feed = text_node(op, inputs, outputs, **attributes)
    same(*both(model, feed))


MICROSOFT = "com.microsoft"
SAID = words("the cat, the dog", "", "Über É日 x", "a-b_c 12", "cat cat")


@pytest.mark.parametrize(
    "attributes",
    [
        {"tokenexp": "[a-z]+"},
        {"tokenexp": r"\b\w\w+\b", "mark": 1},
        {"tokenexp": "a|at|cat", "mincharnum": 2},
        {"tokenexp": "x*"},
        {"tokenexp": r"\p{L}+"},
        {"tokenexp": "."},
        {"separators": [""], "mark": 1},
        {"separators": [" ", "[,_]"]},
        {"separators": [" ", "-"], "mincharnum": 3, "pad_value": ""},
        {"separators": ["."]},
    ],
)
@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5)])
def test_tokens_agree_with_onnxruntime(attributes, shape):
    own = {"mark": 0, "pad_value": "#", "mincharnum": 1, **attributes}
    outputs = [(T.STRING, [*shape, None])]
    model, feed = text_node("Tokenizer", [SAID.reshape(shape)], outputs, domain=MICROSOFT, **own)
    same(*both(model, feed))


def counting(shape, pool, **attributes):
    """Texts whose words are counted, as skl2onnx writes it."""
    own = {"mark": 0, "pad_value": "#", "mincharnum": 1, "tokenexp": "[a-z]+", **attributes}
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["n"], case_change_action="LOWER", locale="C"),
        helper.make_node("Tokenizer", ["n"], ["t"], domain=MICROSOFT, **own),
        helper.make_node("Flatten", ["t"], ["f"]),
        helper.make_node(
            "TfIdfVectorizer", ["f"], ["y"], mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=1,
            ngram_counts=[0, 2], ngram_indexes=[2, 0, 1], pool_strings=[*pool, *pool],
        ),
    ]  # fmt: skip
    return model_of(nodes, [port("x", T.STRING, shape)], [port("y", T.FLOAT, [None, 3])])


def test_texts_of_any_length_and_number_are_counted():
    model = counting([None], ["cat", "dog"])
    loaded = hone.compile(model).load()
    assert loaded.open_dimension
    session = ort.InferenceSession(model)
    for texts in (SAID, words("dog " * 5000 + "Cat a DOG"), words("", "")):
        same([loaded.run({"x": texts})["y"]], session.run(None, {"x": texts}))
    # What fills rows may be counted, and depends on the other texts then.
    padded = counting([None], ["cat", "#"], tokenexp="[a-z]+")
    for texts in (SAID, SAID[:3]):
        same(*both(padded, {"x": texts}))


def test_a_text_of_more_tokens_than_there_is_room_for_is_refused():
    outputs = [(T.STRING, [1, None])]
    own = {"mark": 0, "pad_value": "#", "mincharnum": 1, "separators": [" "]}
    model, _ = text_node("Tokenizer", [words("a")], outputs, domain=MICROSOFT, **own)
    session = hone.InferenceSession(model)
    assert session.run(None, {"i0": words("a " * 1024)})[0].shape == (1, 1024)
    with pytest.raises(hone.HoneError, match="1025 tokens, and there is room for 1024"):
        session.run(None, {"i0": words("a " * 1025)})
    with pytest.raises(hone.InputError, match="not UTF-8"):
        session.run(None, {"i0": np.array([b"\xff"], object)})


def map_port(name, key, value):
    element = helper.make_tensor_type_proto(value, [])
    return onnx.ValueInfoProto(
        name=name, type=onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=key, value_type=element))
    )


def of_map(op, value, key, **attributes):
    """A model of one operator that reads a map."""
    kind = {"TO_INT64": T.INT64, "TO_STRING": T.STRING, "TO_FLOAT": T.FLOAT}.get(attributes.get("cast_to"), value)
    node = helper.make_node(op, ["m"], ["y"], domain=CLASSICAL, **attributes)
    return model_of([node], [map_port("m", key, value)], [port("y", kind, [1, None])])


@pytest.mark.parametrize(
    ("key", "vocabulary", "maps"),
    [
        (T.STRING, {"string_vocabulary": ["b", "é", "c", "b"]}, [{"é": 1.5, "x": 2.0}, {"b": 1, "c": -2.5}, {"": 3.0}]),
        (T.INT64, {"int64_vocabulary": [7, -3, 0]}, [{0: 1.5, -3: 2.0, 8: 1.0}, {7: 2}]),
    ],
)
def test_maps_agree_with_onnxruntime(key, vocabulary, maps):
    model = of_map("DictVectorizer", T.FLOAT, key, **vocabulary)
    theirs, mine = ort.InferenceSession(model), hone.InferenceSession(model)
    assert [own.type for own in mine.get_inputs()] == [own.type for own in theirs.get_inputs()]
    loaded = hone.compile(model).load()
    for own in maps:
        expected = theirs.run(None, {"m": own})
        same(mine.run(None, {"m": own}), expected)
        same([loaded.run({"m": own})["y"]], expected)
    # onnxruntime refuses an empty map.
    assert not mine.run(None, {"m": {}})[0].any()
    assert mine._specialiser.compilations == 1


def test_sparse_and_dense_rows_of_maps_agree_with_onnxruntime():
    for attributes in (
        {"map_form": "SPARSE", "max_map": 4, "cast_to": "TO_FLOAT"},
        {"map_form": "SPARSE", "max_map": 3, "cast_to": "TO_INT64"},
        {"map_form": "DENSE", "cast_to": "TO_FLOAT"},
    ):
        same(*both(of_map("CastMap", T.FLOAT, T.INT64, **attributes), {"m": {2: 1.5, 0: -2.7, 9: 7.0}}))


@pytest.mark.parametrize(
    ("op", "value", "key", "attributes", "given", "expected"),
    [
        ("DictVectorizer", T.INT64, T.STRING, {"string_vocabulary": ["b", "b"]}, {"b": 2**40, "c": 1}, [2**40, 2**40]),
        ("DictVectorizer", T.DOUBLE, T.STRING, {"string_vocabulary": ["b", ""]}, {"b": 0.1, "": 3.0}, [0.1, 3.0]),
        ("DictVectorizer", T.STRING, T.INT64, {"int64_vocabulary": [7, -3]}, {-3: "né", 1: "x"}, ["", "né"]),
        ("CastMap", T.STRING, T.INT64, {"map_form": "SPARSE", "max_map": 3, "cast_to": "TO_FLOAT"}, {2: "1.5"}, [0, 0, 1.5]),
        ("CastMap", T.STRING, T.INT64, {"map_form": "SPARSE", "max_map": 2, "cast_to": "TO_STRING"}, {1: "é"}, ["0.f", "é"]),
        ("CastMap", T.STRING, T.INT64, {"map_form": "DENSE", "cast_to": "TO_STRING"}, {7: "b", 1: "é"}, ["é", "b"]),
    ],
)  # fmt: skip
def test_maps_that_onnxruntime_takes_from_python_in_no_way(op, value, key, attributes, given, expected):
    model = of_map(op, value, key, **attributes)
    for results in (hone.InferenceSession(model).run(None, {"m": given}), hone.compile(model).load().run({"m": given}).values()):
        assert [own.tolist() for own in results] == [[expected]]


def test_a_map_that_does_not_fit_is_refused():
    node = helper.make_node("DictVectorizer", ["m"], ["y"], domain=CLASSICAL, string_vocabulary=["a"])
    model = model_of([node], [map_port("m", T.STRING, T.FLOAT)], [port("y", T.FLOAT, [1, 1])])
    session, loaded = hone.InferenceSession(model), hone.compile(model).load()
    assert [str(own) for own in loaded.inputs] == ["string[65536]", "f32[65536]", "i64[]"]
    assert loaded.members[0][0].form == "map"
    for run in (lambda feed: session.run(None, feed), loaded.run):
        for given, reason in (
            (np.zeros(3, np.float32), "takes a map"),
            ({1: 1.0}, "holds a int"),
            ({"a": "b"}, "a value of 'm' is string"),
            ({"a": [1.0, 2.0]}, r"a value of 'm' is f64\[2\]"),
            ({str(place): 0.0 for place in range(65537)}, "room for 65536"),
        ):
            with pytest.raises(hone.InputError, match=reason):
                run({"m": given})
        with pytest.raises(hone.InputError, match="is missing"):
            run({})


@pytest.mark.parametrize(
    ("op", "x", "output", "attributes"),
    [
        ("LabelEncoder", words("b", "z"), T.INT64, {"keys_strings": ["a", "b"], "values_int64s": [5, 7]}),
        ("LabelEncoder", np.array([2, 9]), T.STRING, {"keys_int64s": [1, 2], "values_strings": ["é", "two"]}),
        ("LabelEncoder", words("b", "z"), T.STRING, {"keys_strings": ["a", "b"], "values_strings": ["c", "d"]}),
        ("CategoryMapper", words("b", "z"), T.INT64, {"cats_strings": ["a", "b"], "cats_int64s": [3, 4]}),
        ("CategoryMapper", np.array([4, 9]), T.STRING, {"cats_strings": ["a", "b"], "cats_int64s": [3, 4]}),
        ("OneHotEncoder", words("b", "z"), T.FLOAT, {"cats_strings": ["a", "b"]}),
    ],
)
def test_tables_of_strings_agree_with_onnxruntime(op, x, output, attributes):
    shape = [2, 2] if op == "OneHotEncoder" else [2]
    model, feed = text_node(op, [x], [(output, shape)], domain=CLASSICAL, **attributes)
    same(*both(model, feed))


def test_what_compares_and_moves_strings_is_compiled():
    nodes = [
        helper.make_node("Gather", ["x", "places"], ["g"]),
        helper.make_node("Equal", ["g", "word"], ["e"]),
        helper.make_node("Where", ["e", "other", "g"], ["y"]),
    ]
    stored = [
        numpy_helper.from_array(np.array([2, 0, 2]), "places"),
        helper.make_tensor("word", T.STRING, [], [b"b"]),
        helper.make_tensor("other", T.STRING, [], ["ö".encode()]),
    ]
    model = model_of(nodes, [port("x", T.STRING, [3])], [port("y", T.STRING, [3])], stored)
    loaded = hone.compile(model).load()
    assert loaded.host_nodes == []
    assert [str(own) for own in loaded.inputs] == ["string[3]"]
    x = np.array(["a", "", "b"])
    for given in (x, x.astype("S"), x.astype(object), ["a", "", "b"]):
        assert loaded.run({"x": given})["y"].tolist() == ["ö", "a", "ö"]
    # A second run knows nothing of the strings of the first.
    assert loaded.run({"x": ["q", "r", "s"]})["y"].tolist() == ["s", "q", "s"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.array([1, 2, 3]), "i64[3]"),
        (["a", "b"], "string[2]"),
        (np.array(["a", 1, "b"], object), "holds a int"),
        (np.array([b"a", b"\xff", b"b"], object), "not UTF-8"),
        (np.array(["a", "\ud800", "b"], object), "not UTF-8"),
    ],
)
def test_strings_that_do_not_fit_are_named(given, told):
    model, _ = text_node("Identity", [words("a", "b", "c")], [(T.STRING, [3])])
    with pytest.raises(hone.InputError, match=re.escape(told)) as error:
        hone.compile(model).load().run({"i0": given})
    assert "i0" in str(error.value)


def test_strings_that_the_runtime_cannot_compute_end_the_run():
    model, feed = text_node("Cast", [words("1", "one")], [(T.FLOAT, [2])], to=T.FLOAT)
    with pytest.raises(hone.RunError, match='"one" is no f32'):
        hone.compile(model).load().run(feed)
    model, feed = text_node("StringSplit", [words("a b c")], [(T.STRING, [1, 2]), (T.INT64, [1])])
    with pytest.raises(hone.RunError, match="more than the 2 parts"):
        hone.compile(model).load().run(feed)


def test_patterns_that_grow_are_refused_and_matching_is_linear():
    model, _ = text_node("RegexFullMatch", [words("a")], [(T.BOOL, [1])], pattern="(.*a.{18}|b)*")
    with pytest.raises(hone.CompileError, match="pattern"):
        hone.compile(model)
    model, _ = text_node("RegexFullMatch", [words("a")], [(T.BOOL, [1])], pattern="(a|a)*(a|aa)*b")
    assert not hone.compile(model).load().run({"i0": ["a" * 5_000_000]})["o0"][0]


def sequence(name, dtype, shape):
    return helper.make_tensor_sequence_value_info(name, dtype, shape)


def test_sequences_go_in_and_out_as_lists():
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])],
        "body",
        [port("a", T.FLOAT, ["n"]), port("b", T.FLOAT, ["m"])],
        [port("c", T.FLOAT, None)],
    )
    nodes = [
        helper.make_node("SequenceMap", ["s", "t"], ["mapped"], body=body),
        helper.make_node("SequenceInsert", ["mapped", "t"], ["y"]),
        helper.make_node("SequenceLength", ["y"], ["n"]),
    ]
    inputs = [sequence("s", T.FLOAT, ["n"]), port("t", T.FLOAT, [1])]
    outputs = [sequence("y", T.FLOAT, None), port("n", T.INT64, [])]
    model = model_of(nodes, inputs, outputs)
    items, t = [np.arange(3, dtype=np.float32), np.ones(2, np.float32)], np.array([10], np.float32)
    same(*both(model, {"s": items, "t": t}))
    # Each number of items and each shape is a form of its own.
    session = hone.InferenceSession(model)
    assert [own.type for own in session.get_inputs()] == ["seq(tensor(float))", "tensor(float)"]
    assert session.run(["n"], {"s": [], "t": t})[0] == 1
    assert session.run(["n"], {"s": [*items, t], "t": t})[0] == 4
    compiled = hone.compile(model, shapes={"s": [(3,), (2,)]})
    loaded = hone_runtime.load(compiled.artifact)
    assert [own.name for own in loaded.inputs] == ["s[0]", "s[1]", "t"]
    result = loaded.run({"s": items, "t": t})
    assert [own.tolist() for own in result["y"]] == [[10, 11, 12], [11, 11], [10]] and result["n"] == 3
    for wrong, told in ((items[:1], "1 tensors"), (items[0], "list of tensors"), ([t, t], "s[0]")):
        with pytest.raises(hone.InputError, match=re.escape(told)):
            loaded.run({"s": wrong, "t": t})
    with pytest.raises(hone.CompileError, match="'s'.*sequence"):
        hone.compile(model)


def test_optional_inputs_may_be_left_out():
    element = onnx.TypeProto.Optional()
    element.elem_type.CopyFrom(helper.make_tensor_type_proto(T.FLOAT, [2]))
    optional = onnx.ValueInfoProto(name="x", type=onnx.TypeProto(optional_type=element))
    then = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["x"], ["p"])], "then", [], [port("p", T.FLOAT, [2])]
    )
    otherwise = helper.make_graph(
        [helper.make_node("Identity", ["zero"], ["q"])], "otherwise", [], [port("q", T.FLOAT, [2])]
    )
    nodes = [
        helper.make_node("OptionalHasElement", ["x"], ["has"]),
        helper.make_node("If", ["has"], ["y"], then_branch=then, else_branch=otherwise),
        helper.make_node("Identity", ["x"], ["z"]),
    ]
    stored = [numpy_helper.from_array(np.zeros(2, np.float32), "zero")]
    result = onnx.ValueInfoProto(name="z", type=onnx.TypeProto(optional_type=element))
    model = model_of(nodes, [optional], [port("y", T.FLOAT, [2]), result], stored)
    session = hone.InferenceSession(model)
    there = session.run(None, {"x": np.array([1, 2], np.float32)})
    assert [own.tolist() for own in there] == [[1, 2], [1, 2]]
    y, z = session.run(None, {"x": None})
    assert y.tolist() == [0, 0] and z is None
    assert session.run(None, {})[0].tolist() == [0, 0]
    # A form that is made beforehand is for what it was made for alone.
    kept = hone.InferenceSession(model, shapes={"x": [2]})
    assert kept.run(None, {})[0].tolist() == [0, 0]
    assert kept.run(None, {"x": np.array([3, 4], np.float32)})[0].tolist() == [3, 4]
    loaded = hone.compile(model, shapes={"x": None}).load()
    assert loaded.inputs == [] and loaded.run({})["z"] is None
    with pytest.raises(hone.InputError, match="compiled without it"):
        loaded.run({"x": np.zeros(2, np.float32)})


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 7]}, {"classlabels_strings": ["no", "ja"]}])
def test_classifiers_give_maps_of_scores(labels):
    text = "classlabels_strings" in labels
    kind = T.STRING if text else T.INT64
    own = labels if text else {"classlabels_ints": labels["classlabels_int64s"]}
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "p"], domain=CLASSICAL, post_transform="SOFTMAX",
            coefficients=[1.0, -1.0, 0.5, 2.0], intercepts=[0.0, 0.25], **own,
        ),
        helper.make_node("ZipMap", ["p"], ["maps"], domain=CLASSICAL, **labels),
    ]  # fmt: skip
    value = helper.make_tensor_type_proto(T.FLOAT, [])
    inner = onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=kind, value_type=value))
    maps = onnx.ValueInfoProto(
        name="maps", type=onnx.TypeProto(sequence_type=onnx.TypeProto.Sequence(elem_type=inner))
    )
    model = model_of(nodes, [port("x", T.FLOAT, [None, 2])], [port("label", kind, [None]), maps])
    actual, expected = both(model, {"x": np.array([[1, 2], [3, -1], [0, 0]], np.float32)})
    assert actual[0].tolist() == expected[0].tolist()
    assert len(actual[1]) == 3
    for mine, theirs in zip(actual[1], expected[1]):
        assert mine == pytest.approx(theirs, rel=1e-5)


def drawn(op, x=None, opset=22, **attributes):
    """A model of one node that draws random numbers, and what it gives twice."""
    inputs = [] if x is None else [port("x", T.FLOAT, x.shape)]
    node = helper.make_node(op, [own.name for own in inputs], ["y"], **attributes)
    model = model_of([node], inputs, [onnx.ValueInfoProto(name="y")], opset=opset)
    loaded = hone.compile(model).load()
    feed = {} if x is None else {"x": x}
    first, second = loaded.run(feed)["y"], loaded.run(feed)["y"]
    np.testing.assert_array_equal(first, second)
    return first


def test_equal_seeds_give_the_numbers_of_the_reference():
    shape, random = (50, 40), np.random.RandomState(7)
    expected = random.randn(*shape).astype(np.float32) * np.float32(2) + 1
    actual = drawn("RandomNormal", shape=shape, seed=7.0, mean=1.0, scale=2.0)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    expected = np.random.RandomState(7).rand(*shape) * 3 - 1
    actual = drawn("RandomUniform", shape=shape, seed=7.0, low=-1.0, high=2.0, dtype=T.DOUBLE)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert not np.array_equal(drawn("RandomUniform", shape=shape, seed=8.0), drawn("RandomUniform", shape=shape, seed=9.0))


def test_random_numbers_follow_their_distribution():
    x = np.tile(np.array([0, 0.1, 0.5, 1], np.float32), (20000, 1))
    means = drawn("Bernoulli", x).mean(axis=0)
    np.testing.assert_allclose(means, x[0], atol=0.015)
    assert means[0] == 0 and means[3] == 1
    weights = np.array([[1, 2, 7], [5, 0, 5]], np.float32)
    classes = drawn("Multinomial", np.log(weights + 1e-30), sample_size=20000, dtype=T.INT64, seed=3.0)
    for row, own in zip(classes, weights):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 20000, own / own.sum(), atol=0.015)
    assert classes.dtype == np.int64 and (classes[1] != 1).all()
    like = drawn("RandomNormalLike", x, mean=4.0)
    assert like.dtype == np.float32 and abs(like.mean() - 4) < 0.02 and abs(like.std() - 1) < 0.02


def test_dropout_in_training_scales_what_it_keeps():
    ports = [port("x", T.FLOAT, [100, 100]), port("r", T.FLOAT, []), port("t", T.BOOL, [])]
    node = helper.make_node("Dropout", ["x", "r", "t"], ["y", "m"], seed=5)
    model = model_of([node], ports, [port("y", T.FLOAT, [100, 100]), port("m", T.BOOL, [100, 100])], opset=13)
    loaded = hone.compile(model).load()
    x = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    run = lambda ratio, train: loaded.run({"x": x, "r": np.float32(ratio), "t": np.bool_(train)}).values()  # noqa: E731
    y, mask = run(0.25, True)
    np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
    assert abs(mask.mean() - 0.75) < 0.02
    for ratio, train in ((0.25, False), (0, True)):
        y, mask = run(ratio, train)
        assert mask.all() and np.array_equal(y, x)
    y, mask = run(1, True)
    assert not mask.any() and not y.any()
