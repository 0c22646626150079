"""The weights of a model under one scheme of names, whatever file they come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyturbo._arrays import Array, aligned_empty
from pyturbo._blank import Ledger
from pyturbo._messages import shown
from pyturbo._native import host_empty
from pyturbo.checkpoint.tensors import Progress, TensorInfo, Tensors
from pyturbo.errors import FormatError
from pyturbo.formats import Linear

Shape = tuple[int, ...]

FLOATS = ("F32", "F16", "BF16")

_EMBEDDING = "model.embed_tokens"
_PARTS = ("weight", "scales", "biases", "global_scale")  # of a layer, but for its bias


class Weights(ABC):
    """Tensors and linear layers by MLX name: "model.layers.0.self_attn.q_proj", "model.norm.weight".

    A missing tensor, or one of another shape or type than expected, is a FormatError that names it.
    Not for several threads at once.
    """

    def __init__(self, checkpoint: Tensors, names: dict[str, str], values: bool = True) -> None:
        """Without `values` all checks are made and nothing is read: arrays are blank."""
        self.checkpoint = checkpoint
        #: Of the memory that loading would take; None where it takes it.
        self.ledger = None if values else Ledger()
        #: Largest absolute error, by name, of matrices that their file's format forced to be quantised anew.
        self.requantized: dict[str, float] = {}
        self._names = names  # in the checkpoint, by name here
        self._asked: set[str] = set()
        self._preloaded: dict[str, Array] = {}
        self._keeps = True
        self._tied: Linear | None = None
        #: Whether the output layer is the embedding; where the config is silent, whether it has no own.
        self.tied = self._read_tied()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.checkpoint.path)!r}, tensors={len(self._names)})"

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def find(self, name: str) -> TensorInfo | None:
        """Where the tensor of that name lies, None where there is none. It does not count as used."""
        raw = self._names.get(name)
        return None if raw is None else self.checkpoint[raw]

    def tensor(self, name: str, shape: Shape | None = None) -> Array:
        """A tensor in float32, float16 or bfloat16, as models use it."""
        array = self._float(name)
        self._check(name, "shape", shape, array.shape)
        return array

    def linear(self, path: str, shape: Shape | None = None, bias: bool | None = None) -> Linear:
        """The layer [out, in] at `path`; `bias` says whether it must or must not have one, None either.

        Where they are tied, "lm_head" and "model.embed_tokens" are one object.
        """
        if path in ("lm_head", _EMBEDDING) and self.tied:
            if self._tied is None:
                self._tied = self._matrix(_EMBEDDING, shape, axes=2)
            self._check(f"{_EMBEDDING}.weight", "shape", shape, self._tied.shape)
            return self._tied
        layer = self._matrix(path, shape, axes=2)
        name = f"{path}.bias"
        if bias is False and name in self:
            raise FormatError(f"{self._where(name)}: expected no such tensor")
        if bias or (bias is None and name in self):
            layer = replace(layer, bias=self.tensor(name, layer.shape[:1]))
        return layer

    def experts(self, path: str, shape: Shape | None = None, bias: bool = False) -> Linear:
        """The stack [experts, out, in] at a path such as "model.layers.0.mlp.switch_mlp.gate_proj".

        `bias` asks for a bias [experts, out] too.
        """
        layer = self._matrix(path, shape, axes=3)
        return replace(layer, bias=self._expert_bias(path, layer.shape[:2])) if bias else layer

    def preload(self, progress: Progress | None = None) -> None:
        """Reads what cannot be mapped in the order of the files, for the calls that follow to take."""
        names = [
            raw
            for name, raw in self._names.items()
            if self._read_whole(name) and not self.checkpoint[raw].mapped
        ]
        if self.ledger is None:
            self._preloaded = self.checkpoint.read_all(names, progress)
        else:
            infos = [self.checkpoint[name] for name in names]
            self._preloaded = {i.name: self.ledger.array(i.array_shape, i.array_dtype) for i in infos}

    @contextmanager
    def in_passing(self) -> Iterator[None]:
        """Layers asked for inside are copied and not kept: they are read, not mapped."""
        self._keeps = False
        try:
            yield
        finally:
            self._keeps = True

    def unused(self) -> list[str]:
        """The names that nothing has asked for. A tied output layer in the file does not count."""
        tied = tuple(f"lm_head.{part}" for part in _PARTS) if self.tied else ()
        return [name for name in self._names if name not in self._asked and name not in tied]

    @abstractmethod
    def _float(self, name: str) -> Array:
        """A tensor that is not quantised."""

    @abstractmethod
    def _matrix(self, path: str, shape: Shape | None, axes: int) -> Linear:
        """A layer without its bias."""

    def _expert_bias(self, path: str, shape: Shape) -> Array:
        return self.tensor(f"{path}.bias", shape)

    def _read_tied(self) -> bool:
        value = self.checkpoint.config.get("tie_word_embeddings")
        if value is None:
            return "lm_head.weight" not in self._names
        if not isinstance(value, bool):
            raise FormatError(
                f"{self._where('tie_word_embeddings')}: expected true or false, got {shown(value)}"
            )
        return value

    def _read_whole(self, name: str) -> bool:
        """Whether a tensor is used as it lies in the file, not copied in parts."""
        return True

    def _info(self, name: str) -> TensorInfo:
        """The tensor of that name here, which counts as used from then on."""
        if name not in self._names:
            raise FormatError(f"{self._where(name)}: expected a tensor of this name, found none")
        self._asked.add(name)
        return self.checkpoint[self._names[name]]

    def _read(self, info: TensorInfo) -> Array:
        if info.name in self._preloaded:
            return self._preloaded.pop(info.name)
        if self.ledger is not None:
            return self.ledger.array(info.array_shape, info.array_dtype, mapped=info.mapped and self._keeps)
        if self._keeps:
            return self.checkpoint.read(info.name)
        array = host_empty(info.array_shape, info.array_dtype).numpy()  # pages that go back when it is gone
        info.file.fill(array, info.offset)
        return array

    def _made(self, shape: Shape, dtype: Any, fill: Callable[[Array], None], work: int = 0) -> Array:
        """An array in memory with what `fill` puts there, for which it needs `work` more bytes at once."""
        if self.ledger is not None:
            blank = self.ledger.array(shape, dtype)
            self.ledger.work(work)
            return blank
        array = aligned_empty(shape, dtype)
        fill(array)
        return array

    def _typed(self, name: str, *dtypes: str) -> TensorInfo:
        info = self._info(name)
        if info.dtype not in dtypes:
            raise FormatError(f"{self._where(name)}: dtype: expected {' or '.join(dtypes)}, got {info.dtype}")
        return info

    def _check(self, name: str, what: str, expected: Shape | None, got: Shape) -> None:
        if expected is not None and tuple(expected) != got:
            raise FormatError(f"{self._where(name)}: {what}: expected {list(expected)}, got {list(got)}")

    def _where(self, name: str) -> str:
        """The file and the name in it, for messages."""
        raw = self._names.get(name)
        return str(self.checkpoint[raw]) if raw is not None else f"{self.checkpoint.path}: {shown(name)}"
