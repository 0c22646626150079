"""Trains the tokenizer: byte-level BPE over the stories.

python tokenizer.py CORPUS OUT      # OUT/tokenizer.json and OUT/tokenizer_config.json
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
SPECIAL = [END, "<|im_start|>", "<|im_end|>"]
VOCAB = 4096
TRAINING = ("stories_generated_0", "tinystories_fragments", "pratham_storyweaver_en", "african_storybook_en")


def stories(corpus: Path, name: str) -> list[str]:
    """The stories of one file, without the line between them."""
    text = lzma.decompress((corpus / f"{name}.txt.xz").read_bytes()).decode()
    return [story for part in text.split(END) if (story := part.strip())]


def main() -> None:
    corpus, out = Path(sys.argv[1]), Path(sys.argv[2])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((s for name in TRAINING for s in stories(corpus, name)), trainer)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "add_bos_token": False}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
