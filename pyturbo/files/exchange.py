"""Exchange of two names in one step, if the system supports it."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_AT_FDCWD = -100  # Linux only
#: Error codes of systems, file systems and system call filters that do not support the exchange.
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)


def exchange(one: Path, other: Path) -> bool:
    """Exchange what two names lead to; return False, with nothing changed, if that is not possible."""
    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = libc.renamex_np(first, second, ctypes.c_uint(_EXCHANGE))
        else:
            failed = libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, ctypes.c_uint(_EXCHANGE))
    except AttributeError:  # a C library without this function
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))
