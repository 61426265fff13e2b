"""The list of the corpus (list.toml): its entries, and seeded inputs for a model at its sizes.

An input is written as TYPE[AXES] VALUES, such as `f32[batch, 3, h, w]` or `i64[b, s] 0..300`. An axis is a number or
the name of a size, with `+ NUMBER`, or a product of sizes (`b*n`). Values are `normal` (left out: the same), `LOW..HIGH`
(the end not included, for integers), one number for all elements, `mask` (ones, the last row's second half zeros), `gaps`
(as `normal`, no number in one column of every second row), or for `str` words divided by `|`. A `map` has no axes, and its values are `KEY=NUMBER` divided by `|`.
"""

import hashlib
import pathlib
import re
import tomllib

import numpy as np

FOLDER = pathlib.Path(__file__).parent
TYPES = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8, "i32": np.int32,
    "i64": np.int64, "bool": np.bool_, "str": np.str_, "map": dict,
}


def entries(path=FOLDER / "list.toml"):
    """The entries by name, in the list's order."""
    return tomllib.loads(path.read_text())


def parsed(text):
    """Element type, axes and values of an input as the list writes it."""
    found = re.fullmatch(r"(\w+)\[([^\]]*)\]\s*(.*)", text)
    if not found or found[1] not in TYPES:
        raise ValueError(f"no input: {text!r}")
    axes = [axis.strip() for axis in found[2].split(",") if axis.strip()]
    return found[1], axes, found[3] or "normal"


def extent(axis, sizes):
    total = 0
    for part in axis.split("+"):
        product = 1
        for factor in part.split("*"):
            factor = factor.strip()
            product *= int(factor) if factor.isdigit() else sizes[factor]
        total += product
    return total


def array(text, sizes, random):
    """Seeded values of one input at `sizes`."""
    kind, axes, values = parsed(text)
    shape = tuple(extent(axis, sizes) for axis in axes)
    if kind == "map":
        return {key: float(number) for key, number in (pair.split("=") for pair in values.split("|"))}
    if kind == "str":
        words = np.array(values.split("|"))
        return words[random.integers(0, len(words), shape)] if shape else words[0]
    if values == "normal":
        made = random.standard_normal(shape)
    elif values == "gaps":
        made = random.standard_normal(shape)
        for row in range(0, shape[0], 2):
            made[row, row // 2 % shape[1]] = np.nan
    elif values == "mask":
        made = np.ones(shape)
        made[-1, shape[-1] // 2:] = 0
    elif ".." in values:
        low, high = values.split("..")
        made = random.uniform(float(low), float(high), shape) if kind.startswith("f") else random.integers(
            int(low), int(high), shape)
    else:
        made = np.full(shape, float(values))
    return np.asarray(made).astype(TYPES[kind])


def inputs(name, entry, index):
    """The inputs of an entry at the `index`-th of its sizes, by name."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") + index
    random = np.random.default_rng(seed)
    sizes = entry["sizes"][index]
    return {key: array(text, sizes, random) for key, text in entry["inputs"].items()}


def open_axes(entry):
    """For each input its open axes and their names."""
    found = {}
    for key, text in entry["inputs"].items():
        axes = parsed(text)[1]
        found[key] = {
            place: re.sub(r"\W+", "_", axis) for place, axis in enumerate(axes) if not axis.isdigit()}
    return found
