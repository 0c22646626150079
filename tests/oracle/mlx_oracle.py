"""A checkpoint through mlx_lm on the CPU, with every parameter in float32.

MLX's CPU product of quantised weights accumulates in the type of the activations; only float32 will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_map
from mlx_lm.utils import load_model
from outputs import Outputs, stacked


def forward(folder: Path, tokens: np.ndarray) -> Outputs:
    mx.set_default_device(mx.cpu)
    model, _config = load_model(folder)
    model.update(tree_map(_float32, model.parameters()))
    model.update_modules(tree_map(_exact_embedding, model.leaf_modules(), is_leaf=_is_module))
    layers: list[np.ndarray] = []
    routers: list[np.ndarray] = []
    gates = [layer.mlp.gate for layer in model.layers if hasattr(layer.mlp, "gate")]
    with _recorded(model.layers, layers, _output), _recorded(gates, routers, _router_logits):
        logits = np.array(model(mx.array(tokens)[None])[0])
    return Outputs(logits, stacked(layers, len(tokens)), stacked(routers, len(tokens)))


def _float32(value: mx.array) -> mx.array:
    return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def _exact_embedding(module: Any) -> Any:
    """A table of small floats as one of float32: mlx takes bfloat16 rows from it, and goes on with that."""
    if not isinstance(module, nn.QuantizedEmbedding) or module.mode == "affine":
        return module
    table = nn.Embedding(1, 1)
    form = {"group_size": module.group_size, "bits": module.bits, "mode": module.mode}
    table.weight = mx.dequantize(module.weight, module.scales, dtype=mx.float32, **form)
    return table


def _output(module: Any, x: mx.array, out: Any) -> mx.array:
    return out


def _router_logits(module: Any, x: mx.array, out: Any) -> mx.array:
    """What a router returns, or where that is its choice, what it chose by."""
    return x @ module.weight.T if isinstance(out, tuple) else out


@contextmanager
def _recorded(
    modules: list[Any], outputs: list[np.ndarray], read: Callable[[Any, mx.array, Any], mx.array]
) -> Iterator[None]:
    """Appends what `read` makes of each call of the modules. Python looks calls up in the class, so that is
    patched."""
    chosen = {id(module) for module in modules}
    with ExitStack() as undo:
        for kind in {type(module) for module in modules}:

            def recorded(self: Any, *args: Any, call: Any = kind.__call__, **kwargs: Any) -> mx.array:
                out = call(self, *args, **kwargs)
                if id(self) in chosen:
                    outputs.append(np.array(read(self, args[0], out)))
                return out

            undo.callback(setattr, kind, "__call__", kind.__call__)
            kind.__call__ = recorded
        yield
