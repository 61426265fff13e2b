"""A loaded artifact."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from . import _runtime
from ._arrays import TEXT, as_array, as_buffer, as_texts, dense, describe, dtype_of, is_text
from ._errors import InputError


class Port(NamedTuple):
    """An input or output."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Member(NamedTuple):
    """An input or output as users of the model know it: `form` is `tensor`, `sequence`, `maps` or `absent`."""

    name: str
    form: str
    tensors: int
    text: bool


def _ports(tensors: list[tuple[str, str, list[int]]], members: list[Member]) -> list[Port]:
    """Tensors, those of strings as such."""
    text = [
        member.text and (place == 0 or member.form != "maps")
        for member in members
        for place in range(member.tensors)
    ]
    return [
        Port(name, TEXT if own else dtype, tuple(shape)) for (name, dtype, shape), own in zip(tensors, text)
    ]


def _items(member: Member, value: Any) -> list[Any]:
    """The tensors that a value is made of."""
    if member.form == "tensor":
        return [value]
    if member.form == "absent":
        if value is not None:
            raise InputError(f"input '{member.name}' is given, the model was compiled without it")
        return []
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise InputError(f"input '{member.name}' must be a list of tensors, not a {type(value).__name__}")
    if len(value) != member.tensors:
        raise InputError(
            f"input '{member.name}' has {len(value)} tensors, the model was compiled for {member.tensors}"
        )
    return list(value)


def _joined(member: Member, tensors: list[np.ndarray]) -> Any:
    """The value that tensors make."""
    if member.form == "sequence":
        return tensors
    if member.form == "maps":
        keys = tensors[0].tolist()
        return [dict(zip(keys, row)) for row in tensors[1].tolist()]
    return tensors[0] if tensors else None


class Model:
    """A loaded artifact. It may run in several threads at once; the GIL is released meanwhile."""

    def __init__(self, native: _runtime.Model) -> None:
        self._native = native
        self._input_members = [Member(*own) for own in native.input_members]
        self._output_members = [Member(*own) for own in native.output_members]
        self._inputs = _ports(native.inputs, self._input_members)
        self._outputs = _ports(native.outputs, self._output_members)
        self._input_types = [dtype_of(port.dtype) for port in self._inputs]
        self._output_types = [dtype_of(port.dtype) for port in self._outputs]

    @property
    def inputs(self) -> list[Port]:
        """Inputs in the model's order; of a sequence `x` its tensors, `x[0]`, `x[1]` and so on."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[Port]:
        """Outputs in the model's order; of a sequence `y` its tensors, `y[0]`, `y[1]` and so on."""
        return list(self._outputs)

    @property
    def members(self) -> tuple[list[Member], list[Member]]:
        """Inputs and outputs as users of the model know them: tensors, sequences, optional values left out."""
        return list(self._input_members), list(self._output_members)

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
    ) -> dict[str, Any]:
        """Runs the model on `inputs`, by name or in the model's order; gives its outputs by name.

        An input is a numpy array, anything that speaks DLPack, or what numpy makes an array of. It is read
        where it lies when it is dense, and copied first when it is not. Element types are not converted.
        A sequence is a list of such, an optional input that the model was compiled without is None, strings are
        arrays of `str` or `bytes`. `outputs` may hold arrays that results are written into, as large as
        `Model.outputs` says. Where the run decides an output's shape, the result is a view of the elements that
        are there.
        """
        arrays, texts = self._given(self._ordered(inputs))
        targets = self._targets(outputs or {})
        shapes, said = self._native.run(arrays, [as_buffer(target) for target in targets], texts)
        results = []
        for target, shape, strings in zip(targets, shapes, said):
            if strings is not None:
                target = np.array(strings, object).reshape(shape)
            elif target.shape != tuple(shape):
                target = target.reshape(-1)[: prod(shape)].reshape(shape)
            results.append(target)
        rest = iter(results)
        joined: dict[str, Any] = {}
        for member in self._output_members:
            own = [next(rest) for _ in range(member.tensors)]
            joined[member.name] = _joined(member, own)
        return joined

    def _given(self, values: list[Any]) -> tuple[list[np.ndarray], list[str]]:
        """The tensors of inputs, and the strings that are among them."""
        ports = iter(zip(self._inputs, self._input_types))
        arrays, texts = [], []
        for member, value in zip(self._input_members, values):
            items = _items(member, value)
            for item, (port, dtype) in zip(items, itertools.islice(ports, member.tensors)):
                array = as_array(item, port.name)
                if not member.text:
                    arrays.append(as_buffer(dense(self._fitting("input", port, dtype, array))))
                    continue
                if array.shape != port.shape or not (is_text(array) or not array.size):
                    raise InputError(f"input '{port.name}' is {describe(array)}, the model takes {port}")
                own = as_texts(array, port.name)
                texts.extend(own)
                arrays.append(np.frombuffer(_runtime.text_handles(own), np.uint64))
        return arrays, texts

    def _targets(self, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Memory for the tensors of outputs: what was given, else new."""
        if stray := set(given).difference(port.name for port in self._outputs):
            known = ", ".join(f"'{port.name}'" for port in self._outputs)
            raise InputError(f"the model has no output '{min(stray)}', only {known}")
        targets = []
        for port, own in zip(self._outputs, self._output_types):
            target = given.get(port.name)
            if target is None:
                target = np.empty(port.shape, np.uint64 if port.dtype == TEXT else own)
            elif port.dtype == TEXT:
                raise InputError(f"output '{port.name}' is of strings, which are not written into an array")
            elif not isinstance(target, np.ndarray):
                raise InputError(f"output '{port.name}' must be a numpy array, not a {type(target).__name__}")
            elif not (self._fitting("output", port, own, target).flags.c_contiguous and target.flags.writeable):
                raise InputError(f"output '{port.name}' must be a dense array that may be written")
            targets.append(target)
        return targets

    def _ordered(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        names = [member.name for member in self._input_members]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(names):
                raise InputError(f"{len(inputs)} inputs are given, the model takes {len(names)}")
            return list(inputs)
        known = ", ".join(f"'{name}'" for name in names)
        absent = {member.name for member in self._input_members if member.form == "absent"}
        if missing := [name for name in names if name not in inputs and name not in absent]:
            raise InputError(f"input '{missing[0]}' is missing: the model takes {known}")
        if stray := [name for name in inputs if name not in names]:
            raise InputError(f"the model has no input '{stray[0]}', only {known}")
        return [inputs.get(name) for name in names]

    @staticmethod
    def _fitting(role: str, port: Port, dtype: np.dtype, array: np.ndarray) -> np.ndarray:
        bits = port.dtype == "bf16" and array.dtype == np.uint16
        same = array.dtype == dtype or array.dtype.newbyteorder("=") == dtype or bits
        if same and array.shape == port.shape:
            return array
        raise InputError(f"{role} '{port.name}' is {describe(array)}, the model takes {port}")

    def __repr__(self) -> str:
        inputs = ", ".join(f"{port.name}: {port}" for port in self._inputs)
        outputs = ", ".join(f"{port.name}: {port}" for port in self._outputs)
        return f"<hone model ({inputs}) -> ({outputs}), {self.cpu}>"


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
