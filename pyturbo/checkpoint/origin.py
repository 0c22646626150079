"""The files that a network was loaded from."""

from __future__ import annotations

import hashlib
import json

from pyturbo._once import once
from pyturbo.checkpoint.identity import Identity
from pyturbo.checkpoint.tensors import Tensors
from pyturbo.errors import FileError, StateError


class ChangedFileError(FileError):
    """A file is no longer what it was when the weights of a model were loaded from it."""


class Origin:
    """Tells one checkpoint from others, and whether its files are as they were when they were opened.

    Attributes:
        model_type: The architecture.
        fingerprint: A hash of the configuration and of bytes of every tensor, computed when first used; for a
            packed checkpoint that of its source, unless its experts were quantised again.
        changed: Whether `check_files` has found a file that is not what it was. It stays so.
    """

    changed = False

    def __init__(self, checkpoint: Tensors) -> None:
        """Take what is needed of `checkpoint`, which may be closed afterwards."""
        self.model_type: str = checkpoint.config["model_type"]
        self._stated = checkpoint.stated_fingerprint()
        self._config = checkpoint.config
        self._identity = Identity(checkpoint) if self._stated is None else None
        self._watches = checkpoint.watches()
        self.check_files()

    @once
    def fingerprint(self) -> str:
        if self._identity is None:
            if self._stated is None:
                raise StateError("the model is closed")
            return self._stated
        digest = hashlib.sha256(json.dumps(self._config, sort_keys=True, default=str).encode())
        digest.update(self._identity.digest())
        self.check_files()  # what was hashed is what was loaded
        return digest.hexdigest()

    def check_files(self) -> None:
        """Raise a ChangedFileError if a file that weights come from became shorter or was written to."""
        try:
            for watch in self._watches:
                watch.check()
        except FileError as error:
            self.changed = True
            raise ChangedFileError(str(error)) from None

    def close(self) -> None:
        """Close the files and forget their mappings."""
        if self._identity is not None:
            self._identity.close()
        self._watches, self._stated = [], None
