"""Memory of pack: it does not grow with the checkpoint. The source has holes, so it takes no room itself."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from pyturbo.pack import verify
from tiny_configs import MODELS

HIDDEN, INNER, EXPERTS, VOCAB = 1024, 512, 128, 100_000

#: Peak of a process that packs, in kilobytes; Python and NumPy alone take about 60,000 of them.
LIMIT = 400_000


def write_sparse(folder: Path) -> Path:
    """A qwen3_moe in bfloat16 with one layer, all of whose values are zero."""
    model = MODELS["qwen3_moe"].config
    heads, kv_heads, dim = (
        model[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    config = model | {
        "hidden_size": HIDDEN,
        "moe_intermediate_size": INNER,
        "num_experts": EXPERTS,
        "num_hidden_layers": 1,
        "mlp_only_layers": [],
        "vocab_size": VOCAB,
        "tie_word_embeddings": True,
    }
    shapes = {
        "model.embed_tokens": (VOCAB, HIDDEN),
        "model.norm": (HIDDEN,),
        "model.layers.0.input_layernorm": (HIDDEN,),
        "model.layers.0.post_attention_layernorm": (HIDDEN,),
        "model.layers.0.self_attn.q_proj": (heads * dim, HIDDEN),
        "model.layers.0.self_attn.k_proj": (kv_heads * dim, HIDDEN),
        "model.layers.0.self_attn.v_proj": (kv_heads * dim, HIDDEN),
        "model.layers.0.self_attn.o_proj": (HIDDEN, heads * dim),
        "model.layers.0.self_attn.q_norm": (dim,),
        "model.layers.0.self_attn.k_norm": (dim,),
        "model.layers.0.mlp.gate": (EXPERTS, HIDDEN),
        "model.layers.0.mlp.switch_mlp.gate_proj": (EXPERTS, INNER, HIDDEN),
        "model.layers.0.mlp.switch_mlp.up_proj": (EXPERTS, INNER, HIDDEN),
        "model.layers.0.mlp.switch_mlp.down_proj": (EXPERTS, HIDDEN, INNER),
    }
    header, end = {"__metadata__": {"format": "mlx"}}, 0
    for path, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[f"{path}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        text = json.dumps(header).encode()
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return folder


#: On Linux, getrusage would count what the parent had in memory when it started the process.
PACKING = """
import pathlib, re, resource, sys
from pyturbo.pack import pack
done = pack(sys.argv[1], sys.argv[2], expert_bits=int(sys.argv[3]) or None)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.platform == "linux":
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]
print(done.record_bytes + done.resident_bytes, peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("bits", [0, 3])
def test_memory_does_not_grow_with_the_checkpoint(bits: int, tmp_path: Path) -> None:
    source, target = write_sparse(tmp_path / "source"), tmp_path / "packed"
    command = [sys.executable, "-c", PACKING, str(source), str(target), str(bits)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    nbytes, peak = map(int, done.stdout.split())
    assert nbytes > (250_000_000 if bits else 600_000_000)
    assert peak < LIMIT * (1 if sys.platform == "linux" else 1024)
    assert verify(target).ok
