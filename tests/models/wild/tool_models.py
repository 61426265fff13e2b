"""Models that tools make out of other models of the corpus: onnxruntime's optimiser, quantizers, float16 converters.

A form is `FORM SOURCE`, where SOURCE is the name of another entry, whose first sizes calibrate.
"""

import pathlib
import tempfile

import corpus
import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType
from onnxruntime.quantization.shape_inference import quant_pre_process


class Samples(quantization.CalibrationDataReader):
    def __init__(self, name, entry):
        self.samples = iter([corpus.inputs(name, entry, 0) for _ in range(2)])

    def get_next(self):
        return next(self.samples, None)


def fused(kind, **sizes):
    """onnxruntime.transformers' optimiser: attention, embeddings and norms as operators of com.microsoft."""

    def make(source, target, name, entry):
        from onnxruntime.transformers import optimizer

        optimizer.optimize_model(str(source), model_type=kind, **sizes).save_model_to_file(str(target))

    return make


def fused_half(source, target, name, entry):
    from onnxruntime.transformers import optimizer

    made = optimizer.optimize_model(str(source), model_type="bert", num_heads=4, hidden_size=64)
    made.convert_float_to_float16(keep_io_types=True)
    made.save_model_to_file(str(target))


def optimised(level):
    """The graph that a session of onnxruntime leaves at an optimisation level."""

    def make(source, target, name, entry):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(target)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    return make


def dynamic(**options):
    def make(source, target, name, entry):
        quantization.quantize_dynamic(source, target, **options)

    return make


def static(form, activations, weights, **options):
    def make(source, target, name, entry):
        with tempfile.TemporaryDirectory() as scratch:
            prepared = pathlib.Path(scratch) / "prepared.onnx"
            quant_pre_process(source, prepared, skip_symbolic_shape=True)
            quantization.quantize_static(prepared, target, Samples(name, entry), quant_format=form,
                                         activation_type=activations, weight_type=weights, **options)

    return make


def few_bits(**options):
    """Weights of matrix products with four bits, in blocks."""

    def make(source, target, name, entry):
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        made = MatMulNBitsQuantizer(onnx.load(source), block_size=32, **options)
        made.process()
        onnx.save(made.model.model, target)

    return make


def half(**options):
    def make(source, target, name, entry):
        from onnxconverter_common import float16

        onnx.save(float16.convert_float_to_float16(onnx.load(source), **options), target)

    return make


def mixed(source, target, name, entry):
    from onnxconverter_common import auto_mixed_precision

    arrays = corpus.inputs(name, entry, 0)
    onnx.save(auto_mixed_precision.auto_convert_mixed_precision(
        onnx.load(source), arrays, rtol=0.01, atol=0.001, keep_io_types=True), target)


LEVEL = onnxruntime.GraphOptimizationLevel
FORMS = {
    "fused_bert": fused("bert", num_heads=4, hidden_size=64),
    "fused_gpt2": fused("gpt2", num_heads=4, hidden_size=64),
    "fused_t5": fused("t5", num_heads=4, hidden_size=64),
    "fused_vit": fused("vit", num_heads=4, hidden_size=64),
    "fused_half": fused_half,
    "basic": optimised(LEVEL.ORT_ENABLE_BASIC),
    "extended": optimised(LEVEL.ORT_ENABLE_EXTENDED),
    "dynamic": dynamic(),
    "dynamic_channels": dynamic(per_channel=True, weight_type=QuantType.QInt8, reduce_range=True),
    "qdq": static(QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, per_channel=True),
    "qdq_signed": static(QuantFormat.QDQ, QuantType.QInt8, QuantType.QInt8),
    "qdq_16": static(QuantFormat.QDQ, QuantType.QUInt16, QuantType.QInt8),
    "qdq_4": static(QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt4, per_channel=True),
    "qoperator": static(QuantFormat.QOperator, QuantType.QUInt8, QuantType.QUInt8),
    "four_bits": few_bits(is_symmetric=True),
    "four_bits_zero_points": few_bits(is_symmetric=False, accuracy_level=4),
    "four_bits_qdq": few_bits(is_symmetric=True, quant_format=QuantFormat.QDQ),
    "half": half(),
    "half_keeps_io": half(keep_io_types=True),
    "mixed": mixed,
}


def make(target, form, name, entries, folder):
    source = next(path for path in (folder / f"{name}.onnx", target.parent.parent / f"{name}.onnx") if path.exists())
    FORMS[form](source, target, name, entries[name])
