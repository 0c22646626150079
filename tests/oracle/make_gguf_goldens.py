"""Makes tests/goldens/gguf_logits.npz: what llama.cpp computes from the files of tests/gguf_models.py.

    PYTHONPATH=tests python tests/oracle/make_gguf_goldens.py            # writes
    PYTHONPATH=tests python tests/oracle/make_gguf_goldens.py NAME ...   # writes some, and keeps the others
    PYTHONPATH=tests python tests/oracle/make_gguf_goldens.py --check    # compares with what is there

For each model ``<name>`` are logits [positions, vocab] and ``<name>_checksum`` is that of its tensors.
``positions`` are those of the tokens whose logits are kept. Weights and caches are float32.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np
from outputs import error

from gguf_models import GGUF_MODELS, GOLDEN, POSITIONS, GgufModel, gguf_tensors, write
from tiny_models import checksum

AGREEMENT = 1e-4  # of the standard deviation of the logits, between builds of llama.cpp


def forward(one: GgufModel) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write(one, Path(folder) / "model.gguf")
        llama = llama_cpp.Llama(
            str(path), n_ctx=128, logits_all=True, verbose=False, type_k=0, type_v=0, flash_attn=False
        )
        llama.eval(one.model.tokens().tolist())
        return np.array(llama.scores[list(POSITIONS)], np.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all)")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    made = {"positions": np.array(POSITIONS, np.int32)}
    for name, one in GGUF_MODELS.items():
        if one.golden and name in (arguments.names or GGUF_MODELS):
            made[name], made[f"{name}_checksum"] = forward(one), np.array(checksum(gguf_tensors(one)))
            print(f"{name:20} std {made[name].std():.2f}", flush=True)
    if not arguments.check:
        if arguments.names:
            with np.load(GOLDEN) as stored:
                made = dict(stored) | made
        np.savez_compressed(GOLDEN, **made)
        return
    problems = []
    with np.load(GOLDEN) as stored:
        for name, array in made.items():
            if name.endswith("_checksum") or name == "positions":
                same = np.array_equal(stored[name], array)
            else:
                same = error(stored[name], array) <= AGREEMENT
            if not same:
                problems.append(f"{name}: differs")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
