"""The same work by torch on the same GPU, where torch with CUDA is installed.

Torch runs in a process of its own. In that of a device it slows the device: on an H200 by 0.2 to 0.5 us a
launch.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

from pyturbo.bench.gpu.reason import reason
from pyturbo.errors import TurboError

_ROTATED = 256 << 20  # bytes that calls read in turn: more than caches hold
_CALLS = 40  # of a CUDA graph
_REPLAYS = 5


class TorchError(TurboError):
    """What torch raised in the other process, as text: a class of torch would bring torch here."""


class TorchPeer:
    """Times operations of torch in the other process."""

    def __init__(self) -> None:
        self._process = ProcessPoolExecutor(1, get_context("spawn"))
        try:
            self.version = str(self._ask("version"))
        except BaseException:
            self.close()
            raise

    def int4_matvec(self, out: int, width: int) -> float:
        """Return the seconds of a product of one token with a matrix of 4 bits in groups of 64."""
        return float(self._ask("int4_matvec", out, width))

    def matmul(self, tokens: int, out: int, width: int) -> float:
        """Return the seconds of a product in bf16."""
        return float(self._ask("matmul", tokens, out, width))

    def attention(self, tokens: int, heads: int, kv_heads: int, dim: int, context: int) -> float:
        """Return the seconds of attention in bf16 without a mask."""
        return float(self._ask("attention", tokens, heads, kv_heads, dim, context))

    def close(self) -> None:
        """End the other process."""
        self._process.shutdown()

    def _ask(self, what: str, *sizes: int) -> str | float:
        answer, wrong = self._process.submit(_answer, what, *sizes).result()
        if answer is None:
            raise TorchError(wrong)
        return answer


def torch_peer() -> tuple[TorchPeer | None, str]:
    """Return torch and its version, or None and why it cannot be used."""
    if importlib.util.find_spec("torch") is None:
        return None, "not installed"
    try:
        peer = TorchPeer()
    except Exception as error:  # whatever a torch without CUDA raises, or the end of the process
        return None, f"not used: {reason(error)}"
    return peer, peer.version


def _answer(what: str, *sizes: int) -> tuple[str | float | None, str]:
    """Return what an operation returns, or why it failed, and give memory back that torch keeps."""
    wrong = ""
    try:
        answer = getattr(_operations(), what)(*sizes)
    except Exception as error:  # whatever a torch without CUDA raises
        answer, wrong = None, reason(error)
    with suppress(Exception):  # torch has no operation, or has failed for good
        _operations().torch.cuda.empty_cache()
    return answer, wrong


@cache
def _operations() -> _Operations:
    return _Operations()


class _Operations:
    """Runs operations of torch in a CUDA graph, one call after the other, each with other operands."""

    def __init__(self) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.torch.zeros(1, device="cuda")

    def version(self) -> str:
        return str(self.torch.__version__)

    def int4_matvec(self, out: int, width: int) -> float:
        torch = self.torch
        pack = getattr(torch.ops.aten, "_convert_weight_to_int4pack")  # noqa: B009  private in torch
        multiply = getattr(torch.ops.aten, "_weight_int4pack_mm")  # noqa: B009
        calls = []
        for _ in range(_copies(out * width // 2)):
            codes = torch.randint(0, 256, (out, width // 2), dtype=torch.uint8, device="cuda")
            packed = pack(codes, 8)
            scales = torch.full((width // 64, out, 2), 0.01, dtype=torch.bfloat16, device="cuda")
            x = torch.ones(1, width, dtype=torch.bfloat16, device="cuda")
            calls.append(partial(multiply, x, packed, 64, scales))
        return self._seconds(calls)

    def matmul(self, tokens: int, out: int, width: int) -> float:
        torch = self.torch
        x = self._random(tokens, width)
        weights = [self._random(out, width) for _ in range(_copies(out * width * 2))]
        return self._seconds([partial(torch.nn.functional.linear, x, w) for w in weights])

    def attention(self, tokens: int, heads: int, kv_heads: int, dim: int, context: int) -> float:
        """Heads that share keys may be heads, or more queries of one head: the faster way counts."""
        attend = self.torch.nn.functional.scaled_dot_product_attention
        copies = range(_copies(4 * context * kv_heads * dim))
        pairs = [tuple(self._random(1, kv_heads, context, dim) for _ in "kv") for _ in copies]
        q = self._random(1, heads, tokens, dim)
        grouped = q.reshape(1, kv_heads, heads // kv_heads * tokens, dim)
        ways = (
            [partial(attend, q, k, v, enable_gqa=True) for k, v in pairs],
            [partial(attend, grouped, k, v) for k, v in pairs],
        )
        return min(self._seconds(calls) for calls in ways)

    def _random(self, *shape: int) -> Any:
        return self.torch.randn(*shape, dtype=self.torch.bfloat16, device="cuda")

    def _seconds(self, calls: Sequence[Callable[[], object]]) -> float:
        """Return the time of a call: the median of replays of one graph, by events."""
        torch = self.torch
        for call in calls[:2]:
            call()
        torch.cuda.synchronize()
        loops = math.ceil(_CALLS / len(calls))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(loops):
                for call in calls:
                    call()
        graph.replay()
        torch.cuda.synchronize()
        times = []
        for _ in range(_REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(float(begin.elapsed_time(end)) / 1e3 / (loops * len(calls)))
        return sorted(times)[len(times) // 2]


def _copies(nbytes: int) -> int:
    return max(1, min(64, math.ceil(_ROTATED / nbytes)))
