"""The parts of a checkpoint: tensors, a config, a tokenizer and sampling defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.sampling import SamplingDefaults
from pyturbo.checkpoint.tensors import Tensors
from pyturbo.checkpoint.tokenizer import TokenizerSource
from pyturbo.checkpoint.weights import Weights


class Checkpoint(ABC, Tensors):
    """The tensors of a model by the names in its files. A context manager that closes the files."""

    type_entry = "model_type"  # the entry of the files with the architecture
    layers_entry = "num_hidden_layers"  # the entry with the number of layers
    tokenizer: TokenizerSource
    sampling: SamplingDefaults

    @property
    def model_type(self) -> str:
        """Return the architecture, as `type_entry` of the files names it."""
        return str(self.config["model_type"])

    def reads(self, layout: FileLayout) -> bool:
        """Return whether files of this kind are supported for an architecture with that layout."""
        return True

    def type_names(self, model_types: list[str]) -> list[str]:
        """Return the names that files of this kind have for architectures, as `type_entry` states them."""
        return model_types

    @abstractmethod
    def weights(self, layout: FileLayout | None = None, values: bool = True) -> Weights:
        """Return the tensors under the names and in the layouts that models use.

        `layout` is that of the architecture, by default the common one. Without `values` only headers are
        read, and arrays take no memory.
        """

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
