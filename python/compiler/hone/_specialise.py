"""Compiled forms of one model for the shapes, and where it must be the values, of its inputs.

A model with open dimensions is compiled when a shape is first seen, and the form is kept. When another shape comes, the
model is compiled for every size, where it allows that (`hone.compile` without shapes); else each shape has a form of its
own. An input whose *value* decides a shape (the target of a `Reshape`, `k` of a `TopK`) becomes a
constant of the form: this is specialisation by value. Both kinds of forms share one cache of bounded size,
from which the one that was not used for longest leaves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from hone_runtime import CompileError, InputError, Model
from hone_runtime._arrays import TEXT, as_array, as_carrier, describe, dtype_of, is_text

from ._compile import DeclaredPort, compile, read, signature_of

#: Most elements of an input that forms are specialised for by value: what decides a shape is small.
LARGEST_VALUE = 1024


class _Given(NamedTuple):
    """What a run is given: values by the names of the model's inputs, and all tensors that they are made of."""

    values: dict[str, Any]
    tensors: dict[str, np.ndarray]

    def shapes(self) -> tuple[tuple[str, Any], ...]:
        """The shape of each input, of sequences a list of shapes, None of what is left out; maps have none."""

        def shape(value: Any) -> Any:
            if value is None:
                return None
            return _Shapes(own.shape for own in value) if isinstance(value, list) else value.shape

        return tuple((name, shape(value)) for name, value in self.values.items() if not isinstance(value, dict))


class _Shapes(list):
    """A list of shapes that may be part of a key."""

    def __hash__(self) -> int:
        return hash(tuple(self))


