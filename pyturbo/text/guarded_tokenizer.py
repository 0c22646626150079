"""A copy of a tokenizer for texts that may spell special tokens without meaning them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from tokenizers import Tokenizer

from pyturbo.text.package import encoded


class GuardedTokenizer:
    """A tokenizer that returns the ids of `tokenizer`, but no special token across a marker.

    Special tokens are searched while the marker is in the text; then a normalizer removes it. The model
    itself does not know the pieces of special tokens, so that it cannot build them.
    """

    def __init__(
        self, tokenizer: Tokenizer, state: dict[str, Any], special: Collection[str], marker: str
    ) -> None:
        """Change `state`, which comes from the file: the package may need gigabytes to return its own."""
        added = state.get("added_tokens") or []
        for token in added:
            if token["content"] in special:
                token["normalized"] = False
        removal = {"type": "Replace", "pattern": {"String": marker}, "content": ""}
        others = [state["normalizer"]] if state.get("normalizer") else []
        state["normalizer"] = {"type": "Sequence", "normalizers": [removal, *others]}
        state |= dict.fromkeys(("post_processor", "truncation", "padding"))
        _hide(state["model"], special, marker)
        self._tokenizer = Tokenizer.from_str(json.dumps(state))
        self._ids: dict[int, int] = {}
        for token in added:
            here, there = (each.token_to_id(token["content"]) for each in (self._tokenizer, tokenizer))
            if here is not None and there is not None:
                self._ids[here] = there

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text with markers."""
        return [self._ids.get(token, token) for token in encoded(self._tokenizer, text)]


def _hide(model: dict[str, Any], special: Collection[str], marker: str) -> None:
    """Rename special tokens in the vocabulary of the model to names that no text has."""
    names = {text: marker + text for text in special}
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): token for piece, token in vocabulary.items()}
    elif isinstance(vocabulary, list):
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if isinstance(model.get("merges"), list):
        model["merges"] = [merge for merge in model["merges"] if not _touches(merge, special)]


def _touches(merge: str | list[str], special: Collection[str]) -> bool:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left in special or right in special or left + right in special
