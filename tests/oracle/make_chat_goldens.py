"""Makes tests/goldens/chats.json: what transformers renders of the templates in tests/text/templates.py.

PYTHONPATH=tests python tests/oracle/make_chat_goldens.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from text.templates import CASES, NAMED_TOKENS, TEMPLATES

GOLDENS = Path(__file__).parents[1] / "goldens" / "chats.json"


def rendered() -> dict[str, str]:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **NAMED_TOKENS)
    return {
        name: tokenizer.apply_chat_template(
            messages,
            chat_template=TEMPLATES[template],
            tokenize=False,
            add_generation_prompt=generate,
            **variables,
        )
        for name, (template, messages, generate, variables) in CASES.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    made = rendered()
    if not parser.parse_args().check:
        GOLDENS.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return
    if made != json.loads(GOLDENS.read_text(encoding="utf-8")):
        sys.exit("chats: differ")


if __name__ == "__main__":
    main()
