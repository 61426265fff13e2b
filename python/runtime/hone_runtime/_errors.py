"""What can go wrong, one class for each way out."""

from __future__ import annotations


class HoneError(Exception):
    """Every error of Hone's own."""


class LoadError(HoneError):
    """An artifact cannot be read, is damaged, or is for another processor."""


class RunError(HoneError):
    """A run was refused; no output was touched."""


class InputError(HoneError, ValueError):
    """An input or output does not fit: the message names it, what came and what is taken."""


class CompileError(HoneError):
    """A model cannot be compiled.

    `decided_by` has the names of the inputs whose values must be known when compiling, where that is the
    reason, else None.
    """

    def __init__(self, message: str, decided_by: list[str] | None = None) -> None:
        super().__init__(message)
        self.decided_by = decided_by


class UnsupportedError(CompileError):
    """A sound model that holds operators or versions which Hone does not take."""
