"""A loaded artifact."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _runtime
from ._arrays import TEXT, as_array, as_buffer, as_texts, dense, describe, dtype_of, is_text
from ._direct import Direct, resulting
from ._errors import InputError
from ._maps import Strings, laid_out


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


class Member(NamedTuple):
    """An input or output as users of the model know it: `form` is `tensor`, `sequence`, `maps`, `map` or `absent`; of maps
    `text` is of the keys, and `text_values` of the values of a map."""

    name: str
    form: str
    tensors: int
    text: bool
    text_values: bool = False

    def has_text(self, place: int) -> bool:
        """Whether the elements of its tensor at a place are strings."""
        if self.form == "map" and place == 1:
            return self.text_values
        return self.text and (place == 0 or self.form not in ("map", "maps"))


def _ports(tensors: list[tuple[str, str, list[int]]], members: list[Member]) -> list[Port]:
    """Tensors, those of strings as such."""
    text = [member.has_text(place) for member in members for place in range(member.tensors)]
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
        self._sizes = [
            Sizes(dict(dimensions), _ports(inputs, self._input_members), _ports(outputs, self._output_members))
            for dimensions, inputs, outputs in native.sizes
        ]
        _, self._inputs, self._outputs = self._sizes[0]
        self._by_shapes = {
            tuple(port.shape for port in own.inputs): place for place, own in enumerate(self._sizes)
        }
        self._open = native.open_dimension
        self._padded = native.padded_dimension
        # What may have sizes that are not among `Model.sizes`.
        self._dynamic = [own for own in (self._open, self._padded) if own]
        self._input_types = [dtype_of(port.dtype) for port in self._inputs]
        self._output_types = [dtype_of(port.dtype) for port in self._outputs]
        self._direct = self._made_direct()

    def _made_direct(self) -> Direct | None:
        """The short way for calls like one that was made before, where the model has one."""
        if any(own.form != "tensor" for own in self._input_members):
            return None
        if not Direct.takes(self._inputs, self._outputs):
            return None
        names = [port.name for port in self._inputs], [port.name for port in self._outputs]
        whole = all(own.form == "tensor" for own in self._output_members)
        handles = np.dtype(np.uint64)
        held = [handles if port.dtype == TEXT else own for port, own in zip(self._outputs, self._output_types)]
        types = self._input_types, held
        return Direct(self._native, names, types, None if whole else self._results)

    @property
    def inputs(self) -> list[Port]:
        """Inputs in the model's order, at the largest of `Model.sizes`; of a sequence `x` its tensors, `x[0]`, `x[1]`,
        of a map `x` those of its keys, its values and their number, `x.keys`, `x.values` and `x.count`."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[Port]:
        """Outputs in the model's order, at the largest of `Model.sizes`; of a sequence `y` its tensors, `y[0]`, `y[1]`."""
        return list(self._outputs)

    @property
    def members(self) -> tuple[list[Member], list[Member]]:
        """Inputs and outputs as users of the model know them: tensors, sequences, maps, optional values left out."""
        return list(self._input_members), list(self._output_members)

    @property
    def sizes(self) -> list[Sizes]:
        """The combinations of sizes that the model runs at, the largest first: one, unless it was compiled for more."""
        return list(self._sizes)

    @property
    def open_dimension(self) -> str | None:
        """The dimension of which the model runs at any size, such as `batch`: sizes that are not among `Model.sizes` are
        composed of those. None where there is none."""
        return self._open[0] if self._open else None

    @property
    def padded_dimension(self) -> str | None:
        """The dimension of which the model runs at every size up to the largest of `Model.sizes`, such as `sequence`: a run
        takes the time of the next larger of these. None where there is none."""
        return self._padded[0] if self._padded else None

    def takes(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Whether the model runs on inputs of these shapes, in its order."""
        known = tuple(tuple(shape) for shape in shapes)
        return known in self._by_shapes or self._composed(known) is not None

    def _composed(self, shapes: tuple[tuple[int, ...], ...]) -> Sizes | None:
        """Inputs and outputs at sizes that are not among `Model.sizes`; None where these shapes are of none."""
        if not self._dynamic or len(shapes) != len(self._inputs):
            return None
        extents: dict[str, int] = {}
        for name, inputs, _ in self._dynamic:
            if any(axis is not None and axis >= len(shape) for shape, axis in zip(shapes, inputs)):
                return None
            found = {shape[axis] for shape, axis in zip(shapes, inputs) if axis is not None}
            if len(found) != 1:
                return None
            extents[name] = found.pop()
        if self._padded and not 1 <= extents[self._padded[0]] <= self._bound():
            return None
        for own in self._sizes:
            composed = self._at(own, extents)
            if tuple(port.shape for port in composed.inputs) == shapes:
                return composed
        return None

    def _bound(self) -> int:
        """The largest size of the padded dimension."""
        _, inputs, _ = self._padded
        return max(port.shape[axis] for port, axis in zip(self._inputs, inputs) if axis is not None)

    def _at(self, own: Sizes, extents: dict[str, int]) -> Sizes:
        """Inputs and outputs with other sizes of the dynamic dimensions."""

        def at(ports: list[Port], side: int) -> list[Port]:
            changed = []
            for place, port in enumerate(ports):
                shape = list(port.shape)
                for dynamic in self._dynamic:
                    axis = dynamic[side][place]
                    if axis is not None and dynamic[0] in extents:
                        shape[axis] = extents[dynamic[0]]
                changed.append(port._replace(shape=tuple(shape)))
            return changed

        return Sizes({**own.dimensions, **extents}, at(own.inputs, 1), at(own.outputs, 2))

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
        where it lies when it is dense, and copied first when it is not. Element types are not converted. The
        shapes of the inputs choose among `Model.sizes`, or of dynamic dimensions a size between. A sequence is a list of such, an optional
        input that the model was compiled without is None, strings are arrays of `str` or `bytes`, a map is a dict. `outputs` may hold
        arrays that results are written into, as large as the outputs at these sizes. Where the run decides an
        output's shape, the result is a view of the elements that are there.
        """
        if outputs is None and (done := self.run_again(inputs)) is not None:
            return done
        items = self._items(self._ordered(inputs))
        given = tuple(array.shape for array in items)
        place = self._by_shapes.get(given)
        sizes = self._composed(given) if place is None else self._sizes[place]
        if sizes is None:
            sizes = self._sizes[0]
            sizes = self._at(sizes, self._same_sizes(items))
        arrays, texts = self._given(items, sizes.inputs)
        targets = self._targets(outputs or {}, sizes.outputs)
        extents = [list(port.shape) for port in sizes.inputs]
        left = self._native.run(arrays, [as_buffer(target) for target in targets], extents, texts)
        if self._direct:
            self._direct.learn(extents, [port.shape for port in sizes.outputs])
        return self._results(resulting(targets, left))

    def _results(self, tensors: list[np.ndarray]) -> dict[str, Any]:
        """The outputs by name that these tensors make."""
        rest = iter(tensors)
        return {
            member.name: _joined(member, list(itertools.islice(rest, member.tensors)))
            for member in self._output_members
        }

    def run_again(self, inputs: Any) -> dict[str, Any] | None:
        """As `run` for inputs of types and shapes that it was called with before, without looking anything up; None for
        every other call, of which nothing was run then."""
        return self._direct.run(inputs) if self._direct else None

    def _same_sizes(self, items: list[Any]) -> dict[str, int]:
        """The sizes that inputs have of the dynamic dimensions; refuses inputs that have different ones."""
        extents: dict[str, int] = {}
        for name, axes, _ in self._dynamic:
            first: tuple[str, int] | None = None
            for array, port, axis in zip(items, self._inputs, axes):
                if axis is None or array.ndim != len(port.shape):
                    continue
                if first is None:
                    first = (port.name, array.shape[axis])
                elif first[1] != array.shape[axis]:
                    raise InputError(
                        f"{name} is {first[1]} in input '{first[0]}' and {array.shape[axis]} in input '{port.name}': "
                        "it must be the same"
                    )
            if first and self._padded and name == self._padded[0] and not 1 <= first[1] <= self._bound():
                raise InputError(
                    f"{name} is {first[1]} in input '{first[0]}', the model takes 1 to {self._bound()} of it"
                )
            if first:
                extents[name] = first[1]
        return extents

    def _items(self, values: list[Any]) -> list[Any]:
        """The tensors that the values of inputs are made of."""
        ports = iter(self._inputs)
        arrays = []
        for member, value in zip(self._input_members, values):
            if member.form == "map":
                arrays.extend(laid_out(member.name, value, list(itertools.islice(ports, member.tensors))))
                continue
            items = _items(member, value)
            arrays.extend(as_array(item, port.name) for item, port in zip(items, itertools.islice(ports, member.tensors)))
        return arrays

    def _given(self, items: list[Any], ports: list[Port]) -> tuple[list[np.ndarray], list[str]]:
        """Buffers of the tensors of inputs, and the strings that are among them."""
        arrays, texts = [], []
        for array, port, dtype in zip(items, ports, self._input_types):
            if isinstance(array, Strings):
                handles = np.zeros(array.shape, np.uint64)
                handles[: len(array.texts)] = np.frombuffer(_runtime.text_handles(array.texts), np.uint64)
                texts.extend(array.texts)
                arrays.append(handles)
                continue
            if port.dtype != TEXT:
                arrays.append(as_buffer(dense(self._fitting("input", port, dtype, array))))
                continue
            if array.shape != port.shape or not (is_text(array) or not array.size):
                raise InputError(f"input '{port.name}' is {describe(array)}, the model takes {port}")
            own = as_texts(array, port.name)
            texts.extend(own)
            arrays.append(np.frombuffer(_runtime.text_handles(own), np.uint64))
        return arrays, texts

    def _targets(self, given: Mapping[str, np.ndarray], ports: list[Port]) -> list[np.ndarray]:
        """Memory for the tensors of outputs: what was given, else new."""
        if stray := set(given).difference(port.name for port in ports):
            known = ", ".join(f"'{port.name}'" for port in ports)
            raise InputError(f"the model has no output '{min(stray)}', only {known}")
        targets = []
        for port, own in zip(ports, self._output_types):
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
        known = [self._pattern(own) for sizes in self._sizes for own in sizes.inputs if own.name == port.name]
        return " or ".join(dict.fromkeys(known)) + ", with the other inputs of the same sizes"

    def _pattern(self, port: Port) -> str:
        """An input in words, with the names of dynamic dimensions for their extents."""
        names = [own.name for own in self._inputs]
        at = names.index(port.name)
        words = {own[1][at]: own[0] for own in self._dynamic if own[1][at] is not None}
        extents = [words.get(axis, str(extent)) for axis, extent in enumerate(port.shape)]
        return f"{port.dtype}[{', '.join(extents)}]"

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
