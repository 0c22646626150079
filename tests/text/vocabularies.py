"""Small tokenizers, trained here, as the `tokenizers` package has them and as a GGUF file would list them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from pyturbo.checkpoint.tokenizer import TokenizerSource

CORPUS = [
    "It's the first time they'll see 1234567 birds, isn't it? THEY'RE HERE, she'd said.",
    "def double(x):\n    return 2 * x\r\n\n\tif a/b == 3:  # why?\n\n\n",
    "日本語のテキスト、中文字符。 한국어 Ελληνικά Жизнь हिन्दी ไทย naïve Straße ½ ²",
    "🎂🎂 👩‍👩‍👧 🚀 “quotes” … — $12.50 <html>&amp;</html>   three   spaces",
]

TEXTS = [
    "",
    " ",
    "\n",
    "Hello",
    " Hello  world   \n\n x",
    "DON'T they'LL isn't 'tis 's",
    "12 345 6789012 ½²٣４",
    "日本語。中文 한국 हिन्दी 👩‍👩‍👧🎂 é\u0301 \u3000x\u00a0y",
    "if a/b == c:\r\n\t\treturn  {'x': 1}\n\n\n",
    "ends with spaces   ",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<s>Hi</s> there<think>no</think>",
]

#: With its type in a GGUF file: 2 unknown, 3 control, 4 user-defined.
SPECIAL = {"<|im_start|>": 3, "<|im_end|>": 3, "<think>": 4, "</think>": 4}

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def byte_level() -> Tokenizer:
    """Byte-level BPE of 400 pieces with the expression that Qwen2 publishes."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN2), "isolated")
    ending = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, ending])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    for text, kind in SPECIAL.items():
        tokenizer.add_tokens([AddedToken(text, special=kind == 3, normalized=False)])
    return tokenizer


def byte_level_gguf(**changes: Any) -> TokenizerSource:
    """The same vocabulary as lists."""
    model = json.loads(byte_level().to_str())["model"]
    tokens = pieces(byte_level())
    source = TokenizerSource(
        kind="gguf",
        model="gpt2",
        pre="qwen2",
        tokens=tokens,
        types=[SPECIAL.get(token, 1) for token in tokens],
        merges=[" ".join(pair) for pair in model["merges"]],
        eos_ids=(tokens.index("<|im_end|>"),),
    )
    return replace(source, **changes)


@cache
def sentencepiece() -> Tokenizer:
    """BPE over whole texts with spaces written as U+2581, bytes for what is rare, and <s> in front."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=520, special_tokens=special, limit_alphabet=90, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = state["added_tokens"][:3]  # bytes are pieces like others
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.pre_tokenizer = None  # it kept the pieces of different words apart
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def sentencepiece_gguf(**changes: Any) -> TokenizerSource:
    """The same vocabulary as lists: the earlier a piece was merged, the higher its score."""
    tokens = pieces(sentencepiece())
    source = TokenizerSource(
        kind="gguf",
        model="llama",
        tokens=tokens,
        scores=[-float(i) for i in range(len(tokens))],
        types=[2, 3, 3, *([6] * 256), *([1] * (len(tokens) - 259))],
        bos_id=1,
        eos_ids=(2,),
        unknown_id=0,
    )
    return replace(source, **changes)


def pieces(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def huggingface(tokenizer: Tokenizer, directory: Path, **changes: Any) -> TokenizerSource:
    """A tokenizer.json in `directory`."""
    path = directory / "tokenizer.json"
    tokenizer.save(str(path))
    return replace(TokenizerSource(kind="huggingface", path=path), **changes)
