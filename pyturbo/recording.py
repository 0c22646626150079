"""Recording: under a Recorder the operations of ``pyturbo.ops`` add launches to a program."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, Token
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyturbo._arguments import index
from pyturbo._buffer import Buffer, host_empty
from pyturbo._device import Device
from pyturbo._dtypes import DTYPES, code_of
from pyturbo._host_loop import HostLoop
from pyturbo._messages import shown
from pyturbo._program import Program
from pyturbo._traits import Traits
from pyturbo.errors import ArgumentError, StateError
from pyturbo.symbols import Linear, Place

Extent = int | Linear

#: Pieces of scratch memory of one size that stay free, so that a launch does not wait for the last user.
_SPARE = 1

_active: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def active() -> Recorder | None:
    """Return the recorder of the enclosing ``with`` statement."""
    return _active.get()


def traits() -> Traits:
    """Return the traits of the device of the active recorder."""
    return _required("traits").device.traits


def fuses() -> bool:
    """Tell whether the device of the active recorder has kernels that join others for steps of one token."""
    recorder = active()
    return recorder is not None and recorder.device.traits.fused


@contextmanager
def label(name: str) -> Iterator[None]:
    """Name the launches inside for the active recorder, if there is one."""
    recorder = active()
    with recorder.label(name) if recorder is not None else nullcontext():
        yield


def ask(loop: HostLoop) -> None:
    """Record the beginning of a host loop; see ``Recorder.ask``."""
    _required("ask").ask(loop)


@contextmanager
def passes() -> Iterator[None]:
    """Record the launches of a host loop's passes; see ``Recorder.passes``."""
    with _required("passes").passes():
        yield


def stack(strands: Iterable[Strand], rows: Extent) -> Any:
    """Record strands of launches side by side; see ``Recorder.stack``."""
    return _required("stack").stack(strands, rows)


def _required(what: str) -> Recorder:
    recorder = active()
    if recorder is None:
        raise StateError(f"{what}: expected an active Recorder, got none")
    return recorder


class Tensor:
    """Memory of a program with a shape whose extents may be symbols. Operations take it like an array."""

    def __init__(
        self,
        memory: Buffer | Place,
        shape: Sequence[Extent],
        dtype: Any,
        base: Any = None,
        stride: int | None = None,
    ) -> None:
        if not isinstance(memory, (Buffer, Place)):
            raise ArgumentError(f"Tensor: memory: expected a Buffer or a Place, got {type(memory).__name__}")
        self.memory = memory
        self.shape = _extents("Tensor: shape", shape)
        self.dtype: np.dtype[Any] = DTYPES[code_of(dtype)]
        #: Elements from one row to the next if rows are parts of longer ones, else None.
        self.stride = stride
        self._base = base  # the owner of the memory

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Extent:
        """The number of values."""
        return _product(self.shape)

    def numpy(self) -> Tensor:
        """Return the tensor itself: the result of a recorded operation has no values yet."""
        return self

    def rows(self, first: Extent, count: Extent = 1) -> Tensor:
        """Return `count` rows from row `first` on."""
        first, count = _extent("rows: first", first), _extent("rows: count", count)
        row = _product(self.shape[1:])
        if isinstance(row, Linear):
            raise ArgumentError(f"rows: expected rows of a fixed size, got {self!r}")
        distance = self.stride or row
        offset = Linear.of(first) * (distance * self.dtype.itemsize)
        place = self.memory if isinstance(self.memory, Place) else Place(self.memory, 0, self.memory.nbytes)
        begin = Linear.of(place.offset) + offset
        if isinstance(count, Linear):
            end = Linear.of(place.offset).at({}) + place.nbytes if place.end is None else place.end
            part = Place(place.block, begin, 0, self.dtype, end)
        else:
            size = (count - 1) * distance + row if count else 0
            part = Place(place.block, begin, size * self.dtype.itemsize, self.dtype)
        stride = None if count == 1 else self.stride
        return Tensor(part, (count, *self.shape[1:]), self.dtype, base=self, stride=stride)

    def columns(self, first: int, count: int) -> Tensor:
        """Return `count` columns from column `first` on, for the operations that take strided rows."""
        if self.ndim != 2 or self.stride is not None or isinstance(self.memory, Place):
            raise ArgumentError(f"columns: expected a matrix of its own, got {self!r}")
        row, itemsize = Linear.of(self.shape[1]).at({}), self.dtype.itemsize
        first, count = index("columns: first", first), index("columns: count", count)
        if first + count > row:
            raise ArgumentError(
                f"columns: first, count: expected at most {row} columns, got {first} + {count}"
            )
        place = Place(self.memory, first * itemsize, self.memory.nbytes - first * itemsize, self.dtype)
        return Tensor(place, (self.shape[0], count), self.dtype, base=self, stride=row)

    def reshape(self, *shape: Extent) -> Tensor:
        """Return the same values in another shape. Strided rows stay rows."""
        shape = _extents("reshape: shape", shape)
        if _product(shape) != self.size or (self.stride is not None and shape[0] != self.shape[0]):
            raise ArgumentError(f"reshape: expected {self.size} values as in {self!r}, got {list(shape)}")
        return Tensor(self.memory, shape, self.dtype, base=self, stride=self.stride)

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(map(str, self.shape))}], {self.dtype})"


