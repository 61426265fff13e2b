"""The adaptor for ONNX's own test suite, and for whatever else speaks `onnx.backend`.

    from onnx.backend.test import BackendTest
    import hone.backend
    globals().update(BackendTest(hone.backend.HoneBackend, __name__).test_cases)

Models run as a user would run them: no input is made a constant beforehand. Where a value decides a shape, a
form is compiled per value, as `hone.Specialiser` says; `last_fixed` tells whether that was so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict
from onnx.helper import make_graph, make_model, make_opsetid, make_tensor_value_info, np_dtype_to_tensor_dtype

from ._specialise import Specialiser


class HoneRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: onnx.ModelProto, **options: Any) -> None:
        self._specialiser = Specialiser(model, **options)
        stored = {tensor.name for tensor in model.graph.initializer}
        self._names = [port.name for port in model.graph.input if port.name not in stored]
        self._outputs = [port.name for port in model.graph.output]

    @property
    def fixed(self) -> list[str]:
        """Names of the inputs for whose values a form had to be made."""
        return list(self._specialiser.fixed)

    @property
    def host_nodes(self) -> list[str]:
        """Names of the nodes that were not compiled: the runtime itself computes them."""
        return self._specialiser.host_nodes

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Outputs in the model's order, of inputs in its order or by name."""
        if isinstance(inputs, dict):
            feed = inputs
        else:
            given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            feed = dict(zip(self._names, given, strict=True))
        feed = {name: np.asarray(value) if np.isscalar(value) else value for name, value in feed.items()}
        results = self._specialiser.run(feed)
        values = [results[name] for name in self._outputs]
        return namedtupledict("Outputs", self._outputs)(*values)


class HoneBackend(Backend):
    """See the head of this module."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Always: what is not supported fails, it is not skipped."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> HoneRep:
        """A model ready to run; it is compiled when it first runs."""
        if not cls.supports_device(device):
            raise ValueError(f"device '{device}' is none that Hone has: use 'CPU'")
        options = {name: value for name, value in options.items() if name in ("threads", "capacity", "by_value")}
        return HoneRep(model, **options)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Compiles a model and runs it once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        opset_version: int | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Runs one operator on `inputs`, in the order of those of the node's inputs that are not left out."""
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        arrays = [np.asarray(value) for value in given]
        names = [name for name in node.input if name]
        ports = [
            make_tensor_value_info(name, np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, arrays, strict=True)
        ]
        outputs = []
        for place, name in enumerate(filter(None, node.output)):
            port = onnx.ValueInfoProto(name=name)
            if outputs_info is not None:
                dtype, shape = outputs_info[place]
                port = make_tensor_value_info(name, np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            outputs.append(port)
        graph = make_graph([node], "node", ports, outputs)
        opset = make_opsetid("", opset_version or onnx.defs.onnx_opset_version())
        opsets = [opset] if not node.domain else [opset, make_opsetid(node.domain, 1)]
        return cls.run_model(make_model(graph, opset_imports=opsets), arrays, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is a processor of this machine."""
        return device.split(":")[0] == "CPU"


is_compatible = HoneBackend.is_compatible
prepare = HoneBackend.prepare
run_model = HoneBackend.run_model
run_node = HoneBackend.run_node
supports_device = HoneBackend.supports_device
