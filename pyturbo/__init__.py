"""pyturbo: mixture-of-experts language models in few bits, on Metal GPUs and on the CPU.

Each kernel is specified once, in Metal Shading Language. GPUs and the reference device `cpu:reference` run
that shader; the device `cpu` also has hand-written bodies, each tested against its shader.

A model, and text from it:

    >>> import pyturbo
    >>> model = pyturbo.load()  # the small one in the package; or a directory, or a .gguf file
    >>> model
    Model('qwen3_5_moe', layers=8, vocab=4096, context=2048, kv='f16', device='cpu')
    >>> model.generate("Once upon a time", max_tokens=5).text
    ', there was a little'

A session remembers what it has read. It can be forked, saved and loaded again.

    >>> session = model.session(context=512)
    >>> logits = session.prefill(model.tokenizer.encode("Once upon a time"))
    >>> session
    Session(position=4, context=512, nbytes=2189312)

Below models there are operations on NumPy arrays, and below those kernels on a device:

    >>> pyturbo.ops.add([1.0, 2.0], [3.0, 4.0])
    array([4., 6.], dtype=float32)
    >>> pyturbo.Device("cpu").kernel("swiglu")
    Kernel('swiglu': gate, up, y, count)

From a checkpoint to text: `load`, `Model`, `Session`, `Conversation`, `Tokenizer`, `Sampler`, `Reply`,
`ReplyOptions`, `Chunk`, `Completion`, `Stats`, `Memory`, `PrefixCache`, `Profile` and `ProfileEvent`;
`Engine` and `Stream` for many conversations at once; `convert` writes quantised checkpoints, and `pack` those
whose experts are read one by one. Operations and kernels: `ops`, `kernels`, `devices`, `Device`, `Buffer`,
`Kernel`, `Program`, and `Recorder`, `Tensor` and `symbol`, which record programs. Modules: `batching`,
`checkpoint`,
`formats`, `serve`, `streaming`, `text`, `symbols`, and `errors` with all exceptions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    from pyturbo._buffer import Buffer
    from pyturbo._device import Device
    from pyturbo._device import device_list as devices
    from pyturbo._kernel import Kernel
except ImportError as error:
    from pyturbo._distribution import advice

    raise ImportError(f"the native part of pyturbo cannot be loaded ({error}). {advice()}") from error
from pyturbo import errors

if TYPE_CHECKING:
    from pyturbo import batching as batching
    from pyturbo import checkpoint as checkpoint
    from pyturbo import formats as formats
    from pyturbo import ops as ops
    from pyturbo import serve as serve
    from pyturbo import streaming as streaming
    from pyturbo import symbols as symbols
    from pyturbo import text as text
    from pyturbo._manifest import kernels as kernels
    from pyturbo._paths import get_include as get_include
    from pyturbo._program import Program as Program
    from pyturbo._sampling import Sampler as Sampler
    from pyturbo.batching import Engine as Engine
    from pyturbo.batching import Stream as Stream
    from pyturbo.conversation import Conversation as Conversation
    from pyturbo.convert import convert as convert
    from pyturbo.engine.generation import Chunk as Chunk
    from pyturbo.engine.generation import Completion as Completion
    from pyturbo.engine.generation import ReplyOptions as ReplyOptions
    from pyturbo.engine.generation import Stats as Stats
    from pyturbo.engine.prefix_cache import PrefixCache as PrefixCache
    from pyturbo.engine.profile import Profile as Profile
    from pyturbo.engine.reply import Reply as Reply
    from pyturbo.engine.session import Memory as Memory
    from pyturbo.engine.session import Session as Session
    from pyturbo.engine.timeline import ProfileEvent as ProfileEvent
    from pyturbo.model import Model as Model
    from pyturbo.model import load as load
    from pyturbo.pack import pack as pack
    from pyturbo.recording import Recorder as Recorder
    from pyturbo.recording import Tensor as Tensor
    from pyturbo.symbols import symbol as symbol
    from pyturbo.text import Tokenizer as Tokenizer

#: The module of each name that is imported when it is first used; "" for a module itself.
_ON_USE = {
    "Chunk": "engine.generation",
    "Completion": "engine.generation",
    "Conversation": "conversation",
    "Engine": "batching",
    "Memory": "engine.session",
    "Model": "model",
    "PrefixCache": "engine.prefix_cache",
    "Profile": "engine.profile",
    "ProfileEvent": "engine.timeline",
    "Program": "_program",
    "Recorder": "recording",
    "Reply": "engine.reply",
    "ReplyOptions": "engine.generation",
    "Sampler": "_sampling",
    "Session": "engine.session",
    "Stats": "engine.generation",
    "Stream": "batching",
    "Tensor": "recording",
    "Tokenizer": "text",
    "batching": "",
    "checkpoint": "",
    "convert": "",
    "formats": "",
    "get_include": "_paths",
    "kernels": "_manifest",
    "load": "model",
    "ops": "",
    "pack": "",
    "serve": "",
    "streaming": "",
    "symbol": "symbols",
    "symbols": "",
    "text": "",
}

__all__ = [
    "Buffer",
    "Chunk",
    "Completion",
    "Conversation",
    "Device",
    "Engine",
    "Kernel",
    "Memory",
    "Model",
    "PrefixCache",
    "Profile",
    "ProfileEvent",
    "Program",
    "Recorder",
    "Reply",
    "ReplyOptions",
    "Sampler",
    "Session",
    "Stats",
    "Stream",
    "Tensor",
    "Tokenizer",
    "batching",
    "checkpoint",
    "convert",
    "devices",
    "errors",
    "formats",
    "get_include",
    "kernels",
    "load",
    "ops",
    "pack",
    "streaming",
    "symbol",
    "symbols",
    "text",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        from pyturbo._distribution import NAME

        return version(NAME)
    if name not in _ON_USE:
        raise AttributeError(f"module 'pyturbo' has no attribute {name!r}")
    if not _ON_USE[name]:
        return importlib.import_module(f"pyturbo.{name}")
    value = getattr(importlib.import_module(f"pyturbo.{_ON_USE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
