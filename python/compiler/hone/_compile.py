"""From a model to an artifact."""

from __future__ import annotations

import os
import pathlib
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hone_runtime import InputError, Model, load
from hone_runtime._arrays import as_array, dense, name_of

from . import _compiler

ModelLike = "str | os.PathLike[str] | bytes | onnx.ModelProto"


class DeclaredPort(NamedTuple):
    """An input or output as a model declares it; an extent is a number, a name, or None; `map` is the type of the keys
    where it is a map, whose values are of type `dtype`."""

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    sequence: bool = False
    optional: bool = False
    map: str | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether it is a tensor of which every extent is a number."""
        return not self.sequence and not self.optional and self.shape is not None and all(isinstance(extent, int) for extent in self.shape)

    def __str__(self) -> str:
        if self.map:
            return f"map from {self.map} to {self.dtype}"
        form = ("optional " if self.optional else "") + ("sequence of " if self.sequence else "")
        if self.shape is None:
            return f"{form}{self.dtype or '?'}[...]"
        return f"{form}{self.dtype or '?'}[{', '.join('?' if e is None else str(e) for e in self.shape)}]"


class Signature(NamedTuple):
    """What a model declares; inputs that it stores a value for are none."""

    inputs: list[DeclaredPort]
    outputs: list[DeclaredPort]


@dataclass(frozen=True)
class Compiled:
    """An artifact as bytes, and facts about how it was made."""

    artifact: bytes
    facts: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the artifact: whole or not at all."""
        path = pathlib.Path(path)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(self.artifact)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise

    def load(self, *, threads: int = 0, pinned: bool = False) -> Model:
        """The artifact, ready to run in this process."""
        return load(self.artifact, threads=threads, pinned=pinned)

    def __repr__(self) -> str:
        return f"<hone artifact of {len(self.artifact)} bytes, {self.facts['steps']} steps>"


def read(model: Any) -> tuple[bytes, str | None]:
    """A model's bytes, and the folder in which tensors stored beside it lie."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), None
    if hasattr(model, "SerializeToString"):
        return model.SerializeToString(), None
    path = pathlib.Path(model)
    return path.read_bytes(), str(path.resolve().parent)


def signature(model: ModelLike) -> Signature:
    """Inputs and outputs as a model declares them."""
    return signature_of(read(model)[0])


def signature_of(data: bytes) -> Signature:
    """The same of a model's bytes."""
    ports = [
        [
            DeclaredPort(name, dtype, None if shape is None else tuple(shape), sequence, optional, key)
            for name, dtype, shape, sequence, optional, key in side
        ]
        for side in _compiler.signature(data)
    ]
    return Signature(*ports)


def compile(  # noqa: A001
    model: ModelLike,
    *,
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    output: str | os.PathLike[str] | None = None,
    cpu: str = "host",
    arch: str | None = None,
    precision: str = "f32",
    folder: str | os.PathLike[str] | None = None,
    inspection: bool = False,
) -> Compiled:
    """Compiles a model: a path, its bytes, or an `onnx.ModelProto`.

    Dimensions that the model leaves open stay open where it allows that: one, such as the batch, takes any size, and one
    more, such as the length of a sequence, every size up to a bound (512, or as many as the model has positions).
    `shapes` says otherwise: of an input by its shape, `{"x": (1, 3, 224, 224)}`, or of a dimension of all inputs by its
    size, `{"batch": 4}`. Several sizes, `{"batch": range(1, 5), "seq": [32, 64]}` or `{"x": ([1, 2], 8)}`, are compiled
    each, at most 32 combinations; weights are in the artifact once. A longer range, `{"seq": range(1, 2049)}`, is every
    size up to its end. Texts are as those of `hone compile --shape`: `"16|32"`, `"1..2048"`, and `"1.."` for any size, which
    is refused where the model does not allow it.
    Of a sequence `shapes` has the shapes of its tensors, and None of an optional input that is left out.
    `constants` gives the values of inputs that are known now, which the artifact then does not have. `output` is
    a file to write to. `cpu` is `host` or a processor that LLVM knows, of the architecture `arch` (`amd64`,
    `arm64`, `riscv64`; this machine's by default). `precision` is `f32` or `bf16`. `folder` has the files of
    tensors that the model stores outside itself (by default where the model lies). `inspection` keeps schedules
    and assembly.
    """
    data, beside = read(model)
    values = []
    for name, value in (constants or {}).items():
        array = dense(as_array(value, name))
        dtype = name_of(array.dtype)
        if dtype is None:
            raise InputError(f"constant '{name}' is of type {array.dtype}, which Hone does not have")
        values.append((name, dtype, list(array.shape), array.tobytes()))
    bound, forms = _bound(shapes or {}, data)
    artifact, facts = _compiler.compile(
        data,
        str(folder) if folder is not None else beside,
        bound,
        forms,
        values,
        cpu,
        arch or _architecture(),
        precision,
        inspection,
    )
    compiled = Compiled(artifact, facts)
    if output is not None:
        compiled.save(output)
    return compiled


def _bound(
    shapes: Mapping[str, Any],
    data: bytes,
) -> tuple[list[tuple[str, list[str]]], list[tuple[str, int | None]]]:
    """Shapes of tensors by name, and how many tensors sequences have; None of what is left out."""
    if not shapes:
        return [], []
    sequences = {port.name for port in signature_of(data).inputs if port.sequence}
    bound: list[tuple[str, list[str]]] = []
    forms: list[tuple[str, int | None]] = []
    for name, shape in shapes.items():
        if shape is None:
            forms.append((name, None))
        elif name in sequences and all(isinstance(own, (tuple, list)) for own in shape):
            forms.append((name, len(shape)))
            bound.extend((f"{name}[{place}]", sizes_of(own)) for place, own in enumerate(shape))
        else:
            bound.append((name, sizes_of(shape)))
    return bound, forms


def sizes_of(shape: Any) -> list[str]:
    """The sizes of each axis of a shape, as `hone compile --shape` takes them: of a number, a range or a text one axis."""
    if isinstance(shape, (range, str)) or hasattr(shape, "__index__"):
        return [_extent(shape)]
    return [_extent(extent) for extent in shape]


def _extent(sizes: Any) -> str:
    """The sizes of one axis as a text."""
    if isinstance(sizes, str):
        return sizes
    if hasattr(sizes, "__index__"):
        return str(int(sizes))
    if isinstance(sizes, range) and sizes.step == 1 and len(sizes) > 1:
        return f"{sizes[0]}..{sizes[-1]}"
    listed = [str(int(size)) for size in sizes]
    if not listed:
        raise ValueError("a list of sizes is empty: name at least one")
    return "|".join(listed)


def supported_operators() -> list[tuple[str, str]]:
    """Operators that Hone takes: operator set (empty for ONNX's own) and name."""
    return list(_compiler.supported())


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


