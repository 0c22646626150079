"""One scheme of names for the tensors of a text model: the names of MLX without `language_model.`"""

from __future__ import annotations

import re
from typing import Any

_PREFIXES = ("model.language_model.", "language_model.model.")
_OTHER_MODELS = re.compile(r"(model\.)?(vision_tower|vision_model|visual|audio_tower|mtp)\.")
_COMPUTED = re.compile(r"\.rotary_emb\.inv_freq$")
_PADDING = re.compile(r"padding\.\d{1,9}")
_LAYER = re.compile(r"model\.layers\.(\d{1,9})\.")


def text_name(name: str) -> str:
    """Return the name of a tensor, or path of a module, without the prefixes of vision-language files."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return "model." + name[len(prefix) :]
    return name.removeprefix("language_model.")


def is_ignored(name: str) -> bool:
    """Return whether a tensor is of a vision, audio or multi-token-prediction part, computed, or padding."""
    return bool(_OTHER_MODELS.match(name) or _COMPUTED.search(name) or is_padding(name))


def padding_name(number: int) -> str:
    """Return the name of a tensor of zeros that fills a gap between two others."""
    return f"padding.{number}"


def is_padding(name: str) -> bool:
    return _PADDING.fullmatch(name) is not None


def is_draft(name: str, config: dict[str, Any]) -> bool:
    """Return whether a tensor belongs to the layers after the last, which predict further tokens."""
    layers, drafts = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    if type(layers) is not int or type(drafts) is not int or (match := _LAYER.match(name)) is None:
        return False
    return layers <= int(match[1]) < layers + drafts


def is_convolution(name: str) -> bool:
    """Return whether a tensor holds taps: [channels, taps, 1] in MLX, [channels, 1, taps] in transformers."""
    return name.endswith(".conv1d.weight")
