"""The exceptions of pyturbo. All of them derive from `TurboError`.

A call with unknown arguments, or a call of a compiled class with an object of another kind, raises Python's
TypeError.

Examples:
    >>> try:
    ...     pyturbo.ops.swiglu([1.0, 2.0], [3.0])
    ... except pyturbo.errors.TurboError as error:
    ...     print(error)
    swiglu: up: expected shape [2], got [1]
"""

from __future__ import annotations


class TurboError(Exception):
    """Base of all exceptions raised by pyturbo."""


class ArgumentError(TurboError, ValueError):
    """An argument has the wrong count, type, shape, size or value."""


class ContextError(ArgumentError):
    """A conversation has no room for more tokens."""


class DeviceError(TurboError, RuntimeError):
    """A kernel failed on its device, or the checker found a mistake in it."""


class StateError(TurboError, RuntimeError):
    """The object is closed or not ready for the call."""


class CancelledError(TurboError):
    """The operation was cancelled by another thread."""


class FormatError(TurboError, ValueError):
    """A file is damaged, or is not of the expected format."""


class FileError(TurboError, OSError):
    """A file or folder cannot be opened, mapped, read or written."""


class AllocationError(TurboError, MemoryError):
    """A buffer of the size asked for cannot be allocated."""


class BusyError(TurboError):
    """There is more work than an engine accepts; later there may be room."""