class Specialiser:
    """Runs a model, compiling it for what it has not seen. Safe to use from several threads."""

    def __init__(
        self,
        model: Any,
        *,
        capacity: int = 16,
        threads: int = 0,
        by_value: bool = True,
        every_size: bool = True,
        shapes: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`capacity` bounds the forms that are kept; `by_value` allows forms for values, `every_size` one for sizes that
        did not come yet; `shapes`, as those of `hone.compile`, are compiled at once into one form, which is kept whatever
        else is; `options` are those of `hone.compile`."""
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        self._data, beside = read(model)
        if options.get("folder") is None:
            options["folder"] = beside
        self.signature = signature_of(self._data)
        self._options = options
        self._capacity = capacity
        self._threads = threads
        self._by_value = by_value
        self._forms: OrderedDict[Any, Model] = OrderedDict()
        self._several: Model | None = None
        # Whether a form for every size may still be tried.
        self._every_size = every_size and not shapes and self._has_plain_inputs()
        # The form that ran last, where the shapes and types of inputs alone say that it serves them.
        self._latest: Model | None = None
        self._lock = threading.Lock()
        self._compiling = threading.Lock()
        #: Names of the inputs that forms are specialised for by value, in the order in which they were found.
        self.fixed: list[str] = []
        #: How often a form was compiled.
        self.compilations = 0
        if shapes:
            self._several = compile(self._data, shapes=shapes, **self._options).load(threads=threads)
            self.compilations = 1

    @property
    def host_nodes(self) -> list[str]:
        """Names of the nodes that the runtime itself computes in the forms that are kept; all else is compiled."""
        with self._lock:
            forms = [*self._forms.values(), *([self._several] if self._several else [])]
            return sorted({name for form in forms for name in form.host_nodes})

    @property
    def forms(self) -> int:
        """How many forms are kept now."""
        return len(self._forms) + (self._several is not None)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name: arrays, of sequences lists of arrays, None of optional values that are not there."""
        latest = self._latest
        if latest is not None and (done := latest.run_again(inputs)) is not None:
            return done
        given = self._check(inputs)
        form = self._form(given, self._by_value)
        names = [member.name for member in form.members[0]]
        results = form.run({name: given.values[name] for name in names})
        for port in self.signature.outputs:
            own = results[port.name]
            if port.dtype and isinstance(own, np.ndarray) and own.dtype != dtype_of(port.dtype):
                results[port.name] = own.view(dtype_of(port.dtype))
        # Bytes that carry smaller elements pass for them only where the declared types are looked at.
        same = not self.fixed and self._has_types(form)
        self._latest = form if same else None
        return results

    def _has_types(self, form: Model) -> bool:
        """Whether all inputs and outputs of a form have the types that the model declares."""
        declared = {port.name: port.dtype for port in (*self.signature.inputs, *self.signature.outputs)}
        return all(declared.get(port.name) == port.dtype for port in (*form.inputs, *form.outputs))

    def prepare(self) -> Model | None:
        """The form for the shapes that the model fixes; None where it depends on values that are not known
        yet. What cannot be compiled at all is refused."""
        zeros = {
            port.name: as_carrier(np.zeros(port.shape or (), dtype_of(port.dtype or "f32")))
            for port in self.signature.inputs
        }
        try:
            return self._form(_Given(zeros, dict(zeros)), by_value=False)
        except CompileError as error:
            if not error.decided_by or not self._by_value:
                raise
            return None

    def _check(self, inputs: Mapping[str, Any]) -> _Given:
        names = [port.name for port in self.signature.inputs]
        known = ", ".join(f"'{name}'" for name in names)
        for name in inputs:
            if name not in names:
                raise InputError(f"the model has no input '{name}', only {known}")
        values: dict[str, Any] = {}
        tensors: dict[str, np.ndarray] = {}
        symbols: dict[str, tuple[int, str]] = {}
        for port in self.signature.inputs:
            if port.name not in inputs and not port.optional:
                raise InputError(f"input '{port.name}' is missing: the model takes {known}")
            value = inputs.get(port.name)
            if value is None and port.optional:
                values[port.name] = None
            elif port.map:
                if not isinstance(value, Mapping):
                    raise InputError(f"input '{port.name}' is a {type(value).__name__}, the model takes a {port}")
                values[port.name] = dict(value)
            elif port.sequence:
                values[port.name] = self._items(port, value)
                tensors |= {f"{port.name}[{place}]": own for place, own in enumerate(values[port.name])}
            else:
                values[port.name] = self._fitting(port, as_array(value, port.name), symbols)
                tensors[port.name] = values[port.name]
        return _Given(values, tensors)

    @classmethod
    def _items(cls, port: DeclaredPort, value: Any) -> list[np.ndarray]:
        """The tensors of a sequence, each with the names of its dimensions for itself."""
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
            raise InputError(f"input '{port.name}' is a {type(value).__name__}, the model takes a list: {port}")
        items = []
        for place, item in enumerate(value):
            own = port._replace(name=f"{port.name}[{place}]", sequence=False, optional=False)
            if own.shape is not None:
                own = own._replace(shape=tuple(e if isinstance(e, int) else None for e in own.shape))
            items.append(cls._fitting(own, as_array(item, own.name), {}))
        return items

    @staticmethod
    def _fitting(
        port: DeclaredPort, array: np.ndarray, symbols: dict[str, tuple[int, str]]
    ) -> np.ndarray:
        dtype = dtype_of(port.dtype) if port.dtype else array.dtype
        same = array.dtype == dtype or (port.dtype == TEXT and (is_text(array) or not array.size))
        fits = same and (port.shape is None or len(port.shape) == array.ndim)
        if not fits:
            raise InputError(f"input '{port.name}' is {describe(array)}, the model takes {port}")
        for axis, (declared, given) in enumerate(zip(port.shape or (), array.shape)):
            if isinstance(declared, int) and declared != given:
                raise InputError(
                    f"input '{port.name}' is {describe(array)}, the model takes {port}: axis {axis} differs"
                )
            if isinstance(declared, str):
                expected, by = symbols.setdefault(declared, (given, port.name))
                if expected != given:
                    raise InputError(
                        f"input '{port.name}' is {describe(array)}: axis {axis} ('{declared}') is {given}, "
                        f"and {expected} in input '{by}'"
                    )
        return as_carrier(array)

    def _key(self, given: _Given) -> Any:
        values = tuple((name, given.tensors[name].tobytes()) for name in self.fixed if name in given.tensors)
        return given.shapes(), values

    def _form(self, given: _Given, by_value: bool) -> Model:
        if self._several is not None and self._takes(self._several, given):
            return self._several
        form = self._kept(self._key(given))
        if form is None:
            # One at a time: compiling takes all of a core, and the next caller may want the same form.
            with self._compiling:
                form = self._kept(self._key(given)) or self._for_every_size(given) or self._make(given, by_value)
        return form

    def _has_plain_inputs(self) -> bool:
        return not any(port.sequence or port.optional for port in self.signature.inputs)

    def _for_every_size(self, given: _Given) -> Model | None:
        """The form for every size; None where there is none, or no second shape has come."""
        if self._several is not None and self._takes(self._several, given):
            return self._several
        if not self._every_size or self.fixed or not self._forms:
            return None
        self._every_size = False
        try:
            form = compile(self._data, **self._options).load(threads=self._threads)
        except CompileError:
            return None
        with self._lock:
            self.compilations += 1
            # What it serves too needs no weights of its own.
            def served(key: Any) -> bool:
                shapes = dict(key[0])
                return form.takes([shapes.get(port.name, port.shape) for port in form.inputs])

            for key in [key for key in self._forms if served(key)]:
                del self._forms[key]
            self._several = form
        return form if self._takes(form, given) else None

    @staticmethod
    def _takes(form: Model, given: _Given) -> bool:
        """Whether a form is for these tensors: an optional input may be left out, a sequence be of another length. The
        tensors of a map are of one shape, however many keys it has."""
        maps = [name for name, value in given.values.items() if isinstance(value, dict)]
        parts = {f"{name}.{part}" for name in maps for part in ("keys", "values", "count")}
        names = [port.name for port in form.inputs if port.name not in parts]
        same = len(names) == len(given.tensors) and all(name in given.tensors for name in names)
        return same and form.takes(
            [port.shape if port.name in parts else given.tensors[port.name].shape for port in form.inputs]
        )

    def _kept(self, key: Any) -> Model | None:
        with self._lock:
            form = self._forms.get(key)
            if form is not None:
                self._forms.move_to_end(key)
            return form

    def _make(self, given: _Given, by_value: bool) -> Model:
        while True:
            shapes = {name: shape for name, shape in given.shapes() if name not in self.fixed}
            constants = {name: given.tensors[name] for name in self.fixed if name in given.tensors}
            try:
                compiled = compile(self._data, shapes=shapes, constants=constants, **self._options)
                break
            except CompileError as error:
                if not by_value:
                    raise
                self._fix(error, given.tensors)
        form = compiled.load(threads=self._threads)
        with self._lock:
            self.compilations += 1
            self._forms[self._key(given)] = form
            while len(self._forms) > self._capacity:
                self._forms.popitem(last=False)
        return form

    def _fix(self, error: CompileError, tensors: Mapping[str, np.ndarray]) -> None:
        """Notes the inputs that `error` asks the values of; raises it again where they may not be fixed."""
        more = [name for name in error.decided_by or [] if name not in self.fixed]
        declared = {port.name for port in self.signature.inputs}
        # Strings decide no shape, and tensors of sequences are not fixed one by one.
        usable = all(
            name in declared and tensors[name].size <= LARGEST_VALUE and not is_text(tensors[name])
            for name in more
        )
        if not more or not usable:
            raise error
        with self._lock:
            # The forms kept so far do not depend on these values, but their keys would not be found again.
            self._forms.clear()
            self.fixed.extend(more)
