"""What a checkpoint consists of: tensors, a config, a tokenizer and sampling defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from pyturbo.checkpoint.sampling import SamplingDefaults
from pyturbo.checkpoint.tensors import Tensors
from pyturbo.checkpoint.tokenizer import TokenizerSource
from pyturbo.checkpoint.weights import Weights


class Checkpoint(ABC, Tensors):
    """The tensors of a model by the names in its files. A context manager that closes the files."""

    layers_entry = "num_hidden_layers"  # where the files say how many layers there are
    tokenizer: TokenizerSource
    sampling: SamplingDefaults

    @abstractmethod
    def weights(self, values: bool = True) -> Weights:
        """Return the tensors under the names and in the layouts that models use.

        Without `values` only headers are read, and arrays take no memory.
        """

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
