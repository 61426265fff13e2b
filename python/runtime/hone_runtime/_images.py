"""What decodes the images of models with `ImageDecoder`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _runtime

#: Called with encoded bytes, height, width, and `RGB`, `BGR` or `Grayscale`.
Decoder = Callable[[bytes, int, int, str], Any]

_default: Decoder | None = None


def set_image_decoder(decoder: Decoder | None) -> None:
    """Lets a function decode the images of all models of this process.

    It is called as `decoder(image, height, width, pixel_format)` with the encoded bytes, which are not trusted, and gives
    what speaks the buffer protocol: `height * width * channels` of `uint8`, channels innermost, as `pixel_format` (`RGB`,
    `BGR` or `Grayscale`) says. What it raises ends the run with a `RunError`. None goes back to the decoders that `hone`
    brings where it was imported; without those, models that decode images are not loaded.
    """
    _runtime.set_image_decoder(_default if decoder is None else decoder)


def offer(decoder: Decoder) -> None:
    """Has a function decode images unless something else does."""
    global _default
    _default = decoder
    if not _runtime.has_image_decoder():
        _runtime.set_image_decoder(decoder)
