"""A model whose prompts show what others leave out: earlier thoughts, an effort, and a first token."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, processors

import pyturbo
from text.dialects.published import TEMPLATES
from text.tiny_chat import write_model

NAME = "thoughtful"
_BEGIN = "<|im_start|>"
_EFFORT = "{%- if reasoning_effort %}{{- 'Effort: ' ~ reasoning_effort ~ '\\n' }}{%- endif %}\n"
_SAID = "{{- message.content or '' }}"
_THOUGHT = (
    "{%- if message.reasoning_content %}"
    "{{- '<think>\\n' ~ message.reasoning_content ~ '</think>\\n' }}"
    "{%- endif %}"
)


def thoughtful(folder: Path) -> pyturbo.Model:
    """Write the model, and load it."""
    template = TEMPLATES["hermes think opened"]
    assert _SAID in template
    write_model(folder, 2, 1024, template=_EFFORT + template.replace(_SAID, f"{_THOUGHT}{_SAID}"))
    file = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    tokens = [(_BEGIN, tokenizer.token_to_id(_BEGIN))]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{_BEGIN} $A", special_tokens=tokens)
    tokenizer.save(str(file))
    return pyturbo.load(folder, "cpu")
