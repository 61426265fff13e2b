"""Operators outside of ONNX's own set, against onnxruntime: those that its tools write, and `ai.onnx.ml`."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hone

ort = pytest.importorskip("onnxruntime")
MICROSOFT, CLASSICAL = "com.microsoft", "ai.onnx.ml"


def seeded(seed=0):
    return np.random.default_rng(seed)


def f32(*shape, seed=0):
    return seeded(seed).standard_normal(shape).astype(np.float32)


def u8(*shape, seed=0):
    return seeded(seed).integers(0, 256, shape).astype(np.uint8)


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


def node_model(op, inputs, outputs, domain, attributes, fixed=()):
    """A model of one node; inputs whose places are in `fixed` are stored in it, None is left out."""
    names = ["" if value is None else f"i{place}" for place, value in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{place}" for place in range(outputs)], domain=domain, **attributes)
    stored, ports, feed = [], [], {}
    for place, (name, value) in enumerate(zip(names, inputs)):
        if not name:
            continue
        if place in fixed:
            stored.append(numpy_helper.from_array(value, name))
        else:
            dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
            ports.append(helper.make_tensor_value_info(name, dtype, value.shape))
            feed[name] = value
    made = [onnx.ValueInfoProto(name=f"o{place}") for place in range(outputs)]
    graph = helper.make_graph([node], "one", ports, made, stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid(CLASSICAL, 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model.SerializeToString(), feed


def compare(op, inputs, outputs=1, domain=MICROSOFT, fixed=(), rtol=2e-3, atol=2e-4, steps=0, **attributes):
    """Runs a node in both; integers may be `steps` apart."""
    model, feed = node_model(op, inputs, outputs, domain, attributes, fixed)
    expected = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)
    actual = hone.InferenceSession(model).run(None, feed)
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        if theirs.dtype.kind in "iu":
            assert np.abs(mine.astype(np.int64) - theirs.astype(np.int64)).max(initial=0) <= steps
        else:
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)


SCALE, ZERO = scalar(0.05), scalar(120, np.uint8)


def quantized(*shape, seed=0):
    return [u8(*shape, seed=seed), SCALE, ZERO]


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_quantized_binary(op):
    compare(op, [*quantized(2, 3), *quantized(2, 3, seed=1), scalar(0.1), ZERO], steps=1)


@pytest.mark.parametrize("op, attributes", [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1})])
def test_quantized_unary(op, attributes):
    inputs = [*quantized(2, 30), scalar(1 / 128), scalar(3, np.uint8)]
    compare(op, inputs, fixed=(1, 2, 3, 4), steps=1, **attributes)


def test_quantized_softmax():
    inputs = [*quantized(2, 30), scalar(1 / 256), scalar(0, np.uint8)]
    compare("QLinearSoftmax", inputs, fixed=(1, 2, 3, 4), steps=1, axis=-1, opset=13)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_quantized_pools(channels_last):
    inputs = [*quantized(1, 4, 6, 6), scalar(0.05), ZERO]
    compare("QLinearGlobalAveragePool", inputs, fixed=(1, 2, 3, 4), steps=1, channels_last=channels_last)
    compare(
        "QLinearAveragePool", inputs, fixed=(1, 2, 3, 4), steps=1, channels_last=channels_last,
        kernel_shape=[2, 2], strides=[2, 2],
    )


def test_quantized_concat():
    inputs = [scalar(0.1), ZERO, *quantized(2, 3), *quantized(2, 2, seed=1)]
    compare("QLinearConcat", inputs, fixed=(0, 1, 3, 4, 6, 7), steps=1, axis=1)


@pytest.mark.parametrize("rounded", [False, True])
def test_quantized_gemm(rounded):
    inputs = [*quantized(3, 8), u8(8, 4, seed=1), scalar(0.02), scalar(128, np.uint8)]
    inputs += [seeded(2).integers(-100, 100, 4).astype(np.int32)]
    inputs += [scalar(0.3), ZERO] if rounded else []
    compare("QGemm", inputs, fixed=(3, 4, 5), steps=1)


def test_integer_products():
    compare("MatMulIntegerToFloat", [u8(3, 8), u8(8, 4, seed=1), SCALE, scalar(0.02), ZERO, ZERO, f32(4)])
    b = seeded(1).integers(-100, 100, (8, 4)).astype(np.int8)
    inputs = [f32(3, 8), b, scalar(0.02), scalar(0, np.int8), f32(4)]
    compare("DynamicQuantizeMatMul", inputs, fixed=(1, 2, 3), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("accuracy", [0, 4])
@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_four_bits(zeros, rows, accuracy):
    k, n, block = 96, 70, 32
    packed, scales = u8(n, k // block, block // 2), np.abs(f32(n * (k // block))) + 0.1
    inputs = [f32(rows, k), packed, scales] + ([u8(n * ((k // block + 1) // 2), seed=4)] if zeros else [])
    attributes = {"K": k, "N": n, "bits": 4, "block_size": block, "accuracy_level": accuracy}
    # With accuracy 4 both round rows to bytes, and onnxruntime does not say how for every number of rows.
    error = 5e-2 if accuracy else 1e-4
    compare("MatMulNBits", inputs, fixed=(1, 2, 3), rtol=error, atol=error, **attributes)


@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_eight_bits(zeros):
    k, n, block = 96, 70, 32
    packed, scales = u8(n, k // block, block), np.abs(f32(n * (k // block))) * 0.01
    inputs = [f32(3, k), packed, scales] + ([u8(n * (k // block), seed=4)] if zeros else [])
    attributes = {"K": k, "N": n, "bits": 8, "block_size": block}
    compare("MatMulNBits", inputs, fixed=(1, 2, 3), rtol=1e-3, atol=1e-3, **attributes)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_embeddings_of_few_bits(bits, zeros):
    words, width, block = 12, 64, 16
    data, scales = u8(words, width * bits // 8), np.abs(f32(words, width // block)) + 0.1
    inputs = [data, np.array([[3, 0, 11], [7, 7, 1]]), scales]
    inputs += [u8(words, width // block * bits // 8, seed=4)] if zeros else []
    attributes = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    compare("GatherBlockQuantized", inputs, fixed=(0, 2, 3), **attributes)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4])
def test_blocks_of_four_bits(kind, zeros):
    k, n, block = 40, 20, 16
    least = -8 if kind == onnx.TensorProto.INT4 else 0
    numbers = lambda seed, *shape: seeded(seed).integers(least, least + 16, shape)
    stored = lambda name, values: helper.make_tensor(name, kind, values.shape, values.flatten().tolist())
    scales = numpy_helper.from_array(np.abs(f32(3, n)) + 0.1, "s")
    weights, zero = numbers(1, k, n), numbers(2, 3, n) if zeros else np.zeros((3, n))
    inits = [stored("w", weights), scales] + ([stored("z", zero)] if zeros else [])
    nodes = [
        helper.make_node("DequantizeLinear", [own.name for own in inits], ["d"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, k])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, n])], inits,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    # Not by onnxruntime, which rounds the rows to bytes here.
    x, blocks = f32(2, k), np.arange(k) // block
    expected = x @ ((weights - zero[blocks]) * numpy_helper.to_array(scales)[blocks])
    np.testing.assert_allclose(hone.InferenceSession(model).run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)


def test_fused_functions():
    compare("BiasGelu", [f32(2, 8), f32(8, seed=1)])
    compare("QuickGelu", [f32(2, 8)], alpha=1.702)
    compare("FastGelu", [f32(2, 8), f32(8, seed=1)])
    compare("FusedMatMul", [f32(2, 3, 4), f32(2, 5, 4, seed=1)], transB=1, alpha=0.5)
    compare("FusedConv", [f32(1, 3, 6, 6), f32(4, 3, 3, 3, seed=1), f32(4, seed=2)], activation="Relu")
    product = [f32(2, 4), f32(4, 3, seed=1), f32(3, seed=2)]
    compare("FusedGemm", product, activation="Relu")
    compare("FusedGemm", product, activation="Selu", activation_alpha=1.5, activation_gamma=1.2)
    compare("FusedGemm", product, activation="ThresholdedRelu", activation_alpha=0.3)


def test_normalizations():
    compare("SkipLayerNormalization", [f32(1, 4, 8), f32(1, 4, 8, seed=1), f32(8, seed=2), f32(8, seed=3)], epsilon=1e-5)
    compare("SkipSimplifiedLayerNormalization", [f32(1, 4, 8), f32(1, 4, 8, seed=1), f32(8, seed=2)], epsilon=1e-5)


def test_embedding():
    words = seeded().integers(0, 10, (2, 4)).astype(np.int32)
    segments = seeded(1).integers(0, 2, (2, 4)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    tables = [f32(10, 8), f32(6, 8, seed=1), f32(2, 8, seed=2), f32(8, seed=3), f32(8, seed=4)]
    compare("EmbedLayerNormalization", [words, segments, *tables, mask], outputs=2, epsilon=1e-5)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention(causal):
    weights, bias = f32(8, 24, seed=1) / 3, f32(24, seed=2)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
    compare("Attention", [f32(2, 4, 8), weights, bias, mask], num_heads=2, unidirectional=causal)
    compare("Attention", [f32(2, 4, 8), weights, bias, np.array([3, 4], np.int32)], num_heads=2)


def test_multi_head_attention():
    q, k, v = f32(2, 3, 8), f32(2, 5, 8, seed=1), f32(2, 5, 8, seed=2)
    compare("MultiHeadAttention", [q, k, v], num_heads=2)
    compare("MultiHeadAttention", [q, k, v, f32(24, seed=3)], num_heads=2)


@pytest.mark.parametrize("rotary", [0, 1])
def test_group_query_attention(rotary):
    batch, new, past, heads, kv, size = 1, 2, 3, 4, 2, 16
    inputs = [f32(batch, new, heads * size), f32(batch, new, kv * size, seed=1), f32(batch, new, kv * size, seed=2)]
    inputs += [f32(batch, kv, past, size, seed=3), f32(batch, kv, past, size, seed=4)]
    inputs += [np.array([new + past - 1], np.int32), scalar(new + past, np.int32)]
    if rotary:
        inputs += [f32(16, size // 2, seed=5), f32(16, size // 2, seed=6)]
    compare("GroupQueryAttention", inputs, outputs=3, num_heads=heads, kv_num_heads=kv, do_rotary=rotary)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved):
    positions = np.array([[0, 1, 2], [3, 4, 5]], np.int64)
    inputs = [f32(2, 3, 16), positions, f32(8, 4, seed=1), f32(8, 4, seed=2)]
    compare("RotaryEmbedding", inputs, interleaved=interleaved)
    compare("RotaryEmbedding", [inputs[0], np.array([2], np.int64), *inputs[2:]], interleaved=interleaved)


def test_dynamic_lstm():
    weights = [seeded(s).integers(-100, 100, (1, n, 16)).astype(np.int8) for s, n in ((1, 5), (2, 4))]
    scales = [scalar([0.005]), scalar([0], np.int8)]
    inputs = [f32(3, 2, 5), *weights, f32(1, 32, seed=3), None, None, None, None, *scales, *scales]
    compare("DynamicQuantizeLSTM", inputs, outputs=3, fixed=(1, 2, 8, 9, 10, 11), hidden_size=4, rtol=5e-2, atol=2e-2)


def test_features():
    x = f32(5, 3)
    classical = {"domain": CLASSICAL}
    compare("Scaler", [x], offset=[0.1, 0.2, 0.3], scale=[1.0, 2.0, 3.0], **classical)
    for norm in ("MAX", "L1", "L2"):
        compare("Normalizer", [np.abs(x)], norm=norm, **classical)
    holes = x.copy()
    holes[1, 2] = np.nan
    compare("Imputer", [holes], imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"), **classical)
    compare("Binarizer", [x], threshold=0.3, **classical)
    compare("ArrayFeatureExtractor", [x, np.array([2, 0], np.int64)], **classical)
    compare("OneHotEncoder", [np.array([1, 3, 7], np.int64)], cats_int64s=[1, 2, 3], zeros=1, **classical)
    compare("LabelEncoder", [np.array([1, 3, 7], np.int64)], keys_int64s=[1, 7], values_floats=[0.5, 2.5], default_float=-1.0, **classical)


def test_linear_models():
    x = f32(5, 3)
    classical = {"domain": CLASSICAL}
    compare("LinearRegressor", [x], coefficients=[0.5, -1.0, 2.0], intercepts=[0.3], targets=1, **classical)
    attributes = {"coefficients": list(map(float, f32(9, seed=1))), "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [3, 5, 9]}
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        compare("LinearClassifier", [x], outputs=2, post_transform=transform, **attributes, **classical)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kernel):
    attributes = {"coefficients": [0.5, -1.0], "n_supports": 2, "support_vectors": list(map(float, f32(6, seed=1)))}
    compare(
        "SVMRegressor", [f32(5, 3)], domain=CLASSICAL, kernel_type=kernel, kernel_params=[0.4, 0.2, 2.0], rho=[0.3], **attributes
    )


def forest(kind):
    """Two trees of two levels."""
    modes = ["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"]
    attributes = {
        "nodes_treeids": [0] * 5 + [1] * 3,
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
        "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
        "nodes_modes": modes,
        "nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [4, 3, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0],
    }
    leaves = {"treeids": [0, 0, 0, 1, 1], "nodeids": [2, 3, 4, 1, 2]}
    return attributes | {f"{kind}_{name}": value for name, value in leaves.items()}


@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressor(function):
    attributes = forest("target") | {"target_ids": [0] * 5, "target_weights": [0.5, 1.5, -2.0, 0.25, 4.0], "n_targets": 1}
    compare("TreeEnsembleRegressor", [f32(9, 3)], domain=CLASSICAL, aggregate_function=function, **attributes)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_tree_classifier_of_two(transform):
    attributes = forest("class") | {"class_ids": [0] * 5, "class_weights": [0.5, 1.5, -2.0, 0.25, 4.0]}
    compare(
        "TreeEnsembleClassifier", [f32(9, 3)], outputs=2, domain=CLASSICAL, classlabels_int64s=[4, 7],
        post_transform=transform, **attributes,
    )


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_tree_classifier_of_three(transform):
    attributes = forest("class") | {"class_ids": [0, 1, 2, 1, 2], "class_weights": [0.5, 1.5, 2.0, 0.25, 4.0]}
    compare(
        "TreeEnsembleClassifier", [f32(9, 3)], outputs=2, domain=CLASSICAL, classlabels_int64s=[4, 7, 9],
        post_transform=transform, **attributes,
    )
