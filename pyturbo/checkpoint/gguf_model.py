"""GGUF files of decoders: tensors, configuration and tokenizer, from one file or from several."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from pyturbo.checkpoint.checkpoint import Checkpoint
from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.checkpoint.gguf import read_header, without_tensors
from pyturbo.checkpoint.gguf_config import read_config
from pyturbo.checkpoint.gguf_fields import Fields
from pyturbo.checkpoint.gguf_names import MODEL_TYPES, model_name
from pyturbo.checkpoint.gguf_parts import read_parts
from pyturbo.checkpoint.gguf_text import gguf_tokenizer
from pyturbo.checkpoint.gguf_weights import GgufWeights
from pyturbo.checkpoint.sampling import SamplingDefaults, gguf_sampling
from pyturbo.checkpoint.tokenizer import TokenizerSource


class GgufCheckpoint(Checkpoint):
    """A GGUF file, or one that is split into several; `path` is any of them."""

    type_entry = "general.architecture"

    def __init__(self, path: Path) -> None:
        header = self._header = read_parts(path)
        super().__init__(path, header.tensors)
        self._fields = Fields(path, header.metadata)
        self._fields.architecture = self._fields.name("general.architecture")
        self.layers_entry = f"{self._fields.architecture}.block_count"
        self.tokenizer = gguf_tokenizer(self._fields)
        self.sampling = gguf_sampling(header.metadata)

    @property
    def model_type(self) -> str:
        return MODEL_TYPES.get(self._fields.architecture, self._fields.architecture)

    def reads(self, layout: FileLayout) -> bool:
        return layout.gguf is not None

    def type_names(self, model_types: list[str]) -> list[str]:
        return [name for name, model_type in MODEL_TYPES.items() if model_type in model_types]

    def weights(self, layout: FileLayout | None = None, values: bool = True) -> GgufWeights:
        layout = layout or FileLayout()
        gguf = layout.gguf or Gguf()
        names, drafts = {}, range(self.config["num_hidden_layers"], self._fields.integer("{}.block_count"))
        for raw in self:
            name = model_name(raw, gguf.names, drafts)
            if name is not None:
                names[name] = raw
        return GgufWeights(self, names, layout, values)

    def without_tensors(self) -> bytes:
        """Return the content of a GGUF file that has the metadata only, tokenizer and all."""
        return without_tensors(self._header)

    @cached_property
    def config(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the entries of config.json, by the names that transformers gives them.

        They are read when first asked for, because the entries of a file depend on its architecture.
        """
        return read_config(self._fields, self, self.model_type)


def read_text_parts(path: Path) -> tuple[TokenizerSource, SamplingDefaults]:
    """Return the tokenizer and the sampling defaults of a GGUF file, which need not have tensors."""
    metadata = read_header(path).metadata
    return gguf_tokenizer(Fields(path, metadata)), gguf_sampling(metadata)
