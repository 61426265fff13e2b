"""Quantizes an exported model as onnxruntime's own tools do.

    quantize.py FOLDER NAME.FORM ...

FOLDER/NAME.onnx becomes FOLDER/NAME.FORM.onnx, with inputs, onnxruntime's outputs and facts beside it.

    qdq          static, QuantizeLinear and DequantizeLinear pairs, unsigned activations, weights per channel
    qdq-signed   the same with signed activations, the quantizer's default
    qoperator    static, QLinearConv and its kin, unsigned activations
    dynamic      weights only; activations are quantized while running
    four-bits    weights only, in four bits with a scale for each 32; activations may be rounded to bytes while running
"""

import pathlib
import shutil
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.shape_inference import quant_pre_process


class Samples(CalibrationDataReader):
    """The model's inputs, and seeded noise of the same form."""

    def __init__(self, arrays, count=4):
        random = np.random.default_rng(20)

        def like(array):
            if np.issubdtype(array.dtype, np.floating):
                return random.standard_normal(array.shape).astype(array.dtype)
            return array

        noise = ({name: like(array) for name, array in arrays.items()} for _ in range(count))
        self.samples = iter([arrays, *noise])

    def get_next(self):
        return next(self.samples, None)


def quantize(source, target, form, arrays):
    if form == "four-bits":
        made = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=True, accuracy_level=4)
        made.process()
        return onnx.save(made.model.model, target)
    if form == "dynamic":
        return quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8)
    signed = form == "qdq-signed"
    quantize_static(
        source,
        target,
        Samples(arrays),
        quant_format=QuantFormat.QOperator if form == "qoperator" else QuantFormat.QDQ,
        activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )


def make(folder, name):
    model, form = name.rsplit(".", 1)
    source = folder / f"{model}.onnx"
    arrays = dict(np.load(folder / f"{model}.inputs.npz"))
    target = folder / f"{name}.onnx"
    with tempfile.TemporaryDirectory() as scratch:
        prepared = pathlib.Path(scratch) / "prepared.onnx"
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize(prepared, target, form, arrays)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    shutil.copy(folder / f"{model}.inputs.npz", folder / f"{name}.inputs.npz")
    shutil.copy(folder / f"{model}.facts.json", folder / f"{name}.facts.json")
    # Last, so that a file of outputs means that the rest is there.
    np.savez(folder / f"{name}.outputs.npz", **dict(zip(names, session.run(names, arrays))))


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(f"{name}: quantizing", flush=True)
        make(pathlib.Path(sys.argv[1]), name)
