"""Makes tests/goldens/rope.json: the rotary frequencies that transformers computes from configurations.

python tests/oracle/make_rope_goldens.py            # writes
python tests/oracle/make_rope_goldens.py --check    # compares with what is there
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

GOLDEN = Path(__file__).parents[1] / "goldens" / "rope.json"
HEAD_DIM, CONTEXT = 64, 131072
FACTORS = [1.0 + 0.25 * i for i in range(HEAD_DIM // 2)]

CASES = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    },
    "yarn, not truncated": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "yarn, mscale": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 32.0,
        "mscale": 0.707,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    },
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 5e5,
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": CONTEXT,
        "short_factor": FACTORS,
        "long_factor": FACTORS,
    },
}


def make(parameters: dict) -> dict:
    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        rope_parameters=dict(parameters),
    )
    inv_freq, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    return {"rope_parameters": parameters, "scale": float(scale), "inv_freq": inv_freq.tolist()}


def main() -> None:
    made = {name: make(parameters) for name, parameters in CASES.items()}
    if "--check" not in sys.argv:
        GOLDEN.write_text(json.dumps({"head_dim": HEAD_DIM, "context": CONTEXT, "cases": made}) + "\n")
        return
    stored = json.loads(GOLDEN.read_text())["cases"]
    for name, case in made.items():
        np.testing.assert_allclose(case["inv_freq"], stored[name]["inv_freq"], rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(case["scale"], stored[name]["scale"], rtol=1e-6, err_msg=name)


if __name__ == "__main__":
    main()
