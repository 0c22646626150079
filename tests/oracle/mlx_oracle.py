"""A checkpoint through mlx_lm on the CPU, with every parameter in float32.

MLX's CPU product of quantised weights accumulates in the type of the activations; only float32 will do.
"""

from __future__ import annotations

import json
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
    mlps = [layer.mlp if "mlp" in layer else layer.block_sparse_moe for layer in model.layers]
    routers_of = (getattr(mlp, "router", getattr(mlp, "gate", None)) for mlp in mlps)
    gates = [module for module in routers_of if module is not None]
    with _recorded(model.layers, layers, _output), _recorded(gates, routers, _router_logits):
        logits = np.array(model(mx.array(tokens)[None])[0])
    return Outputs(logits, stacked(layers, len(tokens)), stacked(routers, len(tokens)))


def dequantise(quantised: Path, folder: Path) -> Path:
    """The same checkpoint in float32, where both have the same names."""
    config = json.loads((quantised / "config.json").read_text())
    form = config.pop("quantization")
    del config["quantization_config"]
    tensors = {k: v for file in quantised.glob("*.safetensors") for k, v in mx.load(str(file)).items()}
    whole = {}
    for name, array in tensors.items():
        path = name.removesuffix(".weight")
        if path.endswith((".scales", ".biases")):
            continue
        if path + ".scales" in tensors:
            parts = (array, *(tensors[f"{path}.{part}"].astype(mx.float32) for part in ("scales", "biases")))
            array = mx.dequantize(*parts, group_size=form["group_size"], bits=form["bits"])
        whole[name] = array.astype(mx.float32)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / "model.safetensors"), whole, {"format": "pt"})
    return folder


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
