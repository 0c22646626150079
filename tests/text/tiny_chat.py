"""A tiny checkpoint that can chat: random weights, a trained tokenizer and a template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from text.vocabularies import byte_level
from tiny_configs import MODELS
from tiny_models import write_mlx

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(
    folder: Path,
    layers: int = 4,
    context: int = 512,
    template: str = TEMPLATE,
    special: Sequence[str] = (),
    **generation: object,
) -> Path:
    """A tiny qwen3_5_moe with a vocabulary as large as that of a trained tokenizer, and even `layers`.

    `special` are the texts of further special tokens.
    """
    tiny, vocabulary = MODELS["qwen3_5_moe"], Tokenizer.from_str(byte_level().to_str())
    vocabulary.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    kinds = ["linear_attention", "full_attention"] * (layers // 2)
    text = tiny.text | {"num_hidden_layers": layers, "layer_types": kinds}
    text["max_position_embeddings"] = context
    text["vocab_size"] = vocabulary.get_vocab_size()
    write_mlx(replace(tiny, config=tiny.config | {"text_config": text}), folder)
    vocabulary.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder
