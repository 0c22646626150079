"""The tokenizer and the chat template in the metadata of a GGUF file."""

from __future__ import annotations

from pyturbo.checkpoint.gguf_fields import Fields
from pyturbo.checkpoint.tokenizer import TokenizerSource
from pyturbo.errors import FormatError


def gguf_tokenizer(fields: Fields) -> TokenizerSource:
    tokens = fields.texts("tokenizer.ggml.tokens")
    scores = fields.numbers("tokenizer.ggml.scores", "f")
    types = fields.numbers("tokenizer.ggml.token_type", "")
    for name, values in (("scores", scores), ("token_type", types)):
        if values and len(values) != len(tokens):
            raise FormatError(
                f"{fields.path}: tokenizer.ggml.{name}: expected {len(tokens)} values, got {len(values)}"
            )
    ids = {
        name: fields.token_id(f"tokenizer.ggml.{name}_token_id", len(tokens))
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding")
    }
    ends = (ids[name] for name in ("eos", "eot", "eom"))
    return TokenizerSource(
        kind="gguf",
        file=fields.path,
        chat_template=fields.text("tokenizer.chat_template", "") or None,
        bos_id=ids["bos"],
        eos_ids=tuple(dict.fromkeys(i for i in ends if i is not None)),
        model=fields.text("tokenizer.ggml.model", "") or None,
        pre=fields.text("tokenizer.ggml.pre", "") or None,
        tokens=tokens,
        scores=scores,
        types=types,
        merges=fields.texts("tokenizer.ggml.merges"),
        unknown_id=ids["unknown"],
        padding_id=ids["padding"],
        add_bos=fields.flag("tokenizer.ggml.add_bos_token"),
        add_eos=fields.flag("tokenizer.ggml.add_eos_token"),
        add_space_prefix=fields.flag("tokenizer.ggml.add_space_prefix"),
    )
