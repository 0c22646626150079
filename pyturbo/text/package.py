"""Calls of the `tokenizers` package, which has no exception class of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokenizers import Tokenizer

from pyturbo._fork import OwnProcess
from pyturbo._messages import shown
from pyturbo.errors import FormatError

#: Characters. Longer texts are encoded as a batch of one, so that other threads of this process go on. The
#: package has threads for that, for which a child of fork() would wait in vain.
_LONG = 1 << 14
_own = OwnProcess()


@contextmanager
def package_errors(what: str) -> Iterator[None]:
    """Turn any error of the package into a FormatError that begins with `what`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # the package raises no narrower class; its panics are not Exceptions
        raise FormatError(f"{what}: {shown(str(error))}") from None


def encoded(tokenizer: Tokenizer, text: str, special: bool = False) -> list[int]:
    """Return the ids of a text; `special` adds the tokens of the post-processor."""
    with package_errors("tokenizer: the text cannot be encoded"):
        if len(text) < _LONG or not _own:
            return tokenizer.encode(text, add_special_tokens=special).ids
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=special)
        return encoding.ids


def is_encodable(text: str) -> bool:
    """Return whether a text consists of whole characters: half a surrogate pair has no UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