class _Scratch:
    """Pieces of memory that tensors hold one after the other.

    A piece is free again when its tensor is gone. One whose tensor goes while the launches of passes are
    recorded is free only after them: each pass runs all of these launches again, so none may write to what
    others of them read, or leave for the launches after the passes.
    """

    def __init__(self, empty: Callable[[int, Any], Buffer]) -> None:
        """Take what makes a buffer of a shape and a type."""
        self._empty = empty
        self._free: dict[int, list[Buffer]] = {}
        self._held: list[Buffer] | None = None  # pieces that have come back during passes
        self.nbytes = 0  # of all pieces

    @property
    def free_bytes(self) -> int:
        """Bytes that no tensor holds."""
        return sum(piece.nbytes for pieces in self._free.values() for piece in pieces)

    def tensor(self, capacity: int, shape: tuple[Extent, ...], dtype: np.dtype[Any]) -> Tensor:
        """Return a tensor over a piece of `capacity` bytes."""
        free = self._free.setdefault(capacity, [])
        if len(free) <= _SPARE:
            free.append(self._empty(capacity, np.uint8))
            self.nbytes += capacity
        piece = free.pop(0)
        tensor = Tensor(piece.view(capacity // dtype.itemsize, dtype), shape, dtype)
        weakref.finalize(tensor, self._give_back, piece).atexit = False
        return tensor

    def _give_back(self, piece: Buffer) -> None:
        if self._held is None:
            self._free[piece.nbytes].append(piece)
        else:
            self._held.append(piece)

    @contextmanager
    def passes(self) -> Iterator[None]:
        """Hold back the pieces that come back inside."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for piece in held:
                self._give_back(piece)


class Strand(NamedTuple):
    """Launches that belong to one of several conversations; see ``Recorder.stack``.

    Attributes:
        record: Records them, and returns a result [rows, ...] of its own.
        first: Where the rows of that are among those of all strands.
        rows: How many they are.
        when: A symbol: replays in which it is 0 leave the launches out.
    """

    record: Callable[[], Any]
    first: Extent
    rows: Extent = 1
    when: str | None = None


class _Recorded(NamedTuple):
    """A launch that is held back."""

    label: str
    name: str
    args: tuple[Any, ...]
    constants: dict[str, Any] | None
    when: str | None

    def moved(self, memory: Mapping[int, Buffer | Place]) -> _Recorded:
        """Return the launch with other memory for tensors whose own has one of these identities."""
        args = (
            Tensor(memory[id(arg.memory)], arg.shape, arg.dtype)
            if isinstance(arg, Tensor) and id(arg.memory) in memory
            else arg
            for arg in self.args
        )
        return self._replace(args=tuple(args))


class Recorder:
    """Records one program. `symbols` gives the largest value of each symbol: scratch memory is made for it.

    Scratch memory that no tensor holds any more is used again, what has been free longest first. A launch
    that reuses it waits for those before it, because dependencies follow from the memory itself.

    Examples:
        >>> from pyturbo import Recorder, Tensor, symbol
        >>> device = pyturbo.Device("cpu")
        >>> rows = device.empty((512, 64))
        >>> with Recorder(device, {"tokens": 512}) as recorder:
        ...     x = Tensor(rows, (symbol("tokens"), 64), "float32")
        ...     y = pyturbo.ops.swiglu(x, x)
        >>> y
        Tensor([tokens, 64], float32)
        >>> recorder.program
        Program(launches=1, symbols=('tokens',), blocks=())
        >>> recorder.program.run(tokens=17)
    """

    def __init__(self, device: Device, symbols: Mapping[str, int], blocks: Sequence[str] = ()) -> None:
        if not isinstance(symbols, Mapping):
            raise ArgumentError(
                f"Recorder: symbols: expected the largest value of each by name, got {shown(symbols)}"
            )
        self.device = device
        self.limits = {name: index(f"Recorder: symbols[{name!r}]", most) for name, most in symbols.items()}
        self.program = Program(device, tuple(symbols), blocks)
        #: Weights by address, with the array that keeps them alive; several launches may read them.
        self._constants: dict[int, tuple[NDArray[Any], Buffer]] = {}
        self._scratch = _Scratch(device.empty)
        self._targets: list[Tensor] = []
        self._strand: list[_Recorded] | None = None  # launches that `stack` holds back
        self._groups = 0  # of launches that touch nothing of each other
        self._labels: list[str] = []
        self._when: str | None = None
        self._tokens: list[Token[Recorder | None]] = []
        #: Called between layers, where recording may wait.
        self.pause: Callable[[], None] = _go_on

    def __repr__(self) -> str:
        return f"Recorder({self.program!r}, limits={self.limits}, scratch_bytes={self.scratch_bytes})"

    def __enter__(self) -> Recorder:
        self._tokens.append(_active.set(self))
        return self

    def __exit__(self, *exception: object) -> None:
        _active.reset(self._tokens.pop())

    @contextmanager
    def label(self, name: str) -> Iterator[None]:
        """Name the launches recorded inside, as ``outer.inner``."""
        if not isinstance(name, str):
            raise ArgumentError(f"label: name: expected text, got {shown(name)}")
        self._labels.append(name)
        try:
            yield
        finally:
            self._labels.pop()

    @contextmanager
    def when(self, name: str | None) -> Iterator[None]:
        """Have replays in which the symbol of that name is 0 leave out the launches recorded inside.

        These are then the only ones that use their results. None: they always run.
        """
        before, self._when = self._when, name
        try:
            yield
        finally:
            self._when = before

    def ask(self, loop: HostLoop) -> None:
        """Let the host bring what the launches so far found to be missing; see ``Program.ask``."""
        self.program.ask(loop)

    @contextmanager
    def passes(self) -> Iterator[None]:
        """Record the launches of the passes of the loop that was asked.

        Tensors that are made or dropped inside keep their memory until the end, so that a pass overwrites no
        rows that an earlier one wrote.
        """
        self.program.begin_passes()
        with self._scratch.passes():
            yield
        self.program.end_passes()

    @contextmanager
    def into(self, *targets: Tensor) -> Iterator[None]:
        """Write the first results recorded inside to `targets`, which must have their shapes."""
        for target in targets:
            if not isinstance(target, Tensor):
                raise ArgumentError(f"into: target: expected a Tensor, got {type(target).__name__}")
        self._targets = list(targets)
        yield
        if self._targets:
            raise ArgumentError("into: expected an operation with a result")

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory, in use or free."""
        return self._scratch.nbytes

    @property
    def constant_bytes(self) -> int:
        """Bytes of the arrays that launches read, each counted once, also where arrays overlap."""
        return self._constant_bytes(0, 1 << 64)

    def constant_bytes_in(self, memory: NDArray[Any]) -> int:
        """Return how many of these bytes are in an array."""
        return self._constant_bytes(memory.ctypes.data, memory.ctypes.data + memory.nbytes)

    def _constant_bytes(self, first: int, last: int) -> int:
        total, end = 0, first
        for address, (_, buffer) in sorted(self._constants.items()):
            stop = min(address + buffer.nbytes, last)
            total += max(0, stop - max(address, end))
            end = max(end, stop)
        return total

    def empty(self, shape: Sequence[Extent], dtype: Any = np.float32) -> Tensor:
        """Return scratch memory for the largest size the shape can have."""
        dtype, shape = DTYPES[code_of(dtype)], _extents("empty: shape", shape)
        if self._targets:
            target = self._targets.pop(0)
            if (target.shape, target.dtype) != (shape, dtype):
                raise ArgumentError(f"into: expected {target!r}, got {list(shape)} of {dtype}")
            return target
        nbytes = math.prod(self._largest(extent) for extent in shape) * dtype.itemsize
        capacity = max(4096, 1 << (nbytes - 1).bit_length()) if nbytes else 4096
        return self._scratch.tensor(capacity, shape, dtype)

    def _largest(self, extent: Extent) -> int:
        """Return the largest value that an extent can have."""
        linear = Linear.of(extent)
        unknown = [name for name, _ in linear.terms if name not in self.limits]
        if unknown:
            raise ArgumentError(
                f"empty: shape: expected symbols among {list(self.limits)}, got {unknown[0]!r}"
            )
        return linear.at(self.limits)

    def launch(self, name: str, args: Sequence[Any], constants: dict[str, Any] | None) -> None:
        """Add a launch of the kernel of that name. Arrays become constants of the program."""
        launch = _Recorded(".".join(self._labels), name, tuple(args), constants, self._when)
        if self._strand is None:
            self._add(launch)
        else:
            self._strand.append(launch)

    def stack(self, strands: Iterable[Strand], rows: Extent) -> Tensor:
        """Record strands of launches side by side, and return their results as the rows of one tensor.

        Strands do not read what others write, and the rows of their results are apart. The first launches of
        all strands come first, then the second ones, and so on, so that a device runs launches of all strands
        at a time.
        """
        recorded = [(strand, *self._recorded(strand)) for strand in strands]
        _, like, _ = recorded[0]
        stacked = self.empty((rows, *like.shape[1:]), like.dtype)
        moved = {
            id(result.memory): stacked.rows(strand.first, strand.rows).memory
            for strand, result, _ in recorded
        }
        for launches in zip_longest(*(launches for _, _, launches in recorded)):
            self._groups += 1
            for launch in launches:
                if launch is not None:
                    self._add(launch.moved(moved), self._groups)
        return stacked

    def _recorded(self, strand: Strand) -> tuple[Tensor, list[_Recorded]]:
        if self._strand is not None:
            raise StateError("stack: expected strands that are not stacks themselves")
        launches: list[_Recorded] = []
        self._strand = launches
        try:
            with self.when(strand.when):
                return strand.record(), launches
        finally:
            self._strand = None

    def _add(self, launch: _Recorded, group: int = 0) -> None:
        kernel = self.device.kernel(launch.name, launch.constants)
        args = map(self._argument, launch.args)
        self.program.add(kernel, *args, label=launch.label, when=launch.when, group=group)

    def _argument(self, arg: Any) -> Any:
        if not isinstance(arg, np.ndarray):
            return arg
        known, buffer = self._constants.get(arg.ctypes.data, (None, None))
        if known is None or (known.shape, known.dtype) != (arg.shape, arg.dtype):
            buffer = self.device.constant(arg)
            self._constants[arg.ctypes.data] = (arg, buffer)
        return buffer


class SizeRecorder(Recorder):
    """Finds out the scratch memory of a program. Launches are left out, so weights need no memory.

    Pieces are memory of the host, which takes none before it is written to.
    """

    def __init__(self, device: Device, symbols: Mapping[str, int], blocks: Sequence[str] = ()) -> None:
        super().__init__(device, symbols, blocks)
        self._scratch = _Scratch(host_empty)

    def _add(self, launch: _Recorded, group: int = 0) -> None:
        """Leave out a launch."""

    def ask(self, loop: HostLoop) -> None:
        """Leave out a host loop."""

    @contextmanager
    def passes(self) -> Iterator[None]:
        """Keep memory as launches of passes do."""
        with self._scratch.passes():
            yield


def _go_on() -> None:
    """Do not wait."""


def _extents(what: str, shape: Any) -> tuple[Extent, ...]:
    """Return the extents of a shape; each is an integer that is not negative, or a Linear."""
    try:
        extents = None if isinstance(shape, str) else tuple(shape)
    except TypeError:
        extents = None
    if extents is None:
        raise ArgumentError(f"{what}: expected a tuple of integers or symbols, got {shown(shape)}")
    return tuple(_extent(what, extent) for extent in extents)


def _extent(what: str, value: Any) -> Extent:
    return value if isinstance(value, Linear) else index(what, value)


def _product(extents: Sequence[Extent]) -> Extent:
    symbols = [extent for extent in extents if isinstance(extent, Linear)]
    known = math.prod(extent for extent in extents if not isinstance(extent, Linear))
    if len(symbols) > 1:
        raise ArgumentError(f"shape: expected at most one symbol, got {', '.join(map(str, extents))}")
    return symbols[0] * known if symbols else known
