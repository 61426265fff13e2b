"""Attention in the forms in which exporters write it, one model each, with weights from a fixed seed:
python tests/models/attention.py FOLDER. For measurements and for looking at what becomes of each form.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Nodes of one graph; `node` returns the name of the only output."""

    def __init__(self):
        self.nodes, self.constants, self.inputs = [], [], []
        self.random = np.random.default_rng(7)

    def input(self, shape, dtype=TensorProto.FLOAT):
        name = f"input{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, array):
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape):
        scale = 1 / np.sqrt(shape[0])
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def node(self, kind, *inputs, **attributes):
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def reshape(self, x, *shape):
        return self.node("Reshape", x, self.constant(np.array(shape, np.int64)))

    def model(self, output):
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "attention", self.inputs, [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def heads(b, x, rows, count, size, batch=1):
    """[batch, rows, count * size] as [batch, count, rows, size]."""
    return b.node("Transpose", b.reshape(x, batch, rows, count, size), perm=[0, 2, 1, 3])


def scores(b, q, k, size):
    turned = b.node("Transpose", k, perm=[0, 1, 3, 2])
    return b.node("Div", b.node("MatMul", q, turned), b.constant(np.float32(np.sqrt(size))))


def mean(b, changed, v):
    return b.node("MatMul", b.node("Softmax", changed, axis=-1), v)


def plain(rows, count=8, size=64):
    """Queries, keys and values as they are."""
    b = Builder()
    q, k, v = (b.input([1, count, rows, size]) for _ in range(3))
    return b.model(mean(b, scores(b, q, k, size), v))


def encoder(rows=128, count=12, size=64, masked=True):
    """A layer of an encoder with projections and a mask of the keys."""
    b = Builder()
    wide = count * size
    x = b.input([1, rows, wide])
    q, k, v = (
        heads(b, b.node("Add", b.node("MatMul", x, b.weight(wide, wide)), b.weight(wide)), rows, count, size)
        for _ in range(3)
    )
    s = scores(b, q, k, size)
    if masked:
        s = b.node("Add", s, b.input([1, 1, 1, rows]))
    y = b.node("Transpose", mean(b, s, v), perm=[0, 2, 1, 3])
    y = b.reshape(y, 1, rows, wide)
    return b.model(b.node("MatMul", y, b.weight(wide, wide)))


def causal(rows=512, count=12, size=64):
    """A decoder's mask: minus infinity above the diagonal."""
    b = Builder()
    q, k, v = (b.input([1, count, rows, size]) for _ in range(3))
    mask = np.triu(np.full((1, 1, rows, rows), -np.inf, np.float32), 1)
    return b.model(mean(b, b.node("Add", scores(b, q, k, size), b.constant(mask)), v))


def boolean(rows=96, count=4, size=32):
    """Scores chosen by a mask, weights that are no numbers set to zero."""
    b = Builder()
    q, k, v = (b.input([2, count, rows, size]) for _ in range(3))
    mask = b.input([2, 1, rows, rows], TensorProto.BOOL)
    least, zero = b.constant(np.float32(-np.inf)), b.constant(np.float32(0))
    root = b.constant(np.float32(size**-0.25))
    turned = b.node("Mul", b.node("Transpose", k, perm=[0, 1, 3, 2]), root)
    s = b.node("Where", mask, b.node("MatMul", b.node("Mul", q, root), turned), least)
    w = b.node("Softmax", s, axis=-1)
    w = b.node("Where", b.node("IsNaN", w), zero, w)
    return b.model(b.node("MatMul", w, v))


def grouped(rows=256, count=16, shared=4, size=64):
    """Four heads of queries for each head of keys and values."""
    b = Builder()
    q = b.input([1, count, rows, size])
    k, v = b.input([1, shared, rows, size]), b.input([1, shared, rows, size])
    times = count // shared
    wide = b.constant(np.array([1, shared, times, rows, size], np.int64))

    def spread(x):
        column = b.reshape(x, 1, shared, 1, rows, size)
        return b.reshape(b.node("Expand", column, wide), 1, count, rows, size)

    return b.model(mean(b, scores(b, q, spread(k), size), spread(v)))


def windows(side=7, count=3, size=32, image=56):
    """A shifted block of windows with position biases, as in the Swin transformer."""
    b = Builder()
    rows, number, wide = side * side, (image // side) ** 2, count * size
    x = b.input([number, rows, wide])
    qkv = b.node("Add", b.node("MatMul", x, b.weight(wide, 3 * wide)), b.weight(3 * wide))
    qkv = b.node("Transpose", b.reshape(qkv, number, rows, 3, count, size), perm=[2, 0, 3, 1, 4])
    q, k, v = (b.node("Gather", qkv, b.constant(np.int64(i)), axis=0) for i in range(3))
    q = b.node("Mul", q, b.constant(np.float32(size**-0.5)))
    s = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    s = b.node("Add", s, b.weight(1, count, rows, rows))
    mask = np.where(b.random.random((1, number, 1, rows, rows)) < 0.3, -100, 0).astype(np.float32)
    s = b.node("Add", b.reshape(s, 1, number, count, rows, rows), b.constant(mask))
    s = b.reshape(s, number, count, rows, rows)
    y = b.node("Transpose", mean(b, s, v), perm=[0, 2, 1, 3])
    y = b.node("MatMul", b.reshape(y, number, rows, wide), b.weight(wide, wide))
    return b.model(y)


MODELS = {
    "plain-2048": lambda: plain(2048),
    "plain-100": lambda: plain(100, 2, 24),
    "encoder-128": encoder,
    "encoder-197": lambda: encoder(197, masked=False),
    "causal-512": causal,
    "boolean-96": boolean,
    "grouped-256": grouped,
    "windows-49": windows,
}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in MODELS.items():
        onnx.save(build(), folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
