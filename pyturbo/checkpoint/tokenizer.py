"""The tokenizer of a checkpoint, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pyturbo._messages import shown
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint.file import TensorFile
from pyturbo.errors import FormatError


@dataclass(frozen=True)
class TokenizerSource:
    """The data of a tokenizer: a tokenizer.json, or the vocabulary inside a GGUF file."""

    kind: Literal["huggingface", "gguf"]
    chat_template: str | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    # huggingface
    path: Path | None = None  # of tokenizer.json, if there is one; absolute, because it is read later
    settings: dict[str, Any] = field(default_factory=dict)  # tokenizer_config.json

    # gguf
    file: Path | None = field(default=None, repr=False, compare=False)  # for messages
    model: str | None = None  # "gpt2" (byte-level BPE) or "llama" (SentencePiece)
    pre: str | None = None  # name of the pre-tokenizer
    tokens: list[str] = field(default_factory=list, repr=False)
    scores: list[float] = field(default_factory=list, repr=False)
    types: list[int] = field(
        default_factory=list, repr=False
    )  # 1 normal, 2 unknown, 3 control, 4 user, 6 byte
    merges: list[str] = field(default_factory=list, repr=False)
    unknown_id: int | None = None
    padding_id: int | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_space_prefix: bool | None = None

    @property
    def found(self) -> bool:
        """Whether the checkpoint came with a tokenizer."""
        return bool(self.tokens) if self.kind == "gguf" else self.path is not None


def huggingface_source(directory: Path, config: dict[str, Any]) -> TokenizerSource:
    """Read the tokenizer files of a directory. Token ids of generation_config.json override config.json."""
    path = directory / "generation_config.json"
    generation = json_file.read_generation_config(path) if path.is_file() else {}
    settings = _optional(directory / "tokenizer_config.json")
    bos, eos = (
        next((source[key] for source in (generation, config) if source.get(key) is not None), None)
        for key in ("bos_token_id", "eos_token_id")
    )
    bos_ids = token_ids(directory, "bos_token_id", bos)
    path = directory / "tokenizer.json"
    return TokenizerSource(
        kind="huggingface",
        chat_template=_chat_template(directory, settings),
        bos_id=bos_ids[0] if bos_ids else None,
        eos_ids=token_ids(directory, "eos_token_id", eos),
        path=path.absolute() if path.is_file() else None,
        settings=settings,
    )


def token_ids(where: Path, name: str, value: Any) -> tuple[int, ...]:
    """Return one id, a list of ids or null as a tuple."""
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(i) is int and 0 <= i < 2**31 for i in ids):
        raise FormatError(f"{where}: {name}: expected token ids, got {shown(value)}")
    return tuple(ids)


def _optional(path: Path) -> dict[str, Any]:
    return json_file.read_object(path) if path.is_file() else {}


def _chat_template(directory: Path, settings: dict[str, Any]) -> str | None:
    """Read chat_template.jinja, or else chat_template.json, or else the entry of tokenizer_config.json."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        file = TensorFile(path)
        try:
            if file.size > json_file.LONGEST:
                raise FormatError(f"{path}: expected at most {json_file.LONGEST} bytes, got {file.size}")
            return file.bytes(0, file.size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{path}: expected UTF-8: {error}") from None
        finally:
            file.close()
    path = directory / "chat_template.json"
    value = (_optional(path) or settings).get("chat_template")
    if isinstance(value, list):  # several templates, by name
        named = [entry for entry in value if isinstance(entry, dict) and entry.get("name") == "default"]
        value = named[-1].get("template") if named else None
    if value is not None and not isinstance(value, str):
        raise FormatError(f"{directory}: chat_template: expected text, got {shown(value)}")
    return value
