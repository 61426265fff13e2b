from typing import Any

VERSION: str

_Port = tuple[str, str | None, list[int | str | None] | None, bool, bool, str | None]

def signature(model: bytes) -> tuple[list[_Port], list[_Port]]: ...
def compile(
    model: bytes,
    folder: str | None,
    shapes: list[tuple[str, list[str]]],
    forms: list[tuple[str, int | None]],
    constants: list[tuple[str, str, list[int], bytes]],
    cpu: str,
    arch: str,
    precision: str,
    inspection: bool,
) -> tuple[bytes, dict[str, Any]]: ...
def decode_image(image: bytes, height: int, width: int, pixel_format: str) -> bytes: ...
def supported() -> list[tuple[str, str]]: ...
