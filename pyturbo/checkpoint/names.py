"""One scheme of names for the tensors of a text model: the names of MLX without `language_model.`"""

from __future__ import annotations

import re

_PREFIXES = ("model.language_model.", "language_model.model.")
_OTHER_MODELS = re.compile(r"(model\.)?(vision_tower|vision_model|visual|audio_tower|mtp)\.")
_COMPUTED = re.compile(r"\.rotary_emb\.inv_freq$")


def text_name(name: str) -> str:
    """Return the name of a tensor, or path of a module, without the prefixes of vision-language files."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return "model." + name[len(prefix) :]
    return name.removeprefix("language_model.")


def is_ignored(name: str) -> bool:
    """Return whether a tensor is of a vision, audio or multi-token-prediction part, or can be computed."""
    return bool(_OTHER_MODELS.match(name) or _COMPUTED.search(name))
