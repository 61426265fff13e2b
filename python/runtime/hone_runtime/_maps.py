"""Maps as inputs: keys, values, and how many of them are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ._arrays import TEXT, as_texts, describe, dtype_of
from ._errors import InputError


class Strings(NamedTuple):
    """The first strings of a tensor with one axis; what lies behind them is not read."""

    texts: list[str]
    shape: tuple[int]
    ndim: int = 1


def laid_out(name: str, value: Any, ports: list[Any]) -> list[Any]:
    """The tensors of a map: of its keys, its values, and of how many they are; `ports` say which room there is."""
    keys, values, _ = ports
    if not isinstance(value, Mapping):
        raise InputError(f"input '{name}' is a {type(value).__name__}, the model takes a map: give a dict")
    room = keys.shape[0]
    if len(value) > room:
        raise InputError(f"input '{name}' is a map of {len(value)} keys, the model has room for {room}")
    tensors = [_list(f"a key of '{name}'", keys, list(value)), _list(f"a value of '{name}'", values, list(value.values()))]
    return [*tensors, np.array(len(value), np.int64)]


def _list(what: str, port: Any, items: list[Any]) -> Any:
    if port.dtype == TEXT:
        array = np.empty(len(items), object)
        array[:] = items
        return Strings(as_texts(array, port.name), port.shape)
    tensor = np.zeros(port.shape, dtype_of(port.dtype))
    is_whole = np.issubdtype(tensor.dtype, np.integer)
    for place, item in enumerate(items):
        # What onnxruntime takes: numbers of Python and of numpy, and arrays of one of them.
        own = np.asarray(item)
        if own.size != 1 or own.dtype.kind not in ("biu" if is_whole else "biuf"):
            raise InputError(f"{what} is {describe(own)}, the model takes {port.dtype}")
        try:
            tensor[place] = own.item()
        except OverflowError as error:
            raise InputError(f"{what} is {item}, the model takes {port.dtype}") from error
    return tensor
