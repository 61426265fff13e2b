"""Element types by name, and values as arrays of them without copying where that can be."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ._errors import InputError

_NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}

#: Types that are carried in bytes: their names in `ml_dtypes`, and the types of the bytes.
_CARRIED = {
    "i4": ("int4", np.int8),
    "u4": ("uint4", np.uint8),
    "i2": ("int2", np.int8),
    "u2": ("uint2", np.uint8),
    "f4e2m1": ("float4_e2m1fn", np.uint8),
    "f8e4m3fn": ("float8_e4m3fn", np.uint8),
    "f8e4m3fnuz": ("float8_e4m3fnuz", np.uint8),
    "f8e5m2": ("float8_e5m2", np.uint8),
    "f8e5m2fnuz": ("float8_e5m2fnuz", np.uint8),
    "f8e8m0": ("float8_e8m0fnu", np.uint8),
}


#: Strings: an element is the handle of one.
TEXT = "string"


@functools.cache
def dtype_of(name: str) -> np.dtype:
    """The numpy type of an element type of Hone. `bf16` is that of `ml_dtypes` where it is installed, else
    its bits as `uint16`."""
    if name == "bf16":
        try:
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        except ImportError:
            return np.dtype(np.uint16)
    if name == TEXT:
        return np.dtype(object)
    if name in _CARRIED:
        own, carrier = _CARRIED[name]
        try:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, own))
        except (ImportError, AttributeError):
            return np.dtype(carrier)
    return np.dtype(_NUMPY[name])


def name_of(dtype: np.dtype) -> str | None:
    """The name of a numpy type, where Hone has it."""
    if dtype.name == "bfloat16":
        return "bf16"
    for name, (own, _) in _CARRIED.items():
        if dtype.name == own:
            return name
    return next((name for name, own in _NUMPY.items() if np.dtype(own) == dtype), None)


def as_array(value: Any, name: str) -> np.ndarray:
    """`value` as an array: arrays as they are, whatever speaks DLPack without copying, numbers and lists
    as numpy makes them."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, AttributeError) as error:
            raise InputError(
                f"input '{name}' is a {type(value).__name__} that numpy cannot read by DLPack ({error}); "
                "give it on the CPU, detached, as one of numpy's element types"
            ) from error
    return np.asarray(value)


def dense(array: np.ndarray) -> np.ndarray:
    """The array itself where its elements lie one behind the other, in order, aligned and in the machine's
    byte order; else a copy."""
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        return array
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)


def as_carrier(array: np.ndarray) -> np.ndarray:
    """The same memory as the bytes that carry its elements, where its type is carried in bytes."""
    name = name_of(array.dtype)
    if name not in _CARRIED:
        return array
    carrier = _CARRIED[name][1]
    # `ml_dtypes` keeps the bits of a small signed integer without its sign before them.
    return array.astype(carrier) if carrier is np.int8 else array.view(carrier)


def as_buffer(array: np.ndarray) -> np.ndarray:
    """The same memory under an element type and a shape that the buffer protocol knows."""
    if array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    return array if array.ndim else array.reshape(1)


def as_texts(array: np.ndarray, name: str) -> list[str]:
    """The elements of an array of strings in order."""
    texts = []
    for element in array.reshape(-1).tolist():
        if isinstance(element, bytes):
            try:
                element = element.decode()
            except UnicodeDecodeError as error:
                raise InputError(f"input '{name}' holds a string that is not UTF-8: {error}") from error
        if not isinstance(element, str):
            raise InputError(f"input '{name}' holds a {type(element).__name__}, the model takes strings")
        try:
            element.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"input '{name}' holds a string that is not UTF-8: {error}") from error
        texts.append(element)
    return texts


def is_text(array: np.ndarray) -> bool:
    """Whether the elements may be strings."""
    return array.dtype.kind in "UST" or array.dtype == object


def describe(array: np.ndarray) -> str:
    """Type and shape in Hone's words."""
    name = TEXT if is_text(array) else name_of(array.dtype) or str(array.dtype)
    return f"{name}[{', '.join(map(str, array.shape))}]"
