"""A loaded artifact."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from . import _runtime
from ._arrays import as_array, as_buffer, dense, describe, dtype_of
from ._errors import InputError


class Port(NamedTuple):
    """An input or output."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Sizes(NamedTuple):
    """One of the combinations of sizes that an artifact serves: the dimensions that differ, by name, and all ports."""

    dimensions: dict[str, int]
    inputs: list[Port]
    outputs: list[Port]


class Model:
    """A loaded artifact. It may run in several threads at once; the GIL is released meanwhile."""

    def __init__(self, native: _runtime.Model) -> None:
        self._native = native
        self._sizes = [
            Sizes(dict(dimensions), [_port(own) for own in inputs], [_port(own) for own in outputs])
            for dimensions, inputs, outputs in native.sizes
        ]
        _, self._inputs, self._outputs = self._sizes[0]
        self._by_shapes = {
            tuple(port.shape for port in own.inputs): place for place, own in enumerate(self._sizes)
        }
        self._input_types = [dtype_of(port.dtype) for port in self._inputs]
        self._output_types = [dtype_of(port.dtype) for port in self._outputs]

    @property
    def inputs(self) -> list[Port]:
        """Inputs in the model's order, at the largest of `Model.sizes`."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[Port]:
        """Outputs in the model's order, at the largest of `Model.sizes`."""
        return list(self._outputs)

    @property
    def sizes(self) -> list[Sizes]:
        """The combinations of sizes that the model runs at, the largest first: one, unless it was compiled for more."""
        return list(self._sizes)

    def takes(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Whether the model runs on inputs of these shapes, in its order."""
        return tuple(tuple(shape) for shape in shapes) in self._by_shapes

    @property
    def threads(self) -> int:
        """Most threads that a run uses."""
        return self._native.threads

    @property
    def cpu(self) -> str:
        """The processor that the code was made for."""
        return self._native.cpu

    @property
    def memory(self) -> tuple[int, int]:
        """Bytes of the weights, and of what a run at a time needs beside them."""
        return self._native.memory

    @property
    def host_nodes(self) -> list[str]:
        """Names of the model's nodes that the runtime computes itself; all others are compiled."""
        return self._native.host_nodes

    def run(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        outputs: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs the model on `inputs`, by name or in the model's order; gives its outputs by name.

        An input is a numpy array, anything that speaks DLPack, or what numpy makes an array of. It is read
        where it lies when it is dense, and copied first when it is not. Element types are not converted. The
        shapes of the inputs choose among `Model.sizes`; nothing is padded. `outputs` may hold arrays that results are
        written into, as large as the outputs at these sizes. Where the run decides an output's shape, the result is a
        view of the elements that are there.
        """
        given = [
            as_array(value, port.name) for port, value in zip(self._inputs, self._ordered(inputs))
        ]
        place = self._by_shapes.get(tuple(array.shape for array in given), 0)
        _, ports, results_of = self._sizes[place]
        arrays = [
            as_buffer(dense(self._fitting("input", port, own, array)))
            for port, own, array in zip(ports, self._input_types, given)
        ]
        results = {}
        outputs = outputs or {}
        if stray := set(outputs).difference(port.name for port in self._outputs):
            known = ", ".join(f"'{port.name}'" for port in self._outputs)
            raise InputError(f"the model has no output '{min(stray)}', only {known}")
        for port, own in zip(results_of, self._output_types):
            target = outputs.get(port.name)
            if target is None:
                target = np.empty(port.shape, own)
            elif not isinstance(target, np.ndarray):
                raise InputError(f"output '{port.name}' must be a numpy array, not a {type(target).__name__}")
            elif not (self._fitting("output", port, own, target).flags.c_contiguous and target.flags.writeable):
                raise InputError(f"output '{port.name}' must be a dense array that may be written")
            results[port.name] = target
        shapes = self._native.run(arrays, [as_buffer(target) for target in results.values()], place)
        return {
            name: target if target.shape == tuple(shape) else target.reshape(-1)[: prod(shape)].reshape(shape)
            for (name, target), shape in zip(results.items(), shapes)
        }

    def _ordered(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(self._inputs):
                raise InputError(f"{len(inputs)} inputs are given, the model takes {len(self._inputs)}")
            return list(inputs)
        names = [port.name for port in self._inputs]
        known = ", ".join(f"'{name}'" for name in names)
        if missing := [name for name in names if name not in inputs]:
            raise InputError(f"input '{missing[0]}' is missing: the model takes {known}")
        if stray := [name for name in inputs if name not in names]:
            raise InputError(f"the model has no input '{stray[0]}', only {known}")
        return [inputs[name] for name in names]

    def _fitting(self, role: str, port: Port, dtype: np.dtype, array: np.ndarray) -> np.ndarray:
        bits = port.dtype == "bf16" and array.dtype == np.uint16
        same = array.dtype == dtype or array.dtype.newbyteorder("=") == dtype or bits
        if same and array.shape == port.shape:
            return array
        raise InputError(f"{role} '{port.name}' is {describe(array)}, the model takes {self._taken(role, port)}")

    def _taken(self, role: str, port: Port) -> str:
        """What an input may be: its type and shape, or each of its shapes."""
        if role == "output" or len(self._sizes) == 1:
            return str(port)
        known = [str(own) for sizes in self._sizes for own in sizes.inputs if own.name == port.name]
        return " or ".join(dict.fromkeys(known)) + ", with the other inputs of the same sizes"

    def __repr__(self) -> str:
        inputs = ", ".join(f"{port.name}: {port}" for port in self._inputs)
        outputs = ", ".join(f"{port.name}: {port}" for port in self._outputs)
        return f"<hone model ({inputs}) -> ({outputs}), {self.cpu}>"


def _port(own: tuple[str, str, list[int]]) -> Port:
    name, dtype, shape = own
    return Port(name, dtype, tuple(shape))


def load(
    artifact: str | os.PathLike[str] | bytes,
    *,
    threads: int = 0,
    pinned: bool = False,
    verify: bool = True,
) -> Model:
    """Loads an artifact from a file or from bytes. It holds machine code: load only what you trust.

    `threads` is the most that a run may use, 0 for all cores; `pinned` keeps the threads of the pool on
    their processors; `verify` checks every section's checksum.
    """
    if isinstance(artifact, (bytes, bytearray, memoryview)):
        native = _runtime.Model.load_memory(bytes(artifact), threads, pinned, verify)
    else:
        native = _runtime.Model.load(os.fspath(artifact), threads, pinned, verify)
    return Model(native)
