"""Calls like one that was made before: nothing is looked up, converted or copied again."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from . import _runtime
from ._arrays import TEXT

#: Flags of an array that lies as the model reads it: dense in row-major order, aligned.
_DENSE = 0x0001 | 0x0100
#: Most combinations of shapes that are remembered.
_MOST = 256
#: Element types whose arrays speak the buffer protocol as they are.
_NUMBERS = {"f32", "f64", "f16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"}


class _Plan(NamedTuple):
    """What is known of calls with inputs of the same shapes."""

    extents: list[list[int]]
    outputs: list[tuple[tuple[int, ...], np.dtype]]


class Direct:
    """Runs of a model whose inputs are tensors of numbers, by dictionaries of dense arrays of the model's types, at shapes
    that ran before. Everything else is for `Model.run`, which also says what is wrong. `joined` makes the outputs of their
    tensors; without it they are these."""

    def __init__(
        self,
        native: _runtime.Model,
        names: tuple[list[str], list[str]],
        types: tuple[list[np.dtype], list[np.dtype]],
        joined: Callable[[list[np.ndarray]], dict[str, Any]] | None,
    ) -> None:
        self._native = native
        self._inputs, self._outputs = names
        self._input_types, self._output_types = types
        self._joined = joined
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}

    @staticmethod
    def takes(inputs: list[Any], outputs: list[Any]) -> bool:
        """Whether the memory of inputs and outputs speaks the buffer protocol as it is."""
        plain = all(port.dtype in _NUMBERS for port in inputs)
        known = all(port.dtype in _NUMBERS or port.dtype == TEXT for port in outputs)
        return plain and known and all(port.shape for port in (*inputs, *outputs))

    def learn(self, extents: list[list[int]], outputs: list[tuple[int, ...]]) -> None:
        """Remembers that the model ran on inputs of these shapes, and the shapes of its outputs' memory."""
        if len(self._plans) >= _MOST:
            self._plans = {}
        plan = _Plan(extents, list(zip(outputs, self._output_types)))
        self._plans[tuple(tuple(shape) for shape in extents)] = plan

    def run(self, inputs: Any) -> dict[str, Any] | None:
        """The outputs by name; None where these inputs are not of a kind that ran before."""
        if type(inputs) is not dict or len(inputs) != len(self._inputs):
            return None
        try:
            arrays = [inputs[name] for name in self._inputs]
        except KeyError:
            return None
        for array, dtype in zip(arrays, self._input_types):
            if type(array) is not np.ndarray or array.dtype is not dtype or array.flags.num & _DENSE != _DENSE:
                return None
        plan = self._plans.get(tuple([array.shape for array in arrays]))
        if plan is None:
            return None
        targets = [np.empty(shape, dtype) for shape, dtype in plan.outputs]
        targets = resulting(targets, self._native.run(arrays, targets, plan.extents))
        return dict(zip(self._outputs, targets)) if self._joined is None else self._joined(targets)


def resulting(targets: list[np.ndarray], left: Any) -> list[np.ndarray]:
    """The tensors of outputs in the memory that a run wrote: `left` is what the run says of them, None where each fills its
    memory."""
    if left is None:
        return targets
    tensors = []
    for target, shape, strings in zip(targets, *left):
        if strings is not None:
            target = np.array(strings, object).reshape(shape)
        elif target.shape != tuple(shape):
            target = target.reshape(-1)[: prod(shape)].reshape(shape)
        tensors.append(target)
    return tensors
