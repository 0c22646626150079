"""The weights of a model under one scheme of names, whatever files they come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyturbo._arrays import Array, aligned_empty
from pyturbo._blank import Blank, Ledger
from pyturbo._buffer import host_empty
from pyturbo._messages import shown
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.source import Plane, Shape, Source
from pyturbo.checkpoint.stream import CopiedStream, Stream
from pyturbo.checkpoint.tensors import Progress, TensorInfo, Tensors
from pyturbo.errors import FormatError
from pyturbo.formats import Linear
from pyturbo.streaming import ServedLayer

FLOATS = ("F32", "F16", "BF16")

_EMBEDDING = "model.embed_tokens"
_PARTS = ("weight", "scales", "biases", "global_scale")  # tensors of a layer, except its bias


class Weights(ABC):
    """Tensors and linear layers by MLX name: "model.layers.0.self_attn.q_proj", "model.norm.weight".

    A missing tensor, or one whose shape or type is not the expected one, is a FormatError that names it.
    Only one thread may use it at a time.
    """

    def __init__(
        self, checkpoint: Tensors, names: dict[str, str], layout: FileLayout, values: bool = True
    ) -> None:
        """Without `values`, make all checks and read nothing: arrays are blank."""
        self.checkpoint = checkpoint
        self.layout = layout
        #: Counts the memory that loading would take; None if values are read.
        self.ledger = None if values else Ledger()
        #: Everything that has been asked for, by name of the tensor or path of the layer.
        self.sources: dict[str, Source] = {}
        self._names = names  # names in the checkpoint, by name here
        self._asked: set[str] = set()
        self._preloaded: dict[str, Array] = {}
        self._keeps = True
        self._tied: Linear | None = None
        #: Whether the output layer is the embedding; if the config does not say, whether the file has none.
        self.tied = self._read_tied()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.checkpoint.path)!r}, tensors={len(self._names)})"

    def __contains__(self, name: str) -> bool:
        return self._stored(name) in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def tensor(self, name: str, shape: Shape | None = None) -> Array:
        """Return a tensor in float32, float16 or bfloat16, as models use it."""
        source = self._find_tensor(name)
        self.check(name, "shape", shape, source.shape)
        return self._load_tensor(source)

    def linear(self, path: str, shape: Shape | None = None, bias: bool | None = None) -> Linear:
        """Return the layer [out, in] at `path`.

        `bias` says whether the layer must or must not have a bias; None allows both. If the output layer is
        tied to the embedding, "lm_head" and "model.embed_tokens" are one object, but for a bias.
        """
        if path in ("lm_head", _EMBEDDING) and self.tied:
            if self._tied is None:
                self._tied = self._matrix(_EMBEDDING, shape, axes=2)
            self.check(f"{_EMBEDDING}.weight", "shape", shape, self._tied.shape)
            layer = self._tied
        else:
            layer = self._matrix(path, shape, axes=2)
        name = f"{path}.bias"
        if bias is False and name in self:
            raise FormatError(f"{self.where(name)}: expected no such tensor")
        if bias or (bias is None and name in self):
            layer = replace(layer, bias=self.tensor(name, layer.shape[:1]))
        return layer

    def experts(self, path: str, shape: Shape | None = None, bias: bool = False) -> Linear:
        """Return the stack [experts, out, in] at a path such as "model.layers.0.mlp.switch_mlp.gate_proj".

        `bias` asks for a bias [experts, out] too.
        """
        layer = self._matrix(path, shape, axes=3)
        if not bias:
            return layer
        shape = self.sources[path].shape[:2]
        return replace(layer, bias=self._load_tensor(self._find_expert_bias(path, shape)))

    def served(self, path: str) -> ServedLayer | None:
        """Return what brings the experts at a path such as "model.layers.0.mlp.switch_mlp" into memory.

        None if they are all there.
        """
        return None

    def preload(self, progress: Progress | None = None) -> None:
        """Read tensors that cannot be mapped, in the order of the files, for the calls that follow."""
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
        """Have layers asked for inside read, not mapped, because they are copied and not kept."""
        self._keeps = False
        try:
            yield
        finally:
            self._keeps = True

    def unused(self) -> list[str]:
        """List the names that nothing has asked for, except those of a tied output layer."""
        tied = tuple(f"lm_head.{part}" for part in _PARTS) if self.tied else ()
        return [name for name in self._names if name not in self._asked and name not in tied]

    def info(self, name: str) -> TensorInfo:
        """Return the tensor of that name here, which counts as used from then on."""
        if name not in self:
            raise FormatError(f"{self.where(name)}: expected a tensor of this name, found none")
        name = self._stored(name)
        self._asked.add(name)
        return self.checkpoint[self._names[name]]

    def stream(self, source: Source, *, stacked: bool = False) -> Stream:
        """Return a tensor or weight as loading makes it, in blocks of rows.

        `stacked` reads the matrices of a stack one by one.
        """
        return CopiedStream(source, stacked=stacked)

    def typed(self, name: str, *dtypes: str) -> TensorInfo:
        info = self.info(name)
        if info.dtype not in dtypes:
            raise FormatError(f"{self.where(name)}: dtype: expected {' or '.join(dtypes)}, got {info.dtype}")
        return info

    def check(self, name: str, what: str, expected: Shape | None, got: Shape) -> None:
        if expected is not None and tuple(expected) != got:
            raise FormatError(f"{self.where(name)}: {what}: expected {list(expected)}, got {list(got)}")

    def where(self, name: str) -> str:
        """Return the file and the name in it, for messages."""
        raw = self._names.get(self._stored(name))
        if raw is not None:
            return str(self.checkpoint[raw])
        return f"{self.checkpoint.path}: {shown(self._missing_name(name))}"

    def raw_name(self, name: str) -> str:
        """Return the name of a tensor in the checkpoint."""
        return self._names.get(name, name)

    def _stored(self, name: str) -> str:
        """Return the name of the tensor that holds another one as some of its rows; otherwise `name`."""
        return name

    def _missing_name(self, name: str) -> str:
        """Return the name that a tensor would have in the checkpoint."""
        return name

    @abstractmethod
    def _find_tensor(self, name: str) -> Source:
        """Find a tensor that is not quantised."""

    @abstractmethod
    def _find_matrix(self, path: str, shape: Shape | None, axes: int) -> Source:
        """Find the weight of a layer, or of a stack of them."""

    @abstractmethod
    def _load(self, source: Source) -> Linear:
        """Read a weight."""

    def _find_expert_bias(self, path: str, shape: Shape) -> Source:
        source = self._find_tensor(f"{path}.bias")
        self.check(f"{path}.bias", "shape", shape, source.shape)
        return source

    def _matrix(self, path: str, shape: Shape | None, axes: int) -> Linear:
        """Return a layer without its bias."""
        source = self.sources[path] = self._find_matrix(path, shape, axes)
        layer = self._load(source)
        for array in layer.arrays:
            _label(path, array)
        return layer

    def _load_tensor(self, source: Source) -> Array:
        self.sources[source.name] = source
        return _label(source.name, self._values(source))

    def _values(self, source: Source) -> Array:
        """Read a tensor that is not quantised."""
        return self._array(source.values)

    def _array(self, plane: Plane) -> Array:
        """Return the mapped file where it holds the array as it is, otherwise a copy."""
        if plane.whole:
            array = self._read(plane.tensors[0])
            return array if array.shape == plane.shape else array.reshape(plane.shape)
        return self._made(plane.shape, plane.dtype, plane.fill, plane.work)

    def _read_tied(self) -> bool:
        value = self.checkpoint.config.get("tie_word_embeddings")
        if value is None:
            return "lm_head.weight" not in self._names
        if not isinstance(value, bool):
            raise FormatError(
                f"{self.where('tie_word_embeddings')}: expected true or false, got {shown(value)}"
            )
        return value

    def _read_whole(self, name: str) -> bool:
        """Return whether a tensor is used as it lies in the file, not copied in parts."""
        return True

    def _read(self, info: TensorInfo) -> Array:
        if info.name in self._preloaded:
            return self._preloaded.pop(info.name)
        if self.ledger is not None:
            return self.ledger.array(info.array_shape, info.array_dtype, mapped=info.mapped and self._keeps)
        if self._keeps:
            return info.file.read(info.array_dtype, info.array_shape, info.offset)
        array = host_empty(info.array_shape, info.array_dtype).numpy()  # its pages are freed with it
        info.file.fill(array, info.offset)
        return array

    def _made(self, shape: Shape, dtype: Any, fill: Callable[[Array], None], work: int = 0) -> Array:
        """Return an array in memory that `fill` writes, which takes `work` more bytes meanwhile."""
        if self.ledger is not None:
            blank = self.ledger.array(shape, dtype)
            self.ledger.work(work)
            return blank
        array = aligned_empty(shape, dtype)
        fill(array)
        return array


def _label(name: str, array: Array) -> Array:
    """Note in an array without values which tensor or layer it belongs to."""
    if isinstance(array, Blank):
        array.path = name
    return array
