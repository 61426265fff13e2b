"""onnxruntime's names over Hone, so that a script which uses it changes one import.

What has no meaning here (graph optimisation levels, execution modes, logging) is accepted and changes
nothing. What Hone cannot do raises, it is never ignored.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from hone_runtime import InputError, Model, load

from ._compile import DeclaredPort, Signature
from ._specialise import Specialiser

_TYPES = {
    "f32": "tensor(float)",
    "f64": "tensor(double)",
    "f16": "tensor(float16)",
    "bf16": "tensor(bfloat16)",
    "i8": "tensor(int8)",
    "i16": "tensor(int16)",
    "i32": "tensor(int32)",
    "i64": "tensor(int64)",
    "u8": "tensor(uint8)",
    "u16": "tensor(uint16)",
    "u32": "tensor(uint32)",
    "u64": "tensor(uint64)",
    "bool": "tensor(bool)",
    "string": "tensor(string)",
    "i4": "tensor(int4)",
    "u4": "tensor(uint4)",
    "f8e4m3fn": "tensor(float8e4m3fn)",
    "f8e4m3fnuz": "tensor(float8e4m3fnuz)",
    "f8e5m2": "tensor(float8e5m2)",
    "f8e5m2fnuz": "tensor(float8e5m2fnuz)",
    "f4e2m1": "tensor(float4e2m1)",
}

_KEYS = {"string": "string", "i64": "int64"}

_PROVIDER = "CPUExecutionProvider"


class NodeArg(NamedTuple):
    """An input or output as the model declares it."""

    name: str
    type: str
    shape: list[int | str | None]


class ModelMetadata(NamedTuple):
    """What a session says of its model."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = {}


class GraphOptimizationLevel(enum.Enum):
    """Accepted; Hone has one level."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.Enum):
    """Accepted; steps run one after the other, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """`intra_op_num_threads` is heeded (0: all cores); further attributes may be set and change nothing."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.log_severity_level = 2
        self.enable_profiling = False
        self._config: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Kept; changes nothing."""
        self._config[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """What was kept."""
        return self._config[key]


class RunOptions:
    """Accepted; changes nothing."""


class InferenceSession:
    """A model that is compiled when the shapes of its inputs are first seen; at once where it fixes them.

    When a second shape comes, the model is compiled for every size, where it allows that. Other compiled forms are kept,
    `cache_size` at most. `shapes`, as those of `hone.compile`, are compiled when the session is
    made, all into one form that holds the weights once. An artifact in place of a model runs at the sizes that it was
    compiled for, and at no others. An input whose value decides a shape makes a form per
    value (see `hone.Specialiser`).
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        cache_size: int = 16,
        shapes: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        names = [own if isinstance(own, str) else own[0] for own in providers or [_PROVIDER]]
        if _PROVIDER not in names and "HoneExecutionProvider" not in names:
            raise ValueError(f"providers {names} hold none that Hone has: add '{_PROVIDER}'")
        self._options = sess_options or SessionOptions()
        threads = self._options.intra_op_num_threads
        if (artifact := _artifact(path_or_bytes)) is not None:
            model = load(artifact, threads=threads)
            self._run, self._signature = model.run, _declared(model)
            self._outputs = [port.name for port in self._signature.outputs]
            return
        self._specialiser = Specialiser(path_or_bytes, capacity=cache_size, threads=threads, shapes=shapes)
        self._run = self._specialiser.run
        self._signature = self._specialiser.signature
        self._outputs = [port.name for port in self._signature.outputs]
        if all(port.is_fixed for port in self._specialiser.signature.inputs):
            self._specialiser.prepare()

    def get_inputs(self) -> list[NodeArg]:
        """Inputs as the model declares them."""
        return [_node_arg(port) for port in self._signature.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Outputs as the model declares them."""
        return [_node_arg(port) for port in self._signature.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: what a model stores is compiled in."""
        return []

    def get_providers(self) -> list[str]:
        """The one that there is."""
        return [_PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """None."""
        return {_PROVIDER: {}}

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        """Empty but for its form: Hone keeps no metadata."""
        return ModelMetadata()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[np.ndarray]:
        """Outputs in the order of `output_names`, or all in the model's."""
        names = list(output_names) if output_names else self._outputs
        for name in names:
            if name not in self._outputs:
                known = ", ".join(f"'{own}'" for own in self._outputs)
                raise InputError(f"the model has no output '{name}', only {known}")
        results = self._run(input_feed)
        return [results[name] for name in names]


#: The first bytes of an artifact.
_MAGIC = b"\x89HONE\x1a\r\n"


def _artifact(given: Any) -> Any:
    """What was given, where it is an artifact or the path of one."""
    if isinstance(given, (bytes, bytearray, memoryview)):
        return given if bytes(given[: len(_MAGIC)]) == _MAGIC else None
    if hasattr(given, "SerializeToString"):
        return None
    with open(given, "rb") as file:
        return given if file.read(len(_MAGIC)) == _MAGIC else None


def _declared(model: Model) -> Signature:
    """The ports of a loaded artifact; an extent that differs between its sizes is None."""
    sizes = model.sizes

    def side(name: str) -> list[DeclaredPort]:
        ports = []
        for same in zip(*(getattr(own, name) for own in sizes)):
            extents = [set(own) for own in zip(*(port.shape for port in same))]
            shape = tuple(own.pop() if len(own) == 1 else None for own in extents)
            ports.append(DeclaredPort(same[0].name, same[0].dtype, shape))
        return ports

    return Signature(side("inputs"), side("outputs"))


def _node_arg(port: Any) -> NodeArg:
    shape = list(port.shape) if port.shape is not None else []
    kind = _TYPES.get(port.dtype, "tensor(?)")
    if port.map:
        return NodeArg(port.name, f"map({_KEYS[port.map]},{kind})", [])
    kind = f"seq({kind})" if port.sequence else kind
    return NodeArg(port.name, f"optional({kind})" if port.optional else kind, shape)


def get_available_providers() -> list[str]:
    """The one that there is."""
    return [_PROVIDER]


def get_device() -> str:
    """Always `CPU`."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Accepted; Hone logs nothing."""
